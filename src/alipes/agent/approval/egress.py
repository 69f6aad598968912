"""Egress rights: which hosts commands and fetches may connect to, by the settings or by a person's answer.

A yes for one package registry allows all of them, and one for a git remote of the project allows its other remotes.
A yes for SSH connections that may use the person's keys is another one than for the host.
"""

import asyncio
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.config.settings import EgressConfig
from alipes.kernel.approvals import NETWORK
from alipes.kernel.conversations import ApprovalDecision, DeniedBecause, QuestionUndelivered, denial_reason
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.runtime.http.egress import DecideEgress, EgressRequest, EgressRule, format_authority, normalise_host
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.tasks import unwrap_error_group

AskEgress: TypeAlias = Callable[[ToolCall, str, Turn], Awaitable[ApprovalDecision]]
"""Asks the person about a call of the tool `network`, or returns an earlier decision; None if nobody can be asked."""
USUAL_PORTS = (80, 443, 22, 9418)
"""HTTP, HTTPS, SSH and git. Another port needs a rule that names it."""
REGISTRIES = "registries"
"""In `egress.allow`: all package registries."""
REGISTRY_HOSTS = (
    "pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com", "crates.io", "index.crates.io",
    "static.crates.io", "proxy.golang.org", "sum.golang.org", "rubygems.org", "index.rubygems.org",
    "repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "repo.packagist.org", "api.nuget.org",
    "hex.pm", "repo.hex.pm", "cdn.cocoapods.org", "deb.debian.org", "security.debian.org", "archive.ubuntu.com",
    "security.ubuntu.com", "dl-cdn.alpinelinux.org",
)  # fmt: skip
_REGISTRY_VARIABLES = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL",
    "NPM_CONFIG_REGISTRY", "npm_config_registry", "YARN_NPM_REGISTRY_SERVER", "YARN_REGISTRY", "GOPROXY",
    "CARGO_REGISTRIES_CRATES_IO_INDEX", "BUNDLE_MIRROR__ALL",
)  # fmt: skip
MAX_ENDED_TURNS = 256
MAX_PROJECTS = 1024
"""Conversations whose git remotes are remembered."""
MAX_GIT_CONFIG_BYTES = 1_000_000
HOW_TO_ALLOW = "To allow it, add it to egress.allow in config.toml."
_SCP_URL = lazy_pattern(r"(?:[^@/:\s]+@)?(\[[0-9a-fA-F:]+\]|[^@/:\s]+):(?!//)")


class DeniedByPerson(str):
    """Why a connection is not allowed, as a sentence: a person has just said no to it."""

    __slots__ = ()


class EgressTarget(Struct, frozen=True):
    """What a yes allows: one host, or a group of hosts."""

    name: str
    """A host, HOST:PORT, or the name of a group."""
    reason: str
    """Completes a sentence about the call: `connects to ...`."""
    hosts: tuple[str, ...] = ()
    """All of the group; empty if it is one host."""
    keys: bool = False
    """With the person's SSH keys."""

    @property
    def allows(self) -> str:
        """What a yes allows: with other hosts a group is another one."""
        return " ".join((self.name, *self.hosts, *(["with SSH keys"] if self.keys else [])))

    def to_call(self, request: EgressRequest) -> ToolCall:
        """The call that a person is asked about."""
        args: dict[str, Json] = {"host": request.host if self.hosts else self.name, "port": request.port}
        if self.hosts:
            args |= {"group": self.name, "hosts": [*self.hosts]}
        if self.keys:
            args |= {"host": request.host, "keys": True}
        if request.command:
            args["command"] = request.command
        return ToolCall(os.urandom(6).hex(), NETWORK, args)


_AnswerKey: TypeAlias = tuple[str, bool]
"""What a yes allows, and whether untrusted text had been read."""


