"""Runs the tool calls of one answer: reads in parallel, writes in order. Errors become results."""

import asyncio
import logging
import time
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from alipes.kernel.conversations import ApprovalDecision, denial_reason
from alipes.kernel.errors import (
    ConfigError,
    Fenced,
    MissingExtra,
    ProviderError,
    SessionHeld,
    StoreError,
    ToolError,
    ToolNeedsExtra,
)
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json, Message, Outcome, ToolCall, ToolResult
from alipes.kernel.ports import CanPrepare, CheckStop, Emit, Tool, ToolOutput, ToolSpec
from alipes.kernel.turns import Inbound, ToolFinished, ToolProgress, ToolStarted, Turn
from alipes.kernel.untrusted import mark_untrusted
from alipes.plugins import specs
from alipes.plugins.dispatch import HookDispatcher
from alipes.plugins.specs import Verdict
from alipes.runtime.tasks import first_error

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_DEPTH = 8


def validate_args(schema: dict[str, Json], args: dict[str, Json]) -> str:
    """What is wrong with `args`, as a sentence; empty if nothing is."""
    return _check_object(schema, args, "", _DEPTH)


def suggest_names(name: str, known: list[str]) -> str:
    """A suggestion, or all known names if none is close."""
    return did_you_mean(name, known) or (f" Available: {', '.join(sorted(known))}." if known else "")


def _check_object(schema: dict[str, Json], value: dict[str, Json], path: str, depth: int) -> str:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    missing = [str(key) for key in required if key not in value] if isinstance(required, list) else []
    if missing:
        plural = "s" if len(missing) > 1 else ""
        return f"argument{plural} {', '.join(path + key for key in missing)} missing"
    for key, item in value.items():
        inner = known.get(key)
        if isinstance(inner, dict):
            if wrong := _check_value(inner, item, path + key, depth - 1):
                return wrong
        elif schema.get("additionalProperties") is False:
            return f"unknown argument {path}{key}.{suggest_names(key, list(known))}"
    return ""


def _check_value(schema: dict[str, Json], value: Json, path: str, depth: int) -> str:
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if wanted and not any(_has_type(value, str(kind)) for kind in wanted):
        return f"argument {path} must be {' or '.join(map(str, wanted))}, not {_type_name(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"argument {path} must be one of {', '.join(map(str, choices))}"
    if depth <= 0:
        return ""
    if isinstance(value, dict):
        return _check_object(schema, value, f"{path}.", depth)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        checked = (_check_value(items, item, f"{path}[{n}]", depth - 1) for n, item in enumerate(value))
        return next(filter(None, checked), "")
    return ""


def _has_type(value: Json, kind: str) -> bool:
    if isinstance(value, bool):  # a bool is an int in Python, but not in JSON
        return kind == "boolean" or kind not in _TYPES
    return isinstance(value, _TYPES.get(kind, (object,)))


def _type_name(value: Json) -> str:
    return next((name for name in ("boolean", "integer", "number", *_TYPES) if _has_type(value, name)), "that")


log = logging.getLogger(__name__)
RESULT_LIMIT = 50_000
"""Characters of one result that reach the model."""
LONG_RESULT = 100_000
"""From this length on a result is masked in a thread."""
RequireExtra: TypeAlias = Callable[[str], Awaitable[None]]
"""Returns when the packages of an extra are there. Raises `ToolError` with a sentence that says how to install them."""
AskApproval: TypeAlias = Callable[[ToolCall, str, Turn], Awaitable[ApprovalDecision]]
"""Asks a person about a call, with the reason; None if nobody can be asked."""


async def never_stopped() -> None:
    """The turn was not stopped."""


class ToolRunner(Struct, frozen=True):
    """Runs the calls of a turn."""

    tools: Mapping[str, Tool]
    hooks: HookDispatcher
    turn: Turn
    emit: Emit
    clock: Callable[[], float] = time.monotonic
    limit: int = RESULT_LIMIT
    ask_approval: AskApproval | None = None
    require_extra: RequireExtra | None = None
    """Installs what a tool lacks, or raises `ToolError`."""
    check_stop: CheckStop = never_stopped
    mask: Callable[[str], str] = str
    """Removes known secrets from everything a tool says."""

    def effect(self, call: ToolCall) -> Literal["read", "write"]:
        """A tool that no longer exists counts as a write: its effect is unknown."""
        tool = self.tools.get(call.name)
        return "write" if tool is None else tool.spec.effect

    def prepare(self, name: str) -> None:
        """The model begins to write a call of this tool."""
        if isinstance(tool := self.tools.get(name), CanPrepare):
            tool.prepare_call(self.turn)


