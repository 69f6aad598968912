"""`alipes doctor --security`: checks permissions, ports, keys, access, approvals, plugins and versions.

Changes nothing. Each result says what is wrong and how to fix it.
"""

import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from alipes.config.display import looks_secret
from alipes.config.environment import read_text
from alipes.config.settings import Settings
from alipes.features.webhooks.store import WebhookStore
from alipes.kernel.checks import CheckResult
from alipes.kernel.errors import ConfigError, StoreError
from alipes.kernel.formatting import format_count
from alipes.plugins import pins
from alipes.plugins.discovery import enabled_plugins, find_plugins
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.store.open import open_home_store
from alipes.store.quick_reads import SQLITE_VERSION, store_exists, store_files
from alipes.store.sql.store import Store
from alipes.tools.sandbox import make_backend

MIN_KEY_CHARS = 24
"""A random key of this length cannot be guessed."""
PYTHON_ENDS = {
    (3, 11): "2027-10-31",
    (3, 12): "2028-10-31",
    (3, 13): "2029-10-31",
    (3, 14): "2030-10-31",
    (3, 15): "2031-10-31",
}
"""The last day of security fixes for each Python."""
_MIN_SQLITE = (3, 40, 0)
_MIN_OPENSSL = (3, 0, 0)
_PROGRAMS = {
    "bwrap": ((0, 4, 1), "older versions can be left with the rights of root"),
    "git": ((2, 39, 4), "cloning a hostile repository can run its code with older versions"),
}
"""Programs, the first version without a known hole that matters here, and that hole."""
_WORD = re.compile(r"""[^\s"'=,;(){}\[\]<>]+""")
_READABLE_BY_OTHERS = 0o077
_WRITABLE_BY_OTHERS = 0o022


async def audit(settings: Settings) -> list[CheckResult]:
    """All results, the most important parts first."""
    return [
        await check_sandbox(settings),
        *_check_permissions(settings),
        *_check_ports(settings),
        *_check_access(settings),
        *_check_config_file(settings),
        *await _check_store(settings),
        *_check_plugins(settings),
        *_check_versions(),
    ]


async def check_sandbox(settings: Settings) -> CheckResult:
    """Check where commands run, with a real command."""
    namespaces = NetworkNamespaces()
    try:
        async with make_backend(settings, None, namespaces) as backend:
            problem = await backend.check()
    except ConfigError as error:
        return CheckResult("sandbox", "wrong", str(error), "change sandbox.backend, or install what is missing")
    finally:
        await namespaces.close_all()
    if backend.name == "none":
        return CheckResult("sandbox", "wrong", problem)
    if backend.gaps:
        why = backend.check_result.problem if backend.check_result else ""
        text = f"commands run in Landlock, which protects less than bubblewrap ({why}). {' '.join(backend.gaps)}"
        return CheckResult("sandbox", "note", text, backend.advice)
    if backend.warning or problem:
        return CheckResult("sandbox", "note", backend.warning or problem, backend.advice)
    if not backend.contains:
        return CheckResult("sandbox", "note", "commands run on this machine with all your rights (sandbox.backend)")
    kind = backend.check_result.kind if backend.check_result else backend.name
    return CheckResult("sandbox", "ok", f"commands run in {kind}")


def _check_permissions(settings: Settings) -> Iterator[CheckResult]:
    paths = settings.paths
    if not paths.home.exists():
        yield CheckResult("permissions", "ok", f"{paths.home} will be created on first use")
        return
    is_open = bool(paths.home.stat().st_mode & _READABLE_BY_OTHERS)
    files = [*store_files(paths.home), paths.config, *sorted(paths.run.glob("*.sock"))]
    folders = [paths.run, paths.logs, paths.home / "plugins", paths.home / "hooks"]
    wrong = [*_check_mode(paths.home, 0o700), *_check_mode(paths.env, 0o600)]
    if is_open:  # otherwise nobody else reaches them
        wrong += [result for file in files for result in _check_mode(file, 0o600)]
        wrong += [result for folder in folders for result in _check_mode(folder, 0o700)]
    yield from wrong or [CheckResult("permissions", "ok", f"{paths.home} and its files are private")]


