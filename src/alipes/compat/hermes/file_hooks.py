"""File hooks: a folder with `HOOK.yaml` and `handler.py`, told of what happens. They decide nothing."""

import asyncio
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from alipes.compat.hermes.hook_arguments import platform_in, platform_named, platform_of
from alipes.kernel.errors import PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Message
from alipes.kernel.turns import Event, Inbound, Turn, TurnStarted
from alipes.plugins.context import Context
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import Attempt

Handle: TypeAlias = Callable[[str, dict[str, Any]], Any]
PACKAGE = "hermes_hooks"
EVENTS = (
    *("gateway:startup", "session:start", "session:end", "session:reset", "session:compress"),
    *("agent:start", "agent:step", "agent:end", "command:*"),
)
NOT_YET = ("session:compress",)
"""Known, and never told: the house does not shorten conversations yet."""
_DECLARED = ("HOOK.yaml", "HOOK.yml")
SHOWN = 500
"""Characters of a message that are told."""


async def open_file_hook(folder: Path, context: Context) -> None:
    """Import the handler and have it told of its events, until the context is closed.

    Raises PluginError with what is wrong with the folder. What the handler's own code raises is passed on.
    """
    events = _events(folder, context)
    module = _imported(folder, context)
    handle = getattr(module, "handle", None)
    if not callable(handle):
        raise PluginError(context.name, "handler.py", "has no function `handle(event_type, context)`")
    FileHook(events, handle).register(context)


class FileHook:
    """One handler, and what it is told."""

    def __init__(self, events: tuple[str, ...], handle: Handle) -> None:
        self._events, self._handle = events, handle
        self._off_loop = not inspect.iscoroutinefunction(handle)
        self._people: dict[str, str] = {}
        """By session key, who spoke there last."""

    def register(self, context: Context) -> None:
        """With what it listens to, and nothing else: an event nobody wants costs nothing."""
        wanted: dict[Hook, tuple[str, ...]] = {
            self.gateway_started: ("gateway:startup",),
            self.session_began: ("session:start",),
            self.session_left: ("session:end",),
            self.session_reset: ("session:reset",),
            self.on_event: ("agent:start", "session:end", "session:reset"),
            self.request_sent: ("agent:step",),
            self.turn_ended: ("agent:end",),
        }
        for hook, events in wanted.items():
            if any(self._wants(event) for event in events):
                context.hook(hook)
        if any(event.startswith("command:") or fnmatchcase("command:", event) for event in self._events):
            context.hook(self.command_given)

    def _wants(self, event: str) -> bool:
        return any(fnmatchcase(event, pattern) for pattern in self._events)

    async def _tell(self, event: str, **told: Any) -> None:
        if not self._wants(event):
            return
        if self._off_loop:  # it may write files for as long as it likes
            answer = await asyncio.to_thread(self._handle, event, told)
        else:
            answer = self._handle(event, told)
        if inspect.isawaitable(answer):
            await answer

    async def gateway_started(self, platforms: tuple[str, ...]) -> None:
        await self._tell("gateway:startup", platforms=list(platforms))

    async def session_began(self, session: str, session_key: str, turn: Turn) -> None:
        who = {"platform": platform_of(turn), "user_id": turn.inbound.sender}
        await self._tell("session:start", **who, session_id=session, session_key=session_key)

    async def session_left(self, session: str, session_key: str, reason: str, successor: str) -> None:
        told = {**self._whose(session_key), "session_id": session, "session_key": session_key}
        await self._tell("session:end", **told, reason=reason, new_session_id=successor)

    async def session_reset(self, session: str, session_key: str, reason: str, predecessor: str) -> None:
        told = {**self._whose(session_key), "session_id": session, "session_key": session_key}
        await self._tell("session:reset", **told, reason=reason, old_session_id=predecessor)

    async def on_event(self, event: Event, turn: Turn) -> None:
        if isinstance(event, TurnStarted):
            self._people[turn.key] = turn.inbound.sender
            await self._tell("agent:start", **_about(turn))

    async def request_sent(self, attempt: Attempt, turn: Turn) -> None:
        if attempt.number > 1:  # the same question once more is no further step
            return
        calls = next((m.calls for m in reversed(attempt.request.messages) if m.role == "assistant"), ())
        names = [call.name for call in calls] if attempt.step > 1 else []
        await self._tell("agent:step", **_about(turn), iteration=attempt.step, tool_names=names)

    async def turn_ended(self, turn: Turn, ending: str, detail: str, said: tuple[Message, ...]) -> None:
        answers = [message.text for message in said if message.role == "assistant" and message.text]
        response = answers[-1][:SHOWN] if answers else ""
        await self._tell("agent:end", **_about(turn), response=response, status=ending, detail=detail)

    async def command_given(self, name: str, args: str, inbound: Inbound) -> None:
        who = {"platform": platform_named(inbound.address.platform), "user_id": inbound.sender}
        key = inbound.address.key
        await self._tell(f"command:{name}", **who, command=name, args=args, session_key=key)

    def _whose(self, key: str) -> dict[str, Any]:
        return {"platform": platform_in(key), "user_id": self._people.get(key, "")}


def _about(turn: Turn) -> dict[str, Any]:
    address = turn.inbound.address
    return {
        "platform": platform_of(turn),
        "user_id": turn.inbound.sender,
        "chat_id": address.chat,
        "thread_id": address.thread,
        "chat_type": address.chat_type,
        "session_id": turn.session,
        "session_key": turn.key,
        "turn_id": turn.id,
        "message": turn.inbound.text[:SHOWN],
    }


def _events(folder: Path, context: Context) -> tuple[str, ...]:
    file = next((each for each in _DECLARED if (folder / each).is_file()), _DECLARED[0])
    declared = read_yaml(folder / file, context.name)
    events = declared.get("events")
    if (
        not isinstance(events, list)
        or not all(isinstance(each, str) and each for each in events)
        or not events
    ):
        raise PluginError(context.name, file, "lacks its events: a list such as [agent:start, agent:end]")
    for event in events:
        if event in NOT_YET:
            context.log.warning("hook %s asks for %s, which the house does not tell yet", context.name, event)
        elif not any(fnmatchcase(event, each) or fnmatchcase(each, event) for each in EVENTS):
            meant = did_you_mean(event, EVENTS)
            context.log.warning("hook %s asks for %s, which nobody tells.%s", context.name, event, meant)
    return tuple(events)


def read_yaml(file: Path, plugin: str) -> dict[str, Any]:
    """The mapping in a file. Raises PluginError, also where PyYAML is not installed."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise PluginError(plugin, file.name, "needs PyYAML: pip install 'alipes[hermes]'") from error
    try:
        declared = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise PluginError(plugin, file.name, f"cannot be read: {why}") from error
    if not isinstance(declared, dict):
        raise PluginError(plugin, file.name, "must hold names and values, such as `name: my-hook`")
    return declared


def _imported(folder: Path, context: Context) -> ModuleType:
    file = folder / "handler.py"
    if not file.is_file():
        raise PluginError(context.name, "handler.py", f"is not there: {folder} must hold one")
    name = f"{PACKAGE}.{re.sub(r'[^0-9A-Za-z_]', '_', folder.name)}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    context.stack.callback(sys.modules.pop, name, None)
    spec.loader.exec_module(module)
    return module
