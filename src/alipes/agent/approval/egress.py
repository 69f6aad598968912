"""Egress rights: which hosts commands and fetches may connect to, by the settings or by a person's answer.

A yes for one package registry allows all of them, and one for a git remote of the project allows its other remotes.
"""

import asyncio
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.config.settings import EgressConfig
from alipes.kernel.conversations import ApprovalDecision, QuestionUndelivered, denial_reason
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import Turn
from alipes.runtime.http.egress import EgressRequest, format_authority, normalise_host
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.tasks import unwrap_error_group

AskEgress: TypeAlias = Callable[[ToolCall, str, Turn], Awaitable[ApprovalDecision]]
"""Asks the person about a call of the tool `network`, or returns an earlier decision; None if nobody can be asked."""
TOOL = "network"
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
MAX_GIT_CONFIG_BYTES = 1_000_000
HOW_TO_ALLOW = "To allow it, add it to egress.allow in config.toml."
_SCP_URL = re.compile(r"(?:[^@/:\s]+@)?(\[[0-9a-fA-F:]+\]|[^@/:\s]+):(?!//)")


class EgressTarget(Struct, frozen=True):
    """What a yes allows: one host, or a group of hosts."""

    name: str
    """A host, HOST:PORT, or the name of a group."""
    reason: str
    """Completes a sentence about the call: `connects to ...`."""
    hosts: tuple[str, ...] = ()
    """All of the group; empty if it is one host."""

    def to_call(self, port: int) -> ToolCall:
        """The call that a person is asked about."""
        place: dict[str, Json] = {"group": self.name, "hosts": [*self.hosts]} if self.hosts else {"host": self.name}
        return ToolCall(os.urandom(6).hex(), TOOL, {**place, "port": port})


class _TurnRights:
    """What a person decided during one turn, and open questions."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        """By target, those that count for this turn only: empty if allowed, else why not."""
        self.standing: set[str] = set()
        """Targets allowed for the conversation or always."""
        self.questions: dict[str, asyncio.Task[str]] = {}


class EgressRights:
    """Decides about connections. Owns the questions it asks: they outlive a connection that gave up, not their turn."""

    def __init__(
        self,
        settings: EgressConfig,
        guard: AddressGuard,
        ask: AskEgress | None = None,
        *,
        registries: Iterable[str] = (),
    ) -> None:
        """`guard`: hosts it lists are allowed. `registries`: more hosts that count as package registries."""
        self._settings, self._guard, self._ask = settings, guard, ask
        self._registries = (*REGISTRY_HOSTS, *(each for each in registries if each not in REGISTRY_HOSTS))
        self._allow = tuple(_expand(settings.allow, self._registries))
        self._turns: dict[str, _TurnRights] = {}
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

    async def decide(self, request: EgressRequest) -> str:
        """Why the connection is not allowed, as a sentence; empty if it is."""
        place, turn = format_authority(request.host, request.port), request.scope.turn
        if any(_matches(each, request, any_port=True) for each in self._settings.deny):
            return f"{request.host} is denied by egress.deny in config.toml."
        if self._guard.lists(request.host, request.port) or any(_matches(each, request) for each in self._allow):
            return ""
        if self._settings.default == "deny":
            return f"{place} is not in egress.allow in config.toml."
        if self._settings.default == "allow" or (turn is not None and turn.inbound.trusted):
            return ""
        if turn is None or self._ask is None:
            return f"{place} is not allowed: nobody is available to approve it. {HOW_TO_ALLOW}"
        return await self._ask_once(self._ask, request, turn)

    def forget_turn(self, turn: str) -> None:
        """Ask again for what was allowed for this turn only."""
        if rights := self._turns.get(turn):
            rights.answers = {target: answer for target, answer in rights.answers.items() if answer}

    async def turn_ended(self, turn: Turn) -> None:
        """Hook: what was allowed once is no longer allowed, and open questions are withdrawn."""
        self._end(turn.id)

    def _end(self, turn: str) -> None:
        rights = self._turns.pop(turn, None) or _TurnRights()
        self._ended[turn] = rights.standing
        if len(self._ended) > MAX_ENDED_TURNS:
            self._ended.popitem(last=False)
        for question in rights.questions.values():
            question.cancel()

    async def _ask_once(self, ask: AskEgress, request: EgressRequest, turn: Turn) -> str:
        """The answer for this target in this turn; connections that need the same one share one question."""
        place = format_authority(request.host, request.port)
        target = await self._target(request)
        if (standing := self._ended.get(turn.id)) is not None:
            ended = f"{place} is not allowed: the turn has ended, so nobody can be asked. {HOW_TO_ALLOW}"
            return "" if target.name in standing else ended
        rights = self._turns.setdefault(turn.id, _TurnRights())
        if (answer := rights.answers.get(target.name)) is not None:
            return answer
        question = rights.questions.get(target.name)
        if question is None:
            question = self._group.create_task(self._put(ask, rights, target, request))
            rights.questions[target.name] = question
        await asyncio.wait({question})
        if question.cancelled():
            return f"{place} is not allowed: the turn was stopped before anybody answered."
        return question.result()

    async def _put(self, ask: AskEgress, rights: _TurnRights, target: EgressTarget, request: EgressRequest) -> str:
        turn = request.scope.turn
        assert turn is not None
        try:
            decision = await ask(target.to_call(request.port), target.reason, turn)
        finally:
            del rights.questions[target.name]
        if not (why := denial_reason(decision)):
            if decision == "once":
                rights.answers[target.name] = ""
            else:  # asked again each time: it can be revoked
                rights.standing.add(target.name)
            return ""
        sentence = f"{format_authority(request.host, request.port)} is not allowed: {why}."
        if decision is None:
            return f"{sentence} {HOW_TO_ALLOW}"
        if not isinstance(decision, QuestionUndelivered):
            sentence = f"{sentence} Do not try to work around this."
        rights.answers[target.name] = sentence
        return sentence

    async def _target(self, request: EgressRequest) -> EgressTarget:
        host, port = request.host, request.port
        if any(_matches(each, request) for each in self._registries):
            return EgressTarget("package registries", f"connects to {host}, a package registry", self._registries)
        name = host if port in USUAL_PORTS else format_authority(host, port)
        remotes = await asyncio.to_thread(read_git_remotes, request.scope.workdir) if request.scope.workdir else ()
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
    return tuple(dict.fromkeys(host for url in urls if (host := _url_host(url.removeprefix("sparse+")))))


def _url_host(url: str) -> str:
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
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            return file.read(MAX_GIT_CONFIG_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


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
        return _url_host(url)
    if found := _SCP_URL.match(url):
        return _url_host(f"ssh://{found[1]}")
    return ""
