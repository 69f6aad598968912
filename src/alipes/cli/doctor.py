"""`alipes doctor`: checks the machine, the store and the model without changing anything."""

import asyncio
import os
import ssl
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from alipes import __version__
from alipes.app import open_for_checks
from alipes.cli import security_audit
from alipes.cli.plugins.list import check_plugins_state
from alipes.cli.server_checks import check_server
from alipes.config import extras
from alipes.config.loader import load_settings
from alipes.config.paths import DEFAULT_PROFILE, all_homes, find_home, profile_name
from alipes.config.settings import Settings
from alipes.config.urls import strip_credentials
from alipes.console import common, render
from alipes.console.common import print_json
from alipes.console.options import parse_doctor
from alipes.core.resources import make_chat_files
from alipes.features.all import FEATURES
from alipes.kernel.api_keys import describe_keys
from alipes.kernel.blobs import make_blob_name
from alipes.kernel.checks import CheckResult
from alipes.kernel.errors import AlipesError, ConfigError, ProviderError, StoreError
from alipes.kernel.formatting import format_ago, format_count, format_size
from alipes.kernel.messages import user
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply
from alipes.providers.embedded import find_weights
from alipes.providers.errors import explain_connection
from alipes.providers.registry import Backend, Models, choose_model, open_models
from alipes.runtime.http.clients import ClientScope
from alipes.sessions.tool_access import ToolState
from alipes.store.open import open_home_archive, open_home_store
from alipes.store.ports.archive import Archive
from alipes.store.quick_reads import find_store_loss, is_store_writable, store_exists
from alipes.store.sql.store import Store
from alipes.store.sqlite.peers import open_processes

MIN_PYTHON = (3, 11)
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
TERMINAL = "terminal"
_NOT_IN_TERMINAL = ("send_file",)
"""Tools that a terminal never has, so that it is no finding."""


def check_machine() -> tuple[Settings | None, list[CheckResult]]:
    """Check Python, home, settings and programs. If the settings are broken, use the defaults."""
    version = sys.version.split()[0]
    findings = [CheckResult("python", "ok", f"{version} at {sys.executable}")]
    if sys.version_info < MIN_PYTHON:
        findings = [CheckResult("python", "wrong", version, "alipes needs Python 3.11 or newer")]
    settings: Settings | None = None
    try:
        settings = load_settings()
        findings += [_check_home(settings), *_check_profiles(settings), *_check_files(settings)]
    except ConfigError as error:
        findings.append(CheckResult("settings", "wrong", str(error), "correct this, then run `alipes doctor` again"))
        try:
            settings = Settings(home=find_home())
            findings.insert(1, _check_home(settings))
        except ConfigError as nowhere:
            findings.insert(1, CheckResult("home", "wrong", str(nowhere)))
    findings += _check_programs()
    return settings, findings


async def check_store(settings: Settings) -> list[CheckResult]:
    """Check the database, its other users, unfinished turns, and the features, which use the same open store."""
    if (found := await _check_open_store(settings)) is not None:
        return found
    return [*await _check_closed_store(settings), *await _check_features(settings, None)]


async def _check_features(settings: Settings, store: Store | None) -> list[CheckResult]:
    return [each for feature in FEATURES for each in await feature.check(settings, store)]


async def _check_open_store(settings: Settings) -> list[CheckResult] | None:
    """None if the store cannot be opened for writing."""
    if settings.store or find_store_loss(settings.home) or not store_exists(settings.home):
        return None
    if not is_store_writable(settings.home):
        return None
    try:
        async with open_home_store(settings) as store:
            database = await _check_database(store.archive)
            mine = [*database, *_check_processes(settings, store), *await _check_unfinished(store)]
            mine += await _check_keys(settings, store)
            return [*mine, *await _check_features(settings, store)]
    except StoreError:
        return None


async def _check_closed_store(settings: Settings) -> list[CheckResult]:
    if settings.store:
        return await check_server(settings)
    if loss := find_store_loss(settings.home):
        return [CheckResult("database", "wrong", loss)]
    if not store_exists(settings.home):
        return [CheckResult("database", "ok", "will be created on first use")]
    try:
        if not is_store_writable(settings.home):
            async with open_home_archive(settings) as archive:
                return await _check_database(archive)
        async with open_home_store(settings) as store:
            database = await _check_database(store.archive)
            return [*database, *_check_processes(settings, store), *await _check_unfinished(store)]
    except StoreError as error:
        return [CheckResult("database", "wrong", str(error))]


