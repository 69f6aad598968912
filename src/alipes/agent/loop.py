"""The agent loop: ask, act, ask again. It knows no platform, no database and no screen."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from alipes.agent import limits, plugin_edits, tool_calls
from alipes.agent.budget import Purse, Spending, Spent
from alipes.agent.compaction.compaction import Compaction
from alipes.agent.compaction.turn import Fitting
from alipes.agent.model_call import Asker, Chain, Line, Opens, Patience
from alipes.agent.tool_calls import LIMIT, AskPerson, Desk, going_on, perform
from alipes.agent.transcript_repair import distinct, opening, recall
from alipes.kernel.errors import ContextTooLong, ProviderError
from alipes.kernel.messages import Message, ToolCall
from alipes.kernel.ports import Effort, Emit, Proceed, Request, Tool
from alipes.kernel.turns import Ending, Noted, Replied, Retracted, Said, Turn, Usage
from alipes.plugins import specs
from alipes.plugins.dispatch import Relay
from alipes.plugins.specs import Verdict
from alipes.providers.registry import Backend


class Transcript:
    def __init__(self, turn: Turn, emit: Emit, billed: Callable[[], None] = lambda: None) -> None:
        """`billed` is called when all that was used so far is on the bill."""
        self.history: tuple[Message, ...] = (*turn.history, *turn.said)
        """All that a model is shown: the session before this turn, and the turn."""
        self.said: tuple[Message, ...] = turn.said
        """The turn alone."""
        self._emit, self._billed = emit, billed
        self._ids = {call.id for message in self.history for call in message.calls}
        self.owed: Usage | None = None
        """What was used and is on no bill yet."""

    @property
    def steps(self) -> int:
        """How many answers of a model this turn has had."""
        return sum(message.role == "assistant" for message in self.said)

    async def say(self, message: Message, model: str = "", usage: Usage | None = None) -> None:
        """Tell it and keep it. A call whose id was used before gets another."""
        if message.calls:
            message = distinct(message, self._ids)
            self._ids.update(call.id for call in message.calls)
        if usage is not None:
            self.owe(usage)
            usage, self.owed = self.owed, None
        await self._emit(Said(message, model, usage))
        if usage is not None:
            self._billed()
        self.history = (*self.history, message)
        self.said = (*self.said, message)

    def take_in(self, messages: tuple[Message, ...]) -> None:
        """Messages that were said in this turn by someone else, and are kept already."""
        self.history = (*self.history, *messages)
        self.said = (*self.said, *messages)

    def owe(self, usage: Usage) -> None:
        """Tokens of an answer that is not said: they are on the bill of the next one that is."""
        self.owed = usage if self.owed is None else self.owed + usage


Over: TypeAlias = tuple[Ending, str]
Absorb: TypeAlias = Callable[[], Awaitable[tuple[Message, ...]]]
"""What people said to the turn since it was last asked; already said in its name, and kept."""


async def _nothing() -> tuple[Message, ...]:
    return ()


class Agent(Struct, frozen=True):
    """What does not change during a turn."""

    models: Opens
    model: str
    """As `provider/model`; a turn whose message or session names another asks that one."""
    fallback: tuple[str, ...] = ()
    tools: Mapping[str, Tool] = {}
    hooks: Relay = Relay()
    system: Callable[[Turn], str] = lambda _turn: ""
    """Called once, at the start of the turn."""
    max_steps: int = 50
    max_tokens: int = 8192
    effort: Effort = ""
    patience: Patience = Patience()
    chain: Chain = field(default_factory=Chain)
    """Give every turn of a process the same one: it remembers which models rest."""
    result_limit: int = LIMIT
    consent: AskPerson | None = None
    spending: Spending | None = None
    compaction: Compaction | None = None
    mask: Callable[[str], str] = str
    """Takes known secrets out of what tools say."""


async def run_turn(
    agent: Agent, turn: Turn, emit: Emit, *, absorb: Absorb = _nothing, proceed: Proceed = going_on
) -> Over:
    """Drive one turn to its end; what it says is what it emits.

    Between two steps, and before the last word counts as such, it asks `absorb`; before each act `proceed`.

    To stop it, cancel the task: whatever it opened closes on the way out. The ending is
    for the caller to write, as are the messages that close a transcript left open. Raises
    what `emit` raises, and `ConfigError` when the wanted model is not configured.
    """
    life = _Life(agent, turn, emit, absorb=absorb, proceed=proceed)
    try:
        over = await _lived(life)
    except ProviderError as error:
        over = "failed", str(error)
    except Spent as error:
        over = error.ending, str(error)
    finally:
        life.purse.let_go()
    await life.purse.settle(life.talk.owed, life.line.backend)
    return over


async def _lived(life: "_Life") -> Over:
    await life.begin()
    over: Over | None = None
    while over is None:
        try:
            over = await life.step()
        except ContextTooLong as error:
            if not await life.fitting.overflowed(life.line.backend, life.told()):
                return "failed", life.fitting.sentence(life.line.backend, error)
    return over


class _Life:
    """One turn being lived. What comes next is read off its last message and never kept beside it,
    so a turn that is resumed knows as much as one that was never interrupted."""

    def __init__(self, agent: Agent, turn: Turn, emit: Emit, *, absorb: Absorb, proceed: Proceed) -> None:
        self._agent, self._turn, self._emit, self._absorb = agent, turn, emit, absorb
        self._asker = Asker(turn, emit, agent.patience, agent.hooks, proceed)
        self.purse = Purse(agent.spending, self._asker)
        self.talk = Transcript(turn, emit, self.purse.let_go)
        self.fitting = Fitting(agent.compaction, turn, emit)
        self._system = agent.system(turn)
        self._specs = tool_calls.shown(agent.tools, turn.inbound)
        wanted = turn.inbound.model or turn.model
        names = (wanted or agent.model, *agent.fallback)
        self.line = Line(agent.chain, agent.models, names, insist=bool(wanted))
        self._desk = Desk(
            agent.tools,
            agent.hooks,
            turn,
            emit,
            clock=agent.patience.clock,
            limit=agent.result_limit,
            consent=agent.consent,
            proceed=proceed,
            mask=agent.mask,
        )
        self._blanks, self._questions = 0, 0
        self._context = ""

    async def begin(self) -> None:
        """Say the person's message, unless an earlier attempt did; and hear what there is beside it."""
        for message in opening(self._turn, self.talk.said):
            await self.talk.say(message)
        self._context = await self._agent.hooks.filter(specs.turn_context, "", turn=self._turn)

    async def step(self) -> Over | None:
        """Do what follows from the last message; None means that something follows from that."""
        last = self.talk.history[-1]
        if last.calls:
            return await self._act(last.calls)
        if tool_calls.ends_here(last):
            return "answered", ""
        spent = self.talk.steps >= self._agent.max_steps
        if not spent and (heard := await self._absorb()):  # who speaks after the last step is answered next
            self.talk.take_in(heard)
            return None
        if last.role == "assistant":
            if limits.SUM_UP in self.talk.said:
                return self._limit()
            return None if await self._sent_back(last) else ("answered", "")
        return await (self._sum_up() if spent else self._ask())

    async def _ask(self) -> Over | None:
        model, reply = await self.line.through(self._put, self._emit)
        if reply.stop == "length":
            return await self._continue(model, reply)
        if limits.blank(reply.message):
            return await self._ask_again(model, reply)
        self._blanks = 0
        await self.talk.say(await self._reworded(reply.message), model, reply.usage)
        return None

    async def _reworded(self, message: Message) -> Message:
        """The message as plugins want it, if it is the last word; what was shown of it is taken back."""
        if message.calls or not self._agent.hooks.listens(specs.answer_text):
            return message
        text = await self._agent.hooks.filter(specs.answer_text, message.text, turn=self._turn)
        if text == message.text:
            return message
        await self._emit(Retracted("a plugin gave it other words"))
        return plugin_edits.reworded(message, text)

    async def _sent_back(self, last: Message) -> bool:
        """Does a plugin object to the turn's ending so? Then the model is told why, and goes on."""
        hooks, times = self._agent.hooks, plugin_edits.objections(self.talk.said)
        if times >= plugin_edits.MAX_TIMES or not hooks.listens(specs.before_answer):
            return False
        if not (changed := plugin_edits.changed(self.talk.said)):
            return False
        verdict = await hooks.decide(
            specs.before_answer,
            _unopposed,
            text=last.text,
            turn=self._turn,
            changed=changed,
            attempt=times + 1,
        )
        if verdict is None or verdict.ruling == "allow":
            return False
        await self.talk.say(plugin_edits.objection(verdict.reason or "check what you changed."))
        return True

    async def _put(
        self, backend: Backend, tool_choice: Literal["auto", "none"] = "auto"
    ) -> tuple[str, Replied]:
        facts = backend.facts
        request = Request(
            model=backend.model,
            system=self._system,
            messages=(),
            tools=() if facts.tools is False else self._specs,
            max_tokens=min(self._agent.max_tokens, facts.output or self._agent.max_tokens),
            effort=self._agent.effort,
            session=self._turn.session,
            tool_choice=tool_choice,
        )
        request = await self.fitting.fit(backend, request, self.told())
        request = await self._agent.hooks.filter(specs.before_request, request, turn=self._turn)
        self._questions += 1
        reply = await self.purse.ask(backend, request, self._questions)
        self.fitting.counted(reply)
        return backend.name, reply

    def told(self) -> tuple[Message, ...]:
        history, before = self.talk.history, len(self._turn.history)
        return plugin_edits.with_context(history, before, self._context) if self._context else history

    async def _continue(self, model: str, reply: Replied) -> Over | None:
        """An answer that ran into the output limit: keep what is whole, ask for the rest."""
        kept, notice = limits.after_cut(reply.message)
        if limits.blank(kept):
            self.talk.owe(reply.usage)
        else:
            await self.talk.say(kept, model, reply.usage)
        if kept.calls:
            return None
        if limits.cuts(self.talk.said) >= limits.MAX_CUTS:
            again = f"{model} ran into its output limit {limits.MAX_CUTS + 1} times"
            return "failed", f"{again}; ask for less at once, or raise max_tokens ({self._agent.max_tokens})"
        await self._emit(Noted(f"{model} ran into its output limit; asking it to go on"))
        await self.talk.say(notice)
        return None

    async def _ask_again(self, model: str, reply: Replied) -> Over | None:
        self.talk.owe(reply.usage)
        self._blanks += 1
        if self._blanks > 1:
            return "failed", f"{model} gave an empty answer, also when asked again"
        await self._emit(Retracted(f"{model} gave an empty answer; asking again"))
        return None

    async def _sum_up(self) -> Over:
        if self.talk.said[-1] != limits.SUM_UP:
            await self._emit(Noted(f"{self._agent.max_steps} steps are used up; asking for a summary"))
            await self.talk.say(limits.SUM_UP)
        try:
            model, reply = await self.line.through(lambda each: self._put(each, "none"), self._emit)
        except ProviderError as error:
            return self._limit(f", and there is no summary: {error}")
        words = tuple(part for part in reply.message.parts if not isinstance(part, ToolCall))
        summary = Message("assistant", words)
        if limits.blank(summary):
            self.talk.owe(reply.usage)
        else:
            await self.talk.say(summary, model, reply.usage)
        return self._limit()

    def _limit(self, more: str = "") -> Over:
        return "out_of_steps", f"stopped at the limit of {self._agent.max_steps} steps{more}"

    async def _act(self, calls: tuple[ToolCall, ...]) -> Over | None:
        """Run what may be run, answer the rest, and say all results in the order asked."""
        known = recall(calls, self._turn.acts, self._desk.effect)
        done = {name: result for name, result in known.items() if self._turn.acts[name] is not None}
        refused = limits.refusals(calls, limits.failures(self.talk.said, self._desk.effect))
        left = tuple(call for call in calls if call.id not in done)
        theirs = tool_calls.handed(calls, self._turn.inbound)
        results = done | await perform(self._desk, left, refused | known | theirs)
        await self.talk.say(Message("tool", tuple(results[call.id] for call in calls)))
        stuck = limits.stuck(calls, limits.failures(self.talk.said, self._desk.effect))
        return ("failed", stuck) if stuck else None


def _unopposed(_why: str) -> Verdict | None:
    """Whether the work is good enough is no question of safety: a hook that fails has no say in it."""
    return None
