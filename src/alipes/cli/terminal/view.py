"""What happens in a session, put on the screen: account, status, question, waiting messages."""

import asyncio

from alipes.cli import theme
from alipes.cli.terminal.terminal import Terminal
from alipes.cli.terminal.transcript_view import Account
from alipes.kernel.conversations import Waiting
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    Asked,
    Event,
    Heard,
    Said,
    SessionChanged,
    TurnEnded,
    TurnStarted,
)


class Show:
    """Tell it every event with its turn, and every message on its way."""

    def __init__(self, terminal: Terminal, *, thinking: bool) -> None:
        self._terminal = terminal
        self._bottom, self.status = terminal.bottom, terminal.bottom.status
        columns = terminal.columns
        self.account = Account(self._theme(), self._bottom.look, columns, thinking=thinking, begun=True)
        self._bottom.tail = self.account.tail
        self._bottom.resized = self._resize
        terminal.restyled = self._restyle
        self._labels: dict[str, str] = {}
        """How messages with long pastes are shown, by their text."""
        self._gone: set[str] = set()
        """Turns that began or ended; their message may still be on its way here."""
        self._sending = 0
        self.living = ""
        """The turn that lives now."""
        self.asked: Asked | None = None
        """The question of the model's that waits for an answer."""
        self._text: str | None = None
        """The message of the living turn, until it was said."""
        self.rested = asyncio.Event()
        """Set while no turn lives."""
        self.rested.set()

    def tell(self, turn: str, event: Event) -> None:
        match event:
            case TurnStarted(text=text):
                self._begin(turn, text)
            case Said(message) if message.role == "user":
                self._hear(message.text)
            case ApprovalAsked() | ApprovalAnswered() | Asked() | Heard():
                self._question(turn, event)
            case TurnEnded(ending=ending):
                self._drop(turn)
                if ending != "steered":
                    self._bottom.dialogue.clear(turn)
                    self.asked = None
                    self.living = ""
                    self.rested.set()
            case SessionChanged():
                self.status.forget()
                if not self._sending:  # else it was a command of ours, which says so itself
                    self.account.note("another conversation goes on here now")
        self.status.tell(event)
        shown = self._labels.get(event.text, "") if isinstance(event, TurnStarted) else ""
        self.account.tell(event, shown)
        self.update()
        if isinstance(event, TurnStarted | TurnEnded | ApprovalAsked | Asked):
            self._terminal.refresh_now()

    def _question(self, turn: str, event: ApprovalAsked | ApprovalAnswered | Asked | Heard) -> None:
        match event:
            case ApprovalAsked():
                self._bottom.dialogue.ask(event, turn)
            case ApprovalAnswered(ask):
                self._bottom.dialogue.close(ask)
            case Asked():
                self.asked = event
            case Heard():
                self.asked = None

    def sending(self, text: str, shown: str) -> None:
        """A message is about to be accepted."""
        self._sending += 1
        if shown != text:
            self._labels[text] = shown

    def sent(self, typed: str, shown: str, *turns: str) -> None:
        """What was `typed` is dealt with; the turns that it made wait, unless they began meanwhile."""
        self._sending -= 1
        self._bottom.waiting.pop(typed, None)
        self._bottom.waiting.update((turn, shown) for turn in turns if turn not in self._gone)
        if not self._sending:
            self._gone.clear()
        self.update()

    def answered(self, typed: str) -> None:
        """What was `typed` is the answer to the question."""
        self.asked = None
        self._bottom.waiting.pop(typed, None)
        self.update()

    def waits(self, waiting: Waiting) -> None:
        self._bottom.waiting[waiting.id] = self._labels.get(waiting.text, waiting.text)

    def note(self, text: str, *, bad: bool = False) -> None:
        self.account.note(text, bad=bad)
        self.update()

    def update(self) -> None:
        self.status.waiting = len(self._bottom.waiting)
        self._terminal.append(self.account.take())

    def _begin(self, turn: str, text: str) -> None:
        self._drop(turn)
        self._text, self.living = text, turn
        self.rested.clear()

    def _hear(self, text: str) -> None:
        """The first message of a turn was shown when it began; another one was steered into it."""
        if text == self._text:
            self._text = None
        else:
            self.account.say(self._labels.get(text, text))

    def _drop(self, turn: str) -> None:
        self._bottom.waiting.pop(turn, None)
        if self._sending:
            self._gone.add(turn)

    def _resize(self, columns: int) -> None:
        self.account.resize(columns)
        self._bottom.append(self.account.take())

    def _restyle(self) -> None:
        self.account.restyle(self._theme(), self._bottom.look)

    def _theme(self) -> theme.Theme:
        return theme.make(self._terminal.theme, ascii_only=self._terminal.around.ascii_only)