class ToolCallContext:
    """The context of one running tool; nothing is passed on after the call has ended."""

    def __init__(self, call: ToolCall, desk: ToolRunner) -> None:
        self.call_id = call.id
        self.turn = desk.turn
        self.session = desk.turn.session
        self.workdir = desk.turn.inbound.workdir
        self.over = False
        self.lost: StoreError | None = None
        """Set if emitting failed: then it is not the tool that failed."""
        self._desk, self._emit = desk, desk.emit
        self._uses = 0

    async def run_tool(self, name: str, args: Mapping[str, Json]) -> ToolResult:
        self._uses += 1
        call = ToolCall(f"{self.call_id}.{self._uses}", name, dict(args))
        return (await run_calls(self._desk, (call,), {}))[call.id]

    async def progress(self, text: str) -> None:
        if self.over:
            return
        try:
            await self._emit(ToolProgress(self.call_id, replace_surrogates(self._desk.mask(text))))
        except StoreError as error:
            self.lost = error
            raise


async def run_calls(
    desk: ToolRunner, calls: tuple[ToolCall, ...], ruled: Mapping[str, ToolResult]
) -> dict[str, ToolResult]:
    """The result of every call, by id. Calls in `ruled` are not run: that is their result.

    A write waits for all calls before it, and all after it wait for the write, so the order the model chose
    keeps its meaning.
    """
    results: dict[str, ToolResult] = {}
    for batch in _batches(desk, calls, ruled):
        for result in await _run_batch(desk, batch, ruled):
            results[result.call_id] = result
    return results


def _batches(
    desk: ToolRunner, calls: tuple[ToolCall, ...], ruled: Mapping[str, ToolResult]
) -> Iterator[list[ToolCall]]:
    reads: list[ToolCall] = []
    for call in calls:
        if call.id in ruled or call.name not in desk.tools or desk.effect(call) == "read":
            reads.append(call)
            continue
        if reads:
            yield reads
            reads = []
        yield [call]
    if reads:
        yield reads


async def _run_batch(desk: ToolRunner, batch: list[ToolCall], ruled: Mapping[str, ToolResult]) -> list[ToolResult]:
    if len(batch) == 1:
        return [await _run_call(desk, batch[0], ruled)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run_call(desk, call, ruled), name=call.name) for call in batch]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


async def _run_call(desk: ToolRunner, call: ToolCall, ruled: Mapping[str, ToolResult]) -> ToolResult:
    began, error = desk.clock(), None
    result = ruled.get(call.id)
    if result is None:
        given: Mapping[str, Json] = call.args
        args = await desk.hooks.filter(specs.tool_arguments, given, call=call, turn=desk.turn)
        call = call if args is given else structs.replace(call, args=dict(args))
        result = _refuse_invalid(desk, call) or await _decide(desk, call)
    if result is None:
        await desk.emit(ToolStarted(call))  # the intent is on disk before the action
        began = desk.clock()
        result, error = await _run_tool(desk, call)
        await desk.check_stop()  # a result that arrives after a stop is dropped
    seconds = round(desk.clock() - began, 3)
    result = await notify_result(desk, call, result, seconds, error)
    await desk.emit(ToolFinished(call, result, seconds))
    return result


async def notify_result(
    desk: ToolRunner, call: ToolCall, result: ToolResult, seconds: float, error: Exception | None
) -> ToolResult:
    """Notify hooks of the result, and return it as the model sees it."""
    hooks, turn = desk.hooks, desk.turn
    await hooks.notify(specs.after_tool, call=call, result=result, turn=turn, seconds=seconds, error=error)
    changed = await hooks.filter(specs.tool_result, result, call=call, turn=turn)
    if changed is result:
        return result
    return structs.replace(
        changed, call_id=call.id, text=replace_surrogates(shorten(desk.mask(changed.text), desk.limit))
    )


def _refuse_invalid(desk: ToolRunner, call: ToolCall) -> ToolResult | None:
    """The answer to a call that cannot be run as it is."""
    tool = desk.tools.get(call.name)
    if tool is None:
        return ToolResult(call.id, f"no tool named {call.name}.{suggest_names(call.name, list(desk.tools))}", "failed")
    if call.raw:
        return ToolResult(
            call.id, f"not run: the arguments must be one JSON object; received: {shorten(call.raw, 400)}", "failed"
        )
    if wrong := validate_args(tool.spec.schema, call.args):
        return ToolResult(call.id, f"not run: {wrong}", "failed")
    return None


async def _decide(desk: ToolRunner, call: ToolCall) -> ToolResult | None:
    verdict = await desk.hooks.decide(specs.before_tool, _deny_after_failure, call=call, turn=desk.turn)
    if verdict is None or verdict.ruling == "allow":
        return None
    if verdict.ruling == "deny":
        return ToolResult(call.id, verdict.reason or "this call was not allowed", "denied")
    return await _ask_person(desk, call, verdict.reason or "a plugin requires approval")


def _deny_after_failure(why: str) -> Verdict:
    return Verdict("deny", f"not run: {why}")


