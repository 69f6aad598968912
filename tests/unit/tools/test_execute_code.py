"""The `execute_code` tool with real processes."""

import asyncio
import gc
import os
import sys
from pathlib import Path

import pytest

from alipes.kernel.messages import ToolResult
from alipes.kernel.ports import ToolSpec
from alipes.runtime.processes.process_tree import kill_orphans, open_orphan_guard
from alipes.runtime.sandbox.backend import HostBackend
from alipes.tools.common import child_environment
from alipes.tools.execute_code import CodeLimits, ExecuteCode, _serve_tools
from alipes.tools.shell.output import SpillFolder
from tests.world.sandboxes import SANDBOXES, open_backend, open_machine

LOOK = ToolSpec("look", "look", {"type": "object", "properties": {"at": {}, "long": {}}}, "read")


class Call:
    """A tool context that records the tool calls of the code."""

    def __init__(self, workdir, gives="seen"):
        self.call_id, self.session, self.workdir = "c1", "s1", str(workdir)
        self.turn = None
        self.calls, self.shown, self.gives = [], [], gives
        self.first = asyncio.Event()

    async def progress(self, text):
        self.shown.append(text)

    async def run_tool(self, name, args):
        self.calls.append((name, args))
        self.first.set()
        if isinstance(self.gives, asyncio.Event):
            await self.gives.wait()
        if isinstance(self.gives, ToolResult):
            return self.gives
        return ToolResult("c1.1", str(self.gives))


def tool(tmp_path, mask=str, **more):
    env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    return ExecuteCode([LOOK], env, SpillFolder(tmp_path / "spill", mask=mask), **more)


async def run(tmp_path, code, call=None, **more):
    return await tool(tmp_path, **more).run({"code": code}, call or Call(tmp_path))


async def test_only_printed_output_is_returned(tmp_path):
    code = "import sys\nprint('a', 1 + 1)\nsys.stderr.write('hidden')\n'not this'"
    assert await run(tmp_path, code) == "a 2\n[exit code 0]"
    assert await run(tmp_path, "x = 1") == "(no output)\n[exit code 0]"


async def test_failing_code_returns_its_traceback(tmp_path):
    seen = await run(tmp_path, "print('before')\nraise ValueError('no good')")
    assert seen.startswith("before\n") and seen.endswith("ValueError: no good\n[exit code 1]")
    assert 'File "<code>", line 2' in seen
    assert "SyntaxError" in await run(tmp_path, "def (")
    assert await run(tmp_path, "import sys; print('x'); sys.exit(3)") == "x\n[exit code 3]"


async def test_tools_take_positional_and_named_arguments(tmp_path):
    call = Call(tmp_path)
    code = "print(look('here'), look(at='there', long=True), look('x', None))"
    assert await run(tmp_path, code, call) == "seen seen seen\n[exit code 0]"
    assert call.calls == [("look", {"at": "here"}), ("look", {"at": "there", "long": True}), ("look", {"at": "x"})]


async def test_failed_or_unknown_tool_raises_in_the_code(tmp_path):
    denied = Call(tmp_path, ToolResult("c1.1", "not allowed", "denied"))
    code = "try:\n    look()\nexcept ToolError as error:\n    print('caught:', error)"
    assert await run(tmp_path, code, denied) == "caught: not allowed\n[exit code 0]"
    assert "NameError" in await run(tmp_path, "terminal('rm')")
    assert "takes at, long" in await run(tmp_path, "look(1, 2, 3)")


async def test_tool_calls_are_limited(tmp_path):
    call = Call(tmp_path)
    code = "n = 0\ntry:\n    while True:\n        look(); n += 1\nexcept ToolError as error:\n    print(n, error)"
    seen = await run(tmp_path, code, call, limits=CodeLimits(calls=3))
    assert seen.startswith("3 tool call limit (3) reached") and len(call.calls) == 3


async def test_timeout_kills_the_whole_process_tree(tmp_path):
    code = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print(child.pid, flush=True)\ntime.sleep(1000)"
    )
    seen = await run(tmp_path, code, limits=CodeLimits(seconds=0.8))
    assert seen.endswith("[timed out after 0.8 s and was killed]")
    assert not os.path.exists(f"/proc/{seen.split()[0]}")


@pytest.mark.parametrize("waits", ["for a tool", "by itself"])
async def test_cancelling_leaves_nothing_behind(tmp_path, waits):
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()  # services of other tests may be running
    call = Call(tmp_path, asyncio.Event() if waits == "for a tool" else "seen")
    code = "look()\nimport time\ntime.sleep(1000)"
    running = asyncio.create_task(run(tmp_path, code, call))
    await call.first.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert set(children.read_text().split()) <= set(before)


async def test_cancelling_at_the_start_leaves_nothing_open(tmp_path):
    """Cancelled at each of its first steps."""
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


async def test_code_that_still_waits_for_a_tool_gets_an_end(tmp_path):
    async with _serve_tools(tmp_path, None):
        answers = os.open(tmp_path / "answers", os.O_RDONLY)
    assert os.read(answers, 1) == b""
    os.close(answers)


@pytest.mark.parametrize("name", [*SANDBOXES])
async def test_code_calls_tools_in_each_sandbox(name, tmp_path):
    (tmp_path / "project").mkdir()
    with open_machine(name, tmp_path):
        async with open_backend(name, home=tmp_path / "home") as backend:
            assert "seen" in await run(tmp_path / "project", "print(look())", backend=backend)


async def test_secrets_are_masked_and_the_environment_is_only_the_given_one(tmp_path):
    code = "import os\nprint('s3cret', sorted(os.environ))\nraise ValueError('s3cret')"
    seen = await run(tmp_path, code, mask=lambda text: text.replace("s3cret", "***"))
    assert "s3cret" not in seen and seen.count("***") >= 2 and "ALIPES" not in seen.replace("ALIPES_CHILD", "")


async def test_code_runs_in_the_working_directory_and_imports_from_it(tmp_path):
    (tmp_path / "mine.py").write_text("word = 'found'")
    assert await run(tmp_path, "import mine, os; print(mine.word, os.getcwd())") == f"found {tmp_path}\n[exit code 0]"


async def test_its_files_are_in_the_home_even_with_a_long_path(tmp_path):
    home = tmp_path / ("h" * 200)
    call = Call(tmp_path)
    async with open_orphan_guard(home / "run") as keeper:
        code = "import sys; print(sys.argv[1]); print(look('x'))"
        folder, seen, _ = (await run(tmp_path, code, call, backend=HostBackend(keeper))).splitlines()
        assert folder.startswith(f"{home}/run/") and seen == "seen" and not Path(folder).exists()
    assert list((home / "run" / "children").iterdir()) == []


async def test_leftovers_of_a_killed_process_are_removed_by_the_next(tmp_path):
    script = (
        "import asyncio, os, sys; from pathlib import Path; from alipes.runtime.processes.process_tree import *\n"
        "async def main():\n"
        "    async with open_orphan_guard(Path(sys.argv[1])) as keeper:\n"
        "        with scratch_directory(keeper) as folder:\n"
        "            (folder / 'code.py').touch(); os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path))
    assert await child.wait() == -9
    assert [each.name for each in tmp_path.rglob("*.py")] == ["code.py"]
    assert kill_orphans(tmp_path) == 0
    assert list((tmp_path / "children").iterdir()) == []