async def check_chat_files(settings: Settings, scope: ClientScope) -> list[CheckResult]:
    """Write, read and delete a file in the store of chat files, if one is set up."""
    try:
        files = make_chat_files(settings, scope)
        if files.store is None:
            return []
        name = make_blob_name(os.urandom(16).hex(), "doctor")
        await files.store.put(name, b"alipes doctor")
        found = await files.store.read(name)
        await files.store.delete(name)
    except AlipesError as error:
        return [CheckResult("files", "wrong", str(error), "correct [files] in the settings")]
    if found != b"alipes doctor":
        return [CheckResult("files", "wrong", "the store of chat files does not return what was written")]
    where = f"bucket {settings.files.bucket}" if settings.files.store == "s3" else settings.files.folder
    return [CheckResult("files", "ok", f"{where} can be written and read")]


async def check_models(settings: Settings, scope: ClientScope, models: Models, *, live: bool) -> list[CheckResult]:
    """Check the embedded model, the proxies and the model in use."""
    findings = [_check_embedded(settings), *_check_proxies(settings)]
    try:
        choice = await choose_model(settings, scope)
        backend = await models.open(choice.model)
        findings.append(CheckResult("model", "ok", render.format_choice(choice)))
        if choice.hint:
            findings.append(CheckResult("model", "note", choice.hint))
        findings.append(await (_check_answer(backend) if live else _check_connection(settings, backend.name)))
    except AlipesError as error:
        findings.append(CheckResult("model", "wrong", str(error), "list the models with `alipes model`"))
    return findings


async def check_tools(settings: Settings) -> list[CheckResult]:
    """The tools that are off, by their reason. On platforms with settings of their own, only what differs there."""
    if not settings.store and not store_exists(settings.home):
        return []  # a check must not create a home
    if not settings.store and not is_store_writable(settings.home):
        return []  # a check must not create a home
    try:
        async with open_for_checks(settings) as app:
            platforms = dict.fromkeys((TERMINAL, *settings.tools.platforms))
            states = {platform: await app.tool_access.list_states(platform) for platform in platforms}
    except AlipesError as error:
        return [CheckResult("tools", "note", f"not checked: {error}")]
    here = {each.name: each for each in states.pop(TERMINAL)}
    found = list(_describe_tools(here.values(), ""))
    for platform, there in states.items():
        found += _describe_tools((each for each in there if _state_of(each) != _state_of(here[each.name])), platform)
    on = sum(each.state == "on" for each in here.values())
    return [CheckResult("tools", "ok", f"{on} of {format_count(len(here), 'tool')} are on"), *found]


def _state_of(tool: ToolState) -> tuple[str, str]:
    return tool.state, tool.reason


def _describe_tools(states: Iterable[ToolState], platform: str) -> Iterator[CheckResult]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in states:
        if each.name not in _NOT_IN_TERMINAL:
            reasons.setdefault(_state_of(each), []).append(each.name)
    for (state, reason), names in reasons.items():
        if state != "on" or platform:
            says = "available" if state == "on" else state
            where = f" on {platform}" if platform else ""
            yield CheckResult("tools", "note", f"{', '.join(names)}: {says}{where}. {reason}".rstrip())


def _check_home(settings: Settings) -> CheckResult:
    home = settings.home
    if not home.exists():
        return CheckResult("home", "ok", f"{home} (will be created on first use)")
    if home.is_dir() and os.access(home, os.R_OK | os.X_OK) and not os.access(home, os.W_OK):
        advice = "make it writable; until then only `alipes sessions`, `usage` and `backup` work"
        return CheckResult("home", "wrong", f"{home} is read-only", advice)
    if not home.is_dir() or not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return CheckResult("home", "wrong", f"{home} is not usable", "make it a directory you own")
    mode = stat.S_IMODE(home.stat().st_mode)
    free = os.statvfs(home)
    room = free.f_bavail * free.f_frsize
    if room < 100_000_000:
        full = f"{home}: only {format_size(room)} free on its disk"
        return CheckResult("home", "wrong", full, "free some space")
    if mode & 0o077:
        return CheckResult("home", "note", f"{home} is readable by other users", f"chmod 700 {home}")
    return CheckResult("home", "ok", f"{home} (private, {format_size(room)} free)")


