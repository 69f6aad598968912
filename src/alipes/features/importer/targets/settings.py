"""Imported settings, MCP servers and keys, in config.toml and `.env`."""

import tomllib
from pathlib import Path
from typing import Any

from alipes.config import editor
from alipes.config.display import mask
from alipes.config.environment import parse_env, read_text
from alipes.config.reader import KeyPath, read_config
from alipes.config.toml_lines import split_key
from alipes.features.importer.formats import content_hash
from alipes.features.importer.plan import PlannedItem, State
from alipes.features.importer.records import FoundKey, FoundMcpServer, FoundSetting
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.store.people import ImportedPeople
from alipes.features.importer.targets.target import ImportContext, compare, describe_item
from alipes.features.mcp.settings import McpServerConfig, find_server_problem
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json
from alipes.kernel.turns import Address

WORKDIR = "workdir"
HOME_CHAT = "home_chat"
"""`PLATFORM.home_chat` is no setting here but a row: where messages to a platform go."""
_HAS_KEY = "it seems to contain a key: set it yourself, with the key in .env"
BEFORE = "_BEFORE_IMPORT"
"""The end of the variable that keeps a replaced key."""


class SettingValues:
    def __init__(self, context: ImportContext) -> None:
        self._context = context

    def _present(self, path: KeyPath) -> Json:
        """The value in config.toml; None if it is not set."""
        return find_value(read_config(self._context.home).tables, path)

    async def plan(self, record: FoundSetting, known: LedgerEntry | None) -> PlannedItem:
        what = f"{record.key} = {_shorten(record.value)}"
        if record.key.endswith(f".{HOME_CHAT}"):
            return await self._plan_home(record, known)
        if record.key == WORKDIR and not _is_folder(str(record.value)):
            why = "there is no such folder on this machine"
            return describe_item(record.source, "settings", what, "", "left out", why)
        if _has_key(record.value):
            return describe_item(record.source, "settings", what, "", "left out", _HAS_KEY)
        present = self._present(split_key(record.key) or ())
        here = "" if present is None else content_hash(present)
        state = compare(known, record.source.hash, here, content_hash(record.value))
        why = f"here it is {_shorten(present)}" if state == "conflict" else ""
        return describe_item(record.source, "settings", what, record.key, state, why)

    async def _plan_home(self, record: FoundSetting, known: LedgerEntry | None) -> PlannedItem:
        platform, chat = record.key.partition(".")[0], str(record.value)
        here = (await self._context.store.people.default_chats()).get(platform)
        state = compare(known, record.source.hash, here.chat if here else "", chat)
        why = f"here it is {here.chat}" if here and state == "conflict" else ""
        return describe_item(record.source, "settings", f"home chat on {platform}: {chat}", record.key, state, why)

    async def apply(self, record: FoundSetting, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, path = self._context, split_key(record.key) or ()
        if item.state == "conflict" and context.options.conflicts == "both":
            return "A setting has one value: it was kept."
        if record.key.endswith(f".{HOME_CHAT}"):
            address = Address(path[0], str(record.value))
            here = (await context.store.people.default_chats()).get(path[0])
            before = None if here is None else here.chat
            entry = context.entry(item, "made", record.key, address.chat, before=before)
            await context.store.tables(ImportedPeople).set_default_chat(address, entry)
            return ""
        return await self._write(record.key, path, record.value, item)

    async def _write(self, key: str, path: KeyPath, value: Json, item: PlannedItem) -> str:
        context = self._context
        assert context.journal is not None
        before = find_value(tomllib.loads(context.journal.read_before(context.settings.paths.config)), path)
        try:
            with context.journal.changing(context.settings.paths.config):
                editor.change({path: value}, home=context.home)
        except ConfigError as error:
            return str(error)
        action = "made" if before is None else "replaced"
        await context.ledger.add(context.entry(item, action, key, content_hash(self._present(path)), before=before))
        return ""

    async def check(self, entry: LedgerEntry) -> str:
        if entry.target.endswith(f".{HOME_CHAT}"):
            here = (await self._context.store.people.default_chats()).get(entry.target.partition(".")[0])
            return "" if here is not None and here.chat == entry.target_hash else "it was changed here"
        present = self._present(split_key(entry.target) or ())
        return "" if content_hash(present) == entry.target_hash else "it was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """config.toml as a whole was put back already, if nobody has changed it."""
        context, before = self._context, entry.details.get("before")
        if entry.target.endswith(f".{HOME_CHAT}"):
            if why := await self.check(entry):
                return why
            platform, rows = entry.target.partition(".")[0], context.store.tables(ImportedPeople)
            if before is None:
                await rows.remove_default_chat(platform)
            else:
                await context.store.people.set_default_chat(Address(platform, str(before)))
        elif not await self.check(entry):
            try:
                editor.change({split_key(entry.target) or (): before}, home=context.home)
            except ConfigError as error:
                return str(error)
        await context.ledger.remove(entry)
        return ""


class McpTables(SettingValues):
    """Each is a table `[mcp.servers.NAME]`, disabled."""

    async def plan(self, record: FoundMcpServer, known: LedgerEntry | None) -> PlannedItem:  # type: ignore[override]
        runs = str(record.config.get("command") or record.config.get("url") or "")
        what = f"{record.name}: {runs}"
        config = McpServerConfig(
            command=str(record.config.get("command") or ""), url=str(record.config.get("url") or "")
        )
        if problem := find_server_problem(record.name, config):
            return describe_item(record.source, "mcp", what, "", "left out", problem)
        path = ("mcp", "servers", record.name)
        present = self._present(path)
        here = "" if present is None else content_hash(present)
        state = compare(known, record.source.hash, here, content_hash(_disabled(record)))
        why = (
            "there is another server of this name here" if state == "conflict" else "stays disabled until you enable it"
        )
        return describe_item(record.source, "mcp", what, ".".join(path), state, why, sensitive=True)

    async def apply(self, record: FoundMcpServer, item: PlannedItem, _known: LedgerEntry | None) -> str:  # type: ignore[override]
        if item.state == "conflict" and self._context.options.conflicts == "both":
            return "There is another server of this name here: it was kept."
        return await self._write(item.target, ("mcp", "servers", record.name), _disabled(record), item)


class Keys:
    """Variables in `.env`. Values are compared, and shown nowhere."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context

    def _present(self, name: str) -> str:
        file = self._context.settings.paths.env
        found = parse_env(read_text(file) or "", file).get(name)
        return found.value if found is not None else ""

    async def plan(self, record: FoundKey, known: LedgerEntry | None) -> PlannedItem:
        present = self._present(record.name)
        state: State = "same" if present == record.value.reveal() else "conflict" if present else "new"
        why = "another key of this name is set here" if state == "conflict" else ""
        if known is not None and state != "same" and known.source_hash == record.source.hash:
            state, why = "same", "it was changed here"
        what = f"{record.name}{f' for {record.used_by}' if record.used_by else ''}"
        return describe_item(record.source, "keys", what, record.name, state, why, sensitive=True)

    async def apply(self, record: FoundKey, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, present = self._context, self._present(record.name)
        assert context.journal is not None
        name = record.name
        changes: dict[str, str | None] = {name: record.value.reveal()}
        if present and context.options.conflicts == "both":
            name = f"{name}_{context.program.upper().replace('-', '_')}"
            changes = {name: record.value.reveal()}
        elif present and present != record.value.reveal():
            changes[f"{name}{BEFORE}"] = present
        try:
            with context.journal.changing(context.settings.paths.env, keep=False):
                editor.change({}, changes, home=context.home)
        except ConfigError as error:
            return str(error)
        entry = context.entry(item, "replaced" if len(changes) > 1 else "made", name, item.hash)
        await context.ledger.add(entry)
        return ""

    async def check(self, entry: LedgerEntry) -> str:
        return "" if self._present(entry.target) else "it was removed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """`.env` as a whole was removed already, if the import made it and nobody has changed it."""
        context = self._context
        kept = self._present(f"{entry.target}{BEFORE}")
        changes = {entry.target: kept or None, **({f"{entry.target}{BEFORE}": None} if kept else {})}
        if not await self.check(entry):
            editor.change({}, changes, home=context.home)
        await context.ledger.remove(entry)
        return ""


def find_value(tables: Any, path: KeyPath) -> Json:
    """None if it is not set."""
    for name in path:
        tables = tables.get(name) if isinstance(tables, dict) else None
    found: Json = tables
    return found


def _has_key(value: Json) -> bool:
    """True if an address in it has a password or a key."""
    match value:
        case str():
            return "://" in value and mask(value) != value
        case dict():
            return any(map(_has_key, value.values()))
        case list():
            return any(map(_has_key, value))
    return False


def _is_folder(name: str) -> bool:
    return Path(name).expanduser().is_dir()


def _disabled(record: FoundMcpServer) -> dict[str, Json]:
    return {**record.config, "enabled": False}


def _shorten(value: Json) -> str:
    text = mask(str(value)) if "://" in str(value) else str(value)
    if isinstance(value, dict):
        text = ", ".join(f"{name} = {_shorten(each)}" for name, each in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(_shorten, value))
    return text if len(text) <= 60 else f"{text[:59]}…"
