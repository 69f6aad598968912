"""Imported files: the persona, and plugins and hooks, which stay disabled."""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from alipes.config import editor
from alipes.config.reader import KeyPath, read_config
from alipes.features.importer.formats import SourceError, content_hash, plain_text, read_yaml
from alipes.features.importer.journal import replace_file
from alipes.features.importer.plan import PlannedItem
from alipes.features.importer.records import FoundFile, FoundPlugin, Persona
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.targets.target import ImportContext, compare, describe_item
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json
from alipes.plugins.discovery import is_plugin_name

SOUL = "SOUL.md"
PLUGINS, HOOKS = "plugins", "hooks"
_DISABLED: KeyPath = ("plugins", "disabled")
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class PersonaFile:
    def __init__(self, context: ImportContext) -> None:
        self._context, self._path = context, context.home / SOUL

    async def plan(self, record: Persona, known: LedgerEntry | None) -> PlannedItem:
        state = compare(known, record.source.hash, self._present(), _hash(record.text))
        why = "there is another persona here already" if state == "conflict" else ""
        what = f"{format_excerpt(record.text, 60)[1:-1]} ({len(record.text):,} characters)"
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
    """Copies of plugins and hooks. Nothing in them is loaded before a person enables it: a hook, which is enabled by
    being there, gets into `plugins.disabled` first."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context

    async def plan(self, record: FoundPlugin, known: LedgerEntry | None) -> PlannedItem:
        what, target = f"{record.what} {record.name}", f"{_folder_of(record)}/{record.name}"
        place = self._context.home / target
        if not _NAME.fullmatch(record.name):
            why = "its name cannot be that of a folder"
            return describe_item(record.source, "plugins", what, "", "left out", why, sensitive=True)
        state = compare(known, record.source.hash, hash_folder(place), hash_found(record.files))
        why = f"there is another {record.what} of this name here" if state == "conflict" else "copied, stays disabled"
        return describe_item(record.source, "plugins", what, target, state, why, sensitive=True)

    async def apply(self, record: FoundPlugin, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, target = self._context, f"{_folder_of(record)}/{record.name}"
        assert context.journal is not None and context.source is not None
        action = "made"
        if context.journal.existed(context.home / target):
            action = "replaced"
            if item.state == "conflict" and context.options.conflicts == "both":
                if record.what == "hook":
                    return "There is another hook of this name here: it was kept."
                action, target = "made", f"{target}-{context.program}"
        try:
            files = {each.name: (context.source.read_bytes(each.path), each.executable) for each in record.files}
        except SourceError as error:
            return f"{error}."
        details = {}
        if record.what == "hook":
            try:
                details = self._disable(_name_hook(record.name, files))
            except ConfigError as error:
                return str(error)
        place = context.home / target
        with context.journal.changing(place):
            write_files(place, files)
        await context.ledger.add(context.entry(item, action, target, hash_folder(place), **details))
        return ""

    def _disable(self, name: str) -> dict[str, str]:
        """Add it to `plugins.disabled`; returns what undo needs. Raises ConfigError."""
        context = self._context
        assert context.journal is not None
        file = context.settings.paths.config
        names = _list_disabled(read_config(context.home).tables)
        if name not in names:
            with context.journal.changing(file):
                editor.change({_DISABLED: [*names, name]}, home=context.home)
        before = _list_disabled(tomllib.loads(context.journal.read_before(file)))
        return {} if name in before else {"disabled": name}

    async def check(self, entry: LedgerEntry) -> str:
        return "" if hash_folder(self._context.home / entry.target) == entry.target_hash else "it was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """Its files were put back already, if nobody has changed them."""
        context, name = self._context, entry.details.get("disabled")
        present = hash_folder(context.home / entry.target)
        if present == entry.target_hash and entry.action == "made":
            return "it could not be removed"
        names = _list_disabled(read_config(context.home).tables)
        if name in names and not present:  # one that was changed here stays, and stays disabled
            with suppress(ConfigError):
                left: list[Json] = [each for each in names if each != name]
                editor.change({_DISABLED: left or None}, home=context.home)
        await context.ledger.remove(entry)
        return ""


def _folder_of(record: FoundPlugin) -> str:
    return HOOKS if record.what == "hook" else PLUGINS


def _name_hook(folder: str, files: Mapping[str, tuple[bytes, bool]]) -> str:
    """The name by which a hook is enabled and disabled."""
    found = next((each for each in ("HOOK.yaml", "HOOK.yml") if each in files), "")
    if found:
        with suppress(SourceError):
            said = read_yaml(plain_text(files[found][0]), found)
            name = plain_text(said.get("name")).strip() if isinstance(said, dict) else ""
            return name if is_plugin_name(name) else folder
    return folder


def _list_disabled(tables: Mapping[str, Any]) -> list[str]:
    section = tables.get(_DISABLED[0])
    names = section.get(_DISABLED[1]) if isinstance(section, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


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
