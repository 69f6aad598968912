"""Tools of Hermes plugins as native tools: async handlers run on the loop, sync ones in a worker thread."""

import inspect
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alipes.compat.hermes.bridge import Bridge, ThreadResult
from alipes.compat.hermes.call import ExtraValue, PluginCallback
from alipes.compat.hermes.state import ToolEntry
from alipes.kernel.errors import PluginError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.plugins.context import Context
from alipes.plugins.interruption.attribution import on_behalf_of

log = logging.getLogger(__name__)
_OPEN_TOOLSETS = frozenset({"web", "web_search", "browser", "email", "mcp"})
"""Toolsets whose results are text of strangers."""
_MEDIA = re.compile(r"MEDIA:[ \t]*(/[^\s\"'\\]+)")
_CLOCK_STEP_S = 0.05
"""File times are coarser than the clock."""


def register_tool(bridge: Bridge, context: Context, entry: ToolEntry) -> bool:
    """Register a tool for the next turn, from any thread. Returns False and logs why if it is refused."""
    tool = HermesTool(bridge, entry)

    def add() -> None:
        context.tool(tool, toolset=entry.toolset, available=_availability_check(bridge, entry), override=entry.override)
        bridge.tools[entry.name] = entry

    try:
        bridge.call(add)
    except PluginError as error:
        context.log.warning("%s", error)
        return False
    return True


def unregister_tool(bridge: Bridge, context: Context, name: str) -> bool:
    """Remove a tool, from any thread; running turns keep it."""

    def drop() -> bool:
        held = bridge.tools.get(name)
        if held is not None and held.owner is context.owner:
            del bridge.tools[name]
        return context.drop_tool(name)

    return bridge.call(drop)


def _availability_check(bridge: Bridge, entry: ToolEntry) -> Callable[[], bool] | None:
    """Called at the start of each turn. A failing check counts as not available and is logged."""
    check = entry.check_fn
    if check is None and not entry.requires_env:
        return None

    def available() -> bool:
        if not all(map(bridge.variable, entry.requires_env)):
            return False
        if check is None:
            return True
        outcome: ThreadResult[Any] = ThreadResult()
        with on_behalf_of(entry.owner):
            outcome.run(check)
        if error := outcome.future.exception():
            log.warning("plugin %s: the check of tool %s failed: %r", entry.owner.name, entry.name, error)
            return False
        return bool(outcome.future.result())

    return available


def tool_spec(entry: ToolEntry) -> ToolSpec:
    """The schema may be bare, wrapped with a name, or in the format of a chat completion."""
    schema = entry.schema.get("function", entry.schema)
    parameters = schema.get("parameters") or schema.get("input_schema")
    if parameters is None:
        parameters = schema if schema.get("type") == "object" else {"type": "object", "properties": {}}
    description = schema.get("description") or entry.description
    untrusted = entry.toolset in _OPEN_TOOLSETS or _hints(entry.schema).get("openWorldHint") is True
    return ToolSpec(entry.name, str(description), dict(parameters), entry.effect, untrusted=untrusted, media=True)


def is_read_only(schema: Mapping[str, Any]) -> bool:
    """True if the schema declares that the tool changes nothing."""
    schema = schema.get("function", schema)
    return schema.get("effect") == "read" or _hints(schema).get("readOnlyHint") is True


def declares_media(schema: Mapping[str, Any]) -> bool:
    """True if the schema says that `MEDIA:` lines in the tool's results name files to send."""
    return schema.get("function", schema).get("media") is True


def _hints(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    hints = schema.get("function", schema).get("annotations")
    return hints if isinstance(hints, Mapping) else {}


def find_media(text: str, folder: Path, since: float) -> Iterator[str]:
    """The files named by `MEDIA:` tags that lie in `folder` and were written after `since`.

    A text that the tool merely passes on cannot name such a file: it did not exist before the call.
    """
    for path in dict.fromkeys(_MEDIA.findall(text)):
        real = Path(path).resolve()
        try:
            if real.is_relative_to(folder.resolve()) and real.stat().st_mtime >= since:
                yield str(real)
        except OSError:
            continue


class HermesTool:
    """A handler `fn(args, **keywords)` as a `Tool`."""

    def __init__(self, bridge: Bridge, entry: ToolEntry) -> None:
        self.spec = tool_spec(entry)
        self._bridge, self._entry = bridge, entry
        self._fit = PluginCallback(entry.handler)
        self._on_loop = entry.is_async or self._fit.is_async

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        """When stopped, an async handler gets `CancelledError` at once; the result of a sync one is
        dropped."""
        turn = self._bridge.host.current_turn()
        call = partial(
            self._fit,
            dict(args),
            task_id=act.session,
            session_id=act.session,
            tool_call_id=ExtraValue(act.call_id),
            user_task=turn.inbound.text if turn else None,
        )
        since = time.time() - _CLOCK_STEP_S
        with on_behalf_of(self._entry.owner):
            answer = call() if self._on_loop else await self._off_loop(call, act)
            output = to_text(await answer if inspect.isawaitable(answer) else answer)
        return self._with_files(output, since) if isinstance(output, str) and "MEDIA:" in output else output

    def _with_files(self, text: str, since: float) -> ToolOutput:
        if declares_media(self._entry.schema):
            return ToolOutput(text, files=tuple(dict.fromkeys(_MEDIA.findall(text))))
        return ToolOutput(text, files=tuple(find_media(text, self._bridge.settings.paths.outgoing, since)))

    async def _off_loop(self, call: Callable[[], Any], act: ToolContext) -> Any:
        over = False

        def work() -> Any:
            try:
                return call()
            finally:
                if over:
                    log.warning(
                        "plugin %s: tool %s returned after call %s had ended; the result is dropped",
                        self._entry.owner.name,
                        self._entry.name,
                        act.call_id,
                    )

        try:
            return await self._bridge.off_loop(work)
        finally:
            over = True


def to_text(answer: Any) -> str | ToolOutput:
    """Strings stay as they are, everything else becomes JSON."""
    if isinstance(answer, str | ToolOutput):
        return answer
    return json.dumps(answer, ensure_ascii=False, default=str)
