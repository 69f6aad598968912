"""All plugin hooks. A hook takes any subset of these parameters, by name.

A hook is one of four kinds, given by its return type:
observe  -> None             all are called; their results do not matter
filter   -> T | None         each receives the value returned by the one before it (the first parameter)
decide   -> Verdict | None   the first answer wins
wrap     -> T                wraps a call, which `go` makes: once, never, or with changes
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.ports import Request, ToolOutput
from alipes.kernel.turns import Event, Inbound, ModelReply, Turn, Usage


class Verdict(Struct, frozen=True):
    ruling: Literal["allow", "deny", "ask"]
    """`ask`: the person decides; if nobody can be asked, it is denied."""
    reason: str = ""


class Admission(Struct, frozen=True):
    """What happens to a message: taken as it is, dropped without a turn, or taken with another text."""

    action: Literal["take", "drop", "rewrite"]
    text: str = ""


class ModelAttempt(Struct, frozen=True):
    """One attempt at one model request."""

    id: str
    model: str
    """`provider/model`."""
    request: Request
    step: int
    """The number of the request within the turn, from 1."""
    number: int
    """The number of the attempt, from 1."""
    limit: int
    began: float
    """Seconds since the epoch."""


# --- decide


async def before_message(inbound: Inbound) -> Admission | None:
    """Decide: what happens to a message, before it becomes a turn and before access is checked."""


async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
    """Decide: may this call run? Without an answer the tool's policy applies. A hook that fails denies."""


async def before_answer(text: str, turn: Turn, changed: tuple[str, ...], attempt: int) -> Verdict | None:
    """Decide: a turn that changed files is about to end with `text`. `deny`: the model is given the reason
    and continues; at most three times (`attempt`, from 1)."""


# --- filter


async def turn_context(context: str, turn: Turn) -> str | None:
    """Filter: context for the model beside the person's message, in this turn only. Called once per turn."""


async def before_request(request: Request, turn: Turn) -> Request | None:
    """Filter: the request before it is sent to the provider."""


async def tool_arguments(args: Mapping[str, Json], call: ToolCall, turn: Turn) -> Mapping[str, Json] | None:
    """Filter: the arguments of a tool, before any decision. `call` is as the model sent it."""


async def tool_result(result: ToolResult, call: ToolCall, turn: Turn) -> ToolResult | None:
    """Filter: the result of a call, before the model reads it."""


async def terminal_output(output: str, command: str, status: int | None, turn: Turn) -> str | None:
    """Filter: the whole output of a shell command, before it is shortened. No `status`: it was stopped."""


async def answer_text(text: str, turn: Turn) -> str | None:
    """Filter: the final text of a turn, before it is recorded."""


# --- wrap


async def around_tool(
    go: Callable[[Mapping[str, Json]], Awaitable[str | ToolOutput]],
    args: Mapping[str, Json],
    call: ToolCall,
    turn: Turn,
) -> str | ToolOutput:
    """Wrap: the tool call; `go(args)` makes it. `args`: as given by the wrapper around this one."""
    return await go(args)


async def around_request(go: Callable[[Request], Awaitable[ModelReply]], request: Request, turn: Turn) -> ModelReply:
    """Wrap: one attempt at one request; `go(request)` sends it and shows the stream."""
    return await go(request)


# --- observe


async def on_event(event: Event, turn: Turn) -> None:
    """Observe: every event of a running turn."""


async def request_sent(attempt: ModelAttempt, turn: Turn) -> None:
    """Observe: each attempt at a request, just before it is sent."""


async def request_answered(attempt: ModelAttempt, reply: ModelReply, seconds: float, turn: Turn) -> None:
    """Observe: an attempt that was answered."""


async def request_failed(attempt: ModelAttempt, error: ProviderError, again: bool, turn: Turn) -> None:
    """Observe: an attempt that failed. `again`: the same model is tried again."""


async def after_tool(call: ToolCall, result: ToolResult, turn: Turn, seconds: float, error: Exception | None) -> None:
    """Observe: every call, however it ended, also those cut off by a stop. `error`: what the tool raised."""


async def agent_loop_stopped(  # noqa: PLR0913
    turn: Turn,
    session_key: str,
    session_id: str,
    turn_id: str,
    platform: str,
    reason: str,
    invalidation_reason: str,
    tool_call_ids: tuple[str, ...],
    partial_text: str,
) -> None:
    """Observe: a running turn was interrupted; it is marked and about to be cancelled.

    `tool_call_ids`: the running calls; `partial_text`: the unfinished answer so far.
    """


async def turn_ended(turn: Turn, ending: str, detail: str, said: tuple[Message, ...], usage: Usage | None) -> None:
    """Observe: the end of every turn, before the next one starts. `ending`: as in `TurnEnded`, or
    `suspended`: the process exits and the turn resumes at the next start."""


async def session_began(session: str, session_key: str, turn: Turn) -> None:
    """Observe: the first turn of a conversation starts."""


async def session_left(session: str, session_key: str, reason: str, successor: str) -> None:
    """Observe: a conversation is left: `reset` (for `successor`), `idle` for a long time, or `shutdown`."""


async def session_reset(session: str, session_key: str, reason: str, predecessor: str) -> None:
    """Observe: a new conversation replaced its predecessor; `session_left` came before."""


async def command_given(name: str, args: str, inbound: Inbound) -> None:
    """Observe: a person entered a command, also while a turn runs."""


async def subagent_started(parent: Turn, session: str, role: str, goal: str) -> None:
    """Observe: a turn started a subagent, in the conversation `session`."""


async def subagent_ended(  # noqa: PLR0913
    parent: Turn, session: str, role: str, goal: str, ending: str, summary: str, seconds: float
) -> None:
    """Observe: a subagent ended, once, also if it was stopped. `ending`: as in `turn_ended`."""


async def gateway_started(platforms: tuple[str, ...]) -> None:
    """Observe: the gateway serves these platforms."""
