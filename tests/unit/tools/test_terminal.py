"""The `terminal` tool with real processes: results, progress, limits."""

import asyncio
import json
import os
import re
import resource
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from alipes.kernel.errors import ToolError
from alipes.runtime.sandbox.backend import CommandScope, HostBackend
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places, child_environment
from alipes.tools.files.read_file import ReadFile
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import HEAD_BYTES, TAIL_BYTES, CommandOutput, SpillFolder, clean_output, clean_piece
from alipes.tools.shell.terminal import TerminalTool
from tests.world.environment import LIMIT_S


class Call:
    """A tool context that records progress."""

    def __init__(self, workdir):
        self.call_id, self.session, self.workdir = "c1", "s1", str(workdir)
        self.turn = None
        self.shown = []
        self.first = asyncio.Event()

    async def progress(self, text):
        self.shown.append(text)
        self.first.set()


def terminal(tmp_path, max_file_bytes=50 << 20, mask=str, **more):
    env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    places = Places(home=str(tmp_path), alipes_home=str(tmp_path / "own"))
    spill = SpillFolder(tmp_path / "spill", mask=mask, max_file_bytes=max_file_bytes)
    return TerminalTool(places, env, spill, **more)


async def run(tmp_path, command, **args):
    return await terminal(tmp_path).run({"command": command, **args}, Call(tmp_path))


async def wait_until_gone(pid):
    async with asyncio.timeout(LIMIT_S):
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(0.005)


async def test_output_and_exit_code_are_returned(tmp_path):
    assert await run(tmp_path, "echo one; echo two >&2; exit 3") == "one\ntwo\n[exit code 3]"
    assert await run(tmp_path, "true") == "(no output)\n[exit code 0]"
    assert await run(tmp_path, "echo x; kill -9 $$") == "x\n[killed by SIGKILL]"


async def test_command_runs_in_the_working_directory_or_workdir(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    for given, expected in ({}, tmp_path), ({"workdir": "inner"}, inner), ({"workdir": "~/inner"}, inner):
        assert await run(tmp_path, "pwd", **given) == f"{expected}\n[exit code 0]"
    for missing in "nowhere", str(tmp_path / "inner/file"):
        with pytest.raises(ToolError, match="is missing"):
            await run(tmp_path, "pwd", workdir=missing)


async def test_bash_is_the_shell(tmp_path):
    assert await run(tmp_path, "a=(1 2 3); echo ${#a[@]} <(true) | cut -c1") == "3\n[exit code 0]"


async def test_commands_have_no_input_and_no_colours(tmp_path):
    seen = await run(tmp_path, "cat; read x || echo none; echo $TERM $NO_COLOR $PAGER $GIT_PAGER")
    assert seen == "none\ndumb 1 cat cat\n[exit code 0]"


async def test_secrets_do_not_reach_the_child(tmp_path):
    environ = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "k1",
        "GITHUB_TOKEN": "k2",
        "APP_SECRET": "k3",
        "DB_PASSWORD": "k4",
        "PLAIN": "k5-known",
        "SHAPED": "sk-ant-api03-abcdefghijklmnop",
        "EDITOR": "vi",
    }
    env = child_environment(environ, secrets=["k5-known"])
    assert {name for name in environ if name in env} == {"PATH", "EDITOR"}


async def test_secrets_are_masked_in_result_file_and_progress(tmp_path):
    tool = terminal(tmp_path, mask=lambda text: text.replace("canary", "***"))
    call = Call(tmp_path)
    seen = await tool.run({"command": "echo canary; sleep 0.4; for i in {1..9000}; do echo canary $i; done"}, call)
    spilled = next((tmp_path / "spill").iterdir()).read_text()
    assert "*** 9000" in seen and "*** 4000" in spilled
    assert "canary" not in seen + spilled + "".join(call.shown)


async def test_timed_out_command_is_killed_and_its_output_returned(tmp_path):
    began = time.monotonic()
    seen = await run(tmp_path, "echo started; sleep 300", timeout=1)
    assert seen == "started\n[timed out after 1 s and was killed]"
    assert time.monotonic() - began < LIMIT_S


async def test_invalid_timeout_is_refused(tmp_path):
    with pytest.raises(ToolError, match="between 1 and 600"):
        await run(tmp_path, "true", timeout=0)
    assert await run(tmp_path, "true", timeout=10**6) == "(no output)\n[exit code 0]"


