"""The `process` tool, and `terminal` in the background and on a terminal: what the model is told."""

import asyncio
import json
import os
import re
import time

import pytest

from alipes.agent.approval.approval import assess
from alipes.agent.tool_calls import complaint
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.tools.common import Places, child_environment
from alipes.tools.shell.background import Background
from alipes.tools.shell.output import Spill
from alipes.tools.shell.process import Process
from alipes.tools.shell.terminal import Terminal


class Call:
    """What a tool is told, and a record of what it showed."""

    def __init__(self, workdir, session="s1"):
        self.call_id, self.session, self.workdir = "c1", session, str(workdir)
        self.shown = []
        self.first = asyncio.Event()

    async def progress(self, text):
        self.shown.append(text)
        self.first.set()


class Room:
    """Both tools over one `Background`, as one session has them."""

    def __init__(self, tmp_path, mask=str, **limits):
        self.call = Call(tmp_path)
        spill = Spill(tmp_path / "spill")
        env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"})
        places = Places(home=str(tmp_path), own=str(tmp_path / "own"))
        self.background = Background(spill, mask=mask)
        self._terminal = Terminal(places, env, spill, mask=mask, background=self.background)
        self._process = Process(self.background, mask=mask, **limits)

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
        assert complaint(Process.spec.schema, given) == ""
        return await self._process.run(given, self.call)

    async def told(self, name, wanted):
        """All news until `wanted` is among them."""
        said = ""
        while wanted not in said:
            said += await self("poll", name)
            await asyncio.sleep(0.01)
        return said


async def test_a_background_command_returns_at_once_with_its_name_and_first_words(tmp_path):
    async with Room(tmp_path) as room:
        began = time.monotonic()
        assert await room.start("echo up; sleep 300") == "up\n[p1 runs in the background]"
        assert await room.start("sleep 300") == "(no output yet)\n[p2 runs in the background]"
        assert time.monotonic() - began < 5
        listed = re.sub(r"\d+ s", "N s", await room("list"))
        assert listed == "p1 (echo up; sleep 300) runs (N s)\np2 (sleep 300) runs (N s)"


async def test_a_command_that_fails_at_once_says_so(tmp_path):
    async with Room(tmp_path) as room:
        told = await room.start("no-such-program")
        assert "no-such-program: command not found" in told
        assert told.endswith("[p1 is over after 0 s: exit code 127]")
        assert await room.run("true") == "(no output)\n[exit code 0]", "it was told already"


async def test_poll_gives_what_is_new_and_log_gives_all(tmp_path):
    async with Room(tmp_path) as room:
        assert (await room.start("echo one; read x; echo $x; read y")).startswith("one\n")
        assert await room("poll", "p1") == f"(no new output)\n[p1 {room.background.find('s1', 'p1').status}]"
        assert (await room("write", "p1", data="two\n")).startswith("two\n[p1 runs")
        assert (await room("log", "p1")).startswith("one\ntwo\n[p1 runs")
        assert (await room("log", "p1", offset=1, limit=1)).startswith("[lines 1-1 of 2]\none\n[p1 runs")
        with pytest.raises(ToolError, match="no line 9"):
            await room("log", "p1", offset=9)


