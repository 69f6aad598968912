"""The agent loop: call the model, run its tool calls, repeat, within limits. Knows no platform, database or screen."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from alipes.agent import tool_calls
from alipes.agent.budget import BudgetExceeded, SpendingLimits, TurnBudget
from alipes.agent.compaction.compaction import Compactor, ContextFitter
from alipes.agent.model_call import FallbackModels, ModelCallContext, ModelCooldowns, ModelOpener, RetryPolicy
from alipes.agent.plan import PLAN_PROMPT, PlanMode, review_plan, tools_for_plan
from alipes.agent.sources import format_sources
from alipes.agent.tool_calls import RESULT_LIMIT, AskApproval, RequireExtra, ToolRunner, never_stopped, run_calls
from alipes.agent.tool_search import NAME as TOOL_SEARCH
from alipes.agent.tool_search import RankByMeaning, ToolSearch
from alipes.agent.transcript_repair import known_results, opening_messages, with_unique_call_ids
from alipes.kernel.errors import ContextTooLong, ProviderError
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, notice
from alipes.kernel.ports import CheckStop, Emit, Request, Tool
from alipes.kernel.turns import Effort, Ending, ModelReply, Notice, Retracted, Said, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import HookDispatcher
from alipes.plugins.specs import Verdict
from alipes.providers.registry import Backend, fit_effort

if TYPE_CHECKING:
    from alipes.agent.answer_schema import AnswerSchema

WARN_AFTER = 3
"""An identical call that failed this often is not run again."""
GIVE_UP_AFTER = 5
MAX_CUTOFFS = 3
MAX_OBJECTIONS = 3
_OBJECTION = "Before you finish: "

SUMMARISE = notice(
    "The step limit of this turn is reached and no more tools can be called. "
    "In a few sentences, state what was done, what was found, and what is left to do."
)
CONTINUE = notice("Your answer was cut off at the output limit. Continue exactly where you stopped; repeat nothing.")
SMALLER_CALLS = notice(
    "Your answer was cut off at the output limit in the middle of a tool call, so the call was not "
    "run. Make it again in smaller pieces, for example a long file in several writes."
)
THINK_LESS = notice("The output limit was reached before you said anything. Think less this time, and answer.")
MORE_STEPS = "The step limit of this turn was reached, and the user allowed more steps."
CUTOFF_NOTICES = (CONTINUE, SMALLER_CALLS, THINK_LESS)

Effect: TypeAlias = Callable[[ToolCall], Literal["read", "write"]]
TurnEnd: TypeAlias = tuple[Ending, str]


class Transcript:
    def __init__(self, turn: Turn, emit: Emit, budget: TurnBudget) -> None:
        self.history: tuple[Message, ...] = (*turn.history, *turn.said)
        """All messages: the session before this turn, and the turn."""
        self.said: tuple[Message, ...] = turn.said
        """The messages of this turn."""
        self._emit, self._budget = emit, budget
        self._ids = {call.id for message in self.history for call in message.calls}

    @property
    def steps(self) -> int:
        """How many model answers this turn has had."""
        return sum(message.role == "assistant" for message in self.said)

    async def say(self, message: Message, model: str = "") -> None:
        """Emit and append it; with `model`, the usage of its calls is recorded along. A call id that was used
        before is replaced."""
        if message.calls:
            message = with_unique_call_ids(message, self._ids)
            self._ids.update(call.id for call in message.calls)
        usage = await self._budget.take_unrecorded() if model else None
        await self._emit(Said(message, model, usage))
        if usage is not None:
            self._budget.release()
        self.append(message)

    def append(self, *messages: Message) -> None:
        """Append messages that are already recorded."""
        self.history = (*self.history, *messages)
        self.said = (*self.said, *messages)


TakeSteered: TypeAlias = Callable[[], Awaitable[tuple[Message, ...]]]
"""Messages steered into the turn since the last call; already recorded."""


async def _no_messages() -> tuple[Message, ...]:
    return ()


AskForSteps: TypeAlias = Callable[[Turn, int], Awaitable[str | None]]
"""Asks whether a turn that took this many steps may continue; None: no. Otherwise the person's words, or empty."""


