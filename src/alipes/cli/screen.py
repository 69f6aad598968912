"""Standard output and standard error of a run that answers once. It decides no words, only where they go."""

import os
from typing import TextIO

from alipes.cli.outlet import Outlet
from alipes.cli.render import DIM, PLAIN, RED, harmless
from alipes.config.variables import Variables


class Screen:
    """The answer to one descriptor, remarks to the other, in the order they were told."""

    def __init__(self, out: TextIO | None, err: TextIO | None, *, colour: bool = True) -> None:
        self._out, self._err = Outlet(_descriptor(out)), Outlet(_descriptor(err))
        self._shown = _is_terminal(out)
        self._colour = colour and _is_terminal(err)
        self.deserted = self._out.deserted

    def answer(self, text: str) -> None:
        """To a terminal only what cannot harm it, to anything else as it is."""
        self._out.write(harmless(text) if self._shown else text)

    def line(self, data: bytes) -> None:
        self._out.write(data + b"\n")

    def remark(self, line: str) -> None:
        self._out.push()
        if self._colour:
            line = f"{RED if line.startswith('alipes: ') else DIM}{line}{PLAIN}"
        self._err.write(line + "\n")
        self._err.push()

    def complain(self, line: str) -> None:
        self.remark(f"alipes: {line}")

    @property
    def failure(self) -> str:
        """Why the answer could not be written, where that is more than a reader who had enough."""
        error = self._out.failure
        return "" if error is None or isinstance(error, BrokenPipeError) else error.strerror or str(error)

    async def drained(self) -> None:
        """Return once everything has left; remarks that nobody takes are not waited for."""
        await self._out.drained()
        self._err.push()

    def close(self) -> None:
        self._out.close()
        self._err.close()


def terminal_width(stream: TextIO | None) -> int:
    """Its columns; 0 where it is no terminal."""
    return os.get_terminal_size(stream.fileno()).columns if stream and _is_terminal(stream) else 0


def wants_colour(variables: Variables) -> bool:
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def _descriptor(stream: TextIO | None) -> int | None:
    return None if stream is None else stream.fileno()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and os.isatty(stream.fileno())