def _check_profiles(settings: Settings) -> Iterator[CheckResult]:
    """The profile in use, if there are several."""
    names = [profile_name(home) for home in all_homes(settings.home)]
    if len(names) > 1:
        others = ", ".join(name for name in names if name != settings.profile)
        yield CheckResult("profile", "ok", f"{settings.profile} (others: {others}; see `alipes profile`)")
    if settings.profile == DEFAULT_PROFILE:
        for name in settings.serve.profiles:
            if name not in names:
                yield CheckResult("profile", "wrong", f"serve.profiles names {name}, which does not exist")
    elif settings.serve.profiles:
        says = f"serve.profiles in {settings.paths.config} has no effect: only the default profile serves others"
        yield CheckResult("profile", "note", says)


def _check_files(settings: Settings) -> Iterator[CheckResult]:
    file, log = settings.paths.config, settings.paths.log
    yield CheckResult("settings", "ok", str(file) if file.exists() else f"no {file}; using the defaults")
    yield from (CheckResult("settings", "note", note) for note in settings.notes)
    size = format_size(log.stat().st_size) if log.exists() else "empty"
    yield CheckResult("log", "ok", f"{log} ({size}, level {settings.log_level})")


def _check_programs() -> list[CheckResult]:
    gone = common.missing_programs()
    found = [program.name for program in common.PROGRAMS if program not in gone]
    missing = [f"{program.package} is not installed (optional, for {program.benefit})" for program in gone]
    present = [CheckResult("programs", "ok", ", ".join(found))] if found else []
    return [*present, *(CheckResult("programs", "note", says) for says in missing)]


async def _check_database(archive: Archive) -> list[CheckResult]:
    facts = await archive.facts()
    about = (
        f"{facts.path} ({format_size(facts.size + facts.wal)}, schema {facts.schema}): "
        f"{format_count(facts.sessions, 'conversation')}, {format_count(facts.turns, 'turn')}, "
        f"{format_count(facts.messages, 'message')}"
    )
    advice = "copy the file, then restore a backup with `alipes restore`"
    wrong = [CheckResult("database", "wrong", problem, advice) for problem in await archive.check()]
    return wrong or [CheckResult("database", "ok", about)]


def _check_processes(settings: Settings, store: Store) -> list[CheckResult]:
    peers = open_processes(settings.home, timeout_s=CONNECT_TIMEOUT_S).list_peers()
    others = [f"pid {peer.pid}, started {format_ago(peer.started)}" for peer in peers if peer.host != store.host]
    return [CheckResult("processes", "ok", "; ".join(others) or "no other alipes process uses this home")]


async def _check_unfinished(store: Store) -> list[CheckResult]:
    orphans = await store.turns.list_orphans()
    says = f"{len(orphans)} interrupted: {', '.join(orphans)}"
    return [CheckResult("turns", "note", says, "the next `alipes` or `alipes ask` resumes them")] if orphans else []


async def _check_keys(settings: Settings, store: Store) -> list[CheckResult]:
    """The keys of providers that have several, by their variables."""
    found = []
    now = time.time()
    for each in settings.providers.values():
        if each.keys:
            rests, _ = await store.provider_keys.look(each.name, "")
            variables = [key.variable for key in each.keys]
            resting = any(rest.until > now for rest in rests.values())
            says = f"{each.name}: {describe_keys(variables, rests, '', now)}"
            found.append(CheckResult("keys", "note" if resting else "ok", says))
    return found


def _check_embedded(settings: Settings) -> CheckResult:
    chosen = settings.embedded
    try:
        weights = find_weights(chosen.gguf, chosen.threads, chosen.context)
    except ConfigError as error:
        return CheckResult("embedded", "wrong" if chosen.gguf else "note", str(error))
    return CheckResult("embedded", "ok", f"{weights.model} at {weights.gguf}")


def _check_proxies(settings: Settings) -> list[CheckResult]:
    proxies = settings.proxies
    ways = (("http", proxies.http), ("https", proxies.https), ("all", proxies.all))
    used = [f"{name} through {strip_credentials(url)}" for name, url in ways if url]
    says = f"{', '.join(used)}; except for {', '.join(proxies.no) or 'nothing'}"
    return [CheckResult("proxies", "ok", says)] if used else []


async def _check_connection(settings: Settings, model: str) -> CheckResult:
    """Check that the model's server accepts connections; only --live checks the key."""
    if not (where := _first_hop(settings, model)):
        return CheckResult("reach", "ok", "no network needed")
    if why := await find_connection_error(settings, model):
        return CheckResult("reach", "wrong", why, "check the network and the address")
    return CheckResult("reach", "ok", f"{where} is reachable (use --live to check the key)")