class Agent(Struct, frozen=True):
    """What does not change during a turn."""

    models: ModelOpener
    model: str
    """As `provider/model`, unless the message or session names another."""
    fallback: tuple[str, ...] = ()
    last_resort: str = ""
    """A demo model to use if none of the others ever answered."""
    tools: Mapping[str, Tool] = {}
    deferrable: Mapping[str, str] = {}
    """Tools that `tool_search` may keep out of requests, and their groups."""
    rank_tools: RankByMeaning | None = None
    hooks: HookDispatcher = HookDispatcher()
    system: Callable[[Turn], str] = lambda _turn: ""
    """Called once, at the start of the turn."""
    max_steps: int = 200
    max_tokens: int = 8192
    effort: Effort = ""
    retry: RetryPolicy = RetryPolicy()
    cooldowns: ModelCooldowns = field(default_factory=ModelCooldowns)
    """Shared by all turns of a process: remembers which models failed."""
    result_limit: int = RESULT_LIMIT
    ask_approval: AskApproval | None = None
    require_extra: RequireExtra | None = None
    ask_for_steps: AskForSteps | None = None
    """Asks a person at the step limit; None: nobody is asked."""
    spending: SpendingLimits | None = None
    compactor: Compactor | None = None
    mask: Callable[[str], str] = str
    """Removes known secrets from tool output."""
    plan: PlanMode | None = None


async def run_turn(
    agent: Agent,
    turn: Turn,
    emit: Emit,
    *,
    take_steered: TakeSteered = _no_messages,
    check_stop: CheckStop = never_stopped,
) -> TurnEnd:
    """Run one turn to its end; everything it says is emitted.

    Between two steps, and before the final answer counts, it takes steered messages; before each action it awaits
    `check_stop`.

    To stop it, cancel the task: whatever it opened closes on the way out. The caller writes the ending and the messages
    that close an open transcript. Raises what `emit` raises, and `ConfigError` if the model is not configured.
    """
    life = _TurnLoop(agent, turn, emit, take_steered=take_steered, check_stop=check_stop)
    try:
        over = await _run_to_end(life)
    except ProviderError as error:
        over = "failed", str(error)
    except BudgetExceeded as error:
        over = error.ending, str(error)
    finally:  # also when it is stopped: what was used counts
        try:
            await life.budget.settle()
        finally:
            life.budget.release()
    return over


async def _run_to_end(life: "_TurnLoop") -> TurnEnd:
    await life.begin()
    over: TurnEnd | None = None
    while over is None:
        try:
            over = await life.step()
        except ContextTooLong as error:
            if not await life.fitting.handle_overflow(life.models.backend, life.visible_messages()):
                return "failed", life.fitting.too_long_message(life.models.backend, error)
    return over


