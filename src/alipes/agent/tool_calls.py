"""Runs the calls of one answer: reads side by side, writes in order. What goes wrong is told to the model."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from alipes.kernel.conversations import Leave, withheld
from alipes.kernel.errors import ConfigError, Fenced, Held, ProviderError, StoreError, ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Image, Json, Message, Outcome, ToolCall, ToolResult
from alipes.kernel.ports import Emit, Output, Proceed, Tool, ToolSpec
from alipes.kernel.turns import Inbound, ToolFinished, ToolProgress, ToolStarted, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Relay
from alipes.plugins.specs import Verdict
from alipes.runtime.tasks import first

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


def complaint(schema: dict[str, Json], args: dict[str, Json]) -> str:
    """What is wrong with `args`, as a sentence; empty when nothing is."""
    return _object(schema, args, "", _DEPTH)


def instead(name: str, known: list[str]) -> str:
    """What was probably meant, or all there is where nothing comes close."""
    return did_you_mean(name, known) or (f" There is {', '.join(sorted(known))}." if known else "")


def _object(schema: dict[str, Json], value: dict[str, Json], path: str, depth: int) -> str:
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
            if wrong := _value(inner, item, path + key, depth - 1):
                return wrong
        elif schema.get("additionalProperties") is False:
            return f"there is no argument {path}{key}.{instead(key, list(known))}"
    return ""


def _value(schema: dict[str, Json], value: Json, path: str, depth: int) -> str:
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if wanted and not any(_is(value, str(kind)) for kind in wanted):
        return f"argument {path} must be {' or '.join(map(str, wanted))}, not {_kind(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"argument {path} must be one of {', '.join(map(str, choices))}"
    if depth <= 0:
        return ""
    if isinstance(value, dict):
        return _object(schema, value, f"{path}.", depth)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        checked = (_value(items, item, f"{path}[{n}]", depth - 1) for n, item in enumerate(value))
        return next(filter(None, checked), "")
    return ""


def _is(value: Json, kind: str) -> bool:
    if isinstance(value, bool):  # Python counts it as an int; JSON does not
        return kind == "boolean" or kind not in _TYPES
    return isinstance(value, _TYPES.get(kind, (object,)))


def _kind(value: Json) -> str:
    return next((name for name in ("boolean", "integer", "number", *_TYPES) if _is(value, name)), "that")


log = logging.getLogger(__name__)
LIMIT = 50_000
"""Characters of one result that reach the model."""
AskPerson: TypeAlias = Callable[[ToolCall, str, Turn], Awaitable[Leave]]
"""A person's word on a call, and why it is asked for; None where nobody is there to give it."""


async def going_on() -> None:
    """Nobody stops us."""


class Desk(Struct, frozen=True):
    """What the calls of a turn are run with."""

    tools: Mapping[str, Tool]
    hooks: Relay
    turn: Turn
    emit: Emit
    clock: Callable[[], float] = time.monotonic
    limit: int = LIMIT
    consent: AskPerson | None = None
    proceed: Proceed = going_on
    mask: Callable[[str], str] = str
    """Takes known secrets out of whatever a tool says, before anyone reads it."""

    def effect(self, call: ToolCall) -> Literal["read", "write"]:
        """A tool that is gone counts as one that wrote: what it did cannot be known."""
        tool = self.tools.get(call.name)
        return "write" if tool is None else tool.spec.effect


class CallAct:
    """What one running tool is told; after its call is over, nothing it says is passed on."""

    def __init__(self, call: ToolCall, desk: Desk) -> None:
        self.call_id = call.id
        self.session = desk.turn.session
        self.workdir = desk.turn.inbound.workdir
        self.over = False
        self.lost: StoreError | None = None
        """Set when telling failed: then it is not the tool that broke."""
        self._desk, self._emit = desk, desk.emit
        self._uses = 0

    async def use(self, name: str, args: Mapping[str, Json]) -> ToolResult:
        self._uses += 1
        call = ToolCall(f"{self.call_id}.{self._uses}", name, dict(args))
        return (await perform(self._desk, (call,), {}))[call.id]

    async def progress(self, text: str) -> None:
        if self.over:
            return
        try:
            await self._emit(ToolProgress(self.call_id, readable(self._desk.mask(text))))
        except StoreError as error:
            self.lost = error
            raise


async def perform(
    desk: Desk, calls: tuple[ToolCall, ...], ruled: Mapping[str, ToolResult]
) -> dict[str, ToolResult]:
    """The result of every call, by id. Those in `ruled` are not run: that is their result.

    A write waits for all before it and all after it wait for the write, so the order
    in which the model asked keeps its meaning.
    """
    results: dict[str, ToolResult] = {}
    for batch in _batches(desk, calls, ruled):
        for result in await _together(desk, batch, ruled):
            results[result.call_id] = result
    return results


def _batches(
    desk: Desk, calls: tuple[ToolCall, ...], ruled: Mapping[str, ToolResult]
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


async def _together(desk: Desk, batch: list[ToolCall], ruled: Mapping[str, ToolResult]) -> list[ToolResult]:
    if len(batch) == 1:
        return [await _answer(desk, batch[0], ruled)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_answer(desk, call, ruled), name=call.name) for call in batch]
    except BaseExceptionGroup as errors:
        raise first(errors) from None
    return [task.result() for task in tasks]


async def _answer(desk: Desk, call: ToolCall, ruled: Mapping[str, ToolResult]) -> ToolResult:
    began, error = desk.clock(), None
    result = ruled.get(call.id)
    if result is None:
        call = await _rewritten(desk, call)
        result = _barred(desk, call) or await _decided(desk, call)
    if result is None:
        await desk.emit(ToolStarted(call))  # the intent is on disk before the act
        began = desk.clock()
        result, error = await _run(desk, call)
        await desk.proceed()  # what comes after a stop is dropped, and told to nobody
    seconds = round(desk.clock() - began, 3)
    result = await told(desk, call, result, seconds, error)
    await desk.emit(ToolFinished(call, result, seconds))
    return result


