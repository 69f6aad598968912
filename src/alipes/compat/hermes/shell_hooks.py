"""Shell hooks: programs that are told of a moment as JSON, and may answer. Whether they may run is told
elsewhere, and so is what becomes of the answer."""

import asyncio
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, structs

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hooks import HOOKS, register
from alipes.config.environment import inherited, read_text
from alipes.config.settings_parts import ShellHook
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.turns import Inbound
from alipes.plugins.attribution import TURN
from alipes.plugins.context import Context
from alipes.plugins.registry import CommandAct
from alipes.runtime.processes.child import Child, open_child
from alipes.runtime.processes.orphans import Keeper, open_keeper, scratch

FILE = "shell-hooks-allowlist.json"


class Consents:
    """A word counts for one event, one command, and the files it names as they were at the time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def given(self, event: str, command: str) -> bool:
        """May it run? A command whose files changed since is asked for anew."""
        wanted = {"event": event, "command": command, "files": files_of(command)}
        return any(wanted.items() <= each.items() for each in self._read())

    def give(self, event: str, command: str) -> None:
        """From now on it may, as it is."""
        kept = [each for each in self._read() if (each.get("event"), each.get("command")) != (event, command)]
        word = {"event": event, "command": command, "files": files_of(command), "given": time.time()}
        self._write([*kept, word])

    def withdraw(self, command: str, event: str = "") -> int:
        """It may no longer, at any event unless one is named; how many words that were."""
        before = self._read()
        kept = [
            each
            for each in before
            if each.get("command") != command or (event and each.get("event") != event)
        ]
        if len(kept) < len(before):
            self._write(kept)
        return len(before) - len(kept)

    def _read(self) -> list[dict[str, Any]]:
        try:
            words = json.loads(read_text(self.file) or '{"approvals": []}')["approvals"]
            return [each for each in words if isinstance(each, dict)]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.file} is not what it was written as: remove it, and say again what may run."
            ) from error

    def _write(self, words: Iterable[dict[str, Any]]) -> None:
        """All of it or nothing, for our eyes only."""
        new = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
            ) as opened:
                json.dump({"approvals": list(words)}, opened, indent=2)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(new, self.file)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise ConfigError(f"{self.file} cannot be written: {error.strerror}.") from error


def argv_of(command: str) -> list[str]:
    """The words of a command, without a shell; a word that begins with ~ is a path. Raises ValueError."""
    return [os.path.expanduser(word) for word in shlex.split(command)]


def files_of(command: str) -> dict[str, int]:
    """The files that a command names by a path, and when each was last changed, in nanoseconds."""
    try:
        program, *words = argv_of(command)
    except ValueError:
        return {}
    named = [program, *words] if "/" in program else words
    found = {}
    for word in named:
        with suppress(OSError, ValueError):
            if os.path.isfile(word):
                found[os.path.realpath(word)] = os.stat(word).st_mtime_ns
    return found


HELP = "show the shell hooks, and say which may run"
HOW = "nobody has allowed it as it is now; `/hooks` in the terminal shows it, `/hooks allow N` allows it"
_HERE = "terminal"


def allowing(declared: Mapping[str, tuple[ShellHook, ...]], consents: Consents) -> CommandAct:
    """The command. Only who sits at this machine may say what runs on it."""
    hooks = [(event, hook) for event, each in declared.items() for hook in each]

    async def act(args: str, inbound: Inbound) -> str:
        if not args:
            return _listed(hooks, consents)
        verb, _, which = args.lower().partition(" ")
        if verb not in ("allow", "revoke"):
            return f"/hooks takes allow or revoke and a number, not {verb}."
        if inbound.address.platform != _HERE:
            return "What may run on this machine is said in its own terminal."
        chosen = hooks if which.strip() == "all" else _numbered(hooks, which)
        if not chosen:
            return f"Which one? /hooks {verb} N, with a number from 1 to {len(hooks)}, or all."
        for event, hook in chosen:
            if verb == "allow":
                consents.give(event, hook.command)
            else:
                consents.withdraw(hook.command, event)
        return _listed(hooks, consents)

    return act


def _numbered(hooks: list[tuple[str, ShellHook]], which: str) -> list[tuple[str, ShellHook]]:
    number = int(which) if which.strip().isascii() and which.strip().isdecimal() else 0
    return hooks[number - 1 : number] if number else []


def _listed(hooks: list[tuple[str, ShellHook]], consents: Consents) -> str:
    if not hooks:
        return "No shell hooks are declared; [hooks] in config.toml is where they stand."
    lines = []
    for number, (event, hook) in enumerate(hooks, 1):
        state = "allowed" if consents.given(event, hook.command) else "not allowed"
        tools = f" for {hook.matcher}" if hook.matcher else ""
        lines.append(f"{number}  {state}  {event}{tools}: {hook.command}")
    return "\n".join(lines)


log = logging.getLogger(__name__)
Callback: TypeAlias = Callable[..., Awaitable[dict[str, Any] | None]]
LONGEST = 300.0
"""Seconds that a hook may take at most, whatever it was given."""
MOST = 1_000_000
"""Bytes of an answer that are read."""
BLOCKS = 2
"""The exit code that is a no, without a word of JSON."""
_TOLD = 400
_APART = 'exec "$@" 2>"$0"'
"""Its complaints go to a file, so that they do not stand between us and its answer."""
_TOP = ("tool_name", "args", "session_id")


class Surroundings(Struct, frozen=True):
    """What every shell hook of an app shares."""

    consents: Consents
    environ: Mapping[str, str]
    """All of it: a hook runs with the operator's own means."""
    keeper: Keeper | None = None
    profile: str = "default"
    tell: Callable[[str], None] = lambda _words: None
    """Shows a person a sentence, in the turn in whose course we are."""


