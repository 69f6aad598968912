"""Run a shell command, and wait for it or not. What may be run is decided before it comes here."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.runtime.processes.child import COLUMNS, ROWS, Child, open_child
from alipes.runtime.processes.orphans import Keeper
from alipes.tools.common import Places
from alipes.tools.shell.background import Background, answer, ending
from alipes.tools.shell.output import Spill, Transcript, clean
from alipes.tools.shell.pty import Rendering

TICK = 0.2
"""Seconds between two words of progress; what is quicker shows its result at once."""
GLIMPSE = 2_000
"""Bytes of output that one word of progress shows at most."""


class Progress:
    """Reads for somebody, and shows what comes."""

    def __init__(self, act: Act, mask: Callable[[str], str]) -> None:
        self._act, self._mask = act, mask
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + TICK
        self._new = bytearray()

    async def reading(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """The next piece that `read` gives, after having shown what is due meanwhile."""
        while True:
            try:
                async with asyncio.timeout_at(self._due if self._new else None) as tick:
                    piece = await read()
            except TimeoutError:
                if not tick.expired():
                    raise
                await self._show()
                continue
            self._new = (self._new + piece)[-2 * GLIMPSE :]
            if self._new and self._clock() >= self._due:
                await self._show()
            return piece

    async def _show(self) -> None:
        glimpse = self._new[-GLIMPSE:]
        if len(self._new) > GLIMPSE and b"\n" in glimpse:
            glimpse = glimpse[glimpse.index(b"\n") + 1 :]
        self._new.clear()
        self._due = self._clock() + TICK
        if text := self._mask(clean(bytes(glimpse))):
            await self._act.progress(text)


TIMEOUT, LONGEST = 120, 600
Rewrite: TypeAlias = Callable[[str, str, int | None], Awaitable[str | None]]
"""All that a command printed, the command and its exit status, to other words for it; None: as it is."""
ON_TERMINAL = {"TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}


class Terminal:
    """The `terminal` tool: all it started is gone when it returns, but for what it was told to leave."""

    spec = ToolSpec(
        name="terminal",
        description="Run a command in bash and wait for it. It has no input; processes it leaves behind end"
        " with it. Long output is cut in the middle and kept in a file.",
        schema={
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "timeout": {"type": "integer", "description": "seconds, default 120, at most 600"},
                "workdir": {"type": "string"},
                "background": {"type": "boolean", "description": "let it run on, see process"},
                "pty": {"type": "boolean", "description": "in a terminal of 80x24"},
            },
            "required": ["command"],
        },
    )

    def __init__(
        self,
        places: Places,
        env: Mapping[str, str],
        spill: Spill,
        *,
        keeper: Keeper | None = None,
        mask: Callable[[str], str] = str,
        background: Background | None = None,
    ) -> None:
        """`env` is the whole environment of commands; `mask` takes secrets out of what they write."""
        self.rewrite: Callable[[], Rewrite | None] = lambda: None
        """Who has a say in what a command printed, asked for each; nobody, unless the house sets it."""
        self._places, self._env, self._spill = places, env, spill
        self._keeper, self._mask, self._background = keeper, mask, background

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        command = str(args["command"])
        if "\0" in command:
            raise ToolError("a command cannot contain a zero byte")
        limit = seconds(args.get("timeout"))
        workdir = self._folder(args.get("workdir"), act.workdir)
        pty = args.get("pty") is True
        if args.get("background") is True:
            return await self._start(command, workdir, pty, act.session)
        transcript = Transcript(self._spill, self._mask)
        rendering = Rendering() if pty else None
        child_scope = open_child(
            command,
            cwd=workdir,
            env=self._environment(pty),
            link="terminal" if pty else "output",
            keeper=self._keeper,
        )
        try:
            async with child_scope as child:
                in_time = await _follow(child, limit, Progress(act, self._mask), transcript, rendering)
        except OSError as error:
            raise ToolError(f"the command could not be started: {error}") from error
        if rendering:
            await transcript.feed(rendering.finish())
        if (rewrite := self.rewrite()) is not None:
            code = child.returncode if in_time else None
            transcript = await self._rewritten(transcript, rewrite, command, code)
        text = (await transcript.text()).rstrip()
        status = ending(child) if in_time else f"timed out after {limit} s and was ended"
        return (
            f"{text or '(no output)'}\n[{status}]{self._aside(act.session, failed=status != 'exit code 0')}"
        )

    async def _rewritten(
        self, transcript: Transcript, rewrite: Rewrite, command: str, code: int | None
    ) -> Transcript:
        words = await rewrite(await transcript.whole(), command, code)
        if words is None:
            return transcript
        changed = Transcript(self._spill, self._mask)
        await changed.feed(words.encode())
        return changed

    async def _start(self, command: str, workdir: str, pty: bool, session: str) -> str:
        if self._background is None:
            raise ToolError("nothing can run in the background here")
        job = await self._background.start(session, command, cwd=workdir, env=self._environment(pty), pty=pty)
        job.told = job.over
        said = job.log.news().rstrip() or "(no output yet)"
        return f"{said}\n[{job.name} {job.status if job.over else 'runs in the background'}]"

    def _environment(self, pty: bool) -> Mapping[str, str]:
        return {**self._env, **ON_TERMINAL} if pty else self._env

    def _aside(self, session: str, *, failed: bool) -> str:
        """What the model should know of the background: who is over, and who may be in the way."""
        if self._background is None:
            return ""
        notes = self._background.news(session), failed and self._background.mention(session)
        return "".join(f"\n[{note}]" for note in notes if note)

    def _folder(self, given: Json, workdir: str) -> str:
        path = self._places.locate(str(given or "."), workdir)
        if not path.is_dir():
            raise ToolError(f"workdir {path} is {'not a folder' if path.exists() else 'missing'}")
        return str(path)


async def _follow(
    child: Child, limit: float, progress: Progress, transcript: Transcript, rendering: Rendering | None
) -> bool:
    """Take in what it writes until it exits; False when the time is up first."""
    try:
        async with asyncio.timeout(limit) as clock:
            if rendering:
                await child.input.finish()  # nobody is there to answer it
            while piece := await progress.reading(child.read):
                if rendering:
                    piece = rendering.feed(piece)
                    await answer(child, rendering)
                await transcript.feed(piece)
            await child.wait()
    except TimeoutError:
        if not clock.expired():
            raise
        return False
    return True


def seconds(given: Json) -> int:
    """The time that was asked for, or the usual. Raises `ToolError` for none at all."""
    if given is None:
        return TIMEOUT
    if not isinstance(given, int | float) or given <= 0:
        raise ToolError(f"timeout must be between 1 and {LONGEST} seconds, not {given}")
    return max(1, int(min(given, LONGEST)))
