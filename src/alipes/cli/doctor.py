"""What `alipes doctor` looks at, one finding after the other. It reads and connects; it changes nothing."""

import asyncio
import os
import ssl
import stat
import sys
from urllib.parse import urlsplit

import msgspec

from alipes import __version__
from alipes.cli import common, render
from alipes.cli import options as arguments
from alipes.cli.common import Finding
from alipes.cli.options import DoctorOptions
from alipes.cli.plugins.list import examine_plugins
from alipes.config.paths import find_home
from alipes.config.settings import Settings, load
from alipes.kernel.errors import AlipesError, ConfigError, ProviderError, StoreError
from alipes.kernel.formatting import ago
from alipes.kernel.messages import user
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import Replied
from alipes.providers.embedded import find_weights
from alipes.providers.registry import Backend, Models, choose
from alipes.runtime.http.clients import ClientScope, OpenClient
from alipes.store.peers.peers import open_hosts
from alipes.store.store import Store, open_store

OLDEST = (3, 11)
PATIENCE = 5.0
LIVE_PATIENCE = 60.0


def examine_ground() -> tuple[Settings | None, list[Finding]]:
    """Python, home, settings, programs. Without usable settings their defaults are looked at further on."""
    findings = [_python()]
    settings: Settings | None = None
    try:
        settings = load()
        findings += [_home(settings), *_settings(settings), _log(settings)]
    except ConfigError as error:
        findings.append(Finding("settings", "wrong", str(error), "correct this, then look again"))
        try:
            settings = Settings(home=find_home())
            findings.insert(1, _home(settings))
        except ConfigError as nowhere:
            findings.insert(1, Finding("home", "wrong", str(nowhere)))
    findings += _programs()
    return settings, findings


async def examine_store(settings: Settings) -> list[Finding]:
    """The database, who else uses it, and what waits in it."""
    if not settings.paths.database.exists():
        return [Finding("database", "ok", "none yet; the first question makes it")]
    try:
        async with open_store(settings.home) as store:
            return [*await _database(store), *_processes(settings, store), *await _unfinished(store)]
    except StoreError as error:
        return [Finding("database", "wrong", str(error))]


async def examine_models(
    settings: Settings, scope: ClientScope, models: Models, *, live: bool
) -> list[Finding]:
    """The embedded model, the proxies, and the model that would answer now."""
    findings = [_embedded(settings), *_proxies(settings)]
    try:
        choice = await choose(settings, scope)
        backend = await models.open(choice.model)
        findings.append(Finding("model", "ok", f"{backend.name}. {choice.why}"))
        findings.append(await (_ask(backend) if live else _reach(settings, backend.name)))
    except AlipesError as error:
        findings.append(Finding("model", "wrong", str(error), "`alipes model` shows what there is"))
    return findings


def _python() -> Finding:
    version = sys.version.split()[0]
    if sys.version_info < OLDEST:
        return Finding("python", "wrong", version, "alipes needs Python 3.11 or newer")
    return Finding("python", "ok", f"{version} at {sys.executable}")


def _home(settings: Settings) -> Finding:
    home = settings.home
    if not home.exists():
        return Finding("home", "ok", f"{home} (not there yet; the first question makes it)")
    if not home.is_dir() or not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return Finding("home", "wrong", f"{home} cannot be used", "make it a folder of yours")
    mode = stat.S_IMODE(home.stat().st_mode)
    free = os.statvfs(home)
    room = free.f_bavail * free.f_frsize
    if room < 100_000_000:
        return Finding("home", "wrong", f"{home}: only {render.size(room)} left on its disk", "make room")
    if mode & 0o077:
        return Finding("home", "note", f"{home}: others may look into it", f"chmod 700 {home}")
    return Finding("home", "ok", f"{home} (private, {render.size(room)} free)")


def _settings(settings: Settings) -> list[Finding]:
    file = settings.paths.config
    there = str(file) if file.exists() else f"none at {file}; the defaults apply"
    return [
        Finding("settings", "ok", there),
        *(Finding("settings", "note", note) for note in settings.notes),
    ]


def _log(settings: Settings) -> Finding:
    path = settings.paths.log
    size = render.size(path.stat().st_size) if path.exists() else "empty"
    return Finding("log", "ok", f"{path} ({size}, level {settings.log_level})")


def _programs() -> list[Finding]:
    gone = common.missing()
    found = [program.name for program in common.PROGRAMS if program not in gone]
    findings = [Finding("programs", "ok", ", ".join(found))] if found else []
    for program in gone:
        says = f"{program.package} is not installed: {program.without}"
        findings.append(Finding("programs", "note", says))
    return findings


async def _database(store: Store) -> list[Finding]:
    facts = await store.archive.facts()
    about = (
        f"{facts.path} ({render.size(facts.size + facts.wal)}, schema {facts.schema}): "
        f"{facts.sessions} conversations, {facts.turns} turns, {facts.messages} messages"
    )
    problems = await store.archive.check()
    advice = "make a copy of the file, then bring back a good backup"
    return [Finding("database", "wrong", problem, advice) for problem in problems] or [
        Finding("database", "ok", about)
    ]


