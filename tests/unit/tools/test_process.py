"""The `process` tool, and `terminal` in the background and on a pty."""

import asyncio
import json
import os
import re
import time

import pytest

from alipes.agent.approval.assessment import assess_call
from alipes.agent.tool_calls import validate_args
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.tools.common import Places, child_environment
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import SpillFolder
from alipes.tools.shell.terminal import ProcessTool, TerminalTool
from tests.world.environment import LIMIT_S


class Call:
    """A tool context that records progress."""

    def __init__(self, workdir, session="s1"):
        self.call_id, self.session, self.workdir = "c1", session, str(workdir)
        self.turn = None
        self.shown = []
        self.first = asyncio.Event()

    async def progress(self, text):
        self.shown.append(text)
        self.first.set()


class Tools:
    """Both tools of one session."""

    def __init__(self, tmp_path, mask=str, **limits):
        self.call = Call(tmp_path)
        spill = SpillFolder(tmp_path / "spill", mask=mask)
        env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"})
        places = Places(home=str(tmp_path), alipes_home=str(tmp_path / "own"))
        self.background = BackgroundProcesses(spill)
        self._terminal = TerminalTool(places, env, spill, background=self.background)
        self._process = ProcessTool(self.background, mask=mask, **limits)

    async def __aenter__(self):
        await self.background.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.background.__aexit__(*error)

    async def run(self, command, **args):
        return await self._terminal.run({"command": command, **args}, self.call)

    async def start(self, command, **args):
        return await self.run(command, background=True, **args)

    async def __call__(self, action, name="", **args):
        given = {"action": action, **({"session_id": name} if name else {}), **args}
        assert validate_args(ProcessTool.spec.schema, given) == ""
        return await self._process.run(given, self.call)

    async def is_reported(self, name, wanted):
        """Poll until `wanted` was printed; returns all output."""
        said = ""
        while wanted not in said:
            said += await self("poll", name)
            await asyncio.sleep(0.01)
        return said


async def test_background_command_returns_its_name_and_first_output(tmp_path):
    async with Tools(tmp_path) as tools:
        began = time.monotonic()
        assert await tools.start("echo up; sleep 300") == "up\n[p1 is running in the background]"
        assert await tools.start("sleep 300") == "(no output yet)\n[p2 is running in the background]"
        assert time.monotonic() - began < LIMIT_S
        listed = re.sub(r"\d+ s", "N s", await tools("list"))
        assert listed == "p1 (echo up; sleep 300) is running (N s)\np2 (sleep 300) is running (N s)"


async def test_immediate_failure_is_reported(tmp_path):
    async with Tools(tmp_path) as tools:
        seen = await tools.start("no-such-program")
        assert "no-such-program: command not found" in seen
        assert seen.endswith("[p1 ended after 0 s: exit code 127]")
        assert await tools.run("true") == "(no output)\n[exit code 0]", "already reported"


async def test_poll_returns_new_output_and_log_all(tmp_path):
    async with Tools(tmp_path) as tools:
        assert (await tools.start("echo one; read x; echo $x; read y")).startswith("one\n")
        assert await tools("poll", "p1") == f"(no new output)\n[p1 {tools.background.find('s1', 'p1').status}]"
        assert (await tools("write", "p1", data="two\n")).startswith("two\n[p1 is running")
        assert (await tools("log", "p1")).startswith("one\ntwo\n[p1 is running")
        assert (await tools("log", "p1", offset=1, limit=1)).startswith("[lines 1-1 of 2]\none\n[p1 is running")
        with pytest.raises(ToolError, match="line 9 does not exist"):
            await tools("log", "p1", offset=9)


