"""Every point where a plugin may speak. A hook takes any subset of these parameters, by name.

A hook is one of four kinds, and its kind is its return type:
observe  -> None             all are called, nothing they do matters to the turn
filter   -> T | None         each receives the value the one before it returned (the first parameter)
decide   -> Verdict | None   the first to answer settles it
wrap     -> T                stands around an act, which `go` does: once, never, or with a change
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.ports import Output, Request
from alipes.kernel.turns import Event, Inbound, Replied, Turn, Usage


class Verdict(Struct, frozen=True):
    ruling: Literal["allow", "deny", "ask"]
    """`ask`: the person decides; where nobody can be asked, it is a denial."""
    reason: str = ""


class Admission(Struct, frozen=True):
    """What becomes of a message: taken as it is, dropped without a turn, or taken with other words."""

    action: Literal["take", "drop", "rewrite"]
    text: str = ""


class Attempt(Struct, frozen=True):
    """One try at one question to a model."""

    id: str
    model: str
    """`provider/model`."""
    request: Request
    step: int
    """Which question of the turn this is, from 1."""
    number: int
    """Which try at the question, from 1."""
    limit: int
    began: float
    """Seconds since the epoch."""


# --- decide


async def before_message(inbound: Inbound) -> Admission | None:
    """Decide: what becomes of a person's message, before it is a turn and before anyone asks who they are."""


async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
    """Decide: may this call run? Silence means the tool's own policy applies. A hook that fails denies."""


async def before_answer(text: str, turn: Turn, changed: tuple[str, ...], attempt: int) -> Verdict | None:
    """Decide: a turn that changed files is about to end with `text`. `deny`: the model is told why, and
    goes on; at most three times (`attempt`, from 1)."""


# --- filter


async def turn_context(context: str, turn: Turn) -> str | None:
    """Filter: what the model is told beside the person's message, in this turn only. Asked once a turn."""


async def before_request(request: Request, turn: Turn) -> Request | None:
    """Filter: the request as it is about to leave for the provider."""


async def tool_arguments(args: Mapping[str, Json], call: ToolCall, turn: Turn) -> Mapping[str, Json] | None:
    """Filter: what a tool is called with, before anyone rules on it. `call` is as the model sent it."""


async def tool_result(result: ToolResult, call: ToolCall, turn: Turn) -> ToolResult | None:
    """Filter: what a call gave, before the model reads it."""


async def terminal_output(output: str, command: str, status: int | None, turn: Turn) -> str | None:
    """Filter: all that a shell command printed, before it is cut to size. No `status`: it was stopped."""


async def answer_text(text: str, turn: Turn) -> str | None:
    """Filter: the last words of a turn, before they are kept."""


# --- wrap


async def around_tool(
    go: Callable[[Mapping[str, Json]], Awaitable[str | Output]],
    args: Mapping[str, Json],
    call: ToolCall,
    turn: Turn,
) -> str | Output:
    """Wrap: the act itself; `go(args)` does it. `args`: as the wrapper around this one gave them."""
    return await go(args)


async def around_request(
    go: Callable[[Request], Awaitable[Replied]], request: Request, turn: Turn
) -> Replied:
    """Wrap: one try at one question; `go(request)` asks it, and shows what streams."""
    return await go(request)


# --- observe


async def on_event(event: Event, turn: Turn) -> None:
    """Observe: everything a turn says while it lives."""


async def request_sent(attempt: Attempt, turn: Turn) -> None:
    """Observe: each try at a question, just before it leaves."""


async def request_answered(attempt: Attempt, reply: Replied, seconds: float, turn: Turn) -> None:
    """Observe: a try that was answered."""


async def request_failed(attempt: Attempt, error: ProviderError, again: bool, turn: Turn) -> None:
    """Observe: a try that failed. `again`: the same model is asked once more."""


async def after_tool(
    call: ToolCall, result: ToolResult, turn: Turn, seconds: float, error: Exception | None
) -> None:
    """Observe: every call, however it ended; those cut off by a stop too. `error`: what the tool raised."""


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
    """Observe: a living turn was interrupted; it is marked, and about to be cancelled.

    `tool_call_ids`: the calls that run; `partial_text`: what the model had said of its next answer.
    """


async def turn_ended(
    turn: Turn, ending: str, detail: str, said: tuple[Message, ...], usage: Usage | None
) -> None:
    """Observe: the end of every turn, before the next one begins. `ending`: as in `TurnEnded`, or
    `suspended`: the process ends, and the turn goes on at the next start."""


async def session_began(session: str, session_key: str, turn: Turn) -> None:
    """Observe: a conversation has its first turn."""


async def session_left(session: str, session_key: str, reason: str, successor: str) -> None:
    """Observe: a conversation that was lived here goes on no more: `reset` (left for `successor`), `idle`
    for long, or `shutdown`."""


async def session_reset(session: str, session_key: str, reason: str, predecessor: str) -> None:
    """Observe: a new conversation stands in place of its predecessor; `session_left` came before."""


async def command_given(name: str, args: str, inbound: Inbound) -> None:
    """Observe: a person gave a command of the table, also while a turn runs."""


async def subagent_started(parent: Turn, session: str, role: str, goal: str) -> None:
    """Observe: a turn has a child at work for it, in the conversation `session`."""


async def subagent_ended(  # noqa: PLR0913
    parent: Turn, session: str, role: str, goal: str, ending: str, summary: str, seconds: float
) -> None:
    """Observe: the child is done, once, also when it was stopped. `ending`: as in `turn_ended`."""


async def gateway_started(platforms: tuple[str, ...]) -> None:
    """Observe: the gateway serves these platforms."""