class Ran(Struct, frozen=True):
    """What a program left behind."""

    answer: bytes
    complaint: str
    code: int


async def open_shell_hooks(bridge: Bridge, context: Context) -> None:
    """Register what `[hooks]` declares, each at the moment of the Hermes hook it is named after."""
    settings = bridge.settings
    keeper = await context.stack.enter_async_context(open_keeper(settings.paths.run))
    home = str(settings.home)
    around = Surroundings(
        Consents(settings.home / FILE),
        {**inherited(), "ALIPES_HOME": home, "HERMES_HOME": home},
        keeper=keeper,
        profile=bridge.profile_name,
        tell=context.tell,
    )
    for event, declared in settings.hooks.items():
        if event not in HOOKS:
            context.log.warning("[[hooks.%s]]: there is no such hook.%s", event, did_you_mean(event, HOOKS))
            continue
        for hook in declared:
            row = structs.replace(HOOKS[event], deadline=allowance(hook) + 1.0)
            register(bridge, context, row, callback_of(event, hook, around))
    context.command("hooks", allowing(settings.hooks, around.consents), help=HELP, hint="[allow|revoke N]")


def callback_of(event: str, hook: ShellHook, around: Surroundings) -> Callback:
    """A callback for the Hermes hook `event` that runs the program and gives what it decided."""
    matcher = re.compile(hook.matcher) if hook.matcher not in ("", "*") else None
    told: set[bool] = set()
    """Whether it was said in a turn, and elsewhere, that it is not allowed."""

    async def callback(**kwargs: Any) -> dict[str, Any] | None:
        if matcher is not None and "tool_name" in kwargs and not matcher.fullmatch(str(kwargs["tool_name"])):
            return None
        try:
            given = around.consents.given(event, hook.command)
        except ConfigError as error:
            return _failed(event, hook, str(error))
        if not given:
            if (in_turn := TURN.get() is not None) not in told:
                log.warning("the shell hook `%s` for %s is not run: %s", hook.command, event, HOW)
                around.tell(f"the shell hook `{hook.command}` for {event} is not run: {HOW}")
            told.add(in_turn)
            return None
        told.clear()
        return await _decided(event, hook, around, kwargs)

    return callback


def allowance(hook: ShellHook) -> float:
    """Seconds that it may take."""
    return min(hook.timeout, LONGEST)