class _TurnLoop:
    """One running turn. The next step is derived from its last message and never stored, so a resumed turn
    behaves like one that was never interrupted."""

    def __init__(
        self, agent: Agent, turn: Turn, emit: Emit, *, take_steered: TakeSteered, check_stop: CheckStop
    ) -> None:
        self._agent, self._turn, self._emit, self._take_steered = agent, turn, emit, take_steered
        wanted = turn.inbound.model or turn.model
        names = (wanted or agent.model, *agent.fallback)
        self.models = FallbackModels(
            agent.cooldowns, agent.models, names, insist=bool(wanted), last_resort=agent.last_resort
        )
        self._specs = tool_calls.visible_specs(agent.tools, turn.inbound)
        self._search = ToolSearch(agent.tools, agent.deferrable, agent.rank_tools)
        self._tools = ToolRunner(
            {**agent.tools, TOOL_SEARCH: self._search} if agent.deferrable else agent.tools,
            agent.hooks,
            turn,
            emit,
            clock=agent.retry.clock,
            limit=agent.result_limit,
            ask_approval=agent.ask_approval,
            require_extra=agent.require_extra,
            check_stop=check_stop,
            mask=agent.mask,
        )
        self._call_context = ModelCallContext(
            turn,
            emit,
            agent.retry,
            agent.hooks,
            check_stop,
            has_fallback=self.models.has_next,
            call_begun=self._tools.prepare,
        )
        self.budget = TurnBudget(agent.spending, self._call_context)
        self.transcript = Transcript(turn, emit, self.budget)
        self.fitting = ContextFitter(agent.compactor, turn, emit)
        self._system = agent.system(turn)
        self._schema = _open_schema(turn)
        if self._schema is not None:
            self._system += self._schema.prompt
        self._empty_replies, self._call_count = 0, 0
        self._context = ""
        self._replaced_effort: set[str] = set()

    async def begin(self) -> None:
        """Say the person's message, unless an earlier attempt did, and collect context from plugins."""
        for message in opening_messages(self._turn, self.transcript.said):
            await self.transcript.say(message)
        self._context = await self._agent.hooks.filter(specs.turn_context, "", turn=self._turn)

    async def step(self) -> TurnEnd | None:
        """Do what follows from the last message; None if there is more to do."""
        last = self.transcript.history[-1]
        if last.calls:
            return await self._run_calls(last.calls)
        if tool_calls.is_client_call(last):
            return "answered", ""
        spent = self.transcript.steps >= self._max_steps
        if not spent and (heard := await self._take_steered()):  # messages after the last step get a turn of their own
            self.transcript.append(*heard)
            return None
        if last.role == "assistant":
            if SUMMARISE in self.transcript.said:
                return self._limit()
            if await self._sent_back(last) or await self._is_planning_on(last):
                return None
            return ("answered", "") if self._schema is None else await self._check_document(self._schema, last)
        if spent and await self._may_continue():
            return None
        return await (self._summarise() if spent else self._ask())

    @property
    def _max_steps(self) -> int:
        """The limit, once more for each time a person allowed it."""
        return self._agent.max_steps * (1 + sum(map(_is_extension, self.transcript.said)))

    async def _may_continue(self) -> bool:
        """At the step limit: True if a person allows as many steps again."""
        ask, limit = self._agent.ask_for_steps, self._max_steps
        if ask is None or SUMMARISE in self.transcript.said:
            return False
        words = await ask(self._turn, limit)
        if words is None:
            return False
        await self.transcript.say(notice(f"{MORE_STEPS} They said: {words}" if words else MORE_STEPS))
        return True

    async def _ask(self) -> TurnEnd | None:
        model, reply = await self.models.call_first_available(self._call_backend, self._emit)
        if reply.stop == "length":
            return await self._continue(model, reply)
        if is_blank(reply.message):
            return await self._ask_again(model)
        self._empty_replies = 0
        message = await self._rewritten(reply.message)
        if self._schema is None:
            message = self._with_sources(message)
        elif not message.calls:
            message = await self._only_document(self._schema, message)
        await self.transcript.say(message, model)
        return None

    async def _only_document(self, schema: "AnswerSchema", message: Message) -> Message:
        """A final answer without what surrounds its document, and with the parts that the output limit cut off."""
        document = await schema.read("".join(cut_off_texts(self.transcript.said)) + message.text)
        return message if document == message.text else await self._with_text(message, document, "only its JSON counts")

    async def _check_document(self, schema: "AnswerSchema", last: Message) -> TurnEnd | None:
        """The end of the turn if its answer matches, or could not be corrected; None: the model corrects it."""
        judged = await schema.judge(last, self.transcript.said)
        if isinstance(judged, Message):
            await self._emit(Notice("The answer does not match its schema; asking for a corrected one"))
            await self.transcript.say(judged)
            return None
        return judged

    def _with_sources(self, message: Message) -> Message:
        """A final answer with the list of its sources as part of its text, so that every front end shows it."""
        listed = "" if message.calls else format_sources(self.transcript.history, self.transcript.said, message.text)
        return Message(message.role, (*message.parts, Text(listed))) if listed else message

    async def _rewritten(self, message: Message) -> Message:
        """The final message as rewritten by plugins; the text shown so far is retracted."""
        if message.calls or not self._agent.hooks.has_hooks(specs.answer_text):
            return message
        text = await self._agent.hooks.filter(specs.answer_text, message.text, turn=self._turn)
        return message if text == message.text else await self._with_text(message, text, "a plugin rewrote the answer")

    async def _with_text(self, message: Message, text: str, why: str) -> Message:
        """The message with another text; the one shown so far is retracted."""
        await self._emit(Retracted(why))
        others = tuple(part for part in message.parts if not isinstance(part, Text))
        return Message(message.role, (*others, Text(text)))

    async def _sent_back(self, last: Message) -> bool:
        """True if a plugin objects to the answer: the model is given the reason and continues."""
        hooks, said = self._agent.hooks, self.transcript.said
        times = sum(message.role == "notice" and message.text.startswith(_OBJECTION) for message in said)
        if times >= MAX_OBJECTIONS or not hooks.has_hooks(specs.before_answer):
            return False
        if not (changed := tool_calls.changed_files(said)):
            return False
        verdict = await hooks.decide(
            specs.before_answer, _no_objection, text=last.text, turn=self._turn, changed=changed, attempt=times + 1
        )
        if verdict is None or verdict.ruling == "allow":
            return False
        await self.transcript.say(notice(_OBJECTION + (verdict.reason or "check what you changed.")))
        return True

    async def _is_planning_on(self, last: Message) -> bool:
        """True if the answer is a plan, and the person wants it carried out or changed."""
        message = await review_plan(self._agent.plan, self._turn, last.text)
        if message is not None:
            await self.transcript.say(message)
        return message is not None

    async def _call_backend(
        self, backend: Backend, tool_choice: Literal["auto", "none"] = "auto"
    ) -> tuple[str, ModelReply]:
        facts, system, offered = backend.facts, self._system, self._specs
        if self._agent.plan is not None and await self._agent.plan.is_on(self._turn, since_claim=not self._call_count):
            system += PLAN_PROMPT
            offered = tool_calls.visible_specs(tools_for_plan(self._agent.tools), self._turn.inbound)
        offered = self._search.select(offered, facts.window, self.transcript.history)
        request = Request(
            model=backend.model,
            system=system,
            messages=(),
            tools=() if facts.tools is False else offered,
            max_tokens=min(self._agent.max_tokens, facts.output or self._agent.max_tokens),
            effort=await self._fit_effort(backend),
            session=self._turn.session,
            tool_choice=tool_choice,
            output_schema=self._turn.inbound.output_schema if tool_choice == "auto" else {},
        )
        request = await self.fitting.fit(backend, request, self.visible_messages())
        request = await self._agent.hooks.filter(specs.before_request, request, turn=self._turn)
        self._call_count += 1
        reply = await self.budget.call(backend, request, self._call_count)
        self.fitting.record_usage(reply)
        return backend.name, reply

    async def _fit_effort(self, backend: Backend) -> Effort:
        """The reasoning level of the request. One that the model lacks is replaced, with one notice."""
        wanted = self._agent.effort
        level = fit_effort(wanted, backend.facts)
        if level != wanted and backend.facts.reasoning is not False and backend.name not in self._replaced_effort:
            self._replaced_effort.add(backend.name)
            await self._emit(Notice(f"{backend.name} has no effort {wanted}; using {level}"))
        return level

    def visible_messages(self) -> tuple[Message, ...]:
        history, before = self.transcript.history, len(self._turn.history)
        return with_context(history, before, self._context) if self._context else history

    async def _continue(self, model: str, reply: ModelReply) -> TurnEnd | None:
        """After the output limit: keep the complete part and ask for the rest."""
        kept, notice = split_truncated(reply.message)
        if not is_blank(kept):
            await self.transcript.say(kept, model)
        if kept.calls:
            return None
        if count_cutoffs(self.transcript.said) >= MAX_CUTOFFS:
            times = MAX_CUTOFFS + 1
            fix = f"Ask for less, or raise max_tokens ({self._agent.max_tokens})"
            return "failed", f"{model} hit the output limit {times} times. {fix}"
        await self._emit(Notice(f"{model} hit the output limit; asking it to continue"))
        await self.transcript.say(notice)
        return None

    async def _ask_again(self, model: str) -> TurnEnd | None:
        self._empty_replies += 1
        if self._empty_replies > 1:
            return "failed", f"{model} gave an empty answer twice"
        await self._emit(Retracted("the answer was empty"))
        await self._emit(Notice(f"{model} gave an empty answer. Retrying", live=True))
        return None

    async def _summarise(self) -> TurnEnd:
        if self.transcript.said[-1] != SUMMARISE:
            await self._emit(Notice(f"step limit ({self._max_steps}) reached; asking for a summary"))
            await self.transcript.say(SUMMARISE)
        try:
            model, reply = await self.models.call_first_available(
                lambda each: self._call_backend(each, "none"), self._emit
            )
        except ProviderError as error:
            return self._limit(f"; no summary: {error}")
        words = tuple(part for part in reply.message.parts if not isinstance(part, ToolCall))
        summary = Message("assistant", words)
        if not is_blank(summary):
            await self.transcript.say(self._with_sources(summary), model)
        return self._limit()

    def _limit(self, more: str = "") -> TurnEnd:
        return "out_of_steps", f"stopped at the step limit ({self._max_steps}){more}"

    async def _run_calls(self, calls: tuple[ToolCall, ...]) -> TurnEnd | None:
        """Run the calls that may run, answer the others, and say all results in order."""
        known = known_results(calls, self._turn.tool_results, self._tools.effect)
        done = {name: result for name, result in known.items() if self._turn.tool_results[name] is not None}
        refused = refuse_repeated(calls, count_failures(self.transcript.said, self._tools.effect))
        left = tuple(call for call in calls if call.id not in done)
        theirs = tool_calls.client_results(calls, self._turn.inbound)
        results = done | await run_calls(self._tools, left, refused | known | theirs)
        await self.transcript.say(Message("tool", tuple(results[call.id] for call in calls)))
        stuck = stuck_reason(calls, count_failures(self.transcript.said, self._tools.effect))
        return ("failed", stuck) if stuck else None


