"""File hooks: folders with `HOOK.yaml` and `handler.py` that observe events."""

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

from alipes.compat.hermes.hook_arguments import hermes_platform, platform_of, platform_of_key
from alipes.kernel.errors import PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Message
from alipes.kernel.turns import Event, Inbound, Turn, TurnStarted
from alipes.plugins.context import Context
from alipes.plugins.discovery import run_module, source_spec
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import ModelAttempt

Handle: TypeAlias = Callable[[str, dict[str, Any]], Any]
PACKAGE = "hermes_hooks"
EVENTS = (
    *("gateway:startup", "session:start", "session:end", "session:reset", "session:compress"),
    *("agent:start", "agent:step", "agent:end", "command:*"),
)
UNSUPPORTED_EVENTS = ("session:compress",)
"""Events of Hermes that alipes does not send yet."""
_MANIFEST_NAMES = ("HOOK.yaml", "HOOK.yml")
MAX_MESSAGE_CHARS = 500
"""Messages are cut to this length."""


async def open_file_hook(folder: Path, context: Context) -> None:
    """Import the handler and register it for its events until the context is closed.

    Raises PluginError if the folder is invalid, and whatever the handler's code raises on import.
    """
    events = _read_events(folder, context)
    module = _import_handler(folder, context)
    handle = getattr(module, "handle", None)
    if not callable(handle):
        raise PluginError(context.name, "handler.py", "has no function `handle(event_type, context)`")
    FileHook(events, handle).register(context)


class FileHook:
    """One handler and the events it receives."""

    def __init__(self, events: tuple[str, ...], handle: Handle) -> None:
        self._events, self._handle = events, handle
        self._off_loop = not inspect.iscoroutinefunction(handle)
        self._senders: dict[str, str] = {}
        """Latest sender by session key."""

    def register(self, context: Context) -> None:
        """Register only the hooks it needs: unwanted events cost nothing."""
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

    async def _call_handler(self, event: str, **context: Any) -> None:
        if not self._wants(event):
            return
        if self._off_loop:  # it may block, for instance on files
            answer = await asyncio.to_thread(self._handle, event, context)
        else:
            answer = self._handle(event, context)
        if inspect.isawaitable(answer):
            await answer

    async def gateway_started(self, platforms: tuple[str, ...]) -> None:
        await self._call_handler("gateway:startup", platforms=list(platforms))

    async def session_began(self, session: str, session_key: str, turn: Turn) -> None:
        who = {"platform": platform_of(turn), "user_id": turn.inbound.sender}
        await self._call_handler("session:start", **who, session_id=session, session_key=session_key)

    async def session_left(self, session: str, session_key: str, reason: str, successor: str) -> None:
        context = {**self._person_at(session_key), "session_id": session, "session_key": session_key}
        await self._call_handler("session:end", **context, reason=reason, new_session_id=successor)

    async def session_reset(self, session: str, session_key: str, reason: str, predecessor: str) -> None:
        context = {**self._person_at(session_key), "session_id": session, "session_key": session_key}
        await self._call_handler("session:reset", **context, reason=reason, old_session_id=predecessor)

    async def on_event(self, event: Event, turn: Turn) -> None:
        if isinstance(event, TurnStarted):
            self._senders[turn.key] = turn.inbound.sender
            await self._call_handler("agent:start", **_turn_context(turn))

    async def request_sent(self, attempt: ModelAttempt, turn: Turn) -> None:
        if attempt.number > 1:  # a retry is not another step
            return
        calls = next((m.calls for m in reversed(attempt.request.messages) if m.role == "assistant"), ())
        names = [call.name for call in calls] if attempt.step > 1 else []
        await self._call_handler("agent:step", **_turn_context(turn), iteration=attempt.step, tool_names=names)

    async def turn_ended(self, turn: Turn, ending: str, detail: str, said: tuple[Message, ...]) -> None:
        answers = [message.text for message in said if message.role == "assistant" and message.text]
        response = answers[-1][:MAX_MESSAGE_CHARS] if answers else ""
        await self._call_handler("agent:end", **_turn_context(turn), response=response, status=ending, detail=detail)

    async def command_given(self, name: str, args: str, inbound: Inbound) -> None:
        who = {"platform": hermes_platform(inbound.address.platform), "user_id": inbound.sender}
        key = inbound.address.key
        await self._call_handler(f"command:{name}", **who, command=name, args=args, session_key=key)

    def _person_at(self, key: str) -> dict[str, Any]:
        return {"platform": platform_of_key(key), "user_id": self._senders.get(key, "")}


def _turn_context(turn: Turn) -> dict[str, Any]:
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
        "message": turn.inbound.text[:MAX_MESSAGE_CHARS],
    }


def _read_events(folder: Path, context: Context) -> tuple[str, ...]:
    file = next((each for each in _MANIFEST_NAMES if (folder / each).is_file()), _MANIFEST_NAMES[0])
    declared = read_yaml(folder / file, context.name)
    events = declared.get("events")
    if not isinstance(events, list) or not all(isinstance(each, str) and each for each in events) or not events:
        raise PluginError(context.name, file, "needs a list of events such as [agent:start, agent:end]")
    for event in events:
        if event in UNSUPPORTED_EVENTS:
            context.log.warning("hook %s: the event %s is not supported yet", context.name, event)
        elif not any(fnmatchcase(event, each) or fnmatchcase(each, event) for each in EVENTS):
            meant = did_you_mean(event, EVENTS)
            context.log.warning("hook %s: unknown event %s.%s", context.name, event, meant)
    return tuple(events)


def read_yaml(file: Path, plugin: str) -> dict[str, Any]:
    """Read a mapping from a file. Raises PluginError, also if PyYAML is not installed."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise PluginError(plugin, file.name, "needs PyYAML: run `alipes install hermes`") from error
    try:
        declared = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise PluginError(plugin, file.name, f"cannot be read: {why}") from error
    if not isinstance(declared, dict):
        raise PluginError(plugin, file.name, "must be a mapping such as `name: my-hook`")
    return declared


def _import_handler(folder: Path, context: Context) -> ModuleType:
    file = folder / "handler.py"
    if not file.is_file():
        raise PluginError(context.name, "handler.py", f"does not exist in {folder}")
    name = f"{PACKAGE}.{re.sub(r'[^0-9A-Za-z_]', '_', folder.name)}"
    module = importlib.util.module_from_spec(source_spec(name, file))
    sys.modules[name] = module
    context.stack.callback(sys.modules.pop, name, None)
    run_module(module)
    return module
