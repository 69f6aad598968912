"""Imported entries of memory files, one by one, without doubles."""

from alipes.features.importer.plan import PlannedItem
from alipes.features.importer.records import MemoryEntry
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.targets.target import ImportContext, describe_item
from alipes.features.memory.change import OWNER, MemoryEdit, MemoryOrigin, MemoryTarget
from alipes.features.memory.entries import parse_entries
from alipes.features.memory.files import FILE_NAMES, MemoryFiles
from alipes.features.memory.memory import Memory, MemoryFull
from alipes.features.memory.store import MemoryStore
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import hash_text
from alipes.runtime.redaction import SecretRegistry

LEFT = "left"
"""The folder of an import for what did not fit."""


class MemoryEntries:
    def __init__(self, context: ImportContext) -> None:
        self._context, self._rows = context, context.store.tables(MemoryStore)
        paths = context.settings.paths
        self._files = MemoryFiles(paths.memory, paths.memory_lock)
        self._memory = Memory(context.settings.memory, self._files, self._rows, mask=SecretRegistry())
        self._planned: dict[MemoryTarget, list[str]] = {}

    async def plan(self, record: MemoryEntry, known: LedgerEntry | None) -> PlannedItem:
        target = _target(record)
        name = FILE_NAMES[target]
        present = self._planned.setdefault(target, await self._list(target))
        if known is not None or _plain(record.text) in present:
            return describe_item(record.source, "memory", record.text, name, "same")
        size = len("\n".join(present)) + len(record.text)
        present.append(_plain(record.text))
        full = "it may not fit; what does not is kept aside" if size > self._memory.limit(target) else ""
        return describe_item(record.source, "memory", record.text, name, "new", full)

    async def apply(self, record: MemoryEntry, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, target = self._context, _target(record)
        path, journal = self._files.path(OWNER, target), context.journal
        assert journal is not None
        try:
            with journal.changing(path):
                number = await self._add(target, record.text)
        except MemoryFull as full:
            aside = f"{LEFT}/{FILE_NAMES[target]}"
            journal.keep(aside, record.text)
            await context.ledger.add(context.entry(item, "made", aside, "", number=0, text=record.text))
            return f"{full.problem} It was kept in {aside} of this import."
        except ToolError as error:
            return str(error)
        entry = context.entry(item, "made", item.target, hash_text(record.text), number=number, text=record.text)
        await context.ledger.add(entry)
        return ""

    async def _add(self, target: MemoryTarget, text: str) -> int:
        """The number of the change, which an import that was broken off may have made already."""
        if _plain(text) not in await self._list(target):
            change = await self._memory.change(OWNER, MemoryEdit("add", target, text), MemoryOrigin("person"))
            return change.number
        for change in await self._memory.history(OWNER):
            before, after = (
                [_plain(each.text) for each in parse_entries(each)] for each in (change.before, change.after)
            )
            if _plain(text) in after and _plain(text) not in before:
                return change.number
        return 0

    async def _list(self, target: MemoryTarget) -> list[str]:
        return [_plain(entry.text) for entry in parse_entries(await self._memory.read(OWNER, target))]

    async def check(self, entry: LedgerEntry) -> str:
        if entry.target.startswith(LEFT):
            return ""
        present = await self._list(_target_of(entry))
        return "" if _plain(str(entry.details["text"])) in present else "the entry was changed or removed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """The file itself was put back already, if nobody has changed it."""
        text = str(entry.details["text"])
        if entry.target.startswith(LEFT):
            await self._context.ledger.remove(entry)
            return ""
        target = _target_of(entry)
        if _plain(text) in await self._list(target):
            await self._memory.change(OWNER, MemoryEdit("remove", target, old_text=text), MemoryOrigin("person"))
        else:
            await self._rows.forget(int(str(entry.details["number"])))
        await self._context.ledger.remove(entry)
        return ""


def _target(record: MemoryEntry) -> MemoryTarget:
    return "user" if record.about == "user" else "memory"


def _target_of(entry: LedgerEntry) -> MemoryTarget:
    return next(target for target, name in FILE_NAMES.items() if name == entry.target)


def _plain(text: str) -> str:
    return " ".join(text.split())
