"""Background processes: they outlive the call that began them, and nothing else. What they wrote is kept."""

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
from alipes.tools.shell.background import Background, age
from alipes.tools.shell.output import NEWS, RING, ROOM, Log, Spill
from alipes.tools.shell.pty import Rendering
from tests.world.polling import until

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}
STUBBORN = "trap '' TERM HUP INT; while :; do sleep 300; done"


def background(tmp_path, **more):
    return Background(Spill(tmp_path / "spill"), **more)


def start(back, command, session="s1", **more):
    return back.start(session, command, cwd="/", env=ENV, **more)


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def children() -> set[int]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for listed in lists for pid in listed.split()}


def fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def over(job):
    await asyncio.wait([job.task])
    await until(lambda: job.over)


async def test_a_process_is_named_and_its_first_words_are_there_at_once(tmp_path):
    async with background(tmp_path) as back:
        one = await start(back, "echo listening; sleep 300")
        two = await start(back, "sleep 300")
        assert (one.name, two.name) == ("p1", "p2")
        assert one.log.news() == "listening\n"
        assert [job.name for job in back.living("s1")] == ["p1", "p2"]
        assert one.status.startswith("runs (")


async def test_its_exit_is_noticed_without_being_asked(tmp_path):
    async with background(tmp_path) as back:
        job = await start(back, "echo started; sleep 0.3; echo done; exit 7")
        assert not job.over
        await over(job)
        assert "exit code 7" in job.status
        assert job.log.news() == "started\ndone\n"
        assert (back.living("s1"), [each.name for each in back.of("s1")]) == ((), ["p1"])


async def test_what_is_over_is_told_once(tmp_path):
    async with background(tmp_path) as back:
        job = await start(back, "exit 3")
        assert job.over
        assert back.news("s1") == f"p1 (exit 3) {job.status}"
        assert (back.news("s1"), back.mention("s1")) == ("", "")


async def test_sessions_do_not_see_each_other(tmp_path):
    async with background(tmp_path) as back:
        await start(back, "sleep 300", "mine")
        await start(back, "sleep 301", "yours")
        assert back.mention("mine") == "in the background: p1 (sleep 300)"
        with pytest.raises(ToolError, match=r"no background process 'p2': there is p1 \(sleep 300\)"):
            back.find("mine", "p2")
        with pytest.raises(ToolError, match="there is none; they end with"):
            back.find("other", "p1")


async def test_the_end_of_a_session_ends_its_processes_and_nobody_elses(tmp_path):
    async with background(tmp_path) as back:
        mine = await start(back, f"setsid sh -c '{STUBBORN}' & {STUBBORN}", "mine")
        gentle = await start(
            back, f"trap 'echo x > {tmp_path}/tidied; exit' TERM; while :; do sleep 0.01; done", "mine"
        )
        yours = await start(back, "sleep 300", "yours")
        await back.end("mine")
        assert (mine.over, gentle.over, yours.over) == (True, True, False)
        assert not alive(mine.child.pid) and alive(yours.child.pid)
        assert (tmp_path / "tidied").exists()
        assert back.of("mine") == ()
        await back.end("mine")
        await back.end("nobody")


async def test_the_house_tells_it_when_a_session_is_left(tmp_path):
    hooks = Hooks()
    async with background(tmp_path) as back:
        hooks.add(CORE, back.session_left)
        job = await start(back, "sleep 300", "mine")
        await hooks.relay.tell(
            specs.session_left,
            session="mine",
            session_key="agent:main:cli:dm:x",
            reason="reset",
            successor="",
        )
        assert job.over and back.of("mine") == ()


@pytest.mark.parametrize("how", ["normally", "by an error", "by cancellation", "by two cancellations"])
async def test_nothing_outlives_the_scope(how, tmp_path):
    before, descriptors = children(), fds()
    pids = []
    ready = asyncio.Event()

    async def scope():
        async with background(tmp_path) as back:
            for pty in False, True:
                job = await start(back, f"setsid sh -c 'echo $$; {STUBBORN}' & {STUBBORN}", pty=pty)
                pids.extend([job.child.pid, int(job.log.news())])
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
    assert (len(pids), [pid for pid in pids if alive(pid)]) == (4, [])
    assert children() == before
    assert fds() == descriptors