class _TurnRights:
    """What a person decided during one turn, and open questions."""

    def __init__(self) -> None:
        self.answers: dict[_AnswerKey, str] = {}
        """Those that count for this turn only: empty if allowed, else why not."""
        self.standing: set[str] = set()
        """Targets allowed for the conversation or always."""
        self.questions: dict[_AnswerKey, asyncio.Task[str]] = {}

    def allow(self, target: EgressTarget) -> bool:
        """True if the person said yes to it, also before text was read that makes the question come again."""
        answers = (self.answers.get((target.allows, tainted)) for tainted in (False, True))
        return target.allows in self.standing or "" in answers

    async def ask(self, put: Callable[[], Awaitable[ApprovalDecision]], key: _AnswerKey, place: str) -> str:
        """Put a question and remember the answer, also if the connections that wait for it have given up."""
        try:
            decision = await put()
        finally:
            del self.questions[key]
        if not (why := denial_reason(decision)):
            if decision == "once":
                self.answers[key] = ""
            else:  # looked up each time: it can be revoked
                self.standing.add(key[0])
            return ""
        if decision is None:
            return f"{place} is not allowed: {why}. {HOW_TO_ALLOW}"
        if isinstance(decision, QuestionUndelivered):
            self.answers[key] = f"{place} is not allowed: {why}."
            return self.answers[key]
        note = f': "{decision.why}"' if isinstance(decision, DeniedBecause) else ""
        sentence = f"The user said no to a connection to {place}{note}. Do not try to work around this."
        self.answers[key] = sentence
        return DeniedByPerson(sentence)

    def withdraw_questions(self) -> None:
        for question in self.questions.values():
            question.cancel()


