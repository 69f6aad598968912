"""The window title, and a bell or desktop notification when a long turn is finished or needs an answer."""

import time
from collections.abc import Callable
from pathlib import Path

from alipes.config.settings import TerminalConfig
from alipes.console.render import to_one_line
from alipes.console.styles import TerminalFeatures
from alipes.kernel import turns

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
MAX_TITLE = 60


def format_title(folder: Path, mark: str = "") -> str:
    """The sequence that sets the window title."""
    text = to_one_line(f"{mark} alipes · {folder.name or folder}".strip(), MAX_TITLE)
    return f"\x1b]2;{text}\x1b\\"


def shows_title(config: TerminalConfig, features: TerminalFeatures) -> bool:
    return config.title and features.titles


class TerminalNotifier:
    """Follows the turns of a conversation; writes only when something starts, ends or asks."""

    def __init__(
        self,
        write: Callable[[str], None],
        config: TerminalConfig,
        features: TerminalFeatures,
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._config, self._features, self._folder = write, config, features, folder
        self._clock = clock
        self._began: float | None = None

    def handle_event(self, event: turns.Event) -> None:
        match event:
            case turns.TurnStarted():
                self._began = self._clock()
                self._set_title("●")
            case turns.ApprovalAsked():
                self._set_title("?")
                self._notify("needs your approval")
            case turns.QuestionAsked():
                self._set_title("?")
                self._notify("has a question")
            case turns.ApprovalAnswered() | turns.QuestionAnswered():
                self._set_title("●" if self._began is not None else "")
            case turns.TurnEnded(ending=ending) if ending != "steered":
                if ending != "stopped":
                    self._notify("failed" if ending == "failed" else "finished")
                self._began = None
                self._set_title("")

    def _set_title(self, mark: str) -> None:
        if shows_title(self._config, self._features):
            mark = mark if not self._features.ascii_only else mark.replace("●", "*")
            self._write(format_title(self._folder, mark))

    def _notify(self, text: str) -> None:
        """Notify about a turn that took so long that the user may be elsewhere."""
        kind = self._config.notify
        if kind == "off" or self._began is None or self._clock() - self._began < self._config.notify_after:
            return
        kind = self._features.notifications if kind == "auto" else kind
        place = to_one_line(self._folder.name or str(self._folder), MAX_TITLE).replace(";", ",")
        match kind:
            case "osc9":
                self._write(f"\x1b]9;alipes in {place} {text}\x1b\\")
            case "osc777":
                self._write(f"\x1b]777;notify;alipes;{place}: {text}\x1b\\")
            case _:
                self._write("\x07")
