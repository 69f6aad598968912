"""Checks of a PostgreSQL store, for `alipes doctor`."""

import os
from collections.abc import Iterator

from alipes.config.sections.cluster import without_password
from alipes.config.settings import Settings
from alipes.kernel.checks import CheckResult
from alipes.kernel.errors import ConfigError, StoreError
from alipes.kernel.formatting import format_count, format_size
from alipes.store.open import inspect_home_server
from alipes.store.ports.cluster import ServerFacts

MAX_CLOCK_DIFFERENCE_S = 1.0


async def check_server(settings: Settings) -> list[CheckResult]:
    """Check the connection, the server and the workers; becomes no worker itself and creates nothing."""
    where = without_password(settings.store)
    try:
        facts = await inspect_home_server(settings)
    except ConfigError as error:
        return [CheckResult("database", "wrong", str(error))]
    except StoreError as error:
        advice = "check `store`, `store_direct`, the network and pg_hba.conf"
        return [CheckResult("database", "wrong", f"{where}: {error}", advice)]
    folder = settings.cluster.folder
    return [*find_results(facts, where, has_direct=bool(settings.store_direct)), *check_folder(folder, facts)]


def check_folder(folder: str, facts: ServerFacts) -> Iterator[CheckResult]:
    """Check `cluster.folder`; several workers need one."""
    if not folder and len(facts.workers) > 1:
        says = "each worker has its own memory notes, skills and checkpoints: cluster.folder is not set"
        yield CheckResult("folder", "note", says, "set it to a folder that all workers see at the same path")
    elif folder and not os.path.isdir(folder):
        says = f"cluster.folder: {folder} is not a directory"
        yield CheckResult("folder", "wrong", says, "mount its file system, or create it")
    elif folder and not os.access(folder, os.W_OK | os.X_OK):
        says = f"cluster.folder: {folder} cannot be written"
        yield CheckResult("folder", "wrong", says, "check its owner and its mount")
    elif folder:
        yield CheckResult("folder", "ok", f"memory notes, skills, checkpoints and files are in {folder}")


def find_results(facts: ServerFacts, where: str, *, has_direct: bool) -> Iterator[CheckResult]:
    """What the facts mean."""
    yield _check_version(facts, where)
    if facts.pooled and not has_direct:
        says = "`store` leads to a connection pooler, where locks are shared between workers"
        yield CheckResult("pooler", "wrong", says, "set `store_direct` to an address of PostgreSQL itself")
    elif facts.direct_pooled:
        says = "`store_direct` leads to a connection pooler"
        yield CheckResult("pooler", "wrong", says, "set it to an address of PostgreSQL itself")
    elif facts.pooled:
        yield CheckResult("pooler", "ok", "`store` leads to a pooler, `store_direct` around it")
    yield from _check_standbys(facts)
    if abs(facts.clock_difference_s) > MAX_CLOCK_DIFFERENCE_S:
        ahead = "ahead" if facts.clock_difference_s > 0 else "behind"
        says = f"the clock of the server is {abs(facts.clock_difference_s):.1f} s {ahead} of ours"
        yield CheckResult("clock", "note", says, "run a time service such as chrony on all machines")
    workers = "; ".join(facts.workers)
    if workers:
        yield CheckResult("workers", "ok", f"{len(facts.workers)}: {workers}")
    else:
        yield CheckResult("workers", "note", "no worker is running", "start `alipes serve` on each machine")


def _check_version(facts: ServerFacts, where: str) -> CheckResult:
    if not facts.supported:
        says = f"{where}: PostgreSQL {facts.version} is too old"
        return CheckResult("database", "wrong", says, "use PostgreSQL 15 or newer")
    if not facts.schema:
        return CheckResult("database", "ok", f"{where}: PostgreSQL {facts.version}; tables are created on first use")
    if facts.schema > facts.newest_schema:
        says = f"{where}: schema {facts.schema} is of a newer alipes; this one knows {facts.newest_schema}"
        if facts.needed_schema <= facts.newest_schema:
            return CheckResult("database", "note", f"{says} and can still work", "upgrade alipes on this machine soon")
        return CheckResult("database", "wrong", says, "upgrade alipes on this machine")
    about = (
        f"{where}: PostgreSQL {facts.version} ({format_size(facts.size)}, schema {facts.schema}), "
        f"{format_count(facts.sessions, 'conversation')}, {format_count(facts.turns, 'turn')}, "
        f"{format_count(facts.messages, 'message')}"
    )
    if facts.schema < facts.newest_schema:
        says = f"{about}; migrations up to {facts.newest_schema} are missing"
        return CheckResult("database", "note", says, "the next `alipes serve` applies them")
    return CheckResult("database", "ok", about)


def _check_standbys(facts: ServerFacts) -> Iterator[CheckResult]:
    if not facts.standbys:
        return
    count = format_count(len(facts.standbys), "standby server")
    if "hidden" in facts.standbys:
        says = f"{count}; this user may not see whether they are synchronous"
        yield CheckResult("standbys", "note", says, "grant it the role pg_monitor")
    elif not {"sync", "quorum"} & set(facts.standbys) or not facts.synchronous_names:
        says = f"{count}, all asynchronous: a failover loses the messages that were accepted last"
        yield CheckResult("standbys", "note", says, "set synchronous_standby_names in PostgreSQL")
    elif facts.synchronous_commit in ("off", "local"):
        says = f"{count}, but synchronous_commit is {facts.synchronous_commit}: commits do not wait for one"
        yield CheckResult("standbys", "note", says, "set synchronous_commit = on in PostgreSQL")
    else:
        yield CheckResult("standbys", "ok", f"{count}, commits wait for {facts.synchronous_names}")