class EgressRights:
    """Decides about connections. Owns the questions it asks: they outlive a connection that gave up, not their turn."""

    def __init__(
        self,
        settings: EgressConfig,
        guard: AddressGuard,
        ask: AskEgress | None = None,
        *,
        registries: Iterable[str] = (),
        is_tainted: Callable[[Turn, str], Awaitable[bool]] | None = None,
    ) -> None:
        """`guard`: hosts it lists are allowed to tools that fetch, not to commands. `registries`: more hosts that count
        as package registries.

        `is_tainted`: whether untrusted text was read, other than from this host; then a yes for the turn must be given
        again.
        """
        self._settings, self._guard, self._ask, self._is_tainted = settings, guard, ask, is_tainted
        self._registries = (*REGISTRY_HOSTS, *(each for each in registries if each not in REGISTRY_HOSTS))
        self._allow = tuple(_expand(settings.allow, self._registries))
        self._turns: dict[str, _TurnRights] = {}
        self._remotes: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()
        """By conversation and folder: the git remotes before its first command, which could add one."""
        self._own: dict[str, tuple[str, ...]] = {}
        """By session of a sandbox: hosts that its program cannot work without."""
        self._ended: OrderedDict[str, set[str]] = OrderedDict()
        """Turns that have ended, with what stays allowed to processes they left running."""
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for turn in tuple(self._turns):
            self._end(turn)
        with unwrap_error_group():
            await self._group.__aexit__(kind, error, trace)

    def allow_configured(self, *hosts: str) -> DecideEgress:
        """As `decide`, for a service whose hosts the operator configured: they are allowed unless denied.

        `hosts`: as HOST, or HOST:PORT if the port is unusual.
        """

        async def decide(request: EgressRequest) -> str:
            if any(_matches(each, request) for each in hosts):
                return self._denial(request)
            return await self.decide(request)

        return decide

    def set_own_hosts(self, session: str, hosts: tuple[str, ...]) -> None:
        """Hosts that the program in this sandbox cannot work without: allowed unless denied. Empty: none."""
        if hosts:
            self._own[session] = hosts
        else:
            self._own.pop(session, None)

    def is_own_host(self, request: EgressRequest) -> bool:
        return any(_matches(each, request) for each in self._own.get(request.scope.session, ()))

    def _denial(self, request: EgressRequest) -> str:
        denied = any(_matches(each, request, any_port=True) for each in self._settings.deny)
        return f"{request.host} is denied by egress.deny in config.toml." if denied else ""

    async def decide(self, request: EgressRequest) -> str:
        """Why the connection is not allowed, as a sentence; empty if it is."""
        place, turn = format_authority(request.host, request.port), request.scope.turn
        match self.rule(request):
            case "allow":
                return ""
            case "deny":
                return self._denial(request) or f"{place} is not in egress.allow in config.toml."
        if turn is None or self._ask is None:
            return f"{place} is not allowed: nobody is available to approve it. {HOW_TO_ALLOW}"
        return await self._ask_once(self._ask, request, turn)

    def rule(self, request: EgressRequest) -> EgressRule:
        """What the settings and the trust in the turn say, without a person."""
        turn = request.scope.turn
        if self._denial(request):
            return "deny"
        listed = not request.by_command and self._guard.lists(request.host, request.port)
        if listed or self.is_own_host(request) or any(_matches(each, request) for each in self._allow):
            return "allow"
        if turn is not None and turn.inbound.trusted:
            return "allow"
        return self._settings.default

    async def is_in_group(self, request: EgressRequest) -> bool:
        """True for package registries, git remotes of the project, and hosts of the program itself."""
        return self.is_own_host(request) or bool((await self._target(request)).hosts)

    async def may_use_keys(self, request: EgressRequest) -> bool:
        """True if a person said yes to this connection with the SSH keys, so that a signature needs no question."""
        turn = request.scope.turn
        if turn is None or not request.keys or turn.inbound.trusted:
            return turn is not None and turn.inbound.trusted
        target = await self._target(request)
        rights = self._turns.get(turn.id)
        return rights.allow(target) if rights is not None else target.allows in self._ended.get(turn.id, ())

    def remember_remotes(self, scope: CommandScope) -> tuple[str, ...]:
        """The git remotes of a project before the first command of the conversation."""
        key = (scope.session, scope.workdir)
        if key not in self._remotes:
            self._remotes[key] = read_git_remotes(scope.workdir) if scope.workdir else ()
            if len(self._remotes) > MAX_PROJECTS:
                self._remotes.popitem(last=False)
        return self._remotes[key]

    def register(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.agent_loop_stopped)
        hooks.add(CORE, self.turn_ended)

    async def agent_loop_stopped(self, turn_id: str) -> None:
        """Hook: the open questions of a turn that is stopped are withdrawn."""
        if rights := self._turns.get(turn_id):
            rights.withdraw_questions()

    async def turn_ended(self, turn: Turn) -> None:
        """Hook: what was allowed once is no longer allowed."""
        self._end(turn.id)

    def _end(self, turn: str) -> None:
        rights = self._turns.pop(turn, None) or _TurnRights()
        self._ended[turn] = rights.standing
        if len(self._ended) > MAX_ENDED_TURNS:
            self._ended.popitem(last=False)
        rights.withdraw_questions()

    async def _ask_once(self, ask: AskEgress, request: EgressRequest, turn: Turn) -> str:
        """The answer for this target in this turn; connections that need the same one share one question."""
        target = await self._target(request)
        tainted = self._is_tainted is not None and await self._is_tainted(turn, request.host)
        place, key = format_authority(request.host, request.port), (target.allows, tainted)
        if (standing := self._ended.get(turn.id)) is not None:
            ended = f"{place} is not allowed: the turn has ended, so nobody can be asked. {HOW_TO_ALLOW}"
            return "" if target.allows in standing else ended
        rights = self._turns.setdefault(turn.id, _TurnRights())
        if (answer := rights.answers.get(key)) is not None:
            return answer
        question = rights.questions.get(key)
        if question is None:
            put = partial(ask, target.to_call(request), target.reason, turn)
            shown = request.host if request.port in USUAL_PORTS else place
            question = self._group.create_task(rights.ask(put, key, shown))
            rights.questions[key] = question
        await asyncio.wait({question})
        if question.cancelled():
            return f"{place} is not allowed: the turn was stopped before anybody answered."
        return question.result()

    async def _target(self, request: EgressRequest) -> EgressTarget:
        host, port = request.host, request.port
        if request.keys:
            place = format_authority(host, port)
            return EgressTarget(place, f"connects to {place} and may use your SSH keys", keys=True)
        if any(_matches(each, request) for each in self._registries):
            return EgressTarget("package registries", f"connects to {host}, a package registry", self._registries)
        name = host if port in USUAL_PORTS else format_authority(host, port)
        remotes = await asyncio.to_thread(self.remember_remotes, request.scope)
        if not any(_matches(each, request) for each in remotes):
            return EgressTarget(name, f"connects to {name}")
        reason = f"connects to {name}, a git remote of the project"
        return EgressTarget(name, reason) if len(remotes) == 1 else EgressTarget("git remotes", reason, remotes)