async def _rewritten(desk: Desk, call: ToolCall) -> ToolCall:
    given: Mapping[str, Json] = call.args
    args = await desk.hooks.filter(specs.tool_arguments, given, call=call, turn=desk.turn)
    return call if args is given else structs.replace(call, args=dict(args))


async def told(
    desk: Desk, call: ToolCall, result: ToolResult, seconds: float, error: Exception | None
) -> ToolResult:
    """Tell who watches what a call gave; the result as the model is to read it."""
    hooks, turn = desk.hooks, desk.turn
    await hooks.tell(specs.after_tool, call=call, result=result, turn=turn, seconds=seconds, error=error)
    changed = await hooks.filter(specs.tool_result, result, call=call, turn=turn)
    if changed is result:
        return result
    return structs.replace(changed, call_id=call.id, text=readable(cut(changed.text, desk.limit)))


def _barred(desk: Desk, call: ToolCall) -> ToolResult | None:
    """The answer to a call that cannot be run as it stands."""
    tool = desk.tools.get(call.name)
    if tool is None:
        return ToolResult(
            call.id, f"there is no tool named {call.name}.{instead(call.name, list(desk.tools))}", "failed"
        )
    if call.raw:
        return ToolResult(
            call.id,
            f"not run: send the arguments as one JSON object, which this is not: {cut(call.raw, 400)}",
            "failed",
        )
    if wrong := complaint(tool.spec.schema, call.args):
        return ToolResult(call.id, f"not run: {wrong}", "failed")
    return None


async def _decided(desk: Desk, call: ToolCall) -> ToolResult | None:
    verdict = await desk.hooks.decide(specs.before_tool, _closed, call=call, turn=desk.turn)
    if verdict is None or verdict.ruling == "allow":
        return None
    if verdict.ruling == "deny":
        return ToolResult(call.id, verdict.reason or "this call was not allowed", "denied")
    return await _asked(desk, call, verdict.reason or "a plugin wants it to be allowed by a person")


def _closed(why: str) -> Verdict:
    return Verdict("deny", f"not run: {why}")


async def _asked(desk: Desk, call: ToolCall, reason: str) -> ToolResult | None:
    if desk.turn.inbound.trusted:
        return None
    word = None if desk.consent is None else await desk.consent(call, reason, desk.turn)
    if why := withheld(word):
        return ToolResult(call.id, f"Not run: {reason}, and {why}. Look for no way around it.", "denied")
    return None


async def _run(desk: Desk, call: ToolCall) -> tuple[ToolResult, Exception | None]:
    act = CallAct(call, desk)

    async def go(args: Mapping[str, Json]) -> str | Output:
        return await desk.tools[call.name].run(args, act)

    try:
        given = await desk.hooks.wrap(specs.around_tool, go, call.args, call=call, turn=desk.turn)
        text, images = _parts(given)
    except (ToolError, ProviderError, ConfigError) as error:  # what it asked of others, they would not give
        return _result(desk, call, str(error), outcome="failed"), error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # nobody cancelled us: something the tool waited for was cancelled, and that is a failure of the tool
        return ToolResult(call.id, f"{call.name} was cancelled from inside", "failed"), None
    except Exception as error:  # bulkhead: a broken tool must not end the turn
        if act.lost is not None:
            raise act.lost from None
        cause = first(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(cause, StoreError) and not isinstance(cause, Fenced | Held):
            raise cause from None  # who cannot remember must not act
        log.exception("tool %s broke", call.name)
        return _result(desk, call, f"{type(cause).__name__}: {cause}", outcome="failed"), error
    finally:
        act.over = True
    return _result(desk, call, text, images=images), None


def _result(
    desk: Desk, call: ToolCall, text: str, *, outcome: Outcome = "ok", images: tuple[Image, ...] = ()
) -> ToolResult:
    # masked first: half a secret at the cut would not be known for one
    return ToolResult(call.id, readable(cut(desk.mask(text), desk.limit)), outcome, images)


def _parts(given: str | Output) -> tuple[str, tuple[Image, ...]]:
    if isinstance(given, Output):
        return given.text, given.images
    if isinstance(given, str):
        return given, ()
    raise TypeError(f"a tool gives text, not {type(given).__name__}")


def readable(text: str) -> str:
    """The text without half characters, as file names may have them: no wire and no journal takes those."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def cut(text: str, limit: int) -> str:
    """At most about `limit` characters: the head, the tail, and a note of what was left out between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[len(text) - tail :]}"


HANDED = "(handed over: whoever asked runs this call)"


def shown(tools: Mapping[str, Tool], inbound: Inbound) -> tuple[ToolSpec, ...]:
    """What the model may call. Where both have a tool of one name, it is theirs."""
    theirs = tuple(ToolSpec(each.name, each.description, each.schema) for each in inbound.offered)
    names = {each.name for each in theirs}
    return (*(tool.spec for name, tool in tools.items() if name not in names), *theirs)


def handed(calls: tuple[ToolCall, ...], inbound: Inbound) -> dict[str, ToolResult]:
    """By id, what calls of their tools are answered with here."""
    names = {each.name for each in inbound.offered}
    return {call.id: ToolResult(call.id, HANDED) for call in calls if call.name in names}


def ends_here(message: Message) -> bool:
    """Were some of the calls that this answers handed over? Then the next word is not the model's."""
    results = (part for part in message.parts if isinstance(part, ToolResult))
    return any(result.text == HANDED for result in results)