async def _decided(
    event: str, hook: ShellHook, around: Surroundings, kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    try:
        async with asyncio.timeout(allowance(hook)):
            ran = await run_hook(hook, payload(event, kwargs, around.profile), around)
    except TimeoutError:
        return _failed(event, hook, f"it took longer than {allowance(hook):g} s")
    except (OSError, ValueError) as error:
        return _failed(event, hook, f"it could not be started: {getattr(error, 'strerror', '') or error}")
    answer = _parsed(ran.answer)
    if event == "pre_tool_call" and ran.code == BLOCKS:
        reason = ran.complaint.strip()[:_TOLD] or f"the shell hook `{hook.command}` blocked it"
        return decision(event, answer or {}) or {"action": "block", "message": reason}
    if ran.code and not answer:
        return _failed(event, hook, f"it ended with {ran.code}: {ran.complaint.strip()[:_TOLD]}")
    if ran.answer.strip() and answer is None:
        log.warning("the shell hook `%s` for %s said something that is no JSON object", hook.command, event)
    return decision(event, answer or {})


def decision(event: str, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an answer means to the hook `event`, as a plugin's callback would have returned it."""
    action, message = answer.get("action"), str(answer.get("message") or answer.get("reason") or "")
    match event:
        case "pre_tool_call" if action == "block" or answer.get("decision") == "block":
            return {"action": "block", "message": message or "a shell hook blocked it"}
        case "pre_tool_call" if action == "approve":
            rule = {"rule_key": str(answer["rule_key"])} if answer.get("rule_key") else {}
            return {"action": "approve", "message": message, **rule}
        case "pre_verify" if action == "continue" or answer.get("decision") == "block":
            return {"action": "continue", "message": message}
        case "pre_llm_call" if answer.get("context"):
            context = answer["context"]
            return {"context": context if isinstance(context, str) else json.dumps(context)}
    return None


def payload(event: str, kwargs: Mapping[str, Any], profile: str = "default") -> bytes:
    """What the program reads. A value that JSON has no word for is told as text."""
    turn = TURN.get()
    told = {
        "hook_event_name": event,
        "tool_name": kwargs.get("tool_name"),
        "tool_input": kwargs.get("args"),
        "session_id": kwargs.get("session_id") or (turn.session if turn else ""),
        "cwd": _folder(),
        "profile": profile,
        "extra": {name: value for name, value in kwargs.items() if name not in _TOP},
    }
    return json.dumps(told, default=str).encode()


async def run_hook(hook: ShellHook, told: bytes, around: Surroundings) -> Ran:
    """Run it to its end. Leaving early, also by cancellation, ends it and all that it started.

    Raises OSError or ValueError when it cannot be started.
    """
    keeper = around.keeper
    with scratch(keeper) as folder:
        complaints = folder / "complaints"
        argv = ["/bin/sh", "-c", _APART, str(complaints), *_runnable(hook.command)]
        async with open_child(argv, cwd=_folder(), env=around.environ, link="pipes", keeper=keeper) as child:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(_feed(child, told))
                answer = await _all_of(child)
                feeding.cancel()
            code = await child.wait()
        return Ran(answer, _complained(complaints), code)


def _complained(file: Path) -> str:
    """The beginning of what a program wrote beside its answer."""
    with suppress(FileNotFoundError), file.open("rb") as opened:
        return opened.read(_TOLD * 4).decode(errors="replace")
    return ""


def _runnable(command: str) -> list[str]:
    argv = argv_of(command)
    if not argv:
        raise ValueError("the command is empty")
    if "/" in argv[0] and not os.access(argv[0], os.X_OK):
        missing = "is not there" if not os.path.exists(argv[0]) else "may not be executed: chmod +x it"
        raise ValueError(f"{argv[0]} {missing}")
    return argv


async def _feed(child: Child, told: bytes) -> None:
    try:
        await child.input.write(told, LONGEST)
    except OSError:  # who is not interested need not read
        pass
    finally:
        child.input.close()


async def _all_of(child: Child) -> bytes:
    answer = b""
    while piece := await child.read():
        answer = (answer + piece)[:MOST]
    return answer


def _folder() -> str:
    turn = TURN.get()
    wanted = turn.inbound.workdir if turn is not None else ""
    return wanted if wanted and os.path.isdir(wanted) else os.getcwd()


def _parsed(answer: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(answer) if answer.strip() else {}
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _failed(event: str, hook: ShellHook, why: str) -> dict[str, Any] | None:
    """A gate that does not work is closed; whatever else goes wrong is only said."""
    log.warning("the shell hook `%s` for %s failed: %s", hook.command, event, why)
    if event != "pre_tool_call":
        return None
    return {"action": "block", "message": f"not done, because the shell hook `{hook.command}` failed: {why}"}
