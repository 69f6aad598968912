"""Background processes: lifetime, limits, and their output."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from alipes.kernel.errors import ToolError
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.shell.background import BackgroundProcesses, format_age
from alipes.tools.shell.output import MAX_LOG_CHARS, MAX_POLL_CHARS, RING_BYTES, ProcessLog, SpillFolder
from alipes.tools.shell.pty import TerminalEmulator
from tests.world.wait import until

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}
STUBBORN = "trap '' TERM HUP INT; while :; do sleep 300; done"


def background(tmp_path, **more):
    return BackgroundProcesses(SpillFolder(tmp_path / "spill"), **more)


def start(processes, command, session="s1", **more):
    return processes.start(CommandScope(session), command, cwd="/", env=ENV, **more)


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def children() -> set[int]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for listed in lists for pid in listed.split()}


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def wait_until_finished(process):
    await asyncio.wait([process.task])
    await until(lambda: process.is_finished)


async def test_start_returns_the_name_and_first_output(tmp_path):
    async with background(tmp_path) as processes:
        one = await start(processes, "echo listening; sleep 300")
        two = await start(processes, "sleep 300")
        assert (one.name, two.name) == ("p1", "p2")
        assert one.log.read_new() == "listening\n"
        assert [process.name for process in processes.running("s1")] == ["p1", "p2"]
        assert one.status.startswith("is running (")


async def test_exit_is_noticed_without_polling(tmp_path):
    async with background(tmp_path) as processes:
        process = await start(processes, "echo started; sleep 0.3; echo done; exit 7")
        assert not process.is_finished
        await wait_until_finished(process)
        assert "exit code 7" in process.status
        assert process.log.read_new() == "started\ndone\n"
        assert (processes.running("s1"), [each.name for each in processes.processes_of("s1")]) == ((), ["p1"])


async def test_finished_process_is_reported_once(tmp_path):
    async with background(tmp_path) as processes:
        process = await start(processes, "exit 3")
        assert process.is_finished
        assert processes.report_finished("s1") == f"p1 (exit 3) {process.status}"
        assert (processes.report_finished("s1"), processes.describe_running("s1")) == ("", "")


async def test_sessions_do_not_see_each_other(tmp_path):
    async with background(tmp_path) as processes:
        await start(processes, "sleep 300", "mine")
        await start(processes, "sleep 301", "yours")
        assert processes.describe_running("mine") == "in the background: p1 (sleep 300)"
        with pytest.raises(ToolError, match=r"no background process 'p2'; existing: p1 \(sleep 300\)"):
            processes.find("mine", "p2")
        with pytest.raises(ToolError, match="none exist; they end with"):
            processes.find("other", "p1")


async def test_ending_a_session_stops_only_its_processes(tmp_path):
    async with background(tmp_path) as processes:
        mine = await start(processes, f"setsid sh -c '{STUBBORN}' & {STUBBORN}", "mine")
        gentle = await start(
            processes, f"trap 'echo x > {tmp_path}/tidied; exit' TERM; while :; do sleep 0.01; done", "mine"
        )
        yours = await start(processes, "sleep 300", "yours")
        await processes.session_left("mine")
        assert (mine.is_finished, gentle.is_finished, yours.is_finished) == (True, True, False)
        assert not is_alive(mine.child.pid) and is_alive(yours.child.pid)
        assert (tmp_path / "tidied").exists()
        assert processes.processes_of("mine") == ()
        await processes.session_left("mine")
        await processes.session_left("nobody")


async def test_session_left_hook_stops_the_processes_of_the_session(tmp_path):
    hooks = Hooks()
    async with background(tmp_path) as processes:
        hooks.add(CORE, processes.session_left)
        process = await start(processes, "sleep 300", "mine")
        await hooks.dispatcher.notify(
            specs.session_left, session="mine", session_key="agent:main:cli:dm:x", reason="reset", successor=""
        )
        assert process.is_finished and processes.processes_of("mine") == ()


@pytest.mark.parametrize("how", ["normally", "by an error", "by cancellation", "by two cancellations"])
async def test_no_process_outlives_the_scope(how, tmp_path):
    before, descriptors = children(), open_descriptors()
    pids = []
    ready = asyncio.Event()

    async def scope():
        async with background(tmp_path) as processes:
            for pty in False, True:
                process = await start(processes, f"setsid sh -c 'echo $$; {STUBBORN}' & {STUBBORN}", pty=pty)
                pids.extend([process.child.pid, int(process.log.read_new())])
            ready.set()
            if how == "by an error":
                raise LookupError
            if "cancellation" in how:
                await asyncio.Event().wait()

    task = asyncio.create_task(scope())
    await ready.wait()
    if "cancellation" in how:
        task.cancel()
    if how == "by two cancellations":
        await asyncio.sleep(0.01)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == ("cancellation" in how)
    assert task.cancelled() or isinstance(task.exception(), LookupError) == (how == "by an error")
    assert (len(pids), [pid for pid in pids if is_alive(pid)]) == (4, [])
    assert children() == before
    assert open_descriptors() == descriptors


async def test_cancelling_the_start_leaves_no_process(tmp_path):
    async with background(tmp_path) as processes:
        before = children()
        for moment in 0, 0, 0.02, 0.1:
            task = asyncio.create_task(start(processes, f"trap '' TERM; {STUBBORN}"))
            await asyncio.sleep(moment)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await until(lambda: children() == before)
        assert processes.processes_of("s1") == ()


async def test_failed_start_is_reported_and_removed(tmp_path):
    async with background(tmp_path) as processes:
        with pytest.raises(ToolError, match="could not be started"):
            await processes.start(CommandScope("s1"), "true", cwd="/no/such/folder", env=ENV)
        assert processes.processes_of("s1") == ()


async def test_limits_count_running_processes_only(tmp_path):
    async with background(tmp_path, max_per_session=2, max_total=3) as processes:
        first = await start(processes, "read x", "mine")
        await start(processes, "sleep 300", "mine")
        with pytest.raises(ToolError, match=r"2 background processes already.*p1 \(read x\), p2"):
            await start(processes, "true", "mine")
        await start(processes, "sleep 300", "yours")
        with pytest.raises(ToolError, match="of all conversations"):
            await start(processes, "true", "theirs")
        await first.child.input.finish()
        await wait_until_finished(first)
        await start(processes, "true", "mine")


async def test_only_some_finished_processes_are_kept(tmp_path):
    async with background(tmp_path, max_finished=2) as processes:
        living = await start(processes, "sleep 300")
        for _ in range(4):
            await start(processes, "true")
        assert [process.name for process in processes.processes_of("s1")] == [living.name, "p4", "p5"]


async def test_a_killed_host_process_is_reported_with_its_signal(tmp_path):
    async with background(tmp_path) as processes:
        process = await start(processes, "sleep 300")
        os.kill(process.child.pid, signal.SIGRTMIN + 3)
        await wait_until_finished(process)
        assert process.status.endswith(f"killed by signal {signal.SIGRTMIN + 3}")


async def test_leftover_children_are_killed_and_reported(tmp_path):
    async with background(tmp_path) as processes:
        process = await start(processes, "sleep 300 & echo $!")
        assert "1 leftover child process killed" in process.status
        assert not is_alive(int(process.log.read_new()))


@pytest.mark.parametrize("pty", [False, True])
async def test_flood_of_output_leaves_time_for_the_loop(pty, tmp_path):
    async with background(tmp_path) as processes:
        await start(processes, "yes", pty=pty)
        began, spent = time.monotonic(), time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - spent < 0.8 * (time.monotonic() - began)


def log(tmp_path, emulator=None, mask=str):
    return ProcessLog(SpillFolder(tmp_path / "spill", mask=mask), emulator)


async def test_poll_returns_output_once_and_splits_no_character(tmp_path):
    kept = log(tmp_path)
    seen = ""
    for byte in "añ漢👩 end".encode():
        await kept.feed(bytes([byte]))
        seen += kept.read_new()
    assert (seen, kept.read_new()) == ("añ漢👩 end", "")
    await kept.feed(b"half \xe6\xbc")
    assert kept.read_new() == "half "
    await kept.finish()
    assert kept.read_new() == "\ufffd"


async def test_long_poll_is_cut_at_the_start(tmp_path):
    kept = log(tmp_path)
    await kept.feed("".join(f"line {n}\n" for n in range(5000)).encode())
    seen = kept.read_new()
    assert seen.startswith("[... ") and "characters omitted; use action log" in seen.partition("\n")[0]
    assert seen.partition("\n")[2].startswith("line ") and seen.endswith("line 4999\n")
    assert len(seen) < MAX_POLL_CHARS + 100


async def test_flood_is_bounded_in_memory_and_complete_in_a_file(tmp_path):
    kept = log(tmp_path, mask=lambda text: text.replace("secret", "***"))
    lines = [f"line {n} secret" for n in range(60_000)]
    raw = "\n".join(lines).encode() + b"\n"
    for begin in range(0, len(raw), 10_007):
        await kept.feed(raw[begin : begin + 10_007])
        assert len(kept._ring) <= 2 * RING_BYTES
    seen = await kept.read_lines(0, 2)
    head, *rest = seen.split("\n")
    assert rest == ["line 59998 ***", "line 59999 ***"]
    assert head.startswith("[lines 59,999-60,000 of 60,000; full output in ")
    path = Path(head.partition("full output in ")[2].partition(",")[0])
    assert path.read_text() == raw.decode().replace("secret", "***")
    await kept.feed(b"more\n")
    await kept.finish()
    assert path.read_text().endswith("line 59999 ***\nmore\n")
    assert "characters omitted" in kept.read_new()


async def test_log_lines_are_counted_from_both_ends(tmp_path):
    kept = log(tmp_path)
    assert await kept.read_lines(0, 10) == "(no output)"
    await kept.feed(b"\x1b[31m1\x1b[0m\n2\n3\n4\n5")
    assert await kept.read_lines(0, 10) == "1\n2\n3\n4\n5"
    assert await kept.read_lines(2, 2) == "[lines 2-3 of 5]\n2\n3"
    assert await kept.read_lines(-2, 1) == "[lines 4-4 of 5]\n4"
    assert await kept.read_lines(-99, 1) == "[lines 1-1 of 5]\n1"
    assert await kept.read_lines(0, 1) == "[lines 5-5 of 5]\n5"
    with pytest.raises(ToolError, match="line 6 does not exist; the output has 5 lines"):
        await kept.read_lines(6, 1)


async def test_log_result_is_bounded(tmp_path):
    kept = log(tmp_path)
    await kept.feed(b"x" * 40_000 + b"\n" + b"".join(b"%04d %s\n" % (n, b"y" * 100) for n in range(300)))
    last, first = await kept.read_lines(0, 1000), await kept.read_lines(1, 1000)
    assert len(last) < MAX_LOG_CHARS + 100 and len(first) < MAX_LOG_CHARS + 100
    assert last.endswith("0299 " + "y" * 100) and "[... 36,000 characters omitted ...]" in first
    assert first.startswith("[lines 1-") and "of 301]" in last


async def test_poll_of_a_screen_starts_at_the_first_changed_line(tmp_path):
    kept = log(tmp_path, TerminalEmulator())
    await kept.feed(b"welcome\r\n>>> ")
    assert kept.read_new() == "welcome\n>>>"
    assert kept.read_new() == ""
    await kept.feed(b"1+1\r\n2\r\n>>> ")
    assert kept.read_new() == ">>> 1+1\n2\n>>>"
    await kept.feed(b"\r\n".join(b"row %d" % n for n in range(30)))
    seen = kept.read_new().split("\n")
    assert (seen[0], seen[-1], len(seen)) == (">>> row 0", "row 29", 30)
    await kept.finish()
    assert kept.read_new() == ""
    assert (await kept.read_lines(0, 100)).split("\n")[:3] == ["welcome", ">>> 1+1", "2"]


async def test_full_screen_program_is_shown_as_on_screen(tmp_path):
    program = (
        "import curses\n"
        "def main(screen):\n"
        "    screen.border(); screen.addstr(2, 4, 'choose: '); screen.refresh()\n"
        "    key = screen.getkey(); screen.addstr(3, 4, f'you chose {key}'); screen.refresh(); screen.getkey()\n"
        "curses.wrapper(main)\n"
    )
    (tmp_path / "program.py").write_text(program)
    async with background(tmp_path) as processes:
        process = await start(processes, f"python3 {tmp_path}/program.py", pty=True)
        shown = process.log.read_new()
        while "choose:" not in shown:
            await process.wait_for_output()
            shown += process.log.read_new()
        assert shown.startswith("┌" + "─" * 78 + "┐\n│") and "└──" in shown
        await process.child.input.write(b"7", 1)
        while "you chose 7" not in shown:
            await process.wait_for_output()
            shown = process.log.read_new()
        assert shown.split("\n")[0] == "│   you chose 7".ljust(79) + "│"
        await process.child.input.write(b"q", 1)
        await wait_until_finished(process)
        assert "exit code 0" in process.status


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (9000, "2 h")])
def test_age_is_formatted_in_rounded_units(seconds, said):
    assert format_age(seconds) == said


class Records:
    """The names of stored processes, by session."""

    def __init__(self):
        self.names: dict[str, str] = {}

    async def add(self, session, name, command):
        self.names[name] = f"{session} {command}"

    async def remove(self, name):
        del self.names[name]


async def test_a_running_process_is_recorded_until_it_ends_by_itself(tmp_path):
    records, command = Records(), f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    async with background(tmp_path, records=records) as processes:
        ended, stays = await start(processes, command), await start(processes, "sleep 300")
        assert records.names == {ended.name: f"s1 {command}", stays.name: "s1 sleep 300"}
        (tmp_path / "go").touch()
        await asyncio.wait([ended.task])
        await until(lambda: set(records.names) == {stays.name})
    assert set(records.names) == {stays.name}, "it was lost with this process"


async def test_a_process_of_a_conversation_that_was_left_is_not_recorded(tmp_path):
    records = Records()
    async with background(tmp_path, records=records) as processes:
        await start(processes, "sleep 300")
        await processes.session_left("s1")
        await until(lambda: not records.names)
