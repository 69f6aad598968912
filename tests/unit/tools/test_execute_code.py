"""`execute_code` with a real Python: what it prints comes back, its tools pass the gates, nothing is left."""

import asyncio
import gc
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from alipes.kernel.messages import ToolResult
from alipes.kernel.ports import ToolSpec
from alipes.runtime.processes.orphans import open_keeper, reap
from alipes.tools.code.execute_code import ExecuteCode, Limits, _serving
from alipes.tools.common import child_environment
from alipes.tools.shell.output import Spill

LOOK = ToolSpec("look", "look", {"type": "object", "properties": {"at": {}, "long": {}}}, "read")


class Call:
    """What the tool is told, and a record of what its code used."""

    def __init__(self, workdir, gives="seen"):
        self.call_id, self.session, self.workdir = "c1", "s1", str(workdir)
        self.used, self.shown, self.gives = [], [], gives
        self.first = asyncio.Event()

    async def progress(self, text):
        self.shown.append(text)

    async def use(self, name, args):
        self.used.append((name, args))
        self.first.set()
        if isinstance(self.gives, asyncio.Event):
            await self.gives.wait()
        if isinstance(self.gives, ToolResult):
            return self.gives
        return ToolResult("c1.1", str(self.gives))


def tool(tmp_path, **more):
    env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    return ExecuteCode([LOOK], env, Spill(tmp_path / "spill"), **more)


async def run(tmp_path, code, call=None, **more):
    return await tool(tmp_path, **more).run({"code": code}, call or Call(tmp_path))


async def test_what_is_printed_comes_back_and_nothing_else(tmp_path):
    code = "import sys\nprint('a', 1 + 1)\nsys.stderr.write('hidden')\n'not this'"
    assert await run(tmp_path, code) == "a 2\n[exit code 0]"
    assert await run(tmp_path, "x = 1") == "(it printed nothing)\n[exit code 0]"


async def test_code_that_fails_says_where(tmp_path):
    told = await run(tmp_path, "print('before')\nraise ValueError('no good')")
    assert told.startswith("before\n") and told.endswith("ValueError: no good\n[exit code 1]")
    assert 'File "<code>", line 2' in told
    assert "SyntaxError" in await run(tmp_path, "def (")
    assert await run(tmp_path, "import sys; print('x'); sys.exit(3)") == "x\n[exit code 3]"


async def test_tools_are_functions_by_position_and_by_name(tmp_path):
    call = Call(tmp_path)
    code = "print(look('here'), look(at='there', long=True), look('x', None))"
    assert await run(tmp_path, code, call) == "seen seen seen\n[exit code 0]"
    assert call.used == [
        ("look", {"at": "here"}),
        ("look", {"at": "there", "long": True}),
        ("look", {"at": "x"}),
    ]


async def test_a_tool_that_fails_or_is_not_there_is_an_error_in_the_code(tmp_path):
    denied = Call(tmp_path, ToolResult("c1.1", "not allowed", "denied"))
    code = "try:\n    look()\nexcept ToolError as error:\n    print('told:', error)"
    assert await run(tmp_path, code, denied) == "told: not allowed\n[exit code 0]"
    assert "NameError" in await run(tmp_path, "terminal('rm')")
    assert "takes at, long" in await run(tmp_path, "look(1, 2, 3)")


async def test_uses_are_counted(tmp_path):
    call = Call(tmp_path)
    code = "n = 0\ntry:\n    while True:\n        look(); n += 1\nexcept ToolError as error:\n    print(n, error)"
    told = await run(tmp_path, code, call, limits=Limits(calls=3))
    assert told.startswith("3 more than 3 uses") and len(call.used) == 3


async def test_code_that_takes_too_long_is_ended_with_all_it_began(tmp_path):
    code = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print(child.pid, flush=True)\ntime.sleep(1000)"
    )
    told = await run(tmp_path, code, limits=Limits(seconds=0.8))
    assert told.endswith("[timed out after 0.8 s and was ended]")
    assert not os.path.exists(f"/proc/{told.split()[0]}")


@pytest.mark.parametrize("waits", ["for a tool", "by itself"])
async def test_stopped_it_leaves_nothing_behind(tmp_path, waits):
    call = Call(tmp_path, asyncio.Event() if waits == "for a tool" else "seen")
    code = "look()\nimport time\ntime.sleep(1000)"
    running = asyncio.create_task(run(tmp_path, code, call))
    await call.first.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def test_stopped_while_it_begins_it_leaves_no_socket_open(tmp_path):
    """At each of its first steps: a server that nobody was handed yet could not be closed."""
    await run(tmp_path, "")
    before = len(os.listdir("/proc/self/fd"))
    for steps in range(40):
        running = asyncio.create_task(run(tmp_path, "import time; time.sleep(1000)"))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("steps", range(10))
async def test_who_connects_in_the_moment_in_which_it_ends_is_let_go(tmp_path, steps):
    with socket.socket(socket.AF_UNIX) as child:
        async with _serving(tmp_path / "socket", None):
            child.connect(str(tmp_path / "socket"))
            for _ in range(steps):
                await asyncio.sleep(0)
        child.setblocking(False)
        with suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(child, 1) == b""


async def test_secrets_are_masked_and_the_environment_is_what_it_was_given(tmp_path):
    code = "import os\nprint('s3cret', sorted(os.environ))\nraise ValueError('s3cret')"
    told = await run(tmp_path, code, mask=lambda text: text.replace("s3cret", "***"))
    assert (
        "s3cret" not in told and told.count("***") >= 2 and "ALIPES" not in told.replace("ALIPES_CHILD", "")
    )


async def test_it_works_in_the_folder_of_the_work_and_finds_modules_there(tmp_path):
    (tmp_path / "mine.py").write_text("word = 'found'")
    assert (
        await run(tmp_path, "import mine, os; print(mine.word, os.getcwd())")
        == f"found {tmp_path}\n[exit code 0]"
    )


async def test_its_files_lie_in_the_home_however_long_its_path_is(tmp_path):
    home = tmp_path / ("h" * 200)
    call = Call(tmp_path)
    async with open_keeper(home / "run") as keeper:
        code = "import sys; print(sys.argv[1]); print(look('x'))"
        folder, seen, _ = (await run(tmp_path, code, call, keeper=keeper)).splitlines()
        assert folder.startswith(f"{home}/run/") and seen == "seen" and not Path(folder).exists()
    assert list((home / "run" / "children").iterdir()) == []


async def test_what_a_killed_process_left_there_is_removed_by_the_next(tmp_path):
    script = (
        "import asyncio, os, sys; from pathlib import Path; from alipes.runtime.processes.orphans import *\n"
        "async def main():\n"
        "    async with open_keeper(Path(sys.argv[1])) as keeper:\n"
        "        with scratch(keeper) as folder:\n"
        "            (folder / 'code.py').touch(); os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path))
    assert await child.wait() == -9
    assert [each.name for each in tmp_path.rglob("*.py")] == ["code.py"]
    assert reap(tmp_path) == 0
    assert list((tmp_path / "children").iterdir()) == []
