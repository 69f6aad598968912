"""Shell hooks: programs that receive an event as JSON on stdin and may answer on stdout."""

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
from alipes.config.environment import process_environment, read_text
from alipes.config.settings import ShellHook
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.turns import Inbound
from alipes.plugins.context import Context
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.registry import CommandHandler
from alipes.runtime.processes.child import Child, open_child
from alipes.runtime.processes.process_tree import OrphanGuard, open_orphan_guard, scratch_directory

FILE = "shell-hooks-allowlist.json"


class HookConsents:
    """Stored consents: one event, one command, and the files it names with their modification times."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def is_allowed(self, event: str, command: str) -> bool:
        """True if it may run. A command whose files have changed needs a new consent."""
        wanted = {"event": event, "command": command, "files": files_of(command)}
        return any(wanted.items() <= each.items() for each in self._read())

    def allow(self, event: str, command: str) -> None:
        """Allow the command in its current state."""
        same = (event, command)
        others = [each for each in self._read() if (each.get("event"), each.get("command")) != same]
        new = {"event": event, "command": command, "files": files_of(command), "given": time.time()}
        self._write([*others, new])

    def revoke(self, command: str, event: str = "") -> int:
        """Revoke consents for the command, for all events or for one. Returns how many there were."""
        before = self._read()
        remaining = [
            each for each in before if each.get("command") != command or (event and each.get("event") != event)
        ]
        if len(remaining) < len(before):
            self._write(remaining)
        return len(before) - len(remaining)

    def _read(self) -> list[dict[str, Any]]:
        try:
            entries = json.loads(read_text(self.file) or '{"approvals": []}')["approvals"]
            return [each for each in entries if isinstance(each, dict)]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.file} is damaged: delete it and allow your shell hooks again.") from error

    def _write(self, entries: Iterable[dict[str, Any]]) -> None:
        """Replace the file atomically, readable only by its owner."""
        new = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as opened:
                json.dump({"approvals": list(entries)}, opened, indent=2)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(new, self.file)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise ConfigError(f"{self.file} cannot be written: {error.strerror}.") from error


def argv_of(command: str) -> list[str]:
    """Split a command without a shell and expand `~`. Raises ValueError."""
    return [os.path.expanduser(word) for word in shlex.split(command)]


def files_of(command: str) -> dict[str, int]:
    """Files named by path in a command, with their modification times in nanoseconds."""
    try:
        program, *consents_list = argv_of(command)
    except ValueError:
        return {}
    named = [program, *consents_list] if "/" in program else consents_list
    found = {}
    for word in named:
        with suppress(OSError, ValueError):
            if os.path.isfile(word):
                found[os.path.realpath(word)] = os.stat(word).st_mtime_ns
    return found


HELP = "list shell hooks and choose which may run"
HOW_TO_ALLOW = "it is not allowed in its current state; use `/hooks` and `/hooks allow N` in the terminal"
_TERMINAL = "terminal"


def hooks_command(declared: Mapping[str, tuple[ShellHook, ...]], consents: HookConsents) -> CommandHandler:
    """The `/hooks` command. Only the terminal may allow hooks."""
    hooks = [(event, hook) for event, each in declared.items() for hook in each]

    async def act(args: str, inbound: Inbound) -> str:
        if not args:
            return _list_hooks(hooks, consents)
        verb, _, which = args.lower().partition(" ")
        if verb not in ("allow", "revoke"):
            return f"/hooks takes allow or revoke and a number, not {verb}."
        if inbound.address.platform != _TERMINAL:
            return "Use the terminal of this machine to choose which hooks may run."
        chosen = hooks if which.strip() == "all" else _hook_number(hooks, which)
        if not chosen:
            return f"Usage: /hooks {verb} N with a number from 1 to {len(hooks)}, or all."
        for event, hook in chosen:
            if verb == "allow":
                consents.allow(event, hook.command)
            else:
                consents.revoke(hook.command, event)
        return _list_hooks(hooks, consents)

    return act


def _hook_number(hooks: list[tuple[str, ShellHook]], which: str) -> list[tuple[str, ShellHook]]:
    number = int(which) if which.strip().isascii() and which.strip().isdecimal() else 0
    return hooks[number - 1 : number] if number else []


def _list_hooks(hooks: list[tuple[str, ShellHook]], consents: HookConsents) -> str:
    if not hooks:
        return "No shell hooks are configured; add them to [hooks] in config.toml."
    lines = []
    for number, (event, hook) in enumerate(hooks, 1):
        state = "allowed" if consents.is_allowed(event, hook.command) else "not allowed"
        tools = f" for {hook.matcher}" if hook.matcher else ""
        lines.append(f"{number}  {state}  {event}{tools}: {hook.command}")
    return "\n".join(lines)


log = logging.getLogger(__name__)
Callback: TypeAlias = Callable[..., Awaitable[dict[str, Any] | None]]
MAX_TIMEOUT_S = 300.0
"""Upper limit of a hook's timeout."""
MAX_ANSWER_BYTES = 1_000_000
"""Maximum size of an answer."""
BLOCK_EXIT_CODE = 2
"""Exit code that blocks a tool call, even without JSON."""
_MAX_REASON_CHARS = 400
_STDERR_TO_FILE = 'exec "$@" 2>"$0"'
"""Sends stderr to a file, so that it does not mix with the answer."""
_TOP = ("tool_name", "args", "session_id")


