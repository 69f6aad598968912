"""Shows the events of a session: transcript, status, questions and queued messages."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from alipes.cli.terminal.terminal import TerminalApp
from alipes.cli.terminal.transcript.replay import replay
from alipes.cli.terminal.transcript.tool_view import render_followed
from alipes.cli.terminal.transcript.transcript_view import TranscriptView
from alipes.console import theme
from alipes.kernel import turns
from alipes.kernel.conversations import PendingTurn
from alipes.kernel.errors import ToolError
from alipes.store.sql.store import Store
from alipes.tools.shell.background import BackgroundProcess, BackgroundProcesses


class SessionView:
    """Updates the screen for every event and every message being sent."""

    def __init__(self, terminal: TerminalApp, *, thinking: bool) -> None:
        self._terminal = terminal
        self._bottom, self.status = terminal.bottom, terminal.bottom.status
        columns = terminal.columns
        self.transcript = TranscriptView(self._theme(), self._bottom.style, columns, thinking=thinking, begun=True)
        self._bottom.tail = self._tail
        self.followed: dict[str, tuple[str, list[str]]] = {}
        """The title and the last lines of each background process that is followed, by its name."""
        self._bottom.is_following = lambda: bool(self.followed)
        self._bottom.on_resize = self._resize
        terminal.on_theme_change = lambda: self.transcript.restyle(self._theme(), self._bottom.style)
        self._labels: dict[str, str] = {}
        """Labels of messages with long pastes, by their text."""
        self._started: set[str] = set()
        """Turns that started or ended while their message was still being sent."""
        self._sending = 0
        self._holds = 0
        self._held_events: deque[tuple[str, turns.Event]] = deque()
        """Events that wait for the end of a replay, each with its turn."""
        self.running_turn = ""
        self.question: turns.QuestionAsked | None = None
        self._text: str | None = None
        """The message of the running turn, until its event arrived."""
        self.idle = asyncio.Event()
        """Set while no turn is running."""
        self.idle.set()

    async def replay(self, store: Store, session: str) -> None:
        """Show a conversation from its start. Events that arrive meanwhile are shown afterwards."""
        self.hold_events()
        try:
            following = {*self._bottom.queued, *self._bottom.held, *(turn for turn, _ in self._held_events)}
            await replay(store, session, self.transcript, self.update, following={*following, self.running_turn})
        finally:
            self.release_events()

    def hold_events(self) -> None:
        """Show no event until each hold was released."""
        self._holds += 1

    def release_events(self) -> None:
        self._holds -= 1
        while self._held_events and not self._holds:
            self._show_event(*self._held_events.popleft())

    def handle_event(self, turn: str, event: turns.Event) -> None:
        if self._holds:
            self._held_events.append((turn, event))
        else:
            self._show_event(turn, event)

    def _show_event(self, turn: str, event: turns.Event) -> None:
        if self._changed_queue(turn, event):
            self.update()
            return
        match event:
            case turns.TurnStarted(text=text):
                self._remove_queued(turn)
                self._text, self.running_turn = text, turn
                self.idle.clear()
            case turns.Said(message) if message.role == "user":
                self._show_user_message(message.text)
            case turns.ApprovalAsked() | turns.ApprovalAnswered() | turns.QuestionAsked() | turns.QuestionAnswered():
                self._handle_question(turn, event)
            case turns.TurnEnded(ending=ending):
                self._remove_queued(turn)
                if ending != "steered":
                    self._bottom.approvals.clear(turn)
                    self.question = None
                    self._bottom.choices.close()
                    self.running_turn = ""
                    self.idle.set()
            case turns.SessionChanged():
                self.status.reset_usage()
                if not self._sending:  # otherwise one of our commands, which prints its own message
                    self.transcript.add_note("switched to another conversation")
        self.status.handle_event(event)
        shown = self._labels.get(event.text, "") if isinstance(event, turns.TurnStarted) else ""
        self.transcript.handle_event(event, shown)
        self.update()
        if isinstance(event, turns.TurnStarted | turns.TurnEnded | turns.ApprovalAsked | turns.QuestionAsked):
            self._terminal.refresh_now()

    def _handle_question(self, turn: str, event: turns.Event) -> None:
        match event:
            case turns.ApprovalAsked():
                self._bottom.approvals.ask(event, turn)
            case turns.ApprovalAnswered(ask):
                self._bottom.approvals.close(ask)
            case turns.QuestionAsked():
                self.question = event
                self._bottom.choices.ask(event)
            case turns.QuestionAnswered():
                self.question = None
                self._bottom.choices.close()

    def send_started(self, text: str, shown: str) -> None:
        self._sending += 1
        if shown != text:
            self._labels[text] = shown

    def label_message(self, text: str, shown: str) -> None:
        """Show `shown` instead of a message that was made of it."""
        self._labels[text] = shown

    def send_finished(self, typed: str, shown: str, *started: str) -> None:
        """The input was handled; its turns are queued unless they have started."""
        self._sending -= 1
        self._bottom.queued.pop(typed, None)
        self._bottom.queued.update((turn, shown) for turn in started if turn not in self._started)
        if not self._sending:
            self._started.clear()
        self.update()

    def question_answered(self, typed: str) -> None:
        """The input was the answer to the open question."""
        self.question = None
        self._bottom.choices.close()
        self._bottom.queued.pop(typed, None)
        self.update()

    def add_queued(self, waiting: PendingTurn) -> None:
        self.set_modes((waiting,))
        queue = self._bottom.held if waiting.held else self._bottom.queued
        queue[waiting.id] = self._labels.get(waiting.text, waiting.text)

    def set_modes(self, messages: Iterable[PendingTurn]) -> None:
        """Note which queued messages wait for the end of the running turn."""
        self._bottom.after_turn = {each.id for each in messages if each.busy == "queue"} | self._bottom.after_turn

    def _changed_queue(self, turn: str, event: turns.Event) -> bool:
        """Handle an event about messages that have not started; False for others."""
        match event:
            case turns.QueueChanged(messages):
                self._set_queue(messages)
            case turns.TurnEnded(ending="stopped", detail="dropped" | "taken_back"):
                self._remove_queued(turn)
            case _:
                return False
        return True

    def _set_queue(self, messages: tuple[turns.QueuedMessage, ...]) -> None:
        queued, held = self._bottom.queued, self._bottom.held
        labels = {**queued, **held}
        held.clear()
        for each in messages:
            label = labels.get(each.turn) or self._labels.get(each.text, each.text)
            queued.pop(each.turn, None)
            if each.turn not in self._started:
                (held if each.held else queued)[each.turn] = label

    def note(self, text: str, *, bad: bool = False) -> None:
        self.transcript.add_note(text, bad=bad)
        self.update()

    def update(self) -> None:
        self.status.queued, self.status.held = len(self._bottom.queued), len(self._bottom.held)
        self._terminal.append(self.transcript.take_final())

    def _tail(self) -> list[str]:
        """The rows that may still change: of the running turn, and of followed processes."""
        rows = self.transcript.tail()
        for title, lines in self.followed.values():
            rows = [*rows, "", *render_followed(title, lines, self.transcript.draw)]
        return rows

    def _show_user_message(self, text: str) -> None:
        """Show a message that was steered into the turn; the first was shown at its start."""
        if text == self._text:
            self._text = None
        else:
            self.transcript.add_user_message(self._labels.get(text, text))

    def _remove_queued(self, turn: str) -> None:
        self._bottom.queued.pop(turn, None)
        self._bottom.held.pop(turn, None)
        if self._sending:
            self._started.add(turn)

    def _resize(self, columns: int) -> None:
        self.transcript.resize(columns)
        self._bottom.append(self.transcript.take_final())

    def _theme(self) -> theme.Theme:
        return theme.make_theme(self._terminal.theme, ascii_only=self._terminal.features.ascii_only)


FOLLOWED_LINES = 10
REFRESH_S = 0.2
"""Shortest time between two updates."""


class JobView:
    """Shows jobs in a `SessionView`. At most one process is followed."""

    def __init__(self, processes: BackgroundProcesses, view: SessionView) -> None:
        self._processes, self._view = processes, view
        self._scope: asyncio.Timeout | None = None
        """Open while a process is followed."""

    async def follow(self, session: str, name: str) -> None:
        """Show the output of a process until it ends or `leave` is called; an earlier one is left first."""
        self.leave()
        try:
            process = self._processes.find(session, name)
        except ToolError:
            return  # its conversation ended
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._scope:
                await self._show_output(process)
        self._view.followed.pop(name, None)
        if process.is_finished:
            self._scope = None
            title, lines = f"{process.title} {process.status}", await _last_lines(process)
            transcript = self._view.transcript
            transcript.add_block(render_followed(title, lines, transcript.draw, ended=True))
        self._view.update()

    def leave(self) -> None:
        """Stop following; the process keeps running."""
        if self._scope is not None:
            self._scope.reschedule(0)
            self._scope = None

    async def _show_output(self, process: BackgroundProcess) -> None:
        changed = asyncio.Event()
        with process.watch(changed):
            while not process.is_finished:
                self._view.followed[process.name] = (process.title, await _last_lines(process))
                self._view.update()
                await changed.wait()
                changed.clear()
                await asyncio.sleep(REFRESH_S)


async def _last_lines(process: BackgroundProcess) -> list[str]:
    lines = (await process.log.read_lines(0, FOLLOWED_LINES)).split("\n")
    return [line for line in lines if line.strip() and not line.startswith("[lines ")]
