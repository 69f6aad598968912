"""A conversation with a program, as a model: what it is sent, and its work as answers of a model, step by step."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec
from acp import RequestError
from acp.schema import ImageContentBlock, TextContentBlock
from msgspec import Struct, structs

from alipes.agent.answer_schema import format_prompt
from alipes.agent.plan import PLAN_PROMPT
from alipes.features.agents.history import CHANGED, SessionState, SessionStates, describe_transcript, digest, knows
from alipes.features.agents.program import AgentProgram
from alipes.features.agents.prompt import Done, Failed, ProgramCall, Prompt
from alipes.features.agents.wire import AUTH_REQUIRED, ProgramEnded
from alipes.kernel.errors import NotAuthorised, ProviderError, Refused, Transient
from alipes.kernel.messages import Image, Message, Part, Text, Thinking, ToolCall, assistant
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, ModelReply, TextDelta, ThinkingDelta, Turn, Usage

VAGUE_S = 3.0
"""Seconds that a call is held back until the program says more about it, such as its command."""
HANDS = (
    "You work inside alipes, the personal agent of the user. The MCP server `alipes` has what belongs to the user: "
    "their notes (memory), their earlier conversations (session_search), their schedules (cronjob), and send_file, "
    "which is the only way to give them a file."
)
INTERRUPTED = (
    "alipes was restarted while you worked on this request, and your last action may be incomplete. Look at what is "
    "done already, then continue:"
)
MISSED = "Since your last turn, this was said in the conversation by another model:"
EARLIER = "This conversation began before this session of yours. Its transcript, shortened:"
SILENT = "(It ended without an answer.)"
TWICE = 2


class Around(Struct, frozen=True):
    """What a conversation uses of the app."""

    make_program: Callable[[str, Turn], Awaitable[AgentProgram]]
    notify: Callable[[str, Turn], None]
    before_prompt: Callable[[Turn], Awaitable[None]]
    """Called before a program can change something in a turn."""


class AgentConversation:
    """One conversation of ours with one program, which is started when it is needed."""

    def __init__(self, name: str, conversation: str, states: SessionStates, around: "Around") -> None:
        self.name, self.conversation = name, conversation
        self.program: AgentProgram | None = None
        self._states, self._around = states, around
        self._prompt: Prompt | None = None
        self._turn, self._taken, self._deaths = "", 0, 0
        """The turn, how many of its request's messages the program has, and how often it died in it."""
        self._cost: float | None = None
        self._plan = ""

    @property
    def prompt(self) -> Prompt | None:
        return self._prompt

    @property
    def is_busy(self) -> bool:
        return self._prompt is not None

    async def step(self, request: Request, turn: Turn) -> AsyncGenerator[Delta, None]:
        """The program's next words, up to the tool calls that it makes or to its end."""
        if self._turn != turn.id:
            self._turn, self._taken, self._deaths, self._prompt = turn.id, 0, 0, None
        prompt = self._prompt
        new = self._new_messages(request, turn)
        if prompt is not None and (new or request.tool_choice == "none"):
            await self._interrupt()
            prompt = None
        elif prompt is not None:
            for each in prompt.ours.values():  # those that were not allowed to run
                if each.taken and not each.has_run:
                    each.end(failed=True, text="not allowed")
        if prompt is None:
            prompt = await self._begin(request, turn, new)
        async for delta in self._read(prompt, request):
            yield delta

    def _new_messages(self, request: Request, turn: Turn) -> tuple[Message, ...]:
        """What people and alipes said in this turn that the program does not have."""
        first = self._taken or len(turn.history)
        return tuple(each for each in request.messages[first:] if each.role in ("user", "notice"))

    async def _interrupt(self) -> None:
        """Steered: the program stops what it does, and hears something else."""
        if self.program is not None:
            self.program.stop()
            await self.program.wait_until_idle()
        self._prompt = None

    # Sending

    async def _begin(self, request: Request, turn: Turn, new: tuple[Message, ...]) -> Prompt:
        program, words = await self._ready(turn)
        if len(new) > 1 and self._taken == 0 and turn.said:
            new = tuple(each for each in new if each.role == "user")
        texts = [*words, *(each.text for each in new if each.text.strip())]
        if turn.inbound.instructions and not self._taken:
            texts.insert(0, turn.inbound.instructions)
        if PLAN_PROMPT in request.system:
            texts.append(PLAN_PROMPT.strip())
        if request.output_schema and not self._taken:
            texts.append(format_prompt(msgspec.json.encode(request.output_schema).decode()))
        images = [part for each in new for part in each.parts if isinstance(part, Image)]
        able = program.able.agent_capabilities
        if images and not (able and able.prompt_capabilities and able.prompt_capabilities.image):
            texts.append(f"({len(images)} pictures were left out: {self.name} takes none.)")
            images = []
        await self._around.before_prompt(turn)
        await self._apply_plan(program, request)
        prompt = self._prompt = Prompt(turn, self._cost)
        self._taken = len(request.messages)
        self._remember(program, turn, running=True)
        program.send(
            prompt, [TextContentBlock(type="text", text="\n\n".join(texts) or "Continue."), *map(_image, images)]
        )
        return prompt

    async def _ready(self, turn: Turn) -> tuple[AgentProgram, list[str]]:
        """The program with its session, and what it must know first. Raises `ProviderError` and `ConfigError`."""
        program = self.program
        if program is not None:
            await program.wait_until_idle()
        state = self._states.read(self.conversation)
        fits = state is not None and (knows(state, turn.history) or state.running == turn.id)
        if (
            program is not None
            and not program.ended
            and fits
            and state is not None
            and program.session == state.session
        ):
            return program, self._describe_missed(state, turn)
        fresh = program is None
        if program is not None:
            program.leave("a new session is needed")
            await program.wait_until_gone()
        self.program = program = await self._around.make_program(self.name, turn)
        wanted = state.session if state is not None and fits else ""
        try:
            loaded = await program.start(turn, wanted)
        except (ProgramEnded, RequestError, NotAuthorised) as error:
            self.program = None
            await program.wait_until_gone()
            raise self._explain(error) from error
        self._cost = None
        await self._apply_settings(program, state, new=not loaded)
        return program, self._introduce(turn, state, fits=fits, loaded=loaded, fresh=fresh)

    def _introduce(self, turn: Turn, state: SessionState | None, *, fits: bool, loaded: bool, fresh: bool) -> list[str]:
        """What is said to a program that was started; the person reads which way it continues."""
        if loaded and state is not None:
            interrupted = state.running == turn.id
            if fresh or interrupted:
                self._around.notify(f"{self.name} continues its session.", turn)
            return [*self._describe_missed(state, turn), *([INTERRUPTED, turn.inbound.text] if interrupted else [])]
        words = [] if turn.inbound.parent else [HANDS]
        transcript = describe_transcript((*turn.history, *turn.said), turn.compaction.text)
        if not turn.history and len(turn.said) < TWICE:
            return words
        if state is not None:
            why = (
                f"{CHANGED}, which {self.name} cannot undo in its own history"
                if not fits
                else (f"{self.name} cannot open its old session")
            )
            self._around.notify(f"{why}: it began a new one with a summary of the transcript.", turn)
        words += [f"{EARLIER}\n\n{transcript}"]
        return [*words, INTERRUPTED, turn.inbound.text] if len(turn.said) >= TWICE else words

    def _describe_missed(self, state: SessionState, turn: Turn) -> list[str]:
        missed = () if state.running == turn.id else turn.history[state.seen :]
        return [f"{MISSED}\n\n{describe_transcript(missed)}"] if missed else []

    async def _apply_settings(self, program: AgentProgram, state: SessionState | None, *, new: bool) -> None:
        """Its mode and options, as the settings and the person chose them."""
        wanted = dict(state.settings) if state is not None else {}
        if new and program.launch.mode:
            wanted.setdefault("mode", program.launch.mode)
        for id, value in wanted.items():
            with suppress(RequestError):
                await program.choose(id, value)

    async def _apply_plan(self, program: AgentProgram, request: Request) -> None:
        """Use the plan mode of the program while ours is on. Raises `Refused` if it has none."""
        wanted = PLAN_PROMPT in request.system
        modes = next((each for each in program.choices if each.id == "mode"), None)
        if wanted and not self._plan:
            plan = next((each for each in modes.values if "plan" in each.lower()), "") if modes else ""
            if not plan:
                raise Refused(f"{self.name} has no plan mode. Use /mode ask.")
            self._plan = modes.value if modes else ""
            await program.choose("mode", plan)
        elif self._plan and not wanted:
            before, self._plan = self._plan, ""
            with suppress(RequestError):
                await program.choose("mode", before)

    async def choose(self, id: str, value: str) -> str:
        """Set a mode or an option, now and in later sessions of this conversation. Why it cannot be; empty if it is."""
        program = self.program
        if program is not None and not program.ended:
            known = {each.id: each.values for each in program.choices}
            if value not in known.get(id, ()):
                offered = ", ".join(known.get(id, known))
                return f"{self.name} has no {id} {value}: there is {offered or 'nothing to choose'}."
            try:
                await program.choose(id, value)
            except (ProgramEnded, RequestError) as error:
                return f"{self.name}: {error}"
        state = self._states.read(self.conversation) or SessionState("")
        self._states.write(self.conversation, structs.replace(state, settings={**state.settings, id: value}))
        return ""

    # Reading

    async def _read(self, prompt: Prompt, request: Request) -> AsyncGenerator[Delta, None]:
        parts: list[Part] = []
        names = {each.name for each in request.tools}
        while True:
            while not prompt.items:
                prompt.changed.clear()
                await prompt.changed.wait()
            match prompt.items[0]:
                case TextDelta(text) as delta:
                    prompt.items.popleft()
                    _join(parts, Text(text))
                    yield delta
                case ThinkingDelta(text) as delta:
                    prompt.items.popleft()
                    _join(parts, Thinking(text))
                    yield delta
                case ProgramCall() | ToolCall():
                    if calls := await self._take_calls(prompt, names):
                        yield ModelReply(assistant(*parts, *calls), Usage(cost=0.0))
                        return
                case Done(stop, usage):
                    self._prompt, self._cost = None, prompt.cost
                    yield self._final(parts, stop, usage)
                    return
                case Failed(error):
                    self._prompt = None
                    raise self._explain(error) from error

    async def _take_calls(self, prompt: Prompt, names: set[str]) -> list[ToolCall]:
        """The calls at the head of the queue."""
        calls = list[ToolCall]()
        while prompt.items and isinstance(found := prompt.items[0], ProgramCall | ToolCall):
            if isinstance(found, ProgramCall):
                await _wait_for_input(found, prompt)
                calls.append(found.take())
            elif found.name in names:
                calls.append(found)
            prompt.items.popleft()
        return calls

    def _final(self, parts: list[Part], stop: str, usage: Usage) -> ModelReply:
        notes = {
            "max_tokens": f"({self.name} reached its output limit.)",
            "max_turn_requests": f"({self.name} reached the limit of its requests in one turn.)",
            "cancelled": f"({self.name} ended this itself.)",
        }
        said = any(isinstance(part, Text) and part.text.strip() for part in parts)
        note = notes.get(stop, "") or ("" if said or stop == "refusal" else SILENT)
        if note:
            parts.append(Text(f"\n\n{note}" if said else note))
        return ModelReply(assistant(*parts), usage, "refused" if stop == "refusal" else "end")

    def _explain(self, error: Exception) -> ProviderError:
        if isinstance(error, ProviderError):
            return error
        if isinstance(error, RequestError) and error.code == AUTH_REQUIRED and "auth" in str(error).lower():
            return NotAuthorised(f"{self.name} is not logged in: run `alipes agents login {self.name}` in a terminal.")
        if isinstance(error, ProgramEnded):
            self._deaths += 1
            text = f"{self.name} ended in the middle of its work: {error}" if self._taken else f"{self.name}: {error}"
            return Transient(text) if self._deaths < TWICE and self._taken else Refused(text)
        data = error.data if isinstance(error, RequestError) else None
        detail = data.get("details") or data.get("message") if isinstance(data, Mapping) else ""
        return Refused(f"{self.name}: {error}" + (f" ({detail})" if detail and str(detail) != str(error) else ""))

    # The end

    def stop(self, turn: str) -> None:
        """The turn is stopped: events are dropped and requests refused from now on."""
        if self._turn == turn and self._prompt is not None and self.program is not None:
            self.program.stop()
            self._prompt = None

    def end_turn(self, turn: Turn, said: tuple[Message, ...], *, suspended: bool) -> None:
        self.stop(turn.id)
        program = self.program
        if self._turn != turn.id or suspended or program is None:
            return
        self._turn = ""
        if program.session:
            self._remember(program, turn, said=said)

    def _remember(
        self, program: AgentProgram, turn: Turn, *, running: bool = False, said: tuple[Message, ...] = ()
    ) -> None:
        known = (*turn.history, *said)
        before = self._states.read(self.conversation)
        settings = before.settings if before is not None else {}
        now = turn.id if running else ""
        self._states.write(self.conversation, SessionState(program.session, len(known), digest(known), now, settings))


async def _wait_for_input(found: ProgramCall, prompt: Prompt) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(VAGUE_S):
            while found.is_vague and found.title and len(prompt.items) == 1:
                found.changed.clear()
                await found.changed.wait()


def _join(parts: list[Part], part: Text | Thinking) -> None:
    last = parts[-1] if parts else None
    if type(last) is type(part) and isinstance(last, Text | Thinking):
        parts[-1] = type(part)(last.text + part.text)
    else:
        parts.append(part)


def _image(image: Image) -> ImageContentBlock:
    return ImageContentBlock(type="image", mime_type=image.media_type, data=base64.b64encode(image.data).decode())