async def test_a_call_that_is_stopped_while_it_starts_leaves_nothing(tmp_path):
    async with background(tmp_path) as back:
        before = children()
        for moment in 0, 0, 0.02, 0.1:
            task = asyncio.create_task(start(back, f"trap '' TERM; {STUBBORN}"))
            await asyncio.sleep(moment)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await until(lambda: children() == before)
        assert back.of("s1") == ()


async def test_what_cannot_be_started_is_told_and_forgotten(tmp_path):
    async with background(tmp_path) as back:
        with pytest.raises(ToolError, match="could not be started"):
            await back.start("s1", "true", cwd="/no/such/folder", env=ENV)
        assert back.of("s1") == ()


async def test_there_is_a_limit_and_a_process_that_is_over_makes_room(tmp_path):
    async with background(tmp_path, per_session=2, in_all=3) as back:
        first = await start(back, "read x", "mine")
        await start(back, "sleep 300", "mine")
        with pytest.raises(ToolError, match=r"2 are running already.*p1 \(read x\), p2"):
            await start(back, "true", "mine")
        await start(back, "sleep 300", "yours")
        with pytest.raises(ToolError, match="of other conversations"):
            await start(back, "true", "theirs")
        await first.child.input.finish()
        await over(first)
        await start(back, "true", "mine")


async def test_few_of_those_that_are_over_are_remembered(tmp_path):
    async with background(tmp_path, remembered=2) as back:
        living = await start(back, "sleep 300")
        for _ in range(4):
            await start(back, "true")
        assert [job.name for job in back.of("s1")] == [living.name, "p4", "p5"]


async def test_a_killed_host_process_is_reported_with_its_signal(tmp_path):
    async with background(tmp_path) as back:
        job = await start(back, "sleep 300")
        os.kill(job.child.pid, signal.SIGRTMIN + 3)
        await over(job)
        assert job.status.endswith(f"ended by signal {signal.SIGRTMIN + 3}")


async def test_a_child_it_leaves_behind_ends_with_it_and_that_is_told(tmp_path):
    async with background(tmp_path) as back:
        job = await start(back, "sleep 300 & echo $!")
        assert "1 process left in the background ended with it" in job.status
        assert not alive(int(job.log.news()))


@pytest.mark.parametrize("pty", [False, True])
async def test_a_flood_behind_us_leaves_us_most_of_our_time(pty, tmp_path):
    async with background(tmp_path) as back:
        await start(back, "yes", pty=pty)
        began, spent = time.monotonic(), time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - spent < 0.8 * (time.monotonic() - began)


def log(tmp_path, rendering=None, mask=str):
    return Log(Spill(tmp_path / "spill"), mask, rendering)


async def test_news_are_given_once_and_characters_stay_whole(tmp_path):
    kept = log(tmp_path)
    told = ""
    for byte in "añ漢👩 end".encode():
        await kept.feed(bytes([byte]))
        told += kept.news()
    assert (told, kept.news()) == ("añ漢👩 end", "")
    await kept.feed(b"half \xe6\xbc")
    assert kept.news() == "half "
    await kept.finish()
    assert kept.news() == "\ufffd"


async def test_news_that_are_too_long_are_cut_in_front(tmp_path):
    kept = log(tmp_path)
    await kept.feed("".join(f"line {n}\n" for n in range(5000)).encode())
    told = kept.news()
    assert told.startswith("[... ") and "characters left out, see action log" in told.partition("\n")[0]
    assert told.partition("\n")[2].startswith("line ") and told.endswith("line 4999\n")
    assert len(told) < NEWS + 100


