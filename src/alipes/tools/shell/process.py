"""Look after background processes: hear them, speak to them, end them. `terminal` starts them."""

import asyncio
from collections.abc import Callable, Mapping

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.runtime.processes.child import Child
from alipes.tools.shell.background import Background, Job, end
from alipes.tools.shell.terminal import Progress, seconds

ACTIONS: list[Json] = ["list", "poll", "log", "wait", "kill", "write", "close"]
LINES = 200


class Process:
    """The `process` tool. A session knows its own processes only."""

    spec = ToolSpec(
        name="process",
        description="Look after what terminal runs in the background. poll: new output; log: lines of all;"
        " wait: for its end; write: data to its input; close: end its input.",
        schema={
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ACTIONS},
                "session_id": {"type": "string", "description": "as p1"},
                "data": {"type": "string", "description": "with its \\n"},
                "timeout": {"type": "integer", "description": "seconds of wait"},
                "offset": {"type": "integer", "description": "first line; negative: from the end"},
                "limit": {"type": "integer", "description": "lines"},
            },
            "required": ["action"],
        },
    )

    def __init__(
        self,
        background: Background,
        *,
        mask: Callable[[str], str] = str,
        grace: float = 3.0,
        patience: float = 5.0,
    ) -> None:
        """Killed, a process has `grace` seconds to end by itself; written to, `patience` to read it."""
        self._background, self._mask = background, mask
        self._grace, self._patience = grace, patience

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        action = str(args["action"])
        if action == "list":
            return self._list(act.session)
        job = self._background.find(act.session, str(args.get("session_id") or ""))
        match action:
            case "poll":
                return _news(job)
            case "log":
                limit = max(1, _number(args, "limit") or LINES)
                return f"{await job.log.look(_number(args, 'offset'), limit)}\n{_status(job)}"
            case "wait":
                await self._wait(job, seconds(args.get("timeout")), act)
            case "kill":
                await end([job], self._grace)
            case "write":
                await _write(job, str(args.get("data") or ""), self._patience)
            case "close":
                await _close(job)
            case _:
                raise ToolError(f"there is no action {action}")
        return _news(job)

    def _list(self, session: str) -> str:
        jobs = self._background.of(session)
        return "\n".join(f"{job.title} {job.status}" for job in jobs) or "(no background processes)"

    async def _wait(self, job: Job, limit: float, act: Act) -> None:
        progress = Progress(act, self._mask)
        try:
            async with asyncio.timeout(limit) as clock:
                with job.overhear() as next_piece:
                    while await progress.reading(next_piece):
                        pass
        except TimeoutError:
            if not clock.expired():
                raise


async def _write(job: Job, data: str, patience: float) -> None:
    raw = data.encode(errors="replace")
    child = _speaking(job)
    if child.input.terminal:
        raw = raw.replace(b"\n", b"\r")  # what the key sends; a program that reads lines gets its newline
    try:
        taken = await child.input.write(raw, patience)
    except OSError as error:
        raise ToolError(f"{job.name} does not read its input any more: {error.strerror}") from error
    if taken < len(raw):
        raise ToolError(f"{job.name} took {taken:,} of {len(raw):,} bytes and does not read on")
    await job.settle()


async def _close(job: Job) -> None:
    await _speaking(job).input.finish()
    await job.settle()


def _speaking(job: Job) -> Child:
    """The child, if it still listens."""
    if job.over or job.child is None:
        raise ToolError(f"{job.name} {job.status}")
    if job.child.input.closed:
        raise ToolError(f"the input of {job.name} was closed before")
    return job.child


def _news(job: Job) -> str:
    return f"{job.log.news().rstrip() or '(no new output)'}\n{_status(job)}"


def _status(job: Job) -> str:
    job.told = job.over
    return f"[{job.name} {job.status}]"


def _number(args: Mapping[str, Json], name: str) -> int:
    given = args.get(name)
    return given if isinstance(given, int) else 0