async def test_wait_ends_with_the_process_and_shows_progress(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("echo start; for i in 1 2 3; do sleep 0.25; echo step $i; done; exit 4")
        seen = await tools("wait", "p1")
        assert seen.startswith("step 1\nstep 2\nstep 3\n[p1 ended after") and seen.endswith(": exit code 4]")
        assert "".join(tools.call.shown) in "step 1\nstep 2\nstep 3\n" and tools.call.shown
        assert (await tools("wait", "p1")).startswith("(no new output)\n[p1 ended")


async def test_wait_has_a_timeout_and_can_be_cancelled(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("echo hi; sleep 300")
        assert (await tools("wait", "p1", timeout=1)).startswith("(no new output)\n[p1 is running")
        with pytest.raises(ToolError, match="between 1 and 600"):
            await tools("wait", "p1", timeout=-1)
        waiting = asyncio.create_task(tools("wait", "p1"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() and time.monotonic() - began < LIMIT_S
        assert [job.name for job in tools.background.running("s1")] == ["p1"]


async def test_kill_lets_a_process_clean_up_and_returns_its_last_output(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("trap 'sleep 0.2; echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done")
        seen = await tools("kill", "p1")
        assert "saved\n" in seen and seen.endswith(": exit code 0]")
        assert (await tools("kill", "p1")).startswith("(no new output)\n[p1 ended")


async def test_kill_ends_stubborn_processes_and_their_children(tmp_path):
    stubborn = "trap '' TERM HUP; while :; do sleep 300; done"
    async with Tools(tmp_path, grace=0.1) as tools:
        inner = int((await tools.start(f"setsid bash -c 'echo $$; {stubborn}' & {stubborn}")).split("\n")[0])
        assert "[p1 was killed after" in await tools("kill", "p1")
        assert not os.path.exists(f"/proc/{inner}")


async def test_input_is_written_and_closed(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("cat; echo over")
        assert (await tools("write", "p1", data="né\nand")).startswith("né\nand\n[p1 is running")
        seen = await tools("close", "p1")
        assert "over" in seen and "exit code 0]" in seen
        for action in "write", "close":
            with pytest.raises(ToolError, match="p1 ended"):
                await tools(action, "p1", data="x")


async def test_process_that_does_not_read_is_reported(tmp_path):
    async with Tools(tmp_path, patience=0.1) as tools:
        await tools.start("sleep 300")
        with pytest.raises(ToolError, match="read only 65,536 of 100,000 bytes"):
            await tools("write", "p1", data="x" * 100_000)
        await tools.start("exec <&-; echo deaf; sleep 300")
        with pytest.raises(ToolError, match="p2 no longer reads its input"):
            await tools("write", "p2", data="x")
        await tools("close", "p1")
        with pytest.raises(ToolError, match="input of p1 is already closed"):
            await tools("write", "p1", data="x")


async def test_unknown_name_lists_the_existing_processes(tmp_path):
    async with Tools(tmp_path) as tools:
        assert await tools("list") == "(no background processes)"
        with pytest.raises(ToolError, match="no background process ''; none exist"):
            await tools("poll")
        await tools.start("sleep 300")
        with pytest.raises(ToolError, match=r"no background process 'p9'; existing: p1 \(sleep 300\)"):
            await tools("kill", "p9")


async def test_foreground_command_reports_background_events(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("read x; exit 9")
        await tools.start("sleep 300")
        assert await tools.run("true") == "(no output)\n[exit code 0]"
        assert (await tools.run("exit 1")).endswith(
            "[exit code 1]\n[running in the background: p1 (read x; exit 9), p2 (sleep 300)]"
        )
        job = tools.background.find("s1", "p1")
        await job.child.input.finish()
        await asyncio.wait([job.task])
        seen = await tools.run("true")
        assert seen.startswith("(no output)\n[exit code 0]\n[p1 (read x; exit 9) ended after")
        assert seen.endswith(": exit code 9]")
        assert await tools.run("true") == "(no output)\n[exit code 0]"


async def test_process_survives_a_later_cancelled_call(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("echo $$; sleep 300")
        other = asyncio.create_task(tools.run("sleep 300"))
        await asyncio.sleep(0.1)
        other.cancel()
        await asyncio.wait([other])
        assert tools.background.describe_running("s1") == "in the background: p1 (echo $$; sleep 300)"


async def test_secrets_are_masked_in_all_results(tmp_path):
    async with Tools(tmp_path, mask=lambda text: text.replace("canary", "***")) as tools:
        seen = await tools.start("echo canary; read x; sleep 0.3; for i in {1..20000}; do echo canary $i; done")
        seen += await tools("write", "p1", data="\n") + await tools("wait", "p1") + await tools("log", "p1")
        spilled = "".join(path.read_text() for path in (tmp_path / "spill").iterdir())
        assert "*** 20000" in seen and "*** 10000" in spilled
        assert "canary" not in seen + spilled + "".join(tools.call.shown)


async def test_interactive_session_on_a_pty(tmp_path):
    async with Tools(tmp_path) as tools:
        await tools.start("python3 -q -i -c 'print(\"ready\")'", pty=True)
        if "ready" not in await tools("log", "p1"):
            await tools.is_reported("p1", "ready")
        said = await tools("write", "p1", data="import sys; 6 * 7, sys.stdin.isatty()\n")
        if "(42, True)" not in said:
            await tools.is_reported("p1", "(42, True)")
        if "[p1 is running" in await tools("close", "p1"):
            await tools("wait", "p1")
        assert tools.background.find("s1", "p1").status.endswith("exit code 0")


async def test_terminal_queries_are_answered(tmp_path):
    ask = "stty -echo -icanon; printf 'ab\\e[6n'; read -rsd R answer; echo; echo ${answer#*[}"
    async with Tools(tmp_path) as tools:
        await tools.start(ask, pty=True)
        await tools("wait", "p1")
        assert "1;3" in await tools("log", "p1")


async def test_foreground_pty_has_a_size_a_type_and_no_input(tmp_path):
    async with Tools(tmp_path) as tools:
        seen = await tools.run("test -t 0 -a -t 1 && echo $TERM $COLUMNS $LINES; stty size; cat; echo over", pty=True)
        assert seen == "xterm 80 24\n24 80\nover\n[exit code 0]"


async def test_long_pty_output_is_rendered_and_saved(tmp_path):
    async with Tools(tmp_path) as tools:
        seen = await tools.run("for i in {1..6000}; do printf '\\e[32m%d\\e[0m \\r\\n' $i; done", pty=True)
        assert seen.startswith("1\n2\n3\n") and seen.endswith("5999\n6000\n[exit code 0]")
        (spilled,) = (tmp_path / "spill").iterdir()
        assert spilled.read_text().split() == [str(n) for n in range(1, 6001)]


async def test_timeout_on_a_pty_returns_the_screen(tmp_path):
    async with Tools(tmp_path) as tools:
        seen = await tools.run("printf 'half a line'; sleep 300", pty=True, timeout=1)
        assert seen == "half a line\n[timed out after 1 s and was killed]"


async def test_missing_background_support_is_reported(tmp_path):
    places = Places(home=str(tmp_path), alipes_home=str(tmp_path / "own"))
    alone = TerminalTool(places, {"PATH": os.environ["PATH"]}, SpillFolder(tmp_path / "spill"))
    with pytest.raises(ToolError, match="background processes are not available here"):
        await alone.run({"command": "true", "background": True}, Call(tmp_path))


@pytest.mark.parametrize(
    ("data", "rule"), [("rm -rf ~\n", "remove"), ("ls\n", ""), ("for i in range(3): print(i)\n", ""), ("\x03", "")]
)
def test_input_to_a_process_is_judged_like_a_command(data, rule, tmp_path):
    places = Places(home=str(tmp_path), alipes_home=str(tmp_path / "own"))
    call = ToolCall("c1", "process", {"action": "write", "session_id": "p1", "data": data})
    risk = assess_call(call, "/tmp", places)
    assert (risk.rule if risk else "") == rule


def test_the_schemas_are_small(tmp_path):
    size = 0
    for spec in Tools(tmp_path)._terminal.spec, ProcessTool.spec:
        function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
        size += len(json.dumps({"type": "function", "function": function}, separators=(",", ":")))
    assert size <= 1300, size
