"""The terminal while someone may be typing: finished lines go up into the scrollback, the unfinished one
stands above the prompt. It knows prompt_toolkit and no words of its own."""

from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.styles import Style

from alipes.cli.render import BOLD, DIM, PLAIN, RED, columns, harmless

_STYLE = Style.from_dict({"prompt": "bold", "status": "ansibrightblack"})
REDRAWS = 30.0
"""At most so many times a second, however fast the text comes."""


class Page:
    """Writes without disturbing what is being typed: no key is lost, because the input is never let go."""

    def __init__(self, keys: KeyBindings, status: Callable[[], str], *, colour: bool = True) -> None:
        """`status`: lines that stand between what is being told and the prompt; empty for none."""
        self._status, self._colour = status, colour
        self._tail = ""
        self._session: PromptSession[str] = PromptSession(
            self._message,
            key_bindings=keys,
            style=_STYLE if colour else None,
            erase_when_done=True,
            reserve_space_for_menu=0,
        )
        self._session.app.min_redraw_interval = 1 / REDRAWS

    async def read(self) -> str:
        """What is typed next; EOFError when the person wants to leave."""
        return await self._session.prompt_async(set_exception_handler=False)

    def echo(self, text: str) -> None:
        """What the person said, at the place where it is answered."""
        self._write(f"{self._in(BOLD, '> ')}{harmless(text)}\n")

    def answer(self, text: str) -> None:
        *lines, tail = (self._tail + harmless(text)).split("\n")
        *more, self._tail = self._rows(tail)
        lines += more
        if lines:
            self._write("".join(f"{line}\n" for line in lines))
        self.refresh()

    def remark(self, line: str) -> None:
        style = RED if line.startswith("alipes: ") else DIM
        rows = [row for part in line.split("\n") for row in self._rows(part)]
        self._write("".join(f"{self._in(style, row)}\n" for row in rows))

    def refresh(self) -> None:
        self._session.app.invalidate()

    def _rows(self, line: str) -> list[str]:
        """The line in pieces that fit beside each other into the terminal's width."""
        width, rows = self._session.output.get_size().columns - 1, []
        while columns(line) > width:
            head, line = _break(line, width)
            rows.append(head)
        return [*rows, line]

    def _in(self, style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if self._colour and text else text

    def _write(self, text: str) -> None:
        app, output = self._session.app, self._session.output
        if app.is_running:
            app.renderer.erase()
        output.write_raw(text)
        output.flush()
        if app.is_running:
            app.renderer.reset()
            app.renderer.request_absolute_cursor_position()
            app.invalidate()

    def _message(self) -> StyleAndTextTuples:
        above: StyleAndTextTuples = [("", self._tail + "\n")] if self._tail else []
        if status := self._status():
            above.append(("class:status", status + "\n"))
        return [*above, ("class:prompt", "> ")]


def _break(text: str, width: int) -> tuple[str, str]:
    """The text in two, the first no wider than `width`, at a blank if there is one."""
    end = width
    while columns(text[:end]) > width:
        end -= 1
    blank = text.rfind(" ", 1, end + 1)
    return (text[:blank], text[blank + 1 :]) if blank > 0 else (text[:end], text[end:])