def _open_schema(turn: Turn) -> "AnswerSchema | None":
    """What the answer must match, if anything. Raises `ConfigError`."""
    if not turn.inbound.output_schema:
        return None
    from alipes.agent.answer_schema import AnswerSchema  # noqa: PLC0415

    return AnswerSchema(turn.inbound.output_schema)


def cut_off_texts(said: tuple[Message, ...]) -> list[str]:
    """The texts before the last message that are continued by it: the output limit cut them off."""
    texts = list[str]()
    for place in range(len(said) - 1, 0, -2):
        if said[place] != CONTINUE:
            break
        texts.insert(0, said[place - 1].text)
    return texts


def _is_extension(message: Message) -> bool:
    return message.role == "notice" and message.text.startswith(MORE_STEPS)


def _no_objection(_why: str) -> Verdict | None:
    """Not a safety decision: a hook that fails has no say."""
    return None


def with_context(history: tuple[Message, ...], since: int, context: str) -> tuple[Message, ...]:
    """The history with `context` added to the first user message from index `since` on."""
    for place in range(since, len(history)):
        if history[place].role == "user":
            apart = "\n\n" if history[place].text else ""  # some wires join the parts without a separator
            extended = Message("user", (*history[place].parts, Text(f"{apart}{context}")))
            return (*history[:place], extended, *history[place + 1 :])
    return history