async def _ask_person(desk: ToolRunner, call: ToolCall, reason: str) -> ToolResult | None:
    if desk.turn.inbound.trusted:
        return None
    word = None if desk.ask_approval is None else await desk.ask_approval(call, reason, desk.turn)
    if why := denial_reason(word):
        return ToolResult(call.id, f"Not run: {reason}; {why}. Do not try to work around this.", "denied")
    return None


async def _run_tool(desk: ToolRunner, call: ToolCall) -> tuple[ToolResult, Exception | None]:
    act = ToolCallContext(call, desk)

    async def go(args: Mapping[str, Json]) -> str | ToolOutput:
        tool = desk.tools[call.name]
        try:
            return await tool.run(args, act)
        except (ToolNeedsExtra, MissingExtra) as missing:
            if desk.require_extra is None:
                raise
            await desk.require_extra(missing.extra)
            return await tool.run(args, act)

    try:
        given = await desk.hooks.wrap(specs.around_tool, go, call.args, call=call, turn=desk.turn)
        output = _output(given)
    except (ToolError, ProviderError, ConfigError) as error:  # errors of what the tool itself used
        return await _result(desk, call, ToolOutput(str(error)), "failed"), error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # we were not cancelled: something the tool waited for was, so the tool failed
        return ToolResult(call.id, f"{call.name} cancelled itself", "failed"), None
    except Exception as error:  # bulkhead: a broken tool must not end the turn
        if act.lost is not None:
            raise act.lost from None
        cause = first_error(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(cause, StoreError) and not isinstance(cause, Fenced | SessionHeld):
            raise cause from None  # without a store the process must not act
        log.exception("tool %s failed", call.name)
        return await _result(desk, call, ToolOutput(f"{type(cause).__name__}: {cause}"), "failed"), error
    finally:
        act.over = True
    return await _result(desk, call, output), None


async def _result(desk: ToolRunner, call: ToolCall, output: ToolOutput, outcome: Outcome = "ok") -> ToolResult:
    spec = desk.tools[call.name].spec
    # mask before cutting: half a secret would not be recognised
    masked = desk.mask(output.text) if len(output.text) < LONG_RESULT else await to_thread(desk.mask, output.text)
    text = replace_surrogates(shorten(masked, desk.limit))
    if spec.untrusted:
        text = mark_untrusted(text, call.name)
    return ToolResult(call.id, text, outcome, output.images, output.files if spec.media else (), sources=output.sources)


def _output(given: str | ToolOutput) -> ToolOutput:
    if isinstance(given, ToolOutput):
        return given
    if isinstance(given, str):
        return ToolOutput(given)
    raise TypeError(f"a tool must return text, not {type(given).__name__}")


def replace_surrogates(text: str) -> str:
    """The text without lone surrogates, as in some file names: wires and journal reject them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def shorten(text: str, limit: int) -> str:
    """At most about `limit` characters: the head, the tail, and a note of what was left out."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[len(text) - tail :]}"


CLIENT_RUNS_IT = "(passed to the client, which runs this call)"


def visible_specs(tools: Mapping[str, Tool], inbound: Inbound) -> tuple[ToolSpec, ...]:
    """The tools the model sees. A client's tool replaces ours of the same name."""
    theirs = tuple(ToolSpec(each.name, each.description, each.schema) for each in inbound.offered)
    names = {each.name for each in theirs}
    return (*(tool.spec for name, tool in tools.items() if name not in names), *theirs)


def client_results(calls: tuple[ToolCall, ...], inbound: Inbound) -> dict[str, ToolResult]:
    """By id, placeholder results for calls of the client's tools."""
    names = {each.name for each in inbound.offered}
    return {call.id: ToolResult(call.id, CLIENT_RUNS_IT, passed_on=True) for call in calls if call.name in names}


def is_client_call(message: Message) -> bool:
    """True if calls were passed to the client: the turn ends here."""
    return any(isinstance(part, ToolResult) and part.passed_on for part in message.parts)


def changed_files(said: tuple[Message, ...]) -> tuple[str, ...]:
    """The files the turn wrote, as the model named them, in order and without duplicates."""
    calls: dict[str, ToolCall] = {}
    paths: dict[str, None] = {}
    for message in said:
        calls.update((call.id, call) for call in message.calls)
        for part in message.parts:
            if isinstance(part, ToolResult) and part.outcome == "ok" and part.call_id in calls:
                paths.update(dict.fromkeys(files_written(calls[part.call_id])))
    return tuple(paths)


def files_written(call: ToolCall) -> list[str]:
    """The files that a successful call wrote, as the model named them."""
    match call.name, call.args:
        case "write_file", {"path": str(path)}:
            return [path]
        case "patch", args:
            from alipes.tools.files.patch import patched_paths  # noqa: PLC0415

            return patched_paths(args)
    return []