def _expand(patterns: Iterable[str], registries: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        if pattern == REGISTRIES:
            yield from registries
        else:
            yield pattern


def _matches(pattern: str, request: EgressRequest, *, any_port: bool = False) -> bool:
    """True if a host, `*.HOST`, or either with `:PORT` includes the request; without a port, the usual ones."""
    name, colon, port = pattern.rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        if not any_port and request.port not in USUAL_PORTS:
            return False
        name = pattern
    elif int(port) != request.port:
        return False
    name = name.replace("[", "").replace("]", "")
    if name.startswith("*."):
        return request.host.endswith(name[1:])
    return name == request.host


def find_configured_registries(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Hosts of the package registries that the user's variables name, as HOST or HOST:PORT."""
    urls = (url for name in _REGISTRY_VARIABLES for url in re.split(r"[\s,|]+", environment.get(name, "")))
    return tuple(dict.fromkeys(host for url in urls if (host := url_host(url.removeprefix("sparse+")))))


def url_host(url: str) -> str:
    """HOST of a URL, or HOST:PORT if the port is unusual; empty if it has none."""
    try:
        parts = urlsplit(url)
        if not parts.scheme or not parts.hostname:
            return ""
        host, port = normalise_host(parts.hostname), parts.port
    except ValueError:
        return ""
    return host if port is None or port in USUAL_PORTS else format_authority(host, port)


def read_git_remotes(workdir: str) -> tuple[str, ...]:
    """Hosts of the git remotes of the repository that contains `workdir`, as HOST or HOST:PORT."""
    for folder in (Path(workdir), *Path(workdir).parents):
        text = _read_file(folder / ".git" / "config") or _read_file(_linked_git_folder(folder) / "config")
        if text:
            return tuple(dict.fromkeys(filter(None, map(_remote_host, _remote_urls(text)))))
    return ()


def _linked_git_folder(folder: Path) -> Path:
    """The git folder of a work tree or submodule, whose `.git` is a file."""
    name = _read_file(folder / ".git").removeprefix("gitdir:").strip()
    git = folder / (name or ".git")
    return git / (_read_file(git / "commondir").strip() or ".")


def _read_file(path: Path) -> str:
    """The text of a regular file; empty if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        return os.read(handle, MAX_GIT_CONFIG_BYTES).decode("utf-8", "replace") if is_file else ""
    except OSError:
        return ""
    finally:
        os.close(handle)


def _remote_urls(config: str) -> Iterator[str]:
    inside = False
    for line in map(str.strip, config.splitlines()):
        if line.startswith("["):
            inside = line.lower().startswith("[remote ")
        name, equals, value = line.partition("=")
        if inside and equals and name.strip().lower() in ("url", "pushurl"):
            yield value.strip().strip('"')


def _remote_host(url: str) -> str:
    if "://" in url:
        return url_host(url)
    if found := _SCP_URL.match(url):
        return url_host(f"ssh://{found[1]}")
    return ""
