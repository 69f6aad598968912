"""What `alipes doctor` reports about homes of other programs."""

from pathlib import Path

from alipes.config.paths import current_environ
from alipes.config.settings import Settings
from alipes.features.importer.reader import READERS, find_home, load_reader
from alipes.features.importer.store.ledger import LedgerStore
from alipes.kernel.checks import CheckResult
from alipes.store.sql.store import Store


async def check(_settings: Settings, store: Store | None) -> tuple[CheckResult, ...]:
    imports = await store.tables(LedgerStore).list() if store is not None else ()
    found = []
    for program in READERS:
        home = find_home(program, current_environ(), Path.home())
        if home is None:
            continue
        mine = [each for each in imports if each.scope.startswith(f"{program}:{home.resolve()}")]
        title = load_reader(program).title
        if any(each.finished is None for each in mine):
            advice = f"run `alipes import {program}` again to continue it"
            found.append(CheckResult("import", "note", f"the import from {title} was broken off", advice))
        elif not mine:
            advice = f"`alipes import {program} --dry-run` shows what can be brought over"
            found.append(CheckResult("import", "note", f"{title} has a home at {home}", advice))
    return tuple(found)
