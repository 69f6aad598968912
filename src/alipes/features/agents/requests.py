"""What programs ask of us while a turn runs: files, commands and permissions, by our tools, approvals and rules."""

import asyncio
import os
import re
import shlex
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

from acp import RequestError
from acp.schema import (
    CreateTerminalRequest,
    PermissionOption,
    ReadTextFileRequest,
    RequestPermissionRequest,
    TerminalOutputRequest,
    WriteTextFileRequest,
)
from pydantic import ValidationError

from alipes.features.agents.hands import SERVER
from alipes.features.agents.program import AgentProgram
from alipes.features.agents.prompt import READING, ProgramCall, Prompt, describe_diffs
from alipes.kernel.approvals import AGENT_TOOL
from alipes.kernel.conversations import ApprovalDecision, denial_reason
from alipes.kernel.errors import AlipesError, ToolError
from alipes.kernel.messages import Json, ToolCall, ToolResult
from alipes.kernel.ports import ToolContext
from alipes.kernel.tool_labels import find_problem, output_of
from alipes.kernel.turns import PermissionMode, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import HookDispatcher
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.specs import Verdict
from alipes.tools.boundary import FileBoundary, UnjudgedCall, reading
from alipes.tools.common import CommitGate, run_in_thread

MAX_READ_BYTES = 10_000_000
MAX_TERMINALS = 32
COMMAND_TIMEOUT_S = 600
ANNOUNCED_S = 0.2
"""Seconds that a request waits for the call that it belongs to; requests of MCP come by another way than calls."""
REFUSED = -32000
_EXIT_CODE = re.compile(r"exit code (-?\d+)")
OpenHooks: TypeAlias = Callable[[], HookDispatcher]
AskPerson: TypeAlias = Callable[..., Awaitable[ApprovalDecision]]
FindMode: TypeAlias = Callable[[Turn], Awaitable[PermissionMode]]
T = TypeVar("T")


class Calls:
    """The calls of ours through which requests of a program are served: they have its tools, approvals and events."""

    def __init__(self) -> None:
        self._acts: dict[str, list[ToolContext]] = {}
        """By turn, the calls that run."""
        self._uses: dict[int, int] = {}

    async def serve(self, prompt: Prompt, found: ProgramCall, act: ToolContext) -> None:
        """Serve requests through this call until it has ended and none uses it."""
        acts = self._acts.setdefault(prompt.turn.id, [])
        acts.append(act)
        found.begin()
        try:
            while not found.ended:
                found.changed.clear()
                await self.show(found, act)
                if not found.ended:
                    await found.changed.wait()
            acts.remove(act)
            await self.show(found, act)
            while self._uses.get(id(act)):
                prompt.moved.clear()
                await prompt.moved.wait()
        finally:
            if act in acts:
                acts.remove(act)
            if not acts:
                self._acts.pop(prompt.turn.id, None)
            prompt.moved.set()

    async def show(self, found: ProgramCall, act: ToolContext) -> None:
        """Show the changes that it makes to people who watch."""
        if found.diffs and found.diffs != found.shown:
            text = await asyncio.to_thread(found.show, act.workdir)
            if text:
                await act.progress(text)

    async def use(self, prompt: Prompt, title: str, work: Callable[[ToolContext], Awaitable[ToolResult]]) -> ToolResult:
        """Do `work` through a call that runs; if there is none, one is made. Raises `RequestError` if that was not
        allowed."""
        made: ProgramCall | None = None
        if not self._acts.get(prompt.turn.id):
            await prompt.wait_for_call(ANNOUNCED_S)
            for each in prompt.ours.values():
                each.hurry()
        while not (acts := self._acts.get(prompt.turn.id)):
            if prompt.dropped or prompt.has_ended or (made is not None and made.ended):
                raise RequestError(REFUSED, "the turn was stopped" if prompt.dropped else "this was not allowed")
            if made is None and not prompt.has_waiting_calls:
                made = prompt.begin({"title": title, "kind": "other"})
            prompt.moved.clear()
            await prompt.moved.wait()
        act = acts[-1]
        self._uses[id(act)] = self._uses.get(id(act), 0) + 1
        try:
            return await work(act)
        finally:
            self._uses[id(act)] -= 1
            if not self._uses[id(act)]:
                del self._uses[id(act)]
            if made is not None:
                made.end(failed=False, text="done")
            prompt.moved.set()