async def test_a_flood_is_bounded_in_memory_and_whole_in_a_file(tmp_path):
    kept = log(tmp_path, mask=lambda text: text.replace("secret", "***"))
    lines = [f"line {n} secret" for n in range(60_000)]
    raw = "\n".join(lines).encode() + b"\n"
    for begin in range(0, len(raw), 10_007):
        await kept.feed(raw[begin : begin + 10_007])
        assert len(kept._ring) <= 2 * RING
    told = await kept.look(0, 2)
    head, *rest = told.split("\n")
    assert rest == ["line 59998 ***", "line 59999 ***"]
    assert head.startswith("[lines 59,999-60,000 of 60,000; the whole is in ")
    path = Path(head.partition("the whole is in ")[2].partition(",")[0])
    assert path.read_text() == raw.decode().replace("secret", "***")
    await kept.feed(b"more\n")
    await kept.finish()
    assert path.read_text().endswith("line 59999 ***\nmore\n")
    assert "characters left out" in kept.news()


async def test_lines_are_found_from_both_ends(tmp_path):
    kept = log(tmp_path)
    assert await kept.look(0, 10) == "(no output)"
    await kept.feed(b"\x1b[31m1\x1b[0m\n2\n3\n4\n5")
    assert await kept.look(0, 10) == "1\n2\n3\n4\n5"
    assert await kept.look(2, 2) == "[lines 2-3 of 5]\n2\n3"
    assert await kept.look(-2, 1) == "[lines 4-4 of 5]\n4"
    assert await kept.look(-99, 1) == "[lines 1-1 of 5]\n1"
    assert await kept.look(0, 1) == "[lines 5-5 of 5]\n5"
    with pytest.raises(ToolError, match="no line 6; it wrote 5"):
        await kept.look(6, 1)


async def test_a_look_is_never_too_long(tmp_path):
    kept = log(tmp_path)
    await kept.feed(b"x" * 40_000 + b"\n" + b"".join(b"%04d %s\n" % (n, b"y" * 100) for n in range(300)))
    last, first = await kept.look(0, 1000), await kept.look(1, 1000)
    assert len(last) < ROOM + 100 and len(first) < ROOM + 100
    assert last.endswith("0299 " + "y" * 100) and "[... 36,000 characters ...]" in first
    assert first.startswith("[lines 1-") and "of 301]" in last


async def test_of_a_screen_only_what_changed_is_news(tmp_path):
    kept = log(tmp_path, Rendering())
    await kept.feed(b"welcome\r\n>>> ")
    assert kept.news() == "welcome\n>>>"
    assert kept.news() == ""
    await kept.feed(b"1+1\r\n2\r\n>>> ")
    assert kept.news() == ">>> 1+1\n2\n>>>"
    await kept.feed(b"\r\n".join(b"row %d" % n for n in range(30)))
    told = kept.news().split("\n")
    assert (told[0], told[-1], len(told)) == (">>> row 0", "row 29", 30)
    await kept.finish()
    assert kept.news() == ""
    assert (await kept.look(0, 100)).split("\n")[:3] == ["welcome", ">>> 1+1", "2"]


async def test_a_full_screen_program_is_seen_as_it_looks(tmp_path):
    program = (
        "import curses\n"
        "def main(screen):\n"
        "    screen.border(); screen.addstr(2, 4, 'choose: '); screen.refresh()\n"
        "    key = screen.getkey(); screen.addstr(3, 4, f'you chose {key}'); screen.refresh(); screen.getkey()\n"
        "curses.wrapper(main)\n"
    )
    (tmp_path / "program.py").write_text(program)
    async with background(tmp_path) as back:
        job = await start(back, f"python3 {tmp_path}/program.py", pty=True)
        shown = job.log.news()
        while "choose:" not in shown:
            await job.settle()
            shown += job.log.news()
        assert shown.startswith("┌" + "─" * 78 + "┐\n│") and "└──" in shown
        await job.child.input.write(b"7", 1)
        while "you chose 7" not in shown:
            await job.settle()
            shown = job.log.news()
        assert shown.split("\n")[0] == "│   you chose 7".ljust(79) + "│"
        await job.child.input.write(b"q", 1)
        await over(job)
        assert "exit code 0" in job.status


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (9000, "2 h")])
def test_a_time_is_said_as_people_do(seconds, said):
    assert age(seconds) == said
