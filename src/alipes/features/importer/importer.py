"""Plans an import, applies it, compares what was written, and takes it back."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from alipes.config.display import mask
from alipes.config.settings import Settings
from alipes.features.importer.formats import SourceError
from alipes.features.importer.journal import FileJournal
from alipes.features.importer.plan import Plan, PlannedItem
from alipes.features.importer.reader import HomeReader
from alipes.features.importer.records import KINDS, FoundKey, Kind, LeftOut, Record, RecordSource
from alipes.features.importer.store.ledger import LedgerEntry, LedgerStore
from alipes.features.importer.targets.conversations import Conversations, DailyNotes
from alipes.features.importer.targets.files import PersonaFile, PluginFolders
from alipes.features.importer.targets.memory import MemoryEntries
from alipes.features.importer.targets.people import People
from alipes.features.importer.targets.schedules import ScheduledJobs
from alipes.features.importer.targets.settings import Keys, McpTables, SettingValues
from alipes.features.importer.targets.skills import SkillFolders
from alipes.features.importer.targets.target import PENDING, ImportContext, ImportOptions, Target
from alipes.kernel.errors import AlipesError, ConfigError, StoreError
from alipes.plugins.discovery import inspect_folder
from alipes.plugins.install.code_check import check_code
from alipes.store.sql.store import Store

IMPORTS = "imports"
"""The folder in the home with a folder for each import."""
ONLY_WITH_SECRETS = "only with --secrets"
NOT_CHOSEN = "not chosen"
_TARGETS: dict[Kind, Callable[[ImportContext], Target]] = {
    "conversations": Conversations,
    "memory": MemoryEntries,
    "persona": PersonaFile,
    "notes": DailyNotes,
    "skills": SkillFolders,
    "schedules": ScheduledJobs,
    "people": People,
    "settings": SettingValues,
    "mcp": McpTables,
    "plugins": PluginFolders,
    "keys": Keys,
}
_AT_ONCE: tuple[Kind, ...] = ("conversations", "notes", "people")
"""Written together with their entry in the ledger."""
_CONTENT: tuple[Kind, ...] = ("conversations", "memory", "persona", "notes", "skills", "schedules", "people")
"""In names of the other kinds may be keys, as in `allow Bash(curl -H "Authorization: ...")`."""
Progress = Callable[[str, int, int], None]
"""Called with a kind, and how many of how many things are done; 0: unknown."""


class ItemResult(Struct, frozen=True):
    """What became of an item."""

    item: PlannedItem
    problem: str = ""
    """Why it was not imported, as a sentence; empty if it was."""


class ImportResult(Struct, frozen=True):
    id: str
    """Empty if there was nothing to do."""
    plan: Plan
    results: tuple[ItemResult, ...] = ()
    differences: tuple[str, ...] = ()
    """What was read back and differs, as lines; empty if all is as planned."""
    plugins: tuple[str, ...] = ()
    """What `alipes plugins doctor` says about imported plugins, as lines."""


class UndoResult(Struct, frozen=True):
    id: str
    removed: dict[str, int]
    kept: tuple[str, ...]
    """What was left as it is, and why, as lines."""


class Importer:
    """Imports one home. `kinds`: those that were chosen."""

    def __init__(
        self, settings: Settings, store: Store, reader: HomeReader, options: ImportOptions, kinds: Collection[Kind]
    ) -> None:
        self._reader, self._kinds = reader, kinds
        home = reader.home
        self._context = ImportContext(
            settings=settings,
            store=store,
            ledger=store.tables(LedgerStore),
            options=options,
            program=reader.program,
            title=reader.title,
            scope=f"{reader.program}:{home.path}",
            source=home,
        )

    async def plan(self, progress: Progress, *, secrets: bool) -> Plan:
        """Compare everything there with what is here. Nothing is written."""
        items: list[PlannedItem] = []
        for kind in KINDS:
            if kind in self._kinds:
                async for item in self._plan_kind(kind, secrets=secrets):
                    items.append(item)
                    progress(kind, len(items), 0)
        reader = self._reader
        warnings = tuple(filter(None, (reader.running(),)))
        return Plan(
            program=reader.program,
            title=reader.title,
            home=str(reader.home.path),
            part=reader.chosen,
            version=reader.version(),
            warnings=warnings,
            conflicts=self._context.options.conflicts,
            items=tuple(items),
        )

    async def _plan_kind(self, kind: Kind, *, secrets: bool) -> Any:
        known = await self._context.ledger.known(self._context.scope, kind)
        make = _TARGETS.get(kind)
        target = make(self._context) if make is not None else None
        seen: set[str] = set()
        for record in self._read(kind):
            await asyncio.sleep(0)
            source = record.source
            if isinstance(record, LeftOut):
                yield _left_out(record.kind, source, record.what, record.why)
            elif source.id in seen:
                yield _left_out(kind, source, source.id, "its id is there twice; the first one was taken")
            elif isinstance(record, FoundKey) and not secrets:
                yield structs.replace(_left_out(kind, source, record.name, ONLY_WITH_SECRETS), sensitive=True)
            elif target is not None:
                seen.add(source.id)
                yield await _plan_record(target, record, known.get(source.id))

    def _read(self, kind: Kind) -> Iterator[Record]:
        """What a kind has; a problem that ends it is one more thing that is left out."""
        try:
            yield from self._reader.records(kind)
        except SourceError as error:
            text = str(error)
            yield LeftOut(source=RecordSource("", f"{kind}:{text}", ""), kind=kind, what=kind, why=text)

    async def apply(self, plan: Plan, progress: Progress) -> ImportResult:
        """Do what the plan says; what changed there meanwhile is left for the next import."""
        if not plan.has_work:
            return ImportResult("", plan)
        folder = self._context.settings.home / IMPORTS
        taken = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        row = await self._context.ledger.begin(self._context.scope, plan.program, taken)
        journal = FileJournal(self._context.settings.home, folder / row.id)
        context = structs.replace(self._context, import_id=row.id, journal=journal)
        results: list[ItemResult] = []
        for kind in plan.sums():
            results += await self._apply_kind(context, kind, plan, progress)
        await context.ledger.settle()
        differences = [line async for line in self._compare(context)]
        await context.ledger.finish(row.id)
        if await context.ledger.drop_empty(row.id):
            return ImportResult("", plan, tuple(results))
        plugins = await asyncio.to_thread(_check_plugins, self._context.home, await context.ledger.of_import(row.id))
        return ImportResult(row.id, plan, tuple(results), tuple(differences), tuple(plugins))

    async def _apply_kind(self, context: ImportContext, kind: Kind, plan: Plan, progress: Progress) -> list[ItemResult]:
        items = {item.id: item for item in plan.items if item.kind == kind and _is_done(item, plan)}
        results: list[ItemResult] = []
        make = _TARGETS.get(kind)
        if not items or make is None:
            return results
        known, target, total = await context.ledger.known(context.scope, kind), make(context), len(items)
        for record in self._read(kind):
            item = None if isinstance(record, LeftOut) else items.pop(record.source.id, None)
            if item is None:
                continue
            await asyncio.sleep(0)
            if item.hash != record.source.hash:
                problem = "It changed there meanwhile: import again."
            else:
                problem = await _apply_record(context, target, record, item, known.get(item.id))
            results.append(ItemResult(item, problem))
            progress(kind, len(results), total)
        results += [ItemResult(item, "It is gone there.") for item in items.values()]
        return results

    async def _compare(self, context: ImportContext) -> Any:
        async for line in check_import(context, context.import_id):
            yield line


async def _plan_record(target: Target, record: Record, known: LedgerEntry | None) -> PlannedItem:
    """What was being written when an import was broken off is written again, so that the ledger has it."""
    if known is None or known.target_hash != PENDING:
        return await target.plan(record, known)
    item = await target.plan(record, None)
    return structs.replace(item, state="new") if item.state == "same" else item


async def _apply_record(
    context: ImportContext, target: Target, record: Record, item: PlannedItem, known: LedgerEntry | None
) -> str:
    """The problem; empty if there was none. The ledger knows of it before anything is written."""
    pending = context.entry(item, "made", item.target, PENDING)
    was_pending = known is not None and known.target_hash == PENDING
    if item.kind not in _AT_ONCE:
        await context.ledger.add(pending)
    try:
        problem = " ".join((await target.apply(record, item, None if was_pending else known)).split())
    except OSError as error:
        problem = f"It cannot be written: {error.strerror or error}."
    if item.kind not in _AT_ONCE:
        await context.ledger.drop_pending(pending)
    return problem


def _is_done(item: PlannedItem, plan: Plan) -> bool:
    return item.is_applied and not (item.state == "conflict" and plan.conflicts == "keep")


def _check_plugins(home: Path, entries: Iterable[LedgerEntry]) -> list[str]:
    """Problems of the code of imported plugins, which is not run."""
    lines = []
    for entry in entries:
        if entry.kind == "plugins" and (found := inspect_folder(home / entry.target)) is not None:
            checks = check_code(found, None, opened=False)
            problems = [f"{each.says} ({each.advice})" if each.advice else each.says for each in checks]
            lines += [f"{found.name}: {each}" for each in problems or ["no problems found in its code"]]
    return lines


def _left_out(kind: Kind, source: RecordSource, what: str, why: str) -> PlannedItem:
    id, shown = (source.id, what) if kind in _CONTENT else (mask(source.id), mask(what))
    return PlannedItem(kind=kind, id=id, source=source.file, what=shown, state="left out", why=why)


def make_context(settings: Settings, store: Store, import_id: str, scope: str = "") -> ImportContext:
    """For checking and undoing an import, without its home."""
    program = scope.partition(":")[0]
    journal = FileJournal(settings.home, settings.home / IMPORTS / import_id)
    return ImportContext(
        settings=settings,
        store=store,
        ledger=store.tables(LedgerStore),
        options=ImportOptions(),
        program=program,
        title=program,
        scope=scope,
        import_id=import_id,
        journal=journal,
    )


async def check_import(context: ImportContext, id: str) -> Any:
    """Compare everything that an import made with what is here now; yields a line for each difference."""
    targets = {kind: make(context) for kind, make in _TARGETS.items()}
    for entry in await context.ledger.of_import(id):
        await asyncio.sleep(0)
        pending = entry.target_hash == PENDING
        if why := "the import was broken off here" if pending else await targets[entry.kind].check(entry):
            yield f"{entry.kind}: {entry.target}: {why}"


async def undo_import(settings: Settings, store: Store, id: str) -> UndoResult:
    """Remove what the import made and nobody touched, and put back what it replaced. Raises ConfigError."""
    ledger = store.tables(LedgerStore)
    row = next((each for each in await ledger.list() if each.id == id), None)
    if row is None:
        known = ", ".join(each.id for each in await ledger.list()) or "none"
        raise ConfigError(f"There is no import {id!r} to undo. There is: {known}.")
    if later := await ledger.later(id):
        raise ConfigError(f"{', '.join(later)} continued what {id} imported: undo that first.")
    context = make_context(settings, store, id, row.scope)
    removed, kept = await _undo_entries(context, await ledger.of_import(id))
    if not kept:
        await ledger.remove_import(id)
    await ledger.settle()
    return UndoResult(id, removed, tuple(kept))


async def _undo_entries(context: ImportContext, entries: tuple[LedgerEntry, ...]) -> tuple[dict[str, int], list[str]]:
    """Files as a whole first, then one thing after the other, the last first."""
    assert context.journal is not None
    targets = {kind: make(context) for kind, make in _TARGETS.items()}
    changed = {entry.kind for entry in entries}
    untouched: dict[str, int] = {}
    kept = []
    _, files = await asyncio.to_thread(context.journal.restore)
    for entry in reversed(entries):
        if entry.target_hash == PENDING:
            await context.ledger.remove(entry)
            continue
        try:
            why = await targets[entry.kind].undo(entry)
        except StoreError:
            raise
        except AlipesError as error:
            why = str(error)
        if why:
            kept.append(f"{entry.kind}: {entry.target}: {why}")
        else:
            untouched[entry.kind] = untouched.get(entry.kind, 0) + 1
    if "skills" in changed or "plugins" in changed:
        kept += [f"file: {name}: it was changed here" for name in files if name.startswith(("skills/", "plugins/"))]
    return untouched, kept


def find_folder(settings: Settings, id: str) -> Path:
    return settings.home / IMPORTS / id