async def test_waiting_ends_with_the_process_and_shows_what_it_writes(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("echo start; for i in 1 2 3; do sleep 0.25; echo step $i; done; exit 4")
        told = await room("wait", "p1")
        assert told.startswith("step 1\nstep 2\nstep 3\n[p1 is over after") and told.endswith(
            ": exit code 4]"
        )
        assert "".join(room.call.shown) in "step 1\nstep 2\nstep 3\n" and room.call.shown
        assert (await room("wait", "p1")).startswith("(no new output)\n[p1 is over")


async def test_waiting_has_an_end_of_its_own_and_a_stop_ends_it_at_once(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("echo hi; sleep 300")
        assert (await room("wait", "p1", timeout=1)).startswith("(no new output)\n[p1 runs")
        with pytest.raises(ToolError, match="between 1 and 600"):
            await room("wait", "p1", timeout=-1)
        waiting = asyncio.create_task(room("wait", "p1"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() and time.monotonic() - began < 1
        assert [job.name for job in room.background.living("s1")] == ["p1"]


async def test_killing_lets_a_process_tidy_up_and_tells_its_last_words(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("trap 'sleep 0.2; echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done")
        told = await room("kill", "p1")
        assert "saved\n" in told and told.endswith(": exit code 0]")
        assert (await room("kill", "p1")).startswith("(no new output)\n[p1 is over")


async def test_killing_ends_who_resists_and_all_it_begot(tmp_path):
    stubborn = "trap '' TERM HUP; while :; do sleep 300; done"
    async with Room(tmp_path, grace=0.1) as room:
        inner = int((await room.start(f"setsid bash -c 'echo $$; {stubborn}' & {stubborn}")).split("\n")[0])
        assert "[p1 was ended after" in await room("kill", "p1")
        assert not os.path.exists(f"/proc/{inner}")


async def test_input_is_written_and_closed(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("cat; echo over")
        assert (await room("write", "p1", data="né\nand")).startswith("né\nand\n[p1 runs")
        told = await room("close", "p1")
        assert "over" in told and "exit code 0]" in told
        for action in "write", "close":
            with pytest.raises(ToolError, match="p1 is over"):
                await room(action, "p1", data="x")


async def test_who_does_not_listen_is_told_of(tmp_path):
    async with Room(tmp_path, patience=0.1) as room:
        await room.start("sleep 300")
        with pytest.raises(ToolError, match="took 65,536 of 100,000 bytes and does not read on"):
            await room("write", "p1", data="x" * 100_000)
        await room.start("exec <&-; echo deaf; sleep 300")
        with pytest.raises(ToolError, match="p2 does not read its input any more"):
            await room("write", "p2", data="x")
        await room("close", "p1")
        with pytest.raises(ToolError, match="input of p1 was closed before"):
            await room("write", "p1", data="x")


async def test_a_name_that_is_none_is_answered_with_those_there_are(tmp_path):
    async with Room(tmp_path) as room:
        assert await room("list") == "(no background processes)"
        with pytest.raises(ToolError, match="no background process '': there is none"):
            await room("poll")
        await room.start("sleep 300")
        with pytest.raises(ToolError, match=r"no background process 'p9': there is p1 \(sleep 300\)"):
            await room("kill", "p9")


async def test_a_foreground_command_tells_what_happened_behind_it(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("read x; exit 9")
        await room.start("sleep 300")
        assert await room.run("true") == "(no output)\n[exit code 0]"
        assert (await room.run("exit 1")).endswith(
            "[exit code 1]\n[in the background: p1 (read x; exit 9), p2 (sleep 300)]"
        )
        job = room.background.find("s1", "p1")
        await job.child.input.finish()
        await asyncio.wait([job.task])
        told = await room.run("true")
        assert told.startswith("(no output)\n[exit code 0]\n[p1 (read x; exit 9) is over after")
        assert told.endswith(": exit code 9]")
        assert await room.run("true") == "(no output)\n[exit code 0]"


async def test_a_process_outlives_the_call_that_is_stopped_after_it(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("echo $$; sleep 300")
        other = asyncio.create_task(room.run("sleep 300"))
        await asyncio.sleep(0.1)
        other.cancel()
        await asyncio.wait([other])
        assert room.background.mention("s1") == "in the background: p1 (echo $$; sleep 300)"


async def test_secrets_are_masked_in_all_that_is_told(tmp_path):
    async with Room(tmp_path, mask=lambda text: text.replace("canary", "***")) as room:
        told = await room.start(
            "echo canary; read x; sleep 0.3; for i in {1..20000}; do echo canary $i; done"
        )
        told += await room("write", "p1", data="\n") + await room("wait", "p1") + await room("log", "p1")
        spilled = "".join(path.read_text() for path in (tmp_path / "spill").iterdir())
        assert "*** 20000" in told and "*** 10000" in spilled
        assert "canary" not in told + spilled + "".join(room.call.shown)


async def test_a_session_on_a_terminal_is_talked_with(tmp_path):
    async with Room(tmp_path) as room:
        await room.start("python3 -q -i -c 'print(\"ready\")'", pty=True)
        if "ready" not in await room("log", "p1"):
            await room.told("p1", "ready")
        said = await room("write", "p1", data="import sys; 6 * 7, sys.stdin.isatty()\n")
        if "(42, True)" not in said:
            await room.told("p1", "(42, True)")
        if "[p1 runs" in await room("close", "p1"):
            await room("wait", "p1")
        assert room.background.find("s1", "p1").status.endswith("exit code 0")


async def test_a_question_to_the_terminal_is_answered_by_it(tmp_path):
    ask = "stty -echo -icanon; printf 'ab\\e[6n'; read -rsd R answer; echo; echo ${answer#*[}"
    async with Room(tmp_path) as room:
        await room.start(ask, pty=True)
        await room("wait", "p1")
        assert "1;3" in await room("log", "p1")


async def test_a_terminal_in_the_foreground_has_a_size_a_type_and_nobody_at_it(tmp_path):
    async with Room(tmp_path) as room:
        told = await room.run(
            "test -t 0 -a -t 1 && echo $TERM $COLUMNS $LINES; stty size; cat; echo over", pty=True
        )
        assert told == "xterm 80 24\n24 80\nover\n[exit code 0]"


async def test_long_output_of_a_terminal_is_rendered_and_kept_whole(tmp_path):
    async with Room(tmp_path) as room:
        told = await room.run("for i in {1..6000}; do printf '\\e[32m%d\\e[0m \\r\\n' $i; done", pty=True)
        assert told.startswith("1\n2\n3\n") and told.endswith("5999\n6000\n[exit code 0]")
        (spilled,) = (tmp_path / "spill").iterdir()
        assert spilled.read_text().split() == [str(n) for n in range(1, 6001)]


async def test_a_time_limit_holds_on_a_terminal_and_what_was_shown_is_told(tmp_path):
    async with Room(tmp_path) as room:
        told = await room.run("printf 'half a line'; sleep 300", pty=True, timeout=1)
        assert told == "half a line\n[timed out after 1 s and was ended]"


async def test_without_a_background_it_is_said(tmp_path):
    places = Places(home=str(tmp_path), own=str(tmp_path / "own"))
    alone = Terminal(places, {"PATH": os.environ["PATH"]}, Spill(tmp_path / "spill"))
    with pytest.raises(ToolError, match="nothing can run in the background here"):
        await alone.run({"command": "true", "background": True}, Call(tmp_path))


@pytest.mark.parametrize(
    ("data", "rule"),
    [("rm -rf ~\n", "remove"), ("ls\n", ""), ("for i in range(3): print(i)\n", ""), ("\x03", "")],
)
def test_what_is_typed_into_a_process_is_judged_as_if_it_were_a_command(data, rule, tmp_path):
    places = Places(home=str(tmp_path), own=str(tmp_path / "own"))
    call = ToolCall("c1", "process", {"action": "write", "session_id": "p1", "data": data})
    risk = assess(call, "/tmp", places)
    assert (risk.rule if risk else "") == rule


def test_the_schemas_are_small():
    size = 0
    for spec in Terminal.spec, Process.spec:
        function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
        size += len(json.dumps({"type": "function", "function": function}, separators=(",", ":")))
    assert size <= 1300, size
