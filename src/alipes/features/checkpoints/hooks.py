"""Hooks that make a checkpoint of the project before the first write of a turn. Turns that only read cost nothing."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from alipes.agent.auxiliary import BackgroundTasks
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.kernel.attachments import without_attachments
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import ToolOutput
from alipes.kernel.turns import Envelope, Notice, Turn
from alipes.plugins.registry import Contributions
from alipes.store.sql.store import Store

if TYPE_CHECKING:
    from alipes.features.checkpoints.store import Checkpoint, CheckpointRecord

log = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 3.0
"""Seconds that unfinished work gets at the end of the process."""
NO_PROJECT_FILES = frozenset({"todo", "memory", "send_file", "image_generate"})
"""Tools that write, but never files of the project."""
WORDS = 70
_READ_ONLY = lazy_pattern(
    r"(?:ls|cat|head|tail|wc|pwd|echo|grep|stat|du|df|date|whoami|which|id|uname|git (?:status|log|diff|show))(?: |$)"
)
_PLAIN = lazy_pattern(r"[\w ./,:=@%+~^*?'\"\[\]{}#-]*")
"""Characters of a command without redirections and substitutions."""
_WRITES_OUTPUT = lazy_pattern(r"--output|-o\b")


class TurnCheckpoints:
    """An async context manager, which finishes its work when it is left."""

    def __init__(
        self, feature: CheckpointsFeature, contributions: Contributions, store: Store, tasks: BackgroundTasks
    ) -> None:
        """`tasks`: for work after a turn."""
        self._feature, self._contributions = feature, contributions
        self._store, self._tasks = store, tasks
        self._turns: dict[str, Checkpoint | None] = {}
        """By turn of a person: its checkpoint; None if there is none, as it failed."""
        self._pending: set[asyncio.Task[Any]] = set()
        self._pruning: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pending:
            await asyncio.wait(self._pending, timeout=CLOSE_TIMEOUT_S)

    async def around_tool(
        self,
        go: Callable[[Mapping[str, Json]], Awaitable[str | ToolOutput]],
        args: Mapping[str, Json],
        call: ToolCall,
        turn: Turn,
    ) -> str | ToolOutput:
        """Hook: called after the approval, and before the tool runs."""
        if _person_turn(turn) not in self._turns and self._may_write(call):
            await self._begin(turn)
        return await go(args)

    def _may_write(self, call: ToolCall) -> bool:
        if call.name in NO_PROJECT_FILES or is_read_only(call):
            return False
        tool = self._contributions.tools().get(call.name)
        return tool is None or tool.spec.effect == "write"

    async def _begin(self, turn: Turn) -> None:
        """Make the checkpoint of a turn. A failure is reported and does not stop the turn."""
        from alipes.features.checkpoints.git import CheckpointError

        if self._pruning is not None and not self._pruning.done():
            self._pruning.cancel()
        record, workdir = _describe_turn(turn), turn.inbound.workdir
        self._turns[record.turn] = None
        if self._feature.checkpoints.why_off(workdir):
            return
        again = turn.attempt > 1 or record.turn != turn.id  # resumed, or a subagent of a turn that has one
        try:
            self._turns[record.turn] = await self._feature.checkpoints.make(workdir, record, again=again)
        except CheckpointError as error:
            log.warning("no checkpoint of %s: %s", workdir, error)
            text = f"No checkpoint before this change: {error}."
            self._store.bus.publish(Envelope(turn.key, turn.id, Notice(text)))

    async def turn_ended(self, turn: Turn, ending: str) -> None:
        """Hook: record the state at the end of the turn, in the background."""
        checkpoint = self._turns.pop(turn.id, None)
        if checkpoint is None or ending == "suspended":
            return
        task = self._tasks.spawn(partial(self._finish, checkpoint, turn.inbound.workdir), "checkpoint")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _finish(self, checkpoint: "Checkpoint", workdir: str) -> None:
        await self._feature.checkpoints.finish(workdir, checkpoint)
        if self._pruning is None or self._pruning.done():
            self._pruning = self._tasks.spawn(self._feature.checkpoints.prune, "checkpoint limits")


def is_read_only(call: ToolCall) -> bool:
    """True for a command that certainly changes no file, such as `ls`."""
    command = call.args.get("command")
    if call.name != "terminal" or not isinstance(command, str) or _WRITES_OUTPUT.search(command):
        return False
    parts = re.split(r"\s*(?:\|\|?|&&|;)\s*", command.strip())
    return all(_PLAIN.fullmatch(part) and _READ_ONLY.match(part) for part in parts)


def _person_turn(turn: Turn) -> str:
    """The turn of the person that this one works for."""
    origin = turn.inbound.origin
    return origin.turn if origin is not None and origin.turn and not origin.reports else turn.id


def _describe_turn(turn: Turn) -> "CheckpointRecord":
    from alipes.features.checkpoints.store import CheckpointRecord

    origin = turn.inbound.origin
    words = origin.goal if origin is not None and origin.goal else without_attachments(turn.inbound.text)
    session = origin.session if origin is not None and origin.session else turn.session
    return CheckpointRecord(_person_turn(turn), session, format_excerpt(words, WORDS)[1:-1], time.time())


async def add_hooks(feature: CheckpointsFeature, stack: AsyncExitStack) -> None:
    app = feature.app
    turns = TurnCheckpoints(feature, app.contributions, app.store, app.resources.tasks)
    await stack.enter_async_context(turns)
    app.add_hooks(turns.around_tool, patient=True)
    app.add_hooks(turns.turn_ended)
