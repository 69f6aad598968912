"""Live views of chats while turns run: the unfinished answer, tool progress, the typing indicator.

Live views may lose anything: the outbox delivers the final answer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import structs

from alipes.gateway.outbound.delivery import UNCONFIRMED, OutboxWorker
from alipes.gateway.platform_runner import LIVE_TIMEOUT, PlatformRunner
from alipes.gateway.policy import EditRateLimiter, GatewayPolicy, LateTaskGroup
from alipes.gateway.questions import ChatQuestions
from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.formatting import escape_markdown
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.outbox import lane
from alipes.kernel.platform import MessagePart
from alipes.kernel.tool_labels import describe_outcome, describe_tool
from alipes.kernel.turns import (
    Address,
    ApprovalAnswered,
    ApprovalAsked,
    Envelope,
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Retracted,
    Said,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnParked,
    TurnStarted,
)
from alipes.runtime.subscription import Subscription
from alipes.store.sql.people import Progress
from alipes.store.sql.store import Store

MAX_LINES = 12
"""Lines of full tool progress; of more, the last are shown."""
MAX_LINE_CHARS = 70
UNFINISHED = " …"
_MARKS = {"ok": "✓", "failed": "✗", "denied": "✗", "cancelled": "–", "unknown": "?"}


class ToolProgressView:
    """Text of the tool progress message, built from the events of one turn."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}
        self._note = ""

    def start(self, call: ToolCall) -> None:
        self._calls[call.id] = ("…", _describe_call(call))
        self._note = ""

    def update(self, call_id: str, text: str) -> None:
        if call_id in self._calls:
            self._note = _shorten(text.strip().rpartition("\n")[2].rpartition("\r")[2])

    def finish(self, call: ToolCall, result: ToolResult) -> None:
        outcome = escape_markdown(describe_outcome(call, result))
        self._calls[call.id] = (_MARKS[result.outcome], f"{_describe_call(call)} · {outcome}")
        self._note = ""

    def add_note(self, text: str) -> None:
        self._note = _shorten(text)

    def text(self, progress: Progress) -> str:
        """Markdown; empty if there is nothing to show."""
        if progress == "off":
            return ""
        lines = [f"{mark} {call}" for mark, call in self._calls.values()]
        if progress == "short":
            count = f" ({len(lines)} steps)" if len(lines) > 1 else ""
            lines = [f"{line}{count}" for line in lines[-1:]]
        elif len(lines) > MAX_LINES:
            lines = [f"({len(lines) - MAX_LINES} before)", *lines[-MAX_LINES:]]
        note = [self._note] if self._note and (progress == "full" or not lines) else []
        return "  \n".join(lines + [f"_{escape_markdown(each)}_" for each in note])


def _describe_call(call: ToolCall) -> str:
    label = describe_tool(call)
    verb = f"**{escape_markdown(label.verb)}** " if label.verb else ""
    return f"{verb}{format_code(_shorten(label.object))}".rstrip()


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1].rstrip() + "…"


def format_code(text: str) -> str:
    """`text` as inline code, whatever it contains."""
    if not text:
        return ""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