class HookResult(Struct, frozen=True):
    """Output and exit code of a program."""

    answer: bytes
    stderr: str
    code: int


async def open_shell_hooks(bridge: Bridge, context: Context) -> None:
    """Register the hooks of `[hooks]`, each for the Hermes hook of that name."""
    settings = bridge.settings
    keeper = await context.stack.enter_async_context(open_orphan_guard(settings.paths.run))
    home = str(settings.home)
    consents = HookConsents(settings.home / FILE)
    environ = {**process_environment(), "ALIPES_HOME": home, "HERMES_HOME": home}
    runner = ShellHookRunner(consents, environ, keeper=keeper, profile=bridge.profile_name, context=context)
    for event, declared in settings.hooks.items():
        if event not in HOOKS:
            context.log.warning("[[hooks.%s]]: unknown hook.%s", event, did_you_mean(event, HOOKS))
            continue
        for hook in declared:
            mapping = structs.replace(HOOKS[event], deadline=timeout_of(hook) + 1.0)
            register(bridge, context, mapping, runner.callback(event, hook))
    context.command("hooks", hooks_command(settings.hooks, consents), help=HELP, hint="[allow|revoke N]")


class ShellHookRunner:
    """Runs the shell hooks of an app with the operator's whole environment."""

    def __init__(
        self,
        consents: HookConsents,
        environ: Mapping[str, str],
        *,
        keeper: OrphanGuard | None = None,
        profile: str = "default",
        context: Context | None = None,
    ) -> None:
        self._consents, self._environ, self._keeper = consents, environ, keeper
        self._profile, self._context = profile, context

    def callback(self, event: str, hook: ShellHook) -> Callback:
        """A callback for the Hermes hook `event` that runs the program and returns its decision."""
        matcher = re.compile(hook.matcher) if hook.matcher not in ("", "*") else None
        reported: set[bool] = set()
        """Whether the missing consent was reported, in a turn and outside of one."""

        async def callback(**kwargs: Any) -> dict[str, Any] | None:
            name = kwargs.get("tool_name")
            if matcher is not None and "tool_name" in kwargs and not matcher.fullmatch(str(name)):
                return None
            try:
                allowed = self._consents.is_allowed(event, hook.command)
            except ConfigError as error:
                return _report_failure(event, hook, str(error))
            if allowed:
                reported.clear()
                return await self._decide(event, hook, kwargs)
            if (in_turn := TURN.get() is not None) not in reported:
                self._report(f"the shell hook `{hook.command}` for {event} is not run: {HOW_TO_ALLOW}")
            reported.add(in_turn)
            return None

        return callback

    def _report(self, text: str) -> None:
        log.warning("%s", text)
        if self._context is not None:
            self._context.notify(text)

    async def _decide(self, event: str, hook: ShellHook, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(timeout_of(hook)):
                result = await self._run(hook, payload(event, kwargs, self._profile))
        except TimeoutError:
            return _report_failure(event, hook, f"it timed out after {timeout_of(hook):g} s")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or error
            return _report_failure(event, hook, f"it could not be started: {why}")
        answer, reason = _parse_answer(result.answer), result.stderr.strip()[:_MAX_REASON_CHARS]
        if event == "pre_tool_call" and result.code == BLOCK_EXIT_CODE:
            message = reason or f"the shell hook `{hook.command}` blocked it"
            return decision(event, answer or {}) or {"action": "block", "message": message}
        if result.code and not answer:
            return _report_failure(event, hook, f"it exited with {result.code}: {reason}")
        if result.answer.strip() and answer is None:
            log.warning("the answer of the shell hook `%s` for %s is not a JSON object", hook.command, event)
        return decision(event, answer or {})

    async def _run(self, hook: ShellHook, data: bytes) -> HookResult:
        """Run the program to its end. Cancellation kills it and all its children.

        Raises OSError or ValueError if it cannot be started.
        """
        with scratch_directory(self._keeper) as folder:
            stderr = folder / "stderr"
            argv = ["/bin/sh", "-c", _STDERR_TO_FILE, str(stderr), *_check_argv(hook.command)]
            async with open_child(argv, cwd=_folder(), env=self._environ, link="pipes", keeper=self._keeper) as child:
                async with asyncio.TaskGroup() as group:
                    feeding = group.create_task(_feed(child, data))
                    answer = await _read_answer(child)
                    feeding.cancel()
                code = await child.wait()
            return HookResult(answer, _read_stderr(stderr), code)


def timeout_of(hook: ShellHook) -> float:
    """Timeout of a hook in seconds."""
    return min(hook.timeout, MAX_TIMEOUT_S)


def decision(event: str, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Translate the answer of a program to the return value of a plugin's callback."""
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
    """The JSON input of the program. Values without a JSON form are converted to strings."""
    turn = TURN.get()
    data = {
        "hook_event_name": event,
        "tool_name": kwargs.get("tool_name"),
        "tool_input": kwargs.get("args"),
        "session_id": kwargs.get("session_id") or (turn.session if turn else ""),
        "cwd": _folder(),
        "profile": profile,
        "extra": {name: value for name, value in kwargs.items() if name not in _TOP},
    }
    return json.dumps(data, default=str).encode()


def _read_stderr(file: Path) -> str:
    """The start of a program's stderr."""
    with suppress(FileNotFoundError), file.open("rb") as opened:
        return opened.read(_MAX_REASON_CHARS * 4).decode(errors="replace")
    return ""


def _check_argv(command: str) -> list[str]:
    argv = argv_of(command)
    if not argv:
        raise ValueError("the command is empty")
    if "/" in argv[0] and not os.access(argv[0], os.X_OK):
        missing = "does not exist" if not os.path.exists(argv[0]) else "is not executable: run chmod +x"
        raise ValueError(f"{argv[0]} {missing}")
    return argv


async def _feed(child: Child, data: bytes) -> None:
    try:
        await child.input.write(data, MAX_TIMEOUT_S)
    except OSError:  # a program need not read its input
        pass
    finally:
        child.input.close()


async def _read_answer(child: Child) -> bytes:
    answer = b""
    while piece := await child.read():
        answer = (answer + piece)[:MAX_ANSWER_BYTES]
    return answer


def _folder() -> str:
    turn = TURN.get()
    wanted = turn.inbound.workdir if turn is not None else ""
    return wanted if wanted and os.path.isdir(wanted) else os.getcwd()


def _parse_answer(answer: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(answer) if answer.strip() else {}
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _report_failure(event: str, hook: ShellHook, why: str) -> dict[str, Any] | None:
    """Report a failure. A failing gate blocks the call."""
    log.warning("the shell hook `%s` for %s failed: %s", hook.command, event, why)
    if event != "pre_tool_call":
        return None
    return {"action": "block", "message": f"blocked: the shell hook `{hook.command}` failed: {why}"}
