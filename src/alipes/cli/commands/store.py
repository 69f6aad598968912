"""`alipes store`: shows where conversations are stored, and moves them to another store."""

import asyncio
from pathlib import Path

from alipes.config.editor import change
from alipes.config.extras import explain_missing
from alipes.config.loader import load_settings
from alipes.config.sections.cluster import DATABASE_URL, url_password, with_password, without_password
from alipes.config.settings import Settings
from alipes.config.urls import InvalidValue
from alipes.console import help_text
from alipes.console.common import print_json
from alipes.console.options import OptionParser
from alipes.kernel.errors import ConfigError, MissingExtra, StoreError
from alipes.kernel.formatting import format_count, format_size
from alipes.store.open import copy_to_postgres, copy_to_sqlite, inspect_home_server
from alipes.store.quick_reads import store_files
from alipes.store.sqlite.peers import open_processes

SQLITE = "sqlite"


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes store", help_text.STORE)
    args, words = parser.parse_with_words(argv)
    settings = load_settings()
    match words:
        case []:
            return _show(settings, json=args.json)
        case ["move", target]:
            return _move(settings, target, switch=args.switch)
    parser.error("use `alipes store` or `alipes store move TARGET`")
    return 2


def _show(settings: Settings, *, json: bool) -> int:
    path = store_files(settings.home)[0]
    facts: dict[str, object] = {"store": "postgresql" if settings.store else SQLITE}
    if settings.store:
        facts["address"] = without_password(settings.store)
        facts["direct"] = without_password(settings.store_direct or settings.store)
        facts |= _describe_server(settings)
    else:
        facts |= {"file": str(path), "bytes": path.stat().st_size if path.exists() else 0}
        facts["processes"] = len(open_processes(settings.home, timeout_s=1.0).list_peers())
    if json:
        print_json(facts)
    else:
        for name, value in facts.items():
            for each in value if isinstance(value, list) else [value]:
                print(f"{name:<10} {format_size(int(str(each))) if name == 'bytes' else each}")
    return 0


def _describe_server(settings: Settings) -> dict[str, object]:
    try:
        server = asyncio.run(inspect_home_server(settings))
    except StoreError as error:
        return {"problem": str(error)}
    return {
        "version": server.version,
        "schema": server.schema,
        "bytes": server.size,
        "sessions": server.sessions,
        "messages": server.messages,
        "workers": list(server.workers),
    }


def _move(settings: Settings, target: str, *, switch: bool) -> int:
    try:
        return _copy(settings, target, switch=switch)
    except ModuleNotFoundError as missing:
        raise MissingExtra(explain_missing("postgres"), "postgres") from missing


def _copy(settings: Settings, target: str, *, switch: bool) -> int:
    if living := open_processes(settings.home, timeout_s=1.0).list_peers():
        raise ConfigError(
            f"alipes is running on {settings.home} ({format_count(len(living), 'process')}); stop it first"
        )
    if "://" in target:
        if settings.store:
            raise ConfigError("this home uses PostgreSQL already; `alipes store move sqlite` moves it back")
        url = _checked(target)
        rows = copy_to_postgres(settings, with_password(url, settings.store_password.reveal()), _report)
        line, value = f'store = "{without_password(url)}"', without_password(url)
    else:
        if not settings.store:
            raise ConfigError("this home uses SQLite already; `alipes store move postgresql://...` moves it")
        rows = copy_to_sqlite(settings, None if target == SQLITE else Path(target).expanduser().absolute(), _report)
        line, value = 'store = ""', ""
    print(f"Copied {format_count(rows, 'row')}, and compared them.")
    _switch(settings, line, value, switch=switch and (target == SQLITE or "://" in target))
    return 0


def _checked(target: str) -> str:
    try:
        return str(DATABASE_URL.check(target))
    except InvalidValue as wrong:
        raise ConfigError(f"the target {wrong}.") from wrong


def _switch(settings: Settings, line: str, value: str, *, switch: bool) -> None:
    if switch:
        change({("store",): value}, {}, home=settings.home)
        print(f"  {settings.paths.config} has {line} now. The old store is unchanged.")
    else:
        print(f"  The old store is unchanged and still in use. To use the new one, set in {settings.paths.config}:")
        print(f"  {line}")
    if value and not url_password(value) and not settings.store_password.reveal():
        print(f"  The password, if it has one, belongs in {settings.paths.env}: {settings.store_password_env}=...")


def _report(table: str, rows: int) -> None:
    if rows:
        print(f"  {table}: {format_count(rows, 'row')}")
