"""Imported files: the persona, and plugins and hooks, which stay disabled."""

from collections.abc import Mapping
from pathlib import Path

from alipes.features.importer.formats import SourceError, content_hash
from alipes.features.importer.journal import replace_file
from alipes.features.importer.plan import PlannedItem
from alipes.features.importer.records import FoundFile, FoundPlugin, Persona
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.targets.target import ImportContext, compare, describe_item
from alipes.kernel.lazy import lazy_pattern

SOUL = "SOUL.md"
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class PersonaFile:
    def __init__(self, context: ImportContext) -> None:
        self._context, self._path = context, context.home / SOUL

    async def plan(self, record: Persona, known: LedgerEntry | None) -> PlannedItem:
        state = compare(known, record.source.hash, self._present(), _hash(record.text))
        why = "there is another persona here already" if state == "conflict" else ""
        what = f"{record.text[:80]} ({len(record.text):,} characters)"
        return describe_item(record.source, "persona", what, SOUL, state, why)

    def _present(self) -> str:
        text = self._path.read_bytes().decode("utf-8", "replace") if self._path.is_file() else ""
        return _hash(text) if text.strip() else ""

    async def apply(self, record: Persona, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, text = self._context, record.text.strip() + "\n"
        assert context.journal is not None
        if item.state == "conflict" and context.options.conflicts == "both":
            context.journal.keep(f"left/{SOUL}", text)
            return "Both are kept: theirs is in the folder `left` of this import."
        action = "replaced" if context.journal.existed(self._path) else "made"
        with context.journal.changing(self._path):
            replace_file(self._path, text.encode())
        await context.ledger.add(context.entry(item, action, SOUL, _hash(text)))
        return ""

    async def check(self, entry: LedgerEntry) -> str:
        return "" if self._present() == entry.target_hash else "it was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """The file was put back already, if nobody has changed it."""
        if self._present() == entry.target_hash:
            return "it could not be put back"
        await self._context.ledger.remove(entry)
        return ""


class PluginFolders:
    """Copies of plugins and hooks. Nothing in them is loaded before a person enables it."""

    def __init__(self, context: ImportContext) -> None:
        self._context, self._folder = context, context.home / "plugins"

    async def plan(self, record: FoundPlugin, known: LedgerEntry | None) -> PlannedItem:
        what, place = f"{record.what} {record.name}", self._folder / record.name
        if not _NAME.fullmatch(record.name):
            why = "its name cannot be that of a folder"
            return describe_item(record.source, "plugins", what, "", "left out", why, sensitive=True)
        state = compare(known, record.source.hash, hash_folder(place), hash_found(record.files))
        why = "there is another plugin of this name here" if state == "conflict" else "copied, stays disabled"
        return describe_item(record.source, "plugins", what, f"plugins/{record.name}", state, why, sensitive=True)

    async def apply(self, record: FoundPlugin, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, name = self._context, record.name
        assert context.journal is not None and context.source is not None
        action = "made"
        if context.journal.existed(self._folder / name):
            action = "replaced"
            if item.state == "conflict" and context.options.conflicts == "both":
                action, name = "made", f"{name}-{context.program}"
        try:
            files = {each.name: (context.source.read_bytes(each.path), each.executable) for each in record.files}
        except SourceError as error:
            return f"{error}."
        place = self._folder / name
        with context.journal.changing(place):
            write_files(place, files)
        await context.ledger.add(context.entry(item, action, f"plugins/{name}", hash_folder(place)))
        return ""

    async def check(self, entry: LedgerEntry) -> str:
        return "" if hash_folder(self._context.home / entry.target) == entry.target_hash else "it was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """Its files were put back already, if nobody has changed them."""
        if hash_folder(self._context.home / entry.target) == entry.target_hash and entry.action == "made":
            return "it could not be removed"
        await self._context.ledger.remove(entry)
        return ""


def write_files(place: Path, files: Mapping[str, tuple[bytes, bool]]) -> None:
    """Write all files of a folder, and remove others in it."""
    for name, (data, executable) in files.items():
        replace_file(place / name, data, 0o700 if executable else 0o600)
    for path in sorted(place.rglob("*"), reverse=True) if place.is_dir() else ():
        if path.is_file() and path.relative_to(place).as_posix() not in files:
            path.unlink()


def hash_found(files: tuple[FoundFile, ...]) -> str:
    return content_hash(sorted((each.name, each.hash) for each in files))


def hash_folder(place: Path) -> str:
    """As `hash_found`, of a folder here; empty if there is none."""
    if not place.is_dir():
        return ""
    paths = (path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return content_hash(sorted((path.relative_to(place).as_posix(), content_hash(path.read_bytes())) for path in paths))


def _hash(text: str) -> str:
    return content_hash(text.strip())