def _check_mode(path: Path, wanted: int) -> Iterator[CheckResult]:
    try:
        facts = path.stat()
    except OSError:
        return
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.getuid():
        yield CheckResult("permissions", "wrong", f"{path} belongs to another user", f"chown {os.getuid()} {path}")
    elif mode & _WRITABLE_BY_OTHERS:
        says = f"{path} is writable by other users (mode {mode:o})"
        yield CheckResult("permissions", "wrong", says, f"chmod {wanted:o} {path}")
    elif mode & _READABLE_BY_OTHERS:
        secret = path.name == ".env" or path.name.startswith("alipes.db")
        says = f"{path} is readable by other users (mode {mode:o})"
        yield CheckResult("permissions", "wrong" if secret else "note", says, f"chmod {wanted:o} {path}")


def _check_ports(settings: Settings) -> Iterator[CheckResult]:
    serve, api = settings.serve, settings.api
    if is_loopback(serve.host):
        yield CheckResult("ports", "ok", f"`alipes serve` listens on {serve.host}, for this machine only")
    elif not serve.key:
        says = f"serve.host = {serve.host} is reachable from other machines, and no API key is set"
        yield CheckResult("ports", "wrong", says, "`alipes serve key`, or serve.host = 127.0.0.1")
    else:
        says = f"serve.host = {serve.host} is reachable from other machines, without TLS"
        advice = "serve.host = 127.0.0.1 behind a reverse proxy with TLS, with its name in api.hosts"
        yield CheckResult("ports", "note", says, advice)
    for origin in api.origins:
        if "*" in origin:
            says = f"api.origins contains {origin}: every web page may call the API"
            yield CheckResult("ports", "wrong", says, "name the origins, as in https://HOST")
        elif origin.startswith("http://") and not is_loopback(origin.removeprefix("http://").partition(":")[0]):
            yield CheckResult("ports", "note", f"api.origins contains {origin}, without TLS", "use https")
    yield from _check_key("the operator's API key", serve.key_env, serve.key.reveal())


def _check_key(what: str, where: str, key: str) -> Iterator[CheckResult]:
    if key and len(key) < MIN_KEY_CHARS:
        says = f"{what} ({where}) has {format_count(len(key), 'character')}; at least {MIN_KEY_CHARS} are needed"
        yield CheckResult("keys", "wrong", says, "`alipes serve key --new`")
    elif key:
        yield CheckResult("keys", "ok", f"{what} is long enough")


def _check_access(settings: Settings) -> Iterator[CheckResult]:
    chats = {**settings.messengers.configured, **settings.platforms}
    open_to_all = {name: config for name, config in chats.items() if "*" in config.allow}
    for name, config in open_to_all.items():
        says = f'{name}.allow contains "*": everyone can talk to the agent'
        if not config.owners or "*" in config.owners:
            says += " and is an owner, who may approve what it asks"
            yield CheckResult("access", "wrong", says, f"name people in {name}.allow, or use `alipes pair`")
        else:
            yield CheckResult("access", "note", says, f"name people in {name}.allow, or use `alipes pair`")
    if chats and not open_to_all:
        yield CheckResult("access", "ok", f"only known people can talk to the agent: {', '.join(sorted(chats))}")
    if settings.debuggable:
        says = "debuggable = true: other processes of your user can read the memory of alipes"
        yield CheckResult("access", "note", says, "`alipes config unset debuggable`")


def _check_config_file(settings: Settings) -> Iterator[CheckResult]:
    """Texts in config.toml that look like secrets, also in comments and commands; values are refused at the start."""
    file = settings.paths.config
    lines = (read_text(file) or "").splitlines()
    found = [number for number, line in enumerate(lines, 1) if any(map(looks_secret, _WORD.findall(line)))]
    for number in found:
        says = f"{file}:{number} contains text that looks like a secret"
        yield CheckResult("secrets", "note", says, f"move it to {settings.paths.env}")
    if not found:
        yield CheckResult("secrets", "ok", "config.toml contains no secrets")


