"""Run a shell command and wait for it. What may be run is decided before it comes here."""

import asyncio
import signal
from collections.abc import Callable, Mapping

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.runtime.orphans import Keeper
from alipes.runtime.process import Child, open_child
from alipes.tools.output import Spill, Transcript, clean
from alipes.tools.paths import Places

TIMEOUT, LONGEST = 120, 600
TICK = 0.2
"""Seconds between two words of progress; a command that is quicker shows its result at once."""
GLIMPSE = 2_000
"""Bytes of output that one word of progress shows at most."""


class Terminal:
    """The `terminal` tool, foreground: the command and all its processes are gone when it returns."""

    spec = ToolSpec(
        name="terminal",
        description="Run a command in bash and wait for it. There is no input and no terminal; processes it"
        " leaves in the background are ended with it. Long output is cut in the middle and kept in a file.",
        schema={
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "timeout": {"type": "integer", "description": "seconds, default 120, at most 600"},
                "workdir": {"type": "string", "description": "default: the working directory"},
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
    ) -> None:
        """`env` is the whole environment of commands; `mask` takes secrets out of what they write."""
        self._places, self._env, self._spill = places, env, spill
        self._keeper, self._mask = keeper, mask

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        command = str(args["command"])
        if "\0" in command:
            raise ToolError("a command cannot contain a zero byte")
        seconds = _seconds(args.get("timeout"))
        workdir = self._folder(args.get("workdir"), act.workdir)
        transcript = Transcript(self._spill, self._mask)
        progress = _Progress(act, self._mask)
        try:
            async with open_child(command, cwd=workdir, env=self._env, keeper=self._keeper) as child:
                in_time = await _follow(child, seconds, transcript, progress)
        except OSError as error:
            raise ToolError(f"the command could not be started: {error}") from error
        text = (await transcript.text()).rstrip()
        status = _ending(child) if in_time else f"timed out after {seconds} s and was ended"
        return f"{text or '(no output)'}\n[{status}]"

    def _folder(self, given: Json, workdir: str) -> str:
        path = self._places.locate(str(given or "."), workdir)
        if not path.is_dir():
            raise ToolError(f"workdir {path} is {'not a folder' if path.exists() else 'missing'}")
        return str(path)


async def _follow(child: Child, seconds: float, transcript: Transcript, progress: "_Progress") -> bool:
    """Take in what it writes until it exits; False when the time is up first."""
    try:
        async with asyncio.timeout(seconds) as limit:
            while piece := await progress.reading(child):
                await transcript.feed(piece)
            await child.wait()
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


class _Progress:
    """Shows new output to whoever watches, every `TICK` at most and never more than a glimpse."""

    def __init__(self, act: Act, mask: Callable[[str], str]) -> None:
        self._act, self._mask = act, mask
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + TICK
        self._new = bytearray()

    async def reading(self, child: Child) -> bytes:
        """The next piece, after having shown what is due meanwhile."""
        while True:
            try:
                async with asyncio.timeout_at(self._due if self._new else None) as tick:
                    piece = await child.read()
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


def _seconds(given: Json) -> int:
    if given is None:
        return TIMEOUT
    if not isinstance(given, int | float) or given <= 0:
        raise ToolError(f"timeout must be between 1 and {LONGEST} seconds, not {given}")
    return max(1, int(min(given, LONGEST)))


def _ending(child: Child) -> str:
    code = child.returncode
    assert code is not None
    said = f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
    if child.survivors:
        plural = "es" if child.survivors > 1 else ""
        return f"{said}; {child.survivors} process{plural} left in the background ended with it"
    return said
