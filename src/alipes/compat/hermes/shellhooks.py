"""Shell hooks: programs that are told of a moment as JSON, and may answer. Whether they may run is told
elsewhere, and so is what becomes of the answer."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, structs

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.consent import FILE, Consents, argv_of
from alipes.compat.hermes.hooks import HOOKS, register
from alipes.compat.hermes.shellhooks_command import HELP, HOW, allowing
from alipes.config.near import did_you_mean
from alipes.config.plugins import ShellHook
from alipes.config.variables import inherited
from alipes.hooks.context import Context
from alipes.hooks.tracking import TURN
from alipes.kernel.errors import ConfigError
from alipes.runtime.orphans import Keeper, open_keeper, scratch
from alipes.runtime.process import Child, open_child

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