async def test_leftover_processes_are_killed_and_reported(tmp_path):
    seen = await run(tmp_path, "setsid sleep 300 & echo $!; sleep 0.05")
    pid = int(seen.splitlines()[0])
    await wait_until_gone(pid)
    assert seen.endswith("[exit code 0; 1 leftover child process killed]")


async def test_cancelling_kills_the_whole_tree(tmp_path):
    call = Call(tmp_path)
    command = "setsid bash -c 'trap \"\" TERM; echo $$; while :; do sleep 300; done' & wait"
    task = asyncio.create_task(terminal(tmp_path).run({"command": command}, call))
    await call.first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not os.path.exists(f"/proc/{int(call.shown[0])}")


async def test_progress_is_shown_while_it_runs_and_not_too_often(tmp_path):
    call = Call(tmp_path)
    command = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.1; done"
    began = time.monotonic()
    seen = await terminal(tmp_path).run({"command": command}, call)
    took = time.monotonic() - began
    assert seen.startswith("line 1\nline 2")
    assert 2 <= len(call.shown) <= took / 0.2 + 1
    assert "".join(call.shown) in seen


async def test_last_line_before_a_pause_is_shown(tmp_path):
    call = Call(tmp_path)
    task = asyncio.create_task(terminal(tmp_path).run({"command": "echo working; sleep 300"}, call))
    await call.first.wait()
    assert call.shown == ["working\n"]
    task.cancel()
    await asyncio.wait([task])


async def test_quick_command_shows_no_progress(tmp_path):
    call = Call(tmp_path)
    await terminal(tmp_path).run({"command": "echo quick"}, call)
    assert call.shown == []


async def test_long_output_is_truncated_and_complete_in_a_readable_file(tmp_path):
    seen = await run(tmp_path, "seq 1 20000")
    assert seen.startswith("1\n2\n3\n") and seen.endswith("19999\n20000\n[exit code 0]")
    assert len(seen) < HEAD_BYTES + TAIL_BYTES + 500
    path = seen.partition("full output in ")[2].partition(",")[0]
    assert Path(path).read_text() == "".join(f"{n}\n" for n in range(1, 20001))
    assert Path(path).stat().st_mode & 0o077 == 0
    reading = ReadFile(FileBoundary(Places(home=str(tmp_path), alipes_home=str(tmp_path / "own"))))
    assert "\n7777\n" in str(await reading.run({"path": path, "offset": 7770, "limit": 10}, Call(tmp_path)))


async def test_output_that_just_fits_is_not_truncated(tmp_path):
    seen = await run(tmp_path, f"head -c {HEAD_BYTES + TAIL_BYTES} /dev/zero | tr '\\0' x")
    assert seen == "x" * (HEAD_BYTES + TAIL_BYTES) + "\n[exit code 0]"
    assert not (tmp_path / "spill").exists()


@pytest.mark.deadline(60)
async def test_flood_uses_little_memory_and_disk(tmp_path):
    tool = terminal(tmp_path, max_file_bytes=3 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = await tool.run({"command": "head -c 300000000 /dev/zero | tr '\\0' '\\n'; echo end"}, Call(tmp_path))
    assert seen.endswith("end\n[exit code 0]")
    assert "the first 3,145,728 bytes in" in seen
    (spilled,) = (tmp_path / "spill").iterdir()
    assert spilled.stat().st_size == 3 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


async def test_endless_flood_ends_at_the_timeout(tmp_path):
    seen = await run(tmp_path, "yes", timeout=1)
    assert seen.endswith("y\n[timed out after 1 s and was killed]")


async def test_output_that_cannot_be_saved_is_reported(tmp_path):
    (tmp_path / "spill").write_text("in the way")
    seen = await run(tmp_path, "seq 1 200000")
    assert "lines omitted; the full output could not be saved" in seen
    assert seen.endswith("200000\n[exit code 0]")


async def test_spill_folder_is_bounded_in_size_and_age(tmp_path):
    folder = tmp_path / "spill"
    folder.mkdir()
    for n, (size, days) in enumerate([(10, 9), (900, 3), (900, 2), (10, 1)]):
        (folder / str(n)).write_bytes(b"x" * size)
        os.utime(folder / str(n), (time.time() - days * 86400,) * 2)
    new = SpillFolder(folder, max_file_bytes=100, max_total_bytes=1500, max_days=7).new()
    assert {path.name for path in folder.iterdir()} == {"2", "3", new.name}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m plain", "red plain"),
        (b"\x1b]0;title\x07body \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "body link"),
        (b"\x1bPq#0;2\x1b\\after", "after"),
        (b"\x1b(B\x1b=\x1b7ok\x1b", "ok"),
        (b"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        (b"bell\x07 nul\0 del\x7f tab\tend", "bell nul del tab\tend"),
        (b"b\bbo\bol\bld\bd", "bold"),
        (b"\xff\xfe caf\xc3\xa9 \xe6\x97", "\ufffd\ufffd café \ufffd"),
    ],
)
def test_output_is_cleaned_like_on_a_screen(raw, text):
    assert clean_output(raw) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\r5%", "\r5%"),
        (b"5%\r10%\r", "\r10%\r"),
        (b"10%\r", "10%\r"),
        (b"\r", "\r"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"old\rnew\nnext\r1%\r2%", "\rnew\n2%"),
        (b"plain", "plain"),
    ],
)
def test_a_piece_of_running_output_says_whether_it_overwrites_the_last_line(raw, text):
    assert clean_piece(raw) == text


