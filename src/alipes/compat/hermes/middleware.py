"""Hermes middleware: two kinds change a request, two wrap a call."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import structs

from alipes.compat.hermes.bridge import Bridge, ThreadResult
from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.hook_arguments import Keywords, platform_of
from alipes.compat.hermes.hooks import DECISION_TIMEOUT_S, SCHEMA
from alipes.compat.hermes.openai_format import reply_from_wire, request_from_wire, request_to_wire, response_to_wire
from alipes.compat.hermes.tools import to_text
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import Request, ToolOutput
from alipes.kernel.turns import ModelReply, Turn
from alipes.plugins.context import Context
from alipes.plugins.registration import HookOptions


class ThreadExchange:
    """Runs `work(ask)` in a worker thread; each `ask(value)` there is `await go(value)` here.

    The wrapped call belongs to the waiting turn and is cancelled with it; a thread that asks after that gets
    `CancelledError`.
    """

    def __init__(self, bridge: Bridge, go: Callable[[Any], Awaitable[Any]]) -> None:
        self._bridge, self._go = bridge, go
        self._asks: asyncio.Queue[tuple[Any, ThreadResult[Any]] | None] = asyncio.Queue()
        self._closed = False

    async def run(self, work: Callable[[Callable[[Any], Any]], Any]) -> Any:
        """The result of `work`."""
        outcome: ThreadResult[Any] = ThreadResult()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(work, outcome))
                while (item := await self._asks.get()) is not None:
                    value, answer = item
                    await answer.run_coroutine(self._wrapped(value))
        finally:
            self._close()
        return outcome.future.result()

    async def _work(self, work: Callable[[Callable[[Any], Any]], Any], outcome: ThreadResult[Any]) -> None:
        await self._bridge.off_loop(lambda: outcome.run(lambda: work(self._ask)))
        self._asks.put_nowait(None)

    async def _wrapped(self, value: Any) -> Any:
        return await self._go(value)

    def _ask(self, value: Any) -> Any:
        """Called in the worker thread."""
        answer: ThreadResult[Any] = ThreadResult()
        self._bridge.soon(lambda: self._put(value, answer))
        return answer.future.result()

    def _put(self, value: Any, answer: ThreadResult[Any]) -> None:
        if self._closed:
            answer.future.set_exception(asyncio.CancelledError())
        else:
            self._asks.put_nowait((value, answer))

    def _close(self) -> None:
        self._closed = True
        while not self._asks.empty():
            if (item := self._asks.get_nowait()) is not None:
                item[1].future.set_exception(asyncio.CancelledError())


VERSION = "hermes.middleware.v1"


def register(bridge: Bridge, context: Context, kind: str, callback: Callable[..., Any]) -> bool:
    """False if the kind is unknown."""
    build = KINDS.get(kind)
    if build is None:
        return False
    spec, make = build
    context.hook(
        make(bridge, PluginCallback(callback)), name=spec, deadline=DECISION_TIMEOUT_S, options=HookOptions(title=kind)
    )
    return True


def _common_keywords(bridge: Bridge, turn: Turn) -> Keywords:
    """Keywords for every middleware."""
    item = bridge.state.requests.get(turn.id)
    return {
        "telemetry_schema_version": SCHEMA,
        "middleware_schema_version": VERSION,
        "session_id": turn.session,
        "task_id": turn.session,
        "turn_id": turn.id,
        "platform": platform_of(turn),
        "api_request_id": item[0] if item else "",
    }


def _trace(bridge: Bridge, id: str, kind: str, answer: Mapping[str, Any]) -> None:
    """Record why the middleware changed something, for later hooks."""
    entry = {"kind": kind, **{name: answer[name] for name in ("source", "reason") if name in answer}}
    bridge.state.traces[id] = [*(bridge.state.traces.get(id) or ()), entry]


def llm_request(bridge: Bridge, callback: PluginCallback) -> Callable[..., Awaitable[Request | None]]:
    async def before_request(request: Request, turn: Turn) -> Request | None:
        original = bridge.state.original(request)
        if original is None:  # the first one to see it, or nobody has changed it
            original, bridge.state.traces[turn.id] = request, []
        keywords = {"request": request_to_wire(request), "original_request": request_to_wire(original)}
        answer = await bridge.run(callback, **_common_keywords(bridge, turn), **keywords, model=request.model)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("request"), Mapping):
            return None
        _trace(bridge, turn.id, "llm_request", answer)
        changed = request_from_wire(answer["request"], request)
        bridge.state.replace(original, changed)
        return changed

    return before_request


def tool_request(bridge: Bridge, callback: PluginCallback) -> Callable[..., Awaitable[Mapping[str, Json] | None]]:
    async def tool_arguments(args: Mapping[str, Json], call: ToolCall, turn: Turn) -> Mapping[str, Json] | None:
        keywords = _call_keywords(call) | {"args": dict(args)}
        answer = await bridge.run(callback, **_common_keywords(bridge, turn), **keywords)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("args"), Mapping):
            return None
        _trace(bridge, call.id, "tool_request", answer)
        return dict(answer["args"])

    return tool_arguments


def _call_keywords(call: ToolCall) -> Keywords:
    return {"tool_name": call.name, "tool_call_id": call.id, "original_args": dict(call.args)}


def llm_execution(bridge: Bridge, callback: PluginCallback) -> Callable[..., Awaitable[ModelReply]]:
    async def around_request(
        go: Callable[[Request], Awaitable[ModelReply]], request: Request, turn: Turn
    ) -> ModelReply:
        async def ask(changed: Any = None) -> Any:
            return response_to_wire(
                await go(request if changed is None else request_from_wire(changed, request)), request
            )

        keywords = {"request": request_to_wire(request), "original_request": request_to_wire(request)}
        common = _common_keywords(bridge, turn) | {"model": request.model}
        return reply_from_wire(await _run_around(bridge, callback, ask, common | keywords))

    return around_request


def tool_execution(bridge: Bridge, callback: PluginCallback) -> Callable[..., Awaitable[str | ToolOutput]]:
    async def around_tool(
        go: Callable[[Mapping[str, Json]], Awaitable[str | ToolOutput]],
        args: Mapping[str, Json],
        call: ToolCall,
        turn: Turn,
    ) -> str | ToolOutput:
        given: str | ToolOutput | None = None

        async def act(changed: Any = None) -> str:
            nonlocal given
            given = await go(args if changed is None else changed)
            return given.text if isinstance(given, ToolOutput) else given

        keywords = _call_keywords(call) | {"args": dict(args)}
        answer = await _run_around(bridge, callback, act, _common_keywords(bridge, turn) | keywords)
        if isinstance(given, ToolOutput) and isinstance(answer, str):
            return structs.replace(given, text=answer)  # keep the images, whatever happens to the text
        return to_text(answer)

    return around_tool


async def _run_around(
    bridge: Bridge, callback: PluginCallback, go: Callable[..., Awaitable[Any]], keywords: Keywords
) -> Any:
    """An async callback awaits `next_call`; a sync one calls it in its worker thread."""
    if callback.is_async:
        return await callback(**keywords, next_call=go)

    def work(ask: Callable[[Any], Any]) -> Any:
        def next_call(value: Any = None, **_: Any) -> Any:
            return ask(value)

        return callback(**keywords, next_call=next_call)

    return await ThreadExchange(bridge, go).run(work)


KINDS: Mapping[str, tuple[str, Callable[[Bridge, PluginCallback], Callable[..., Any]]]] = {
    "llm_request": ("before_request", llm_request),
    "tool_request": ("tool_arguments", tool_request),
    "llm_execution": ("around_request", llm_execution),
    "tool_execution": ("around_tool", tool_execution),
}
"""Native hook and hook factory by kind."""
