"""The four kinds of middleware: two change a request before it is acted on, two stand around the act."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import structs

from alipes.compat.hermes.bridge import Bridge, Outcome
from alipes.compat.hermes.call import Fit
from alipes.compat.hermes.hook_arguments import Keywords, platform_of
from alipes.compat.hermes.hooks import PATIENT, SCHEMA
from alipes.compat.hermes.openai_format import reply_from, request_from, request_of, response_of
from alipes.compat.hermes.tools import as_text
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import Output, Request
from alipes.kernel.turns import Replied, Turn
from alipes.plugins.context import Context
from alipes.plugins.registration import Ways


class Exchange:
    """Runs `work(ask)` in a worker thread; each `ask(value)` there is `await go(value)` here.

    So what is wrapped belongs to the turn that waits for it: it is cancelled with it, and a thread
    that asks after that gets `CancelledError` as its answer.
    """

    def __init__(self, bridge: Bridge, go: Callable[[Any], Awaitable[Any]]) -> None:
        self._bridge, self._go = bridge, go
        self._asks: asyncio.Queue[tuple[Any, Outcome[Any]] | None] = asyncio.Queue()
        self._closed = False

    async def run(self, work: Callable[[Callable[[Any], Any]], Any]) -> Any:
        """What `work` gives or raises."""
        outcome: Outcome[Any] = Outcome()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(work, outcome))
                while (asked := await self._asks.get()) is not None:
                    value, answer = asked
                    await answer.awaited(self._wrapped(value))
        finally:
            self._close()
        return outcome.future.result()

    async def _work(self, work: Callable[[Callable[[Any], Any]], Any], outcome: Outcome[Any]) -> None:
        await self._bridge.off_loop(lambda: outcome.of(lambda: work(self._ask)))
        self._asks.put_nowait(None)

    async def _wrapped(self, value: Any) -> Any:
        return await self._go(value)

    def _ask(self, value: Any) -> Any:
        """In the worker thread."""
        answer: Outcome[Any] = Outcome()
        self._bridge.soon(lambda: self._put(value, answer))
        return answer.future.result()

    def _put(self, value: Any, answer: Outcome[Any]) -> None:
        if self._closed:
            answer.future.set_exception(asyncio.CancelledError())
        else:
            self._asks.put_nowait((value, answer))

    def _close(self) -> None:
        self._closed = True
        while not self._asks.empty():
            if (asked := self._asks.get_nowait()) is not None:
                asked[1].future.set_exception(asyncio.CancelledError())


VERSION = "hermes.middleware.v1"


def register(bridge: Bridge, context: Context, kind: str, callback: Callable[..., Any]) -> bool:
    """False for a kind that we do not know."""
    build = KINDS.get(kind)
    if build is None:
        return False
    spec, make = build
    context.hook(make(bridge, Fit(callback)), name=spec, deadline=PATIENT, ways=Ways(title=kind))
    return True


def _scene(bridge: Bridge, turn: Turn) -> Keywords:
    """What every middleware is told."""
    asked = bridge.notes.requests.get(turn.id)
    return {
        "telemetry_schema_version": SCHEMA,
        "middleware_schema_version": VERSION,
        "session_id": turn.session,
        "task_id": turn.session,
        "turn_id": turn.id,
        "platform": platform_of(turn),
        "api_request_id": asked[0] if asked else "",
    }


def _trace(bridge: Bridge, id: str, kind: str, answer: Mapping[str, Any]) -> None:
    """What it says about its change; later hooks are told."""
    entry = {"kind": kind, **{name: answer[name] for name in ("source", "reason") if name in answer}}
    bridge.notes.traces[id] = [*(bridge.notes.traces.get(id) or ()), entry]


def llm_request(bridge: Bridge, fit: Fit) -> Callable[..., Awaitable[Request | None]]:
    async def before_request(request: Request, turn: Turn) -> Request | None:
        original = bridge.notes.original(request)
        if original is None:  # we are the first whom it reaches, or all before us left it as it was
            original, bridge.notes.traces[turn.id] = request, []
        keywords = {"request": request_of(request), "original_request": request_of(original)}
        answer = await bridge.run(fit, **_scene(bridge, turn), **keywords, model=request.model)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("request"), Mapping):
            return None
        _trace(bridge, turn.id, "llm_request", answer)
        changed = request_from(answer["request"], request)
        bridge.notes.replace(original, changed)
        return changed

    return before_request


def tool_request(bridge: Bridge, fit: Fit) -> Callable[..., Awaitable[Mapping[str, Json] | None]]:
    async def tool_arguments(
        args: Mapping[str, Json], call: ToolCall, turn: Turn
    ) -> Mapping[str, Json] | None:
        keywords = _of_call(call) | {"args": dict(args)}
        answer = await bridge.run(fit, **_scene(bridge, turn), **keywords)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("args"), Mapping):
            return None
        _trace(bridge, call.id, "tool_request", answer)
        return dict(answer["args"])

    return tool_arguments


def _of_call(call: ToolCall) -> Keywords:
    return {"tool_name": call.name, "tool_call_id": call.id, "original_args": dict(call.args)}


def llm_execution(bridge: Bridge, fit: Fit) -> Callable[..., Awaitable[Replied]]:
    async def around_request(
        go: Callable[[Request], Awaitable[Replied]], request: Request, turn: Turn
    ) -> Replied:
        async def ask(told: Any = None) -> Any:
            return response_of(await go(request if told is None else request_from(told, request)), request)

        keywords = {"request": request_of(request), "original_request": request_of(request)}
        scene = _scene(bridge, turn) | {"model": request.model}
        return reply_from(await _around(bridge, fit, ask, scene | keywords))

    return around_request


def tool_execution(bridge: Bridge, fit: Fit) -> Callable[..., Awaitable[str | Output]]:
    async def around_tool(
        go: Callable[[Mapping[str, Json]], Awaitable[str | Output]],
        args: Mapping[str, Json],
        call: ToolCall,
        turn: Turn,
    ) -> str | Output:
        given: str | Output | None = None

        async def act(told: Any = None) -> str:
            nonlocal given
            given = await go(args if told is None else told)
            return given.text if isinstance(given, Output) else given

        keywords = _of_call(call) | {"args": dict(args)}
        answer = await _around(bridge, fit, act, _scene(bridge, turn) | keywords)
        if isinstance(given, Output) and isinstance(answer, str):
            return structs.replace(given, text=answer)  # the images stay, whatever became of the words
        return as_text(answer)

    return around_tool


async def _around(bridge: Bridge, fit: Fit, go: Callable[..., Awaitable[Any]], keywords: Keywords) -> Any:
    """`next_call` is awaited by an async callback; a plain one calls it, in its worker thread."""
    if fit.is_async:
        return await fit(**keywords, next_call=go)

    def work(ask: Callable[[Any], Any]) -> Any:
        def next_call(value: Any = None, **_: Any) -> Any:
            return ask(value)

        return fit(**keywords, next_call=next_call)

    return await Exchange(bridge, go).run(work)


KINDS: Mapping[str, tuple[str, Callable[[Bridge, Fit], Callable[..., Any]]]] = {
    "llm_request": ("before_request", llm_request),
    "tool_request": ("tool_arguments", tool_request),
    "llm_execution": ("around_request", llm_execution),
    "tool_execution": ("around_tool", tool_execution),
}
"""By kind: the native hook, and what makes it of a callback."""