async def test_a_long_output_says_how_many_lines_are_omitted(tmp_path):
    seen = await run(tmp_path, "seq 1 200000")
    found = re.search(r"bytes in ([\d,]+) lines omitted", seen)
    assert found is not None
    shown = [line for line in seen.split("\n") if line.isdecimal()]
    assert int(found[1].replace(",", "")) + len(shown) == 200_000


@pytest.mark.parametrize("unit", [b"x", b"\r", b"\b", b"\x1b", b"\x1b[", b"\x1b]", b"1;\x1b[1", b"\xff"])
def test_hostile_output_is_cleaned_in_linear_time(unit):
    began = time.process_time()
    clean_output(unit * (1_000_000 // len(unit)))
    assert time.process_time() - began < LIMIT_S / 3


async def test_splitting_the_output_does_not_change_the_text(tmp_path):
    raw = "".join(f"\x1b[3{n % 8}mzeile {n} äöü 漢字\x1b[0m\r\n" for n in range(3000)).encode()
    texts = []
    for step in 1009, len(raw):
        transcript = CommandOutput(SpillFolder(tmp_path / str(step)))
        for start in range(0, len(raw), step):
            await transcript.feed(raw[start : start + step])
        texts.append((await transcript.text()).partition("full output in")[0])
        assert next((tmp_path / str(step)).iterdir()).read_text() == clean_output(raw)
    assert texts[0] == texts[1]


async def test_failed_start_is_reported(tmp_path):
    with pytest.raises(ToolError, match="null byte"):
        await run(tmp_path, "echo \0")
    with pytest.raises(ToolError, match="could not be started"):
        await run(tmp_path, "true " + "x" * 200_000)


def test_the_two_schemas_are_small(tmp_path):
    specs = [terminal(tmp_path).spec, ReadFile.spec]
    size = sum(len(json.dumps([spec.name, spec.description, spec.schema])) for spec in specs)
    assert size <= 1600, size


class Contained(HostBackend):
    contains = True


async def test_a_command_outside_the_sandbox_leaves_no_compiled_modules(tmp_path):
    tool = terminal(tmp_path, backend=Contained())
    for outside, shown in ((True, "1"), (False, "no")):
        said = await tool.run({"command": "echo ${PYTHONDONTWRITEBYTECODE:-no}", "outside": outside}, Call(tmp_path))
        assert said.startswith(shown)


class BrokenBackend(HostBackend):
    """Fails for one command as code with a mistake does."""

    @asynccontextmanager
    async def open(self, command, scope, **more):
        async with super().open(command, scope, **more) as child:
            yield {"broken": None}.get(command, child)


async def test_a_command_that_fails_in_our_own_code_ends_no_other(tmp_path, caplog):
    async with BackgroundProcesses(SpillFolder(tmp_path / "spill"), backend=BrokenBackend()) as background:
        tool = terminal(tmp_path, backend=BrokenBackend(), background=background)
        process = await background.start(CommandScope("s1"), "sleep 300", cwd="/", env={"PATH": os.environ["PATH"]})
        with pytest.raises(AttributeError, match="NoneType"):
            await tool.run({"command": "broken"}, Call(tmp_path))
        assert not process.is_finished
        assert await tool.run({"command": "echo next"}, Call(tmp_path)) == "next\n[exit code 0]"
    assert "command: broken failed" in caplog.text