class DraftMessages:
    """Sends and edits the unfinished messages of one chat. Raises `DeliveryError`; callers do not retry."""

    def __init__(self, address: Address, runner: PlatformRunner, store: Store) -> None:
        self._address, self._runner, self._store = address, runner, store
        self._lane = lane(address)
        self._drafts: list[tuple[str, MessagePart | None]] = []
        self._answer = 0
        """Counts the answers of a turn; drafts of an earlier one are final."""
        self._adopt = False
        self._progress = ("", "")
        """Message id and text of the tool progress."""
        self._lost: set[str] = set()
        """Markers of drafts that may have arrived although their message id is unknown."""

    def begin(self, *, resumed: bool) -> None:
        """Another turn starts. `resumed`: an earlier process may have sent drafts of it."""
        self.finalise()
        self._adopt, self._progress = resumed, ("", "")
        self._lost.clear()

    def finalise(self) -> None:
        """The drafts become the final answer elsewhere; later text starts new drafts."""
        self._drafts, self._adopt = [], False
        self._answer += 1

    @property
    def has_progress(self) -> bool:
        """True if a tool progress message was sent."""
        return bool(self._progress[0])

    async def show_progress(self, text: str) -> None:
        message, before = self._progress
        if not text or text == before or not self._runner.capabilities.can_edit:
            return
        if not message and await self._has_queued():
            return
        part = (await self._runner.format_message(text))[0]
        if not message:
            message = await self._runner.send(self._address, part, within=LIVE_TIMEOUT)
        else:
            try:
                await self._runner.edit(self._address, message, part, within=LIVE_TIMEOUT)
            except Undeliverable:
                message = ""
        self._progress = (message, text)

    async def show_draft(self, turn: str, text: str, is_current: Callable[[], bool]) -> None:
        """Show `text`, the unfinished answer of `turn`, as long as `is_current()`."""
        if not text.strip() or not self._runner.capabilities.can_edit:
            return
        answer = self._answer
        if not self._drafts:
            if await self._has_queued():
                return
            if self._adopt:
                known = await self._store.drafts.list_ids(self._lane, turn)
                self._drafts = [(id, None) for id in known if not id.startswith(UNCONFIRMED)]
        parts = await self._runner.format_message(text.rstrip() + UNFINISHED)
        for index, part in enumerate(parts):
            if answer != self._answer or not is_current():
                return
            await self._place(turn, index, part)

    async def _has_queued(self) -> bool:
        """True if the outbox has a message for this chat, which goes first."""
        return await self._store.outbox.head(self._lane) is not None

    async def _place(self, turn: str, index: int, part: MessagePart) -> None:
        answer, drafts = self._answer, self._store.drafts
        if index >= len(self._drafts):
            name = f"{turn}:draft:{self._store.host}:{answer}:{index}"
            id = await self._send(turn, structs.replace(part, id=name))
            if answer == self._answer:
                self._drafts.append((id, part))
            return
        id, before = self._drafts[index]
        if part == before:
            return
        try:
            await self._runner.edit(self._address, id, part, within=LIVE_TIMEOUT)
        except Undeliverable:
            await drafts.remove(self._lane, turn, id)
            if answer == self._answer:
                del self._drafts[index]
        else:
            if answer == self._answer:
                self._drafts[index] = (id, part)

    async def _send(self, turn: str, part: MessagePart) -> str:
        """One row marks the start of the send, another stores its id, so that a crash in between is seen."""
        drafts, marker = self._store.drafts, f"{UNCONFIRMED}{part.id}"
        await drafts.add(self._lane, turn, marker)
        try:
            id = await self._runner.send(self._address, part, within=LIVE_TIMEOUT)
        except DeliveryError as error:
            if error.uncertain and not self._runner.capabilities.deduplicates:
                self._lost.add(marker)
            elif not error.uncertain and marker not in self._lost:
                await drafts.remove(self._lane, turn, marker)
            raise
        await drafts.add(self._lane, turn, id)
        if marker not in self._lost:  # an earlier send under the same marker may have arrived as well
            await drafts.remove(self._lane, turn, marker)
        return id


log = logging.getLogger(__name__)
QuestionEvent: TypeAlias = ApprovalAsked | ApprovalAnswered | QuestionAsked | QuestionAnswered
TYPING_DELAY = 0.4
"""Seconds before the first typing indicator: a quick answer needs none."""
MIN_EDIT_INTERVAL = 0.05
"""Seconds between two edits, also where the platform allows more."""
FAILURE_PAUSE = 5.0
"""Seconds without updates after one failed, unless the platform asks for another pause."""


