"""`process`: output, input and end of background processes that `terminal` started."""

import asyncio
from collections.abc import Callable, Mapping

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.runtime.processes.child import Child
from alipes.tools.common import int_argument, make_schema
from alipes.tools.shell.background import BackgroundProcess, BackgroundProcesses, stop_processes
from alipes.tools.shell.terminal import OutputProgress, parse_timeout

DEFAULT_LINES = 200


class ProcessTool:
    """The `process` tool. A session sees only its own processes."""

    spec = ToolSpec(
        name="process",
        description="Background processes of terminal. poll: new output; log: lines of all output;"
        " wait: until exit; write: data to stdin; close: close stdin.",
        schema=make_schema(
            "action",
            action=["list", "poll", "log", "wait", "kill", "write", "close"],
            session_id="string: e.g. p1",
            data="string: text; end a line with \\n",
            timeout="integer: seconds",
            offset="integer: first line; negative: from the end",
            limit="integer: max lines",
        ),
    )

    def __init__(
        self,
        background: BackgroundProcesses,
        *,
        mask: Callable[[str], str] = str,
        grace: float = 3.0,
        patience: float = 5.0,
    ) -> None:
        """`grace`: seconds between SIGTERM and SIGKILL; `patience`: seconds to read what is written."""
        self._background, self._mask = background, mask
        self._grace, self._patience = grace, patience

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        action = str(args["action"])
        if action == "list":
            titles = [f"{process.title} {process.status}" for process in self._background.processes_of(act.session)]
            return "\n".join(titles) or "(no background processes)"
        process = self._background.find(act.session, str(args.get("session_id") or ""))
        match action:
            case "poll":
                return _format_new_output(process)
            case "log":
                limit = max(1, int_argument(args, "limit") or DEFAULT_LINES)
                lines = await process.log.read_lines(int_argument(args, "offset"), limit)
                return f"{lines}\n{_format_status(process)}"
            case "wait":
                await self._wait(process, parse_timeout(args.get("timeout")), act)
            case "kill":
                await stop_processes([process], self._grace)
            case "write":
                await _write_input(process, str(args.get("data") or ""), self._patience)
            case "close":
                await _open_input(process).input.finish()
                await process.wait_for_output()
            case _:
                raise ToolError(f"unknown action {action}")
        return _format_new_output(process)

    async def _wait(self, process: BackgroundProcess, limit: float, act: ToolContext) -> None:
        progress = OutputProgress(act, self._mask)
        try:
            async with asyncio.timeout(limit) as clock:
                with process.subscribe() as next_piece:
                    while await progress.read_and_show(next_piece):
                        pass
        except TimeoutError:
            if not clock.expired():
                raise


async def _write_input(process: BackgroundProcess, data: str, patience: float) -> None:
    raw = data.encode(errors="replace")
    child = _open_input(process)
    if child.input.terminal:
        raw = raw.replace(b"\n", b"\r")  # as the Enter key; the terminal turns it into a newline
    try:
        taken = await child.input.write(raw, patience)
    except OSError as error:
        raise ToolError(f"{process.name} no longer reads its input: {error.strerror}") from error
    if taken < len(raw):
        raise ToolError(f"{process.name} read only {taken:,} of {len(raw):,} bytes")
    await process.wait_for_output()


def _open_input(process: BackgroundProcess) -> Child:
    """The child, if its input is open. Raises `ToolError`."""
    if process.is_finished or process.child is None:
        raise ToolError(f"{process.name} {process.status}")
    if process.child.input.closed:
        raise ToolError(f"the input of {process.name} is already closed")
    return process.child


def _format_new_output(process: BackgroundProcess) -> str:
    return f"{process.log.read_new().rstrip() or '(no new output)'}\n{_format_status(process)}"


def _format_status(process: BackgroundProcess) -> str:
    process.is_reported = process.is_finished
    return f"[{process.name} {process.status}]"