class Terminal:
    """A command of the program: a call of our `terminal`."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.ended = asyncio.Event()
        self.output = ""
        self.code: int | None = None
        self.task: asyncio.Task[None] | None = None

    def finish(self, text: str, code: int | None) -> None:
        self.output = text if not self.limit else text.encode()[-self.limit :].decode(errors="ignore")
        self.code = code
        self.ended.set()

    @property
    def status(self) -> dict[str, Any] | None:
        if not self.ended.is_set():
            return None
        return {"exitCode": self.code} if self.code is not None else {"signal": "SIGKILL"}


async def run_for(program: AgentProgram, prompt: Prompt, work: Coroutine[Any, Any, T]) -> T:
    """Do it for the turn of a prompt; a stop ends it. Raises `RequestError`."""
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def settle() -> None:
        TURN.set(prompt.turn)
        try:
            done.set_result(await work)
        except AlipesError as error:
            done.set_exception(RequestError(REFUSED, str(error)))
        except (RequestError, ValidationError) as error:
            done.set_exception(error)
        finally:
            if not done.done():
                done.set_exception(RequestError(REFUSED, "the turn was stopped"))

    task = program.spawn(settle(), f"request of {program.launch.name}")
    if task is None:
        work.close()
        raise RequestError(REFUSED, "the turn was stopped")
    with prompt.owns(task):
        await asyncio.wait({task})
    if not done.done():  # cancelled before it began
        work.close()
        raise RequestError(REFUSED, "the turn was stopped")
    return done.result()


class ProgramRequests:
    """Answers requests of all programs."""

    def __init__(
        self, boundary: FileBoundary, hooks: OpenHooks, ask: AskPerson, mode: FindMode, mask: Callable[[str], str]
    ) -> None:
        self._boundary, self._hooks, self._ask, self._mode, self._mask = boundary, hooks, ask, mode, mask
        self.calls = Calls()
        self._terminals: dict[str, OrderedDict[str, Terminal]] = {}

    async def handle(self, program: AgentProgram, prompt: Prompt, method: str, params: dict[str, Any]) -> Any:
        answer = self._find(method)
        if answer is None:
            raise RequestError.method_not_found(method)
        return await run_for(program, prompt, answer(program, prompt, params))

    def _find(self, method: str) -> Callable[[AgentProgram, Prompt, dict[str, Any]], Coroutine[Any, Any, Any]] | None:
        return {
            "session/request_permission": self._permit,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }.get(method)

    # Permissions

    async def _permit(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, Any]:
        given = RequestPermissionRequest.model_validate(params)
        found = prompt.take_call(given.tool_call, program.workdir)
        found.hurry()
        denial = await self._decide(program, prompt, found)
        found.deny(denial)
        kinds = ("reject_once", "reject_always") if denial else ("allow_once", "allow_always")
        option = _choose(given.options, kinds)
        if option is None or prompt.dropped:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option.option_id}}

    async def _decide(self, program: AgentProgram, prompt: Prompt, found: ProgramCall) -> str:
        """Why the call may not run; empty if it may."""
        turn, mode = prompt.turn, await self._mode(prompt.turn)
        if mode == "plan" and found.kind not in READING and found.kind != "switch_mode":
            return "plan mode is on"
        if is_our_tool(found):
            return ""  # our tool asks itself
        call = ToolCall(found.id, AGENT_TOOL, found.describe_question(program.workdir))
        verdict = await self._hooks().decide(specs.before_tool, _deny, call=call, turn=turn)
        if verdict is not None and verdict.ruling == "deny":
            return verdict.reason or "not allowed"
        if mode == "edits" and found.kind == "edit" and self._is_in_project(found, program.workdir):
            return ""
        name = program.launch.name
        diff, _ = await asyncio.to_thread(describe_diffs, found, program.workdir)
        reason = f"{name} asks permission for it"
        return denial_reason(await self._ask(call, reason, turn, diff=self._mask(diff)))

    def _is_in_project(self, found: ProgramCall, workdir: str) -> bool:
        paths = [*found.diffs] or [os.path.join(workdir, each) for each in found.files]
        root = os.path.realpath(workdir)
        real = [os.path.realpath(os.path.join(workdir, path)) for path in paths]
        return bool(real) and all(each.startswith(f"{root}/") and "/.git/" not in each for each in real)

    # Files

    async def _read(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, str]:
        given = ReadTextFileRequest.model_validate(params)
        path = _absolute(given.path)

        async def work(act: ToolContext) -> ToolResult:
            call = ToolCall(f"{act.call_id}.read.{os.urandom(3).hex()}", "read_file", {"path": path})
            hooks = self._hooks()
            verdict = await hooks.decide(specs.before_tool, _deny, call=call, turn=prompt.turn)
            if verdict is not None and verdict.ruling != "allow":
                raise ToolError(verdict.reason or f"{path} may not be read")
            scope = UnjudgedCall(program.workdir, prompt.turn.session, call.id)
            result = ToolResult(call.id, await run_in_thread(partial(self._read_text, path, scope)))
            await hooks.notify(specs.after_tool, call=call, result=result, turn=prompt.turn, seconds=0.0, error=None)
            return result

        text = (await self.calls.use(prompt, f"Read {os.path.basename(path)}", work)).text
        lines = text.split("\n")
        first = max((given.line or 1) - 1, 0)
        if given.line is not None or given.limit is not None:
            text = "\n".join(lines[first : None if given.limit is None else first + given.limit])
        return {"content": text}

    def _read_text(self, path: str, scope: UnjudgedCall, _gate: CommitGate) -> str:
        with self._boundary.opened(path, scope) as opened:
            self._boundary.refuse_secrets(opened, "cannot be read")
            try:
                with reading(opened) as file:
                    data = file.read(MAX_READ_BYTES + 1)
            except OSError as error:
                raise ToolError(f"{path} cannot be read: {error.strerror or error}") from error
        if len(data) > MAX_READ_BYTES:
            raise ToolError(f"{path} has more than {MAX_READ_BYTES // 1_000_000} MB")
        return data.decode("utf-8", "replace")

    async def _write(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, Any]:
        given = WriteTextFileRequest.model_validate(params)
        path, title = _absolute(given.path), f"Write {os.path.basename(given.path)}"

        async def work(act: ToolContext) -> ToolResult:
            if await self._holds(path, given.content, program, act):
                return ToolResult("", "")  # it has written the file itself
            result = await act.run_tool("write_file", {"path": path, "content": given.content})
            # it may do that at the same time
            return ToolResult("", "") if await self._holds(path, given.content, program, act) else result

        result = await self.calls.use(prompt, title, work)
        if result.outcome != "ok":
            raise ToolError(result.text)
        return {}

    async def _holds(self, path: str, content: str, program: AgentProgram, act: ToolContext) -> bool:
        """True if the file has this content already."""
        scope = UnjudgedCall(program.workdir, act.turn.session, act.call_id)
        try:
            return await run_in_thread(partial(self._read_text, path, scope)) == content
        except ToolError:
            return False

    async def use_tool(self, prompt: Prompt, title: str, name: str, args: dict[str, Json]) -> ToolResult:
        """Run a tool of ours through a call of the prompt. Raises `RequestError`."""
        return await self.calls.use(prompt, title, lambda act: act.run_tool(name, args))

    # Commands

    async def _create(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, str]:
        given = CreateTerminalRequest.model_validate(params)
        command = shlex.join((given.command, *given.args)) if given.args else given.command
        exports = [
            f"export {each.name}={shlex.quote(each.value)}" for each in given.env or () if each.name.isidentifier()
        ]
        args: dict[str, Json] = {"command": "\n".join([*exports, command]), "timeout": COMMAND_TIMEOUT_S}
        if given.cwd:
            args["workdir"] = _absolute(given.cwd)
        terminals = self._terminals.setdefault(prompt.turn.id, OrderedDict())
        if len(terminals) >= MAX_TERMINALS:
            raise ToolError(f"{MAX_TERMINALS} terminals are open already: release one")
        terminal, id = Terminal(given.output_byte_limit), f"t{os.urandom(4).hex()}"
        terminals[id] = terminal
        terminal.task = program.spawn(self._run_terminal(terminal, prompt, args), f"command of {program.launch.name}")
        return {"terminalId": id}

    async def _run_terminal(self, terminal: Terminal, prompt: Prompt, args: dict[str, Json]) -> None:
        title = str(args["command"])[:100]
        try:
            result = await self.use_tool(prompt, title, "terminal", args)
        except RequestError as error:
            terminal.finish(str(error), None)
            return
        except asyncio.CancelledError:
            terminal.finish(terminal.output, None)
            raise
        problem = find_problem(result)
        found = _EXIT_CODE.search(problem)
        if result.outcome != "ok":
            terminal.finish(result.text, 126)
        else:
            terminal.finish(output_of(result), int(found[1]) if found else None if problem else 0)

    async def _output(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, Any]:
        terminal = self._terminal(prompt, params)
        found: dict[str, Any] = {"output": terminal.output, "truncated": False}
        return found if terminal.status is None else found | {"exitStatus": terminal.status}

    async def _wait(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, Any]:
        terminal = self._terminal(prompt, params)
        await terminal.ended.wait()
        return terminal.status or {}

    async def _kill(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, Any]:
        terminal = self._terminal(prompt, params)
        if terminal.task is not None and not terminal.ended.is_set():
            terminal.task.cancel()
        return {}

    async def _release(self, program: AgentProgram, prompt: Prompt, params: dict[str, Any]) -> dict[str, Any]:
        await self._kill(program, prompt, params)
        self._terminals[prompt.turn.id].pop(str(params.get("terminalId")), None)
        return {}

    def _terminal(self, prompt: Prompt, params: dict[str, Any]) -> Terminal:
        given = TerminalOutputRequest.model_validate(params)
        found = (self._terminals.get(prompt.turn.id) or OrderedDict()).get(given.terminal_id)
        if found is None:
            raise ToolError(f"there is no terminal {given.terminal_id}")
        return found

    def forget(self, turn: str) -> None:
        """The turn has ended: its commands are ended."""
        for terminal in (self._terminals.pop(turn, None) or OrderedDict()).values():
            if terminal.task is not None:
                terminal.task.cancel()


def is_our_tool(found: ProgramCall) -> bool:
    """True for a tool that we offer to the program ourselves: we ask about it where that is necessary."""
    said, server = found.title.lower(), found.input.get("server") or found.input.get("server_name")
    return f"mcp__{SERVER}__" in said or f"({SERVER} mcp server)" in said or server == SERVER


def _choose(options: list[PermissionOption], kinds: tuple[str, ...]) -> PermissionOption | None:
    return next((each for kind in kinds for each in options if each.kind == kind), None)


def _deny(why: str) -> Verdict:
    return Verdict("deny", f"not run: {why}")


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise ToolError(f"{path[:100]!r} is no absolute path")
    return os.path.normpath(path)
