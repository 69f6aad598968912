"""Makes a conversation of messages that a reader found."""

from collections.abc import Iterable, Sequence

from msgspec import structs

from alipes.features.importer.formats import content_hash
from alipes.features.importer.records import PastConversation, PastMessage, PastUsage, RecordSource
from alipes.kernel.messages import Message, ToolResult, notice
from alipes.kernel.turns import Usage


def build_conversation(
    file: str, name: str, messages: Sequence[PastMessage], extra: Sequence[PastUsage] = (), **more: object
) -> PastConversation:
    """`name`: the program's id of it. `extra`: usage of calls that made no message. `more`: the other fields."""
    ordered = order_results(messages)
    times = [each.at for each in ordered if each.at]
    found = PastConversation(
        source=RecordSource(file, name, ""),
        messages=ordered,
        started=min(times, default=0.0),
        updated=max(times, default=0.0),
        usage=(*sum_usage(ordered), *extra) if extra else (),
    )
    named = structs.replace(found, **{field: value for field, value in more.items() if value})
    if named.summary and not any(each.state == "compacted" for each in ordered):
        first = PastMessage(notice(f"What was said before, in short: {named.summary}"), named.started, "summary")
        named = structs.replace(named, messages=(first, *ordered), summary="")
    digest = content_hash(named.title, named.archived, named.summary, *named.messages)
    return structs.replace(named, source=RecordSource(file, name, digest))


def order_results(messages: Iterable[PastMessage]) -> tuple[PastMessage, ...]:
    """Each result right after the message with its call, also if something was said in between."""
    ordered: list[list[PastMessage]] = []
    places: dict[str, int] = {}
    for each in messages:
        results = [part for part in each.message.parts if isinstance(part, ToolResult)]
        place = places.get(results[0].call_id) if results else None
        if place is None:
            ordered.append([each])
        else:
            ordered[place].append(each)
        places.update((call.id, len(ordered) - 1) for call in each.message.calls)
    return tuple(each for group in ordered for each in group)


def merge(one: PastMessage, other: PastMessage) -> PastMessage:
    """Two messages that are parts of one answer."""
    parts = (*one.message.parts, *other.message.parts)
    return structs.replace(one, message=Message(one.message.role, parts), usage=one.usage or other.usage)


def sum_usage(messages: Iterable[PastMessage]) -> tuple[PastUsage, ...]:
    """By model."""
    sums: dict[str, PastUsage] = {}
    for each in messages:
        if each.usage is not None:
            old = sums.get(each.model) or PastUsage(each.model, Usage(), each.at, calls=0)
            cost = _add_costs(old.usage.cost, each.usage.cost)
            usage = structs.replace(old.usage + each.usage, cost=cost)
            sums[each.model] = PastUsage(each.model, usage, each.at or old.at, calls=old.calls + 1)
    return tuple(sums.values())


def _add_costs(one: float | None, other: float | None) -> float | None:
    known = [cost for cost in (one, other) if cost is not None]
    return sum(known) if known else None