def count_failures(said: tuple[Message, ...], effect: Effect) -> dict[bytes, int]:
    """How often each call failed in a row, by `call_identity`.

    A successful write resets all counts: the state changed, so trying again makes sense.
    """
    counts: dict[bytes, int] = {}
    calls: dict[str, ToolCall] = {}
    for message in said[_last_change(said, effect) :]:
        calls.update((call.id, call) for call in message.calls)
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in calls:
                _count(counts, calls[part.call_id], part, effect)
    return counts


def _last_change(said: tuple[Message, ...], effect: Effect) -> int:
    """The position of the last calls with a successful write: nothing before them counts."""
    for place in range(len(said) - 1, 0, -1):
        writes = {call.id for call in said[place - 1].calls if effect(call) == "write"}
        if any(
            isinstance(part, ToolResult) and part.outcome == "ok" and part.call_id in writes
            for part in said[place].parts
        ):
            return place - 1
    return 0


def _count(counts: dict[bytes, int], call: ToolCall, result: ToolResult, effect: Effect) -> None:
    if result.outcome in ("failed", "denied"):
        key = call_identity(call)
        counts[key] = counts.get(key, 0) + 1
    elif result.outcome == "ok" and effect(call) == "write":
        counts.clear()
    elif counts:
        counts.pop(call_identity(call), None)


def call_identity(call: ToolCall) -> bytes:
    """Equal for calls of the same tool with the same arguments in any order."""
    return msgspec.json.encode((call.name, call.args, call.raw), order="sorted")


def refuse_repeated(calls: tuple[ToolCall, ...], counts: Mapping[bytes, int]) -> dict[str, ToolResult]:
    """By id, the calls that are refused because they failed too often."""
    if max(counts.values(), default=0) < WARN_AFTER:
        return {}
    return {
        call.id: ToolResult(
            call.id,
            f"not run: this same call has failed {count} times in a row. "
            "Try something else, or say what is blocking you.",
            "failed",
        )
        for call in calls
        if (count := counts.get(call_identity(call), 0)) >= WARN_AFTER
    }


def stuck_reason(calls: tuple[ToolCall, ...], counts: Mapping[bytes, int]) -> str:
    """The error that ends a turn which repeats itself; empty if it does not."""
    if max(counts.values(), default=0) < GIVE_UP_AFTER:
        return ""
    for call in calls:
        if (count := counts.get(call_identity(call), 0)) >= GIVE_UP_AFTER:
            return f"gave up: the model made the same failing call to {call.name} {count} times in a row"
    return ""


def count_cutoffs(said: tuple[Message, ...]) -> int:
    return sum(message in CUTOFF_NOTICES for message in said)


def split_truncated(message: Message) -> tuple[Message, Message]:
    """A truncated answer without its incomplete call, and the notice that asks for the rest."""
    kept = Message("assistant", tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.raw)))
    if len(kept.parts) < len(message.parts):
        return kept, SMALLER_CALLS
    return kept, CONTINUE if kept.text.strip() else THINK_LESS


def is_blank(message: Message) -> bool:
    """True for an answer without text and calls."""
    return not message.calls and not message.text.strip()