async def find_connection_error(settings: Settings, model: str) -> str:
    """Why the model's server is unreachable; empty if it is reachable or not needed."""
    if not (where := _first_hop(settings, model)):
        return ""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await _connect(where, settings.ca_file)
    except (OSError, TimeoutError) as error:
        why = explain_connection(str(error)) or f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
        return f"{where} is unreachable: {why}"
    return ""


def _first_hop(settings: Settings, model: str) -> str:
    """The address to connect to, the proxy or the model's server; empty if the model needs no network."""
    endpoint = settings.providers.get(model.partition("/")[0])
    if endpoint is None or not endpoint.base_url:
        return ""
    parts, proxies = urlsplit(endpoint.base_url), settings.proxies
    direct = any(name == "*" or (parts.hostname or "").endswith(name.lstrip(".")) for name in proxies.no)
    proxy = (proxies.https if parts.scheme == "https" else proxies.http) or proxies.all
    return strip_credentials(endpoint.base_url if direct or not proxy else proxy)


async def _connect(url: str, ca_file: str) -> None:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    trust = ssl.create_default_context(cafile=ca_file or None) if secure else None
    _, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if secure else 80), ssl=trust)
    writer.close()
    await writer.wait_closed()


async def _check_answer(backend: Backend) -> CheckResult:
    try:
        request = Request(backend.model, "", (user("Say ok."),), max_tokens=16)
        async with asyncio.timeout(ANSWER_TIMEOUT_S), backend.provider.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, ModelReply):
                    return CheckResult("answer", "ok", render.format_usage(delta.usage, backend.name))
    except ProviderError as error:
        return CheckResult("answer", "wrong", str(error))
    except TimeoutError:
        late = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        return CheckResult("answer", "wrong", late, "try again, or another model")
    return CheckResult("answer", "wrong", f"{backend.name} gave no answer")


class ClientReport(msgspec.Struct, frozen=True):
    """A network client that the checks opened."""

    name: str
    kind: str
    base_url: str
    opened: float
    requests: int


class DoctorReport(msgspec.Struct, frozen=True):
    version: str
    python: str
    findings: list[CheckResult]
    clients: tuple[ClientReport, ...]


def run(argv: list[str]) -> int:
    options = parse_doctor(argv)
    if options.security:
        return _run_audit(json=options.json)
    settings, found = check_machine()
    clients: tuple[ClientReport, ...] = ()
    if settings is not None:
        found += check_plugins_state(settings)
        more, clients = asyncio.run(_check_services(settings, options.live))
        found += more
    report = DoctorReport(__version__, sys.version.split()[0], found, clients)
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    return int(any(finding.state == "wrong" for finding in found))


def _run_audit(*, json: bool) -> int:
    found = asyncio.run(security_audit.audit(load_settings()))
    report = DoctorReport(__version__, sys.version.split()[0], found, ())
    if json:
        print_json(report)
    else:
        _print_report(report)
    return int(any(finding.state == "wrong" for finding in found))


def check_extras() -> Iterator[CheckResult]:
    """What features need besides the core: what is installed, and what the first use would install."""
    installed = [name for name in extras.EXTRAS if extras.is_installed(name)]
    if installed:
        yield CheckResult("extras", "ok", f"installed: {', '.join(installed)}")
    missing = [f"{name} ({extra.purpose})" for name, extra in extras.EXTRAS.items() if name not in installed]
    if missing:
        yield CheckResult("extras", "note", f"on first use: {', '.join(missing)}", "or run `alipes install NAME`")


async def _check_services(settings: Settings, live: bool) -> tuple[list[CheckResult], tuple[ClientReport, ...]]:
    found = [await security_audit.check_sandbox(settings), *await check_store(settings), *await check_tools(settings)]
    found += check_extras()
    async with open_models(settings) as (scope, models):
        if settings.providers:
            found += await check_chat_files(settings, scope)
            found += await check_models(settings, scope, models, live=live)
        else:
            found.append(CheckResult("model", "note", "not checked, because the settings have errors"))
        clients = (msgspec.convert(each, ClientReport, from_attributes=True) for each in scope.open_clients())
        return found, tuple(clients)


def _print_report(report: DoctorReport) -> None:
    print(f"alipes {report.version}, Python {report.python}\n")
    common.print_checks(report.findings)
    common.print_verdict(report.findings)
