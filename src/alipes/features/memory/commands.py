"""`/memory`: the notes that are kept from one conversation to the next: lists, changes, undoes and decides.

`alipes memory` does the same in a shell.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct, structs

from alipes.features.memory.change import OWNER, MemoryChange, MemoryEdit, MemoryOrigin, MemoryTarget, memory_scope
from alipes.features.memory.entries import Entry, format_diff, parse_entries
from alipes.features.memory.feature import MemoryFeature
from alipes.features.memory.files import FILE_NAMES
from alipes.features.memory.memory import MemoryFull, describe_change
from alipes.features.memory.service import MemoryService, decode_edit
from alipes.kernel.approvals import reveal
from alipes.kernel.formatting import format_ago, format_count, join_names
from alipes.sessions.commands.context import CommandContext, CommandReply, parse_count
from alipes.sessions.commands.registry import Command
from alipes.store.sql.proposals import Proposal

USAGE = (
    "Usage: {} [history | diff [N] | undo [N] | add [user] TEXT | edit N TEXT | merge N M TEXT | "
    "remove N | "
    "pending | accept ID [TEXT] | reject ID]"
)
NOT_HERE = "There is no memory here."
BY_MAIL = "The sender of a mail is not certain, so notes cannot be changed by mail. Use another messenger."
MAIL = "email"
MAX_NUMBER = 1_000_000_000
MAX_ENTRIES = 10_000
_AUTHORS = {"agent": "by the agent", "person": "by you", "file": "by hand", "learning": "learned"}


class _Place(Struct, frozen=True):
    service: MemoryService
    scope: str
    """Whose notes are meant."""
    origin: MemoryOrigin
    """Who changes them."""
    command: str
    """How the command is called here."""

    def refuse(self) -> CommandReply:
        return CommandReply(USAGE.format(self.command), failed=True)

    def refuse_number(self, text: str) -> CommandReply:
        return CommandReply(f"There is no note {reveal(text)}. `{self.command}` lists them with numbers.", failed=True)


async def memory(context: CommandContext, args: str, command: str = "/memory") -> CommandReply:
    """`command`: how it is called here."""
    service, scope = context.features.get(MemoryFeature).service, memory_scope(context.inbound)
    if scope is None:
        return CommandReply(NOT_HERE, failed=True)
    action, _, rest = args.strip().partition(" ")
    place = _Place(service, scope, MemoryOrigin("person"), command)
    if action in ("", "list"):
        return await _list(context, place)
    if action in _READERS:
        return await _READERS[action](place, rest.strip())
    if action not in _WRITERS:
        return place.refuse()
    if context.inbound.address.platform == MAIL:
        return CommandReply(BY_MAIL, failed=True)
    standing = await context.store.sessions.active(context.key)
    origin = MemoryOrigin("person", standing.session if standing is not None else "")
    try:
        return await _WRITERS[action](structs.replace(place, origin=origin), rest.strip())
    except MemoryFull as error:
        return CommandReply(await _describe_full(place, error), failed=True)


async def _list(context: CommandContext, place: _Place) -> CommandReply:
    service, scope = place.service, place.scope
    lines, number = list[str](), 0
    for target, name in FILE_NAMES.items():
        text = await service.memory.read(scope, target)
        where = f"  {service.memory.files.path(scope, target)}" if context.local_files and scope == OWNER else ""
        limit = service.memory.limit(target)
        lines.append(f"{name} ({len(text):,} of {limit:,} characters){where}")
        lines += [f"  The prompt has only the first {limit:,} characters: shorten it."] if len(text) > limit else []
        entries = parse_entries(text)
        lines += [f"{number + each:3}. {_indent(entry)}" for each, entry in enumerate(entries, 1)] or ["  (empty)"]
        number += len(entries)
    if waiting := await service.proposals.list_pending(scope, "memory"):
        lines.append(f"{format_count(len(waiting), 'proposal')} waiting: {place.command} pending")
    if scope.startswith("chats/"):
        lines.append("These notes belong to this group; all of its members can see them.")
    if off := service.why_unavailable():
        lines.append(off)
    return CommandReply("\n".join([*lines, f"New conversations see changes. {USAGE.format(place.command)}"]))


async def _history(place: _Place, _rest: str) -> CommandReply:
    service, scope = place.service, place.scope
    changes = await service.memory.history(scope)
    if not changes:
        return CommandReply("No changes yet.")
    lines = [f"{each.number}  {format_ago(each.created)}  {_describe(each)}" for each in changes]
    return CommandReply("\n".join([*lines, f"{place.command} diff N shows one, {place.command} undo N takes it back."]))


async def _diff(place: _Place, rest: str) -> CommandReply:
    service, scope = place.service, place.scope
    if not rest:
        latest = await service.memory.history(scope, 1)
        if not latest:
            return CommandReply("No changes yet.")
        change = latest[0]
    elif (number := parse_count(rest, MAX_NUMBER)) is None:
        return place.refuse()
    else:
        change = await service.memory.find_change(scope, number)
    return CommandReply(reveal(format_diff(change.before, change.after, FILE_NAMES[change.target])), diff=True)


async def _undo(place: _Place, rest: str) -> CommandReply:
    service, scope, origin = place.service, place.scope, place.origin
    number = parse_count(rest, MAX_NUMBER) if rest else 0
    if number is None:
        return place.refuse()
    change = await service.memory.undo(scope, number, origin)
    return CommandReply(f"Undone. {describe_change(change)}")


async def _add(place: _Place, rest: str) -> CommandReply:
    target: MemoryTarget = "memory"
    first, _, more = rest.partition(" ")
    if first == "user":
        target, rest = "user", more.strip()
    if not rest:
        return place.refuse()
    return await _change(place, MemoryEdit("add", target, rest))


async def _edit(place: _Place, rest: str) -> CommandReply:
    number, _, text = rest.partition(" ")
    if not text.strip():
        return place.refuse()
    if (found := await _find_entry(place, number)) is None:
        return place.refuse_number(number)
    return await _change(place, MemoryEdit("replace", found[0], text.strip(), found[1].text))


async def _merge(place: _Place, rest: str) -> CommandReply:
    """Two notes of a file become one."""
    words = rest.split(maxsplit=2)
    if len(words) < 3:
        return place.refuse()
    found = [await _find_entry(place, number) for number in words[:2]]
    for number, entry in zip(words, found, strict=False):
        if entry is None:
            return place.refuse_number(number)
    one, two = (each for each in found if each is not None)
    if one[0] != two[0] or one[1] == two[1]:
        return CommandReply("Only two different notes of the same file can be merged.", failed=True)
    entries = one[1].text, two[1].text
    merged = await place.service.memory.merge(place.scope, one[0], entries, words[2].strip(), place.origin)
    return CommandReply(f"Merged. {describe_change(merged)}")


async def _remove(place: _Place, rest: str) -> CommandReply:
    if not rest:
        return place.refuse()
    if (found := await _find_entry(place, rest)) is None:
        return place.refuse_number(rest)
    return await _change(place, MemoryEdit("remove", found[0], old_text=found[1].text))


async def _pending(place: _Place, _rest: str) -> CommandReply:
    service, scope = place.service, place.scope
    waiting = await service.proposals.list_pending(scope, "memory")
    if not waiting:
        return CommandReply("No proposals are waiting.")
    shown = [_describe_proposal(each) for each in waiting]
    return CommandReply(
        "\n".join([*shown, f"{place.command} accept ID saves one, {place.command} reject ID discards it."])
    )


async def _accept(place: _Place, rest: str) -> CommandReply:
    service, scope, origin = place.service, place.scope, place.origin
    id, _, text = rest.partition(" ")
    if not id:
        return place.refuse()
    proposal = await service.proposals.find_pending(scope, id)
    edit = decode_edit(proposal)
    edit = structs.replace(edit, content=text.strip()) if text.strip() else edit
    change = await service.accept(proposal, edit, origin)
    if change is None:
        return CommandReply("That proposal was decided already.", failed=True)
    return CommandReply(f"Saved. {describe_change(change)}")


async def _reject(place: _Place, rest: str) -> CommandReply:
    if not rest:
        return place.refuse()
    service, scope = place.service, place.scope
    proposal = await service.proposals.find_pending(scope, rest)
    if not await service.proposals.decide(proposal.id, "rejected", "person"):
        return CommandReply("That proposal was decided already.", failed=True)
    return CommandReply("Rejected; nothing was saved.")


async def _change(place: _Place, edit: MemoryEdit) -> CommandReply:
    service, scope, origin = place.service, place.scope, place.origin
    change = await service.memory.change(scope, edit, origin)
    return CommandReply(f"Saved. {describe_change(change)}")


async def _describe_full(place: _Place, full: MemoryFull) -> str:
    """What does not fit, and the numbers of notes that could be merged."""
    command, texts = place.command, [entry.text for _, entry in await _list_entries(place)]
    similar = [(texts.index(one) + 1, texts.index(two) + 1) for one, two in full.pairs if one in texts and two in texts]
    offer = [f"Similar notes: {', '.join(f'{one} and {two}' for one, two in similar)}."] if similar else []
    how = f"{command} merge N M TEXT makes one note of two, {command} remove N removes one; or ask me to merge them."
    return "\n".join([full.problem, *offer, how])


async def _list_entries(place: _Place) -> list[tuple[MemoryTarget, Entry]]:
    """The entries of both files, in the order of their numbers."""
    read = place.service.memory.read
    return [(target, entry) for target in FILE_NAMES for entry in parse_entries(await read(place.scope, target))]


async def _find_entry(place: _Place, text: str) -> tuple[MemoryTarget, Entry] | None:
    """The entry with this number in the list of both files."""
    number, found = parse_count(text.rstrip("."), MAX_ENTRIES), await _list_entries(place)
    return found[number - 1] if number is not None and number <= len(found) else None


def _describe(change: MemoryChange) -> str:
    undone = f" (undone by {change.undone_by})" if change.undone_by is not None else ""
    where = f" in {change.origin.session[:6]}" if change.origin.session else ""
    read = f", after reading {join_names(change.origin.sources[:2])}" if change.origin.sources else ""
    what = f"undo: {describe_change(change)}" if change.action == "undo" else describe_change(change)
    return reveal(f"{what}  [{_AUTHORS[change.origin.author]}{where}{read}]{undone}")


def _describe_proposal(proposal: Proposal) -> str:
    edit = decode_edit(proposal)
    what = {"add": "add", "replace": f"replace “{edit.old_text}” by", "remove": f"remove “{edit.old_text}”"}
    where = f"from conversation {proposal.session[:6]}, turn {proposal.turn[:6]}, {format_ago(proposal.created)}"
    text = f"{proposal.id}  {FILE_NAMES[edit.target]}: {what[edit.action]} {edit.content}".rstrip()
    return reveal(f"{text}\n    {proposal.reason}; {where}")


def _indent(entry: Entry) -> str:
    return reveal(entry.text).replace("\n", "\n     ")


_READERS: dict[str, Callable[[_Place, str], Awaitable[CommandReply]]] = {
    "history": _history,
    "diff": _diff,
    "pending": _pending,
}
_WRITERS: dict[str, Callable[[_Place, str], Awaitable[CommandReply]]] = {
    "undo": _undo,
    "add": _add,
    "edit": _edit,
    "merge": _merge,
    "remove": _remove,
    "accept": _accept,
    "reject": _reject,
}
COMMANDS = (
    Command(
        "memory",
        "[history | diff N | undo N | add TEXT | edit N TEXT | remove N | pending]",
        "show the notes of earlier conversations; change them or take a change back",
        memory,
        group="Memory",
        place=1,
    ),
)