def _processes(settings: Settings, store: Store) -> list[Finding]:
    others = [peer for peer in open_hosts(settings.home, within=PATIENCE).others() if peer.host != store.host]
    told = "; ".join(f"pid {peer.pid}, started {ago(peer.started)}" for peer in others)
    return [Finding("processes", "ok", told or "no other alipes runs on this home")]


async def _unfinished(store: Store) -> list[Finding]:
    orphans = await store.turns.orphans()
    if not orphans:
        return []
    names = ", ".join(orphans)
    says = f"{len(orphans)} interrupted: {names}"
    return [Finding("turns", "note", says, "the next `alipes` or `alipes ask` takes them up")]


def _embedded(settings: Settings) -> Finding:
    chosen = settings.embedded
    try:
        weights = find_weights(chosen.gguf, chosen.threads, chosen.context)
    except ConfigError as error:
        return Finding("embedded", "wrong" if chosen.gguf else "note", str(error))
    return Finding("embedded", "ok", f"{weights.model} at {weights.gguf}")


def _proxies(settings: Settings) -> list[Finding]:
    proxies = settings.proxies
    ways = {"http": proxies.http, "https": proxies.https, "all": proxies.all}
    told = [f"{name} by {_bare(url)}" for name, url in ways.items() if url]
    if not told:
        return []
    return [Finding("proxies", "ok", ", ".join(told) + f"; not for {', '.join(proxies.no) or 'none'}")]


def _bare(url: str) -> str:
    """The address without the name and password it may carry."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def _reach(settings: Settings, model: str) -> Finding:
    """Can its server be connected to? Says nothing about the key; `--live` does."""
    where = _server(settings, model)
    if not where:
        return Finding("reach", "ok", "needs no network")
    if why := await unreachable(settings, model):
        return Finding("reach", "wrong", why, "check network and address")
    return Finding("reach", "ok", f"{where} can be reached (the key was not tried; --live does)")


async def unreachable(settings: Settings, model: str) -> str:
    """Why the model's server cannot be connected to; empty when it can, or needs no network."""
    where = _server(settings, model)
    if not where:
        return ""
    try:
        async with asyncio.timeout(PATIENCE):
            await _connect(where, settings.ca_file)
    except (OSError, TimeoutError) as error:
        return f"{where} cannot be reached: {str(error) or f'no answer within {PATIENCE:.0f} s'}"
    return ""


def _server(settings: Settings, model: str) -> str:
    """The address that is connected to; empty where there is none."""
    endpoint = settings.providers.get(model.partition("/")[0])
    return "" if endpoint is None or not endpoint.base_url else _bare(_by_way_of(settings, endpoint))


def _by_way_of(settings: Settings, endpoint: Endpoint) -> str:
    """The first address a request goes to: the proxy's if there is one for it."""
    parts = urlsplit(endpoint.base_url)
    proxies = settings.proxies
    if any(name == "*" or (parts.hostname or "").endswith(name.lstrip(".")) for name in proxies.no):
        return endpoint.base_url
    return (proxies.https if parts.scheme == "https" else proxies.http) or proxies.all or endpoint.base_url


async def _connect(url: str, ca_file: str) -> None:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    trust = ssl.create_default_context(cafile=ca_file or None) if secure else None
    _, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=trust
    )
    writer.close()
    await writer.wait_closed()


async def _ask(backend: Backend) -> Finding:
    """One real question, as small as they come."""
    try:
        request = Request(backend.model, "", (user("Say ok."),), max_tokens=16)
        async with asyncio.timeout(LIVE_PATIENCE), backend.provider.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, Replied):
                    return Finding("answer", "ok", render.usage_line(delta.usage, backend.name))
    except ProviderError as error:
        return Finding("answer", "wrong", str(error))
    except TimeoutError:
        return Finding("answer", "wrong", f"no answer within {LIVE_PATIENCE:.0f} s", "try again, or another")
    return Finding("answer", "wrong", f"{backend.name} ended without an answer")


class Report(msgspec.Struct, frozen=True):
    version: str
    python: str
    findings: list[Finding]
    clients: tuple[OpenClient, ...]

    @property
    def well(self) -> bool:
        return all(finding.state != "wrong" for finding in self.findings)


def run(argv: list[str]) -> int:
    options = arguments.doctor(argv)
    report = _examine(options)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return 0 if report.well else 1


def _examine(options: DoctorOptions) -> Report:
    settings, found = examine_ground()
    clients: tuple[OpenClient, ...] = ()
    if settings is not None:
        found += examine_plugins(settings)
        more, clients = asyncio.run(_look_inside(settings, options.live))
        found += more
    return Report(__version__, sys.version.split()[0], found, clients)


async def _look_inside(settings: Settings, live: bool) -> tuple[list[Finding], tuple[OpenClient, ...]]:
    found = await examine_store(settings)
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as models,
    ):
        found += await examine_models(settings, scope, models, live=live)
        return found, scope.open_clients()


def _print(report: Report) -> None:
    print(f"alipes {report.version}, Python {report.python}\n")
    indent = common.show(report.findings)
    for client in report.clients:
        where = f" {client.base_url}" if client.base_url else ""
        print(f"{'client':>{indent - 2}}  {client.name} ({client.kind}){where}: {client.requests} requests")
    common.conclude(report.findings)