class LiveView(Subscription):
    """Live view of one conversation. `put` only records events; `run` shows them in batches."""

    def __init__(self, address: Address, runner: PlatformRunner, views: "LiveViews", progress: Progress) -> None:
        super().__init__()
        self.address, self.key, self.lane = address, address.key, lane(address)
        self.progress = progress
        self.turn = ""
        """Id of the running turn; empty if none."""
        self._runner, self._views, self._policy = runner, views, views.policy
        self._rate = views.rates[runner.name]
        self._drafts = DraftMessages(address, runner, views.store)
        self._tools, self._text = ToolProgressView(), list[str]()
        self._question_events: deque[tuple[str, QuestionEvent]] = deque()
        self._open_questions = 0
        self._muted_at = 0.0
        """When the turn was stopped: nothing more is shown until the next turn starts."""
        self._wake, self._closing = asyncio.Event(), False
        self._due, self._timer_set, self._slot_reserved = 0.0, False, False
        self._show, self._type, self._final_progress = False, False, ""
        """What `_update` does next; at the end of a turn the tool progress is shown once more."""
        self._loop = asyncio.get_running_loop()

    def put(self, envelope: Envelope, source: str) -> None:
        """Record an event. Called for each token of each answer, so this must be cheap."""
        self.source = source
        if self._views.shows(self._runner, source):
            self._record(envelope)

    def _record(self, envelope: Envelope) -> None:
        if not self.turn and isinstance(envelope.event, TextDelta | ToolStarted | Said):
            self._begin(envelope.turn, resumed=True)  # it was running before this view was opened
        match envelope.event:
            case TextDelta(text):
                if not self._text:
                    self._due = max(self._due, self._loop.time() + self._policy.draft_delay)
                self._text.append(text)
                self._schedule()
            case TurnStarted(turn, _, attempt):
                self._begin(turn, resumed=attempt > 1)
            case Said(message, partial=partial):
                if message.role == "assistant" and not partial:  # a part is never sent; its draft stays as it is
                    self.finalise()
                if message.role != "user":  # a person's own message sends nothing
                    self._views.outbox.notify(self.address.platform, self.lane)
            case ApprovalAsked() | ApprovalAnswered() | QuestionAsked() | QuestionAnswered() as event:
                self._question_events.append((envelope.turn, event))
                self._open_questions += 1 if isinstance(event, ApprovalAsked | QuestionAsked) else -1
                self._wake.set()
            case TurnEnded() | TurnParked() as event:
                self._end(envelope.turn, event)
            case event:
                self._record_tool_event(event)

    def _record_tool_event(self, event: Event) -> None:
        match event:
            case ToolStarted(call):
                self._tools.start(call)
            case ToolProgress(call_id, text):
                self._tools.update(call_id, text)
            case ToolFinished(call, result):
                self._tools.finish(call, result)
            case Notice(text):
                self._tools.add_note(text)
            case Retracted():
                self._text.clear()
                return
            case _:
                return
        if self.progress != "off":
            delay = 0.0 if self._drafts.has_progress else self._policy.draft_delay
            self._due = max(self._due, self._loop.time() + delay) if not self._timer_set else self._due
            self._schedule()

    def close(self) -> None:
        """The publisher of the events is gone."""
        self._closing = True
        self._wake.set()

    def _begin(self, turn: str, *, resumed: bool) -> None:
        self.turn, self._muted_at, self._open_questions = turn, 0.0, 0
        self._slot_reserved, self._final_progress = False, ""
        self._text.clear()
        self._tools = ToolProgressView()
        self._drafts.begin(resumed=resumed)
        if self._runner.capabilities.typing_seconds:
            self._loop.call_later(TYPING_DELAY, self._on_typing_timer, turn)

    def _end(self, turn: str, ended: TurnEnded | TurnParked) -> None:
        outbox = self._views.outbox
        outbox.notify(self.address.platform, self.lane)
        if turn == self.turn and isinstance(ended, TurnParked):
            self.turn, self._show = "", False
            self._text.clear()
        elif turn == self.turn and isinstance(ended, TurnEnded):
            outbox.counters.turns[ended.ending] += 1
            if self._muted_at:
                outbox.counters.stops.append(self._loop.time() - self._muted_at)
            if ended.ending != "stopped" and not self._muted_at and self._drafts.has_progress:
                self._final_progress = self._tools.text(self.progress)
                self._wake.set()
            self.turn, self._show = "", False
            self._text.clear()  # drafts of a stopped turn stay as they are

    def mute(self) -> None:
        """The running turn is being stopped: show nothing more of it."""
        self._muted_at = self._muted_at or self._loop.time()
        self._text.clear()

    def finalise(self) -> None:
        """The answer is complete: the outbox turns the drafts into it."""
        self._text.clear()
        self._drafts.finalise()

    async def run(self) -> None:
        """Show events until nothing happened for `view_idle` seconds."""
        store = self._views.store
        async with store.bus.subscribe(self.key, into=self):
            pending = self._views.questions.pending(self.key)
            self._question_events.extendleft(pending)  # asking twice is harmless
            if self._question_events:
                self._wake.set()
            self.progress = await store.people.progress(self.lane) or self.progress
            while not self._closing:
                try:
                    async with asyncio.timeout(self._policy.view_idle):
                        await self._wake.wait()
                except TimeoutError:
                    if not self.turn:
                        return
                self._wake.clear()
                await self._update()

    async def _update(self) -> None:
        while self._question_events:
            turn, event = self._question_events.popleft()
            if isinstance(event, ApprovalAsked | QuestionAsked):
                await self._views.questions.ask(self.address, turn, event)
            else:
                await self._views.questions.close(event)
        show, type, self._show, self._type = self._show, self._type, False, False
        final_progress, self._final_progress = self._final_progress, ""
        try:
            if final_progress:
                async with self._views.outbox.lock(self.lane):
                    await self._drafts.show_progress(final_progress)
            if type and self.is_active and not self._open_questions:
                await self._runner.typing(self.address)
            if show and self.is_active:
                async with self._views.outbox.lock(self.lane):
                    await self._show_turn()
        except DeliveryError as error:
            pause = error.retry_after if error.retry_after is not None else FAILURE_PAUSE
            self._due = self._loop.time() + pause
            log.info("live view of %s pauses for %.1f s: %s", self.lane, pause, error)
        if self._text and self.is_active:
            self._schedule()

    async def _show_turn(self) -> None:
        if not self.is_active:  # it changed while we waited for the lock
            return
        self._due = self._loop.time() + max(self._runner.capabilities.edit_interval, MIN_EDIT_INTERVAL)
        await self._drafts.show_progress(self._tools.text(self.progress))
        if self.is_active:
            await self._drafts.show_draft(self.turn, "".join(self._text), lambda: self.is_active)

    @property
    def is_active(self) -> bool:
        """True while a turn runs that may be shown."""
        return bool(self.turn) and not self._muted_at and self._runner.ready

    def _schedule(self) -> None:
        if not self._timer_set:
            self._timer_set = True
            self._loop.call_at(self._due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_set = False
        if not self.is_active:
            return
        if not self._slot_reserved:
            self._slot_reserved, self._due = True, max(self._due, self._loop.time() + self._rate.reserve())
        if self._loop.time() + 0.01 < self._due:  # the slot is later, or an update failed meanwhile
            self._schedule()
            return
        self._show, self._slot_reserved = True, False
        self._wake.set()

    def _on_typing_timer(self, turn: str) -> None:
        if turn == self.turn and not self._closing:
            if self._rate.try_reserve():
                self._type = True
                self._wake.set()
            interval = max(1.0, self._runner.capabilities.typing_seconds * 0.8)
            self._loop.call_later(interval, self._on_typing_timer, turn)


class LiveViews:
    """A live view for each chat conversation that has a turn or had one lately."""

    def __init__(
        self,
        store: Store,
        runners: Mapping[str, PlatformRunner],
        policy: GatewayPolicy,
        outbox: OutboxWorker,
        questions: ChatQuestions,
        *,
        tasks: LateTaskGroup,
    ) -> None:
        self.store, self.policy, self.outbox, self.questions, self.tasks = store, policy, outbox, questions, tasks
        self.runners = runners
        clock = asyncio.get_running_loop().time
        self.rates = {name: EditRateLimiter(policy.edits_per_second, clock) for name in runners}
        """Shared by all views of a platform."""
        self._views: dict[str, LiveView] = {}

    def watch(self, address: Address) -> None:
        """Open a view for a conversation, if there is none."""
        runner = self.runners.get(address.platform)
        if runner is None or address.key in self._views:
            return
        progress = self.policy.for_platform(address.platform).progress
        view = LiveView(address, runner, self, progress)
        if self.tasks.start(self._run(view), f"live view {view.key}"):
            self._views[address.key] = view

    def watch_received(self, address: Address) -> None:
        """A message arrived: open a view of its conversation, unless the process that runs the turn shows it."""
        runner = self.runners.get(address.platform)
        if runner is not None and not (self.store.clustered and runner.sends_alone):
            self.watch(address)

    def is_receiving(self, platform: str) -> bool:
        """True if this process receives the messages of a platform, or if there is no other."""
        runner = self.runners.get(platform)
        return not self.store.clustered or (runner is not None and runner.state.receiving)

    def shows(self, runner: PlatformRunner, source: str) -> bool:
        """True if this process shows the events that `source` published: in a cluster the one that runs the turn, or
        for a platform that cannot send elsewhere the one that receives."""
        if not self.store.clustered:
            return True
        return source == self.store.host if runner.sends_alone else runner.state.receiving

    def mute(self, key: str) -> None:
        """The turn of a session is being stopped: show nothing more of it."""
        if (view := self._views.get(key)) is not None:
            view.mute()

    def finalise(self, turn: Turn) -> None:
        """The answer of a turn is about to be queued: stop showing drafts of it."""
        view = self._views.get(turn.key)
        if view is not None and view.turn == turn.id:
            view.finalise()

    def set_progress(self, address: Address, progress: Progress) -> None:
        for view in self._views.values():
            if view.lane == lane(address):
                view.progress = progress

    async def _run(self, view: LiveView) -> None:
        try:
            await view.run()
        finally:
            if self._views.get(view.key) is view:
                del self._views[view.key]
