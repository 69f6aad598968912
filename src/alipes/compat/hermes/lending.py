"""Variables of the home's `.env` for plugins that look in the environment alone; taken back with the last."""

from pathlib import Path

from alipes.config.variables import Variables, inherited, lend, read_variables, take_back


class Lending:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._lent: set[str] = set()

    def now(self) -> Variables:
        """The variables as they are at this moment."""
        return read_variables(self._file, inherited())

    def lend(self, *names: str) -> None:
        """What a plugin says it needs, and nothing else."""
        self._lent |= lend(self.now(), names)

    def end(self) -> None:
        take_back(self._lent)
        self._lent.clear()
