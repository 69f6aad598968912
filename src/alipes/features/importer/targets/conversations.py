"""Imported conversations: new ones, those that grew there, and branches of those that grew on both sides."""

from msgspec import structs

from alipes.features.importer.formats import read_time
from alipes.features.importer.plan import PlannedItem, State
from alipes.features.importer.records import DailyNote, PastConversation, PastMessage
from alipes.features.importer.store.conversations import ConversationStore, hash_state
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.targets.target import ImportContext, describe_item
from alipes.features.importer.transcript import build_rows, hash_messages, make_id, split_turns
from alipes.kernel.formatting import format_count, format_excerpt
from alipes.kernel.messages import user
from alipes.kernel.turns import Address

TERMINAL = "terminal"
GREW_ON_BOTH_SIDES = "it also went on here, so their version becomes a branch"


class Conversations:
    def __init__(self, context: ImportContext) -> None:
        self._context, self._store = context, context.store.tables(ConversationStore)

    async def plan(self, record: PastConversation, known: LedgerEntry | None) -> PlannedItem:
        state, why = await self._compare(record, known)
        notes = [why] if why else []
        if state == "new" and record.chat is not None and await self._keeps_seat(record.chat):
            notes.append("its chat already has a conversation here and keeps that")
        item = describe_item(
            record.source, "conversations", _name(record), self._id(record), state, "; ".join([*notes, *record.notes])
        )
        return structs.replace(item, messages=len(record.messages))

    async def _compare(self, record: PastConversation, known: LedgerEntry | None) -> tuple[State, str]:
        if known is not None and known.source_hash == record.source.hash:
            return "same", ""
        last = max(record.updated, record.started)
        if known is None and last and last < self._context.options.since:
            return "left out", "older than --since"
        if next(split_turns(record.messages, self._context.title), None) is None:
            return "left out", "it has no messages"
        if known is None:
            return "new", ""
        state = await self._store.state(known.target)
        if state is None:
            return "left out", "it was deleted here"
        if not self._grew_only(record, known) or hash_state(state) != known.target_hash:
            return "newer", GREW_ON_BOTH_SIDES
        return "newer", "it went on there"

    def _grew_only(self, record: PastConversation, known: LedgerEntry) -> bool:
        """Its first messages are those that were imported, and more follow."""
        count = int(str(known.details.get("messages", 0)))
        return (
            0 < count < len(record.messages)
            and hash_messages(record.messages[:count]) == known.details.get("messages_hash")
            and record.messages[count].message.role == "user"
        )

    async def apply(self, record: PastConversation, item: PlannedItem, known: LedgerEntry | None) -> str:
        context = self._context
        facts = {"messages": len(record.messages), "messages_hash": hash_messages(record.messages)}
        if known is None:
            await self._insert(record, item, self._id(record), facts)
            return ""
        state = await self._store.state(known.target)
        if state is None:
            return "It was deleted here."
        if not self._grew_only(record, known) or hash_state(state) != known.target_hash:
            new = make_id(context.scope, record.source.id, record.source.hash)
            branch = structs.replace(record, chat=None, title=_branch_title(record))
            await self._insert(branch, item, new, facts, parent=known.target)
            return ""
        count = int(str(known.details["messages"]))
        address = self._address(record, known.target)
        rows = build_rows(record, known.target, address, context.title, skip=count)
        updated = await self._store.updated(known.target)
        await self._store.append(rows, context.entry(item, "continued", known.target, "", **facts, updated=updated))
        return ""

    async def _insert(
        self, record: PastConversation, item: PlannedItem, id: str, facts: dict[str, object], parent: str = ""
    ) -> None:
        context = self._context
        rows = build_rows(record, id, self._address(record, id), context.title)
        parent = parent or (make_id(context.scope, record.parent) if record.parent else "")
        seat = record.chat is None or not await self._keeps_seat(record.chat)
        rows = structs.replace(rows, parent=parent, takes_seat=seat)
        await self._store.insert(rows, context.entry(item, "made", id, "", **facts))

    async def _keeps_seat(self, chat: Address) -> bool:
        return self._context.options.conflicts != "replace" and bool(await self._store.active(chat.key))

    def _id(self, record: PastConversation) -> str:
        return make_id(self._context.scope, record.source.id)

    def _address(self, record: PastConversation, id: str) -> Address:
        return record.chat or Address(TERMINAL, id)

    async def check(self, entry: LedgerEntry) -> str:
        state = await self._store.state(entry.target)
        if state is None:
            return "it was deleted here"
        first, count = int(str(entry.details["first_turn"])), int(str(entry.details["count"]))
        if await self._store.hash_content(entry.target, first, count) != entry.details["content"]:
            return "its messages differ from those that were imported"
        return "" if hash_state(state) == entry.target_hash else "it went on or was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        if why := await self.check(entry):
            return why
        if await self._store.has_branches(entry.target):
            return "it has branches"
        await self._store.remove(entry)
        return ""


class DailyNotes:
    """A day of notes is a conversation of that day, so that search finds it."""

    def __init__(self, context: ImportContext) -> None:
        self._conversations = Conversations(context)

    def _as_conversation(self, record: DailyNote) -> PastConversation:
        at = read_time(f"{record.day}T12:00:00+00:00")
        message = PastMessage(user(record.text), at)
        title = f"Notes of {record.day}"
        return PastConversation(
            source=record.source, messages=(message,), title=title, started=at, updated=at, archived=True
        )

    async def plan(self, record: DailyNote, known: LedgerEntry | None) -> PlannedItem:
        item = await self._conversations.plan(self._as_conversation(record), known)
        return structs.replace(item, kind="notes", what=f"notes of {record.day}")

    async def apply(self, record: DailyNote, item: PlannedItem, known: LedgerEntry | None) -> str:
        return await self._conversations.apply(self._as_conversation(record), item, known)

    async def check(self, entry: LedgerEntry) -> str:
        return await self._conversations.check(entry)

    async def undo(self, entry: LedgerEntry) -> str:
        return await self._conversations.undo(entry)


def _name(record: PastConversation) -> str:
    first = next((each.message.text for each in record.messages if each.message.role == "user"), "")
    title = record.title or format_excerpt(first, 60)[1:-1] or record.source.id
    return f"{title} ({format_count(len(record.messages), 'message')})"


def _branch_title(record: PastConversation) -> str:
    return f"{record.title or record.source.id} (as it went on there)"