async def _check_store(settings: Settings) -> list[CheckResult]:
    if not settings.store and not store_exists(settings.home):
        return []
    try:
        async with open_home_store(settings) as store:
            return [*await _check_stored_keys(store), *await _check_approvals(store)]
    except StoreError as error:
        return [CheckResult("database", "wrong", str(error))]


async def _check_stored_keys(store: Store) -> list[CheckResult]:
    found: list[CheckResult] = []
    for key in await store.api_keys.all():
        if key.scope == "admin" and key.expires is None:
            says = f"the API key {key.name} may do everything and never expires"
            advice = f"`alipes serve key revoke {key.name}`, then add it with --days or another --scope"
            found.append(CheckResult("keys", "note", says, advice))
    webhooks = store.tables(WebhookStore)
    for status in await webhooks.all():
        name = status.webhook.name
        known = await webhooks.find(name)
        if known is not None and len(known[1].reveal()) < MIN_KEY_CHARS:
            says = f"the secret of webhook {name} has fewer than {MIN_KEY_CHARS} characters"
            found.append(CheckResult("keys", "wrong", says, "remove the webhook, then add it again"))
    return found


async def _check_approvals(store: Store) -> list[CheckResult]:
    rules = [each for each in await store.approvals.list_current() if each.choice == "always"]
    if not rules:
        return [CheckResult("approvals", "ok", "nothing is always allowed")]
    says = f"{format_count(len(rules), 'rule')} always allowed, without a question"
    return [CheckResult("approvals", "note", says, "look at them with `alipes approvals`")]


def _check_plugins(settings: Settings) -> Iterator[CheckResult]:
    plugins = settings.plugins
    enabled, _ = enabled_plugins(settings)
    for plugin in find_plugins(settings):
        if plugin.name in plugins.unpinned:
            says = f"{plugin.name} is loaded even if its files change (plugins.unpinned)"
            yield CheckResult("plugins", "note", says, "remove it there when it is finished")
        elif changes := pins.find_changes(settings.home, plugin):
            says = f"{plugin.name} changed since you accepted it ({changes}), and is not loaded"
            yield CheckResult("plugins", "wrong", says, f"`alipes plugins accept {plugin.name}`")
    if plugins.project:
        says = "plugins.project = true: plugins of the working directory are found"
        yield CheckResult("plugins", "note", says, "`alipes config unset plugins.project`")
    if enabled:
        names = ", ".join(plugin.name for plugin in enabled)
        yield CheckResult("plugins", "note", f"run with all rights of alipes: {names}", "disable those you do not need")


def _check_versions() -> Iterator[CheckResult]:
    python = sys.version_info[:2]
    end = PYTHON_ENDS.get(python, "")
    if end and time.strftime("%Y-%m-%d") > end:
        says = f"Python {python[0]}.{python[1]} gets no security fixes since {end}"
        yield CheckResult("versions", "wrong", says, "install a newer Python")
    else:
        until = f", security fixes until {end}" if end else ""
        yield CheckResult("versions", "ok", f"Python {sys.version.split()[0]}{until}")
    yield _compare("SQLite", SQLITE_VERSION, _MIN_SQLITE, "older versions get no fixes")
    yield _compare("OpenSSL", _parse_version(ssl.OPENSSL_VERSION), _MIN_OPENSSL, "older versions get no fixes")
    for program, (least, hole) in _PROGRAMS.items():
        if version := _program_version(program):
            yield _compare(program, version, least, hole)


def _compare(name: str, version: tuple[int, ...], least: tuple[int, ...], hole: str) -> CheckResult:
    shown = ".".join(map(str, version))
    if version < least:
        wanted = ".".join(map(str, least))
        return CheckResult("versions", "note", f"{name} {shown}: {hole}", f"install {name} {wanted} or newer")
    return CheckResult("versions", "ok", f"{name} {shown}")


def _program_version(name: str) -> tuple[int, ...]:
    """The version that `name --version` prints; empty if it is not installed or prints none."""
    path = shutil.which(name)
    if path is None:
        return ()
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return _parse_version(said)


def _parse_version(text: str) -> tuple[int, ...]:
    """The first version in a text; empty if there is none."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()
