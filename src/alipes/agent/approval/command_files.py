"""What commands read that act on the machine itself: shown with the question, and the same when the command starts."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import ToolContext
from alipes.kernel.turns import Turn
from alipes.runtime.sandbox.project import project_root
from alipes.tools.common import Places

if TYPE_CHECKING:
    from alipes.agent.approval.shell.host.read_files import CommandFiles

Key = TypeVar("Key")
Value = TypeVar("Value")
MAX_REMEMBERED = 100
CHANGED = "what it reads was changed after you were asked"
SHARED = "a command that is still running in the sandbox can change these files while they are read"


class ShownFiles:
    """The files of one question. A right that the answer gives holds for their content."""

    def __init__(
        self, call: ToolCall, workdir: str, places: Places, found: "CommandFiles", *, text: str, can_change: bool
    ) -> None:
        """`can_change`: a command that runs may change the files after the approved one has started."""
        self._call, self._workdir, self._places, self.found = call, workdir, places, found
        self._can_change = can_change
        self.text = text
        """The files and their content, for the person; empty if there are none."""

    @property
    def rule(self) -> str:
        """What the rule of the call says besides; empty without files."""
        return f" with files {self.found.digest}" if self.found.digest else ""

    @property
    def is_exact(self) -> bool:
        """True if no pattern of words may allow the command: it runs files that can change."""
        return self.found.runs_files or bool(self.once)

    @property
    def once(self) -> str:
        """Why no standing right can be given; empty if it can."""
        return self.found.unknown or (SHARED if self._can_change and self.found.runs_files else "")

    async def are_current(self) -> bool:
        """True if the command would read the same now."""
        return await asyncio.to_thread(_search, self._call, self._workdir, self._places) == self.found


class CommandFileCheck:
    """Reads the files before a question, remembers those of a yes, and compares them when the command starts."""

    def __init__(
        self, places: Places, mask: Callable[[str], str] = str, list_folders: Callable[[], Collection[str]] = frozenset
    ) -> None:
        """`mask` removes known secrets from what is shown. `list_folders`: where commands run in the sandbox now."""
        self._places, self._mask, self._list_folders = places, mask, list_folders
        self._texts: OrderedDict[tuple[str, str], Mapping[str, str]] = OrderedDict()
        """By folder and command, the texts that a person said yes to last."""
        self._approved: OrderedDict[tuple[str, str], ShownFiles] = OrderedDict()
        """By turn and call, what was approved and has not started yet."""

    async def read(self, call: ToolCall, turn: Turn) -> ShownFiles:
        workdir = turn.inbound.workdir
        found = await asyncio.to_thread(_search, call, workdir, self._places)
        before = self._texts.get(_command_key(call, workdir), {})
        text = import_module(_READ_FILES).format_files(found, workdir, before)
        can_change = await asyncio.to_thread(self._can_change, workdir)
        return ShownFiles(call, workdir, self._places, found, text=self._mask(text), can_change=can_change)

    def _can_change(self, workdir: str) -> bool:
        """True if a command runs that may change files of this project."""
        return any(self._project(folder) == self._project(workdir) for folder in self._list_folders())

    def _project(self, workdir: str) -> str:
        return project_root(workdir, self._places.home, self._places.root)

    def approve(self, call: ToolCall, turn: Turn, files: ShownFiles) -> None:
        """A person allowed the call with these files."""
        _remember(self._texts, _command_key(call, turn.inbound.workdir), files.found.texts)
        _remember(self._approved, (turn.id, call.id), files)

    async def check_start(self, act: ToolContext) -> None:
        """Right before an approved command starts. Raises `ToolError` if it would read something else."""
        files = self._approved.pop((act.turn.id, act.call_id), None)
        if files is not None and not await files.are_current():
            raise ToolError(f"Not run: {CHANGED}. Call it again, so that the user is asked about the new content.")


_READ_FILES = "alipes.agent.approval.shell.host.read_files"


def _search(call: ToolCall, workdir: str, places: Places) -> "CommandFiles":
    found: CommandFiles = import_module(_READ_FILES).find_command_files(call, workdir, places)
    return found


def _command_key(call: ToolCall, workdir: str) -> tuple[str, str]:
    return workdir, str(call.args.get("command") or call.args.get("data") or call.args.get("code"))


def _remember(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)
