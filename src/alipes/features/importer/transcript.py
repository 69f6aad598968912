"""Turns of ours from the messages of another program: every call answered, every result after its call."""

import hashlib
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from alipes.features.importer.records import PastConversation, PastMessage, PastUsage
from alipes.features.importer.store.conversations import ConversationRows, TurnRows
from alipes.kernel.messages import MODEL_IMAGE_TYPES, Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.turns import Address, Inbound, Said, Usage
from alipes.runtime.json_text import to_json_bytes
from alipes.store.sql import history

OWNER = "owner"
UNANSWERED = "No result was recorded in {}; it may have taken effect. Check before running it again."
SESSION_CHARS, TURN_CHARS = 12, 16


class RepairedTurn(Struct, frozen=True):
    messages: tuple[PastMessage, ...]

    @property
    def first(self) -> PastMessage:
        return self.messages[0]


def make_id(*parts: str, chars: int = SESSION_CHARS) -> str:
    """The same id for the same thing there, so that an import that was broken off continues with what it made."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:chars]


def hash_messages(messages: Iterable[PastMessage]) -> str:
    """To see whether a conversation that grew there only got longer."""
    digest = hashlib.sha256()
    for each in messages:
        digest.update(to_json_bytes((each.message, each.state)))
    return digest.hexdigest()[:32]


def count_visible(conversation: PastConversation) -> int:
    return sum(each.state != "undone" for each in conversation.messages)


def split_turns(messages: Iterable[PastMessage], program: str) -> Iterator[RepairedTurn]:
    """A message of a person starts a turn, and so does a change between shown, undone and compacted messages."""
    turn: list[PastMessage] = []
    for message in _repair(list(messages), program):
        if turn and (message.message.role == "user" or message.state != turn[-1].state):
            yield RepairedTurn(tuple(turn))
            turn = []
        turn.append(message)
    if turn:
        yield RepairedTurn(tuple(turn))


def _repair(messages: list[PastMessage], program: str) -> Iterator[PastMessage]:
    place = 0
    while place < len(messages):
        each = messages[place]
        place += 1
        if each.message.role == "tool":
            continue  # its call is not there
        message = _clean(each.message)
        if message is None:
            continue
        yield structs.replace(each, message=message)
        if not message.calls:
            continue
        results: dict[str, ToolResult] = {}
        at = each.at
        while place < len(messages) and messages[place].message.role == "tool":
            parts = messages[place].message.parts
            results |= {part.call_id: part for part in parts if isinstance(part, ToolResult)}
            at = messages[place].at or at
            place += 1
        found = tuple(
            structs.replace(results[call.id], images=_keep_images(results[call.id].images))
            if call.id in results
            else ToolResult(call.id, UNANSWERED.format(program), "unknown")
            for call in message.calls
        )
        yield PastMessage(Message("tool", found), at, state=each.state)


def _clean(message: Message) -> Message | None:
    """None if nothing is left of it."""
    parts: list[Part] = []
    calls: set[str] = set()
    for part in message.parts:
        match part:
            case ToolCall(id=id):
                if message.role == "assistant" and id and id not in calls:
                    calls.add(id)
                    parts.append(part)
            case Image(media_type=kind) if kind not in MODEL_IMAGE_TYPES:
                parts.append(Text(f"[picture of the type {kind[:40]}: not imported]"))
            case Text(text=""):
                continue
            case Thinking():
                if part.text and message.role == "assistant":
                    parts.append(Thinking(part.text))
            case ToolResult():
                continue
            case _:
                parts.append(part)
    if not any(not isinstance(part, Thinking) for part in parts):
        return Message("user", (Text("(empty message)"),)) if message.role == "user" else None
    return Message(message.role, tuple(parts))


def _keep_images(images: tuple[Image, ...]) -> tuple[Image, ...]:
    return tuple(image for image in images if image.media_type in MODEL_IMAGE_TYPES)


def build_rows(
    conversation: PastConversation, id: str, address: Address, program: str, *, skip: int = 0
) -> ConversationRows:
    """`skip`: so many of its messages are here already."""
    started = conversation.started or conversation.updated
    turns, at = [], started
    for number, turn in enumerate(split_turns(conversation.messages[skip:], program)):
        first = turn.first
        at = first.at or at
        turns.append(_build_turn(turn, (id, skip, number), address, at, conversation.workdir))
        at = max(at, *(each.at for each in turn.messages))
    updated = conversation.updated or at
    return ConversationRows(
        id=id,
        address=address,
        turns=tuple(turns),
        title=conversation.title[:500],
        created=started or at,
        updated=updated,
        model=conversation.model,
        workdir=conversation.workdir,
        archived=conversation.archived,
        summary=conversation.summary if not skip else "",
        usage=sum_usage(conversation) if not skip else (),
    )


def _build_turn(turn: RepairedTurn, place: tuple[str, int, int], address: Address, at: float, workdir: str) -> TurnRows:
    session, skip, number = place
    name, first = f"import:{session}:{skip}:{number}", turn.first
    is_said = first.message.role == "user"
    images = tuple(part for part in first.message.parts if isinstance(part, Image)) if is_said else ()
    inbound = Inbound(
        name,
        address,
        first.sender or OWNER,
        first.message.text if is_said else "",
        attachments=images,
        workdir=workdir,
        owner=not first.sender,
    )
    messages = tuple(
        (history.make_message_row(Said(each.message, model=each.model)), each.at or at) for each in turn.messages
    )
    state = first.state
    return TurnRows(make_id(name, chars=TURN_CHARS), inbound, messages, at, state == "undone", state == "compacted")


def sum_usage(conversation: PastConversation) -> tuple[PastUsage, ...]:
    """What the program recorded for the conversation; else the sums of its messages, by model."""
    if conversation.usage:
        return conversation.usage
    sums: dict[str, PastUsage] = {}
    for each in conversation.messages:
        if each.usage is not None:
            old = sums.get(each.model)
            usage = each.usage if old is None else _add(old.usage, each.usage)
            at = each.at or conversation.updated or conversation.started
            sums[each.model] = PastUsage(each.model, usage, at, calls=1 if old is None else old.calls + 1)
    return tuple(sums.values())


def _add(one: Usage, other: Usage) -> Usage:
    known = [cost for cost in (one.cost, other.cost) if cost is not None]
    return structs.replace(one + other, cost=sum(known) if known else None)
