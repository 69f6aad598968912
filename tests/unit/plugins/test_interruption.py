"""What a plugin holds the loop with is broken off: in its own code, in no other, and whatever it does about it."""

import asyncio
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from alipes.kernel.errors import PluginError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Notice, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks, guard
from alipes.plugins.interruption.attribution import call_as, on_behalf_of, run_as, track_tasks
from alipes.plugins.owner import CORE, PluginOwner
from alipes.plugins.specs import Verdict
from alipes.runtime.watchdog import INTERRUPT_SIGNAL, LOOP_ACTIVITY, LoopActivity, LoopBlockInterrupted, Watchdog

TURN = Turn("t", "s", Inbound("1", Address("test", "me"), "me", "hi"))
CALL = ToolCall("c", "terminal", {})
END = {"turn": TURN, "ending": "answered", "detail": "", "said": (), "usage": None}
STOP = {
    "turn": TURN,
    "session_key": TURN.key,
    "session_id": "s",
    "turn_id": "t",
    "platform": "test",
    "reason": "user_stop",
    "invalidation_reason": "stop_command",
    "tool_call_ids": (),
    "partial_text": "",
}
LIMIT = 0.1
FOREVER = 60


class House:
    """A relay whose loop is watched, and what it reported."""

    def __init__(self, *hooks, name: str = "on_event", limit: float = LIMIT) -> None:
        self.words: list[str] = []
        self.watch = LoopActivity(limit=limit)
        self.hooks = Hooks(report=lambda words, _: self.words.append(words), watch=self.watch)
        self.owners = [PluginOwner(f"plugin{n}") for n in range(len(hooks))]
        for owner, hook in zip(self.owners, hooks, strict=True):
            self.hooks.add(owner, hook, name=name)

    async def tell(self) -> float:
        """Seconds it took."""
        began = time.monotonic()
        await self.hooks.dispatcher.notify(specs.on_event, event=Notice("x"), turn=TURN)
        return time.monotonic() - began


def sleeps() -> None:
    time.sleep(FOREVER)


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def waits_for_an_event() -> None:
    threading.Event().wait()


def waits_in_a_queue() -> None:
    queue.Queue().get()


def loops() -> None:
    while True:
        pass


def calls_in_a_loop() -> None:
    while True:
        len("x")


def receives() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


def selects() -> None:
    select.select([], [], [], FOREVER)


def waits_for_a_child() -> None:
    child = subprocess.Popen(["sleep", str(FOREVER)])
    try:
        child.wait()
    finally:
        child.kill()
        child.wait()


def keeps_it_to_itself() -> None:
    while True:
        try:
            time.sleep(FOREVER)
        except BaseException:
            continue


def keeps_it_in_two_ways() -> None:
    while True:
        try:
            keeps_it_to_itself()
        except BaseException:
            len("once more")


HANGS = [
    sleeps,
    waits_for_a_lock,
    waits_for_an_event,
    waits_in_a_queue,
    loops,
    calls_in_a_loop,
    receives,
    selects,
    waits_for_a_child,
    keeps_it_to_itself,
    keeps_it_in_two_ways,
]


@pytest.mark.parametrize("hang", HANGS)
async def test_a_hook_that_never_returns_is_broken_off_and_named_with_its_place(hang):
    def plain(event):
        hang()

    async def at_once(event):
        hang()

    async def later(event):
        await asyncio.sleep(0)
        hang()

    heard = []
    house = House(plain, at_once, later, lambda event: heard.append(event))
    async with Watchdog(house.watch):
        assert await house.tell() < FOREVER / 2
    assert [owner.strikes for owner in house.owners] == [1, 1, 1, 0] and len(heard) == 1
    for n, words in enumerate(house.words):
        assert f"plugin{n} failed in on_event: blocked the event loop for 0." in words
        assert "test_interruption.py" in words, "the place is reported"
    assert house.watch.deed is None and house.watch.hit is None


@pytest.mark.deadline(30)
async def test_what_lets_no_thread_run_is_broken_off_by_the_kernels_clock():
    def on_event(event):
        re.match(r"(a+)+$", "a" * 60 + "b")

    house = House(on_event)
    async with Watchdog(house.watch):
        await house.tell()
    assert house.owners[0].strikes == 1 and "interrupted at" in house.words[0]


async def test_a_gate_that_never_returns_is_closed():
    async def before_tool(call):
        time.sleep(FOREVER)

    house = House(before_tool, name="before_tool")
    async with Watchdog(house.watch):
        verdict = await house.hooks.dispatcher.decide(
            specs.before_tool, lambda why: Verdict("deny", why), call=CALL, turn=TURN
        )
    assert verdict is not None and verdict.ruling == "deny"
    assert "plugin0 failed in before_tool: blocked the event loop" in verdict.reason


async def test_a_plain_hook_leaves_the_loop_afterwards_and_an_async_one_is_off_the_third_time():
    threads = []

    def plain(event):
        threads.append(threading.current_thread())
        if len(threads) == 1:
            time.sleep(FOREVER)

    async def later(event):
        await asyncio.sleep(0)
        time.sleep(FOREVER)

    house = House(plain, later)
    async with Watchdog(house.watch):
        for _ in range(4):
            await house.tell()
    assert [each is threading.main_thread() for each in threads] == [True, False, False, False]
    assert [(owner.strikes, list(owner.silenced)) for owner in house.owners] == [(1, []), (3, ["on_event"])]
    assert "is off after 3 failures" in house.words[-1]


async def test_others_have_their_turn_between_two_that_hold_the_loop():
    def hang():
        time.sleep(FOREVER)

    house = House(hang, hang, hang)
    beats = []

    async def beat() -> None:
        while True:
            beats.append(house.owners[0].strikes + house.owners[1].strikes + house.owners[2].strikes)
            await asyncio.sleep(0)

    async with Watchdog(house.watch), asyncio.TaskGroup() as group:
        beating = group.create_task(beat())
        await house.tell()
        beating.cancel()
    assert {1, 2} <= set(beats)


@pytest.mark.parametrize("spec", [specs.agent_loop_stopped, specs.turn_ended])
async def test_those_behind_one_that_holds_the_loop_begin_before_the_loop_continues(spec):
    order = []

    def hang():
        order.append("blocked")
        time.sleep(FOREVER)

    async def good():
        order.append("good")

    house = House(hang, good, name=spec.__name__)
    async with Watchdog(house.watch):
        asyncio.get_running_loop().call_soon(order.append, "loop")
        await house.hooks.dispatcher.notify(spec, **(END if spec is specs.turn_ended else STOP))
    assert order == ["blocked", "good", "loop"]
    assert [owner.strikes for owner in house.owners] == [1, 0]


async def test_ten_that_hold_the_loop_at_a_stop_share_the_time_of_one():
    limits = []

    def hang():
        began = house.watch.clock()
        try:
            time.sleep(FOREVER)
        finally:
            limits.append((house.watch.deed.patience, house.watch.clock() - began))

    house = House(*[hang] * 10, name="agent_loop_stopped", limit=1.0)
    async with Watchdog(house.watch):
        await house.hooks.dispatcher.notify(specs.agent_loop_stopped, **STOP)
        first, *others = [limit for limit, _ in limits]
        assert first == house.watch.patience and sum(others) < 0.05
        assert sorted(took for _, took in limits)[-2] < first, "the watchdog notices the short limits too"
        assert [owner.strikes for owner in house.owners] == [1] * 10
        limits.clear()
        entries = house.hooks.dispatcher._entries["agent_loop_stopped"]
        assert [entry.off_loop for entry in entries] == [True] + [False] * 9, "they were given less time"


async def test_behind_one_that_spins_the_watchdog_gets_the_interpreter_sooner():
    intervals, usual = [], sys.getswitchinterval()

    def hang():
        intervals.append(sys.getswitchinterval())
        while True:
            pass

    house = House(*[hang] * 3, name="agent_loop_stopped")
    async with Watchdog(house.watch):
        await house.hooks.dispatcher.notify(specs.agent_loop_stopped, **STOP)
    assert intervals[0] == usual == sys.getswitchinterval() and max(intervals[1:]) < usual / 5


async def test_one_that_keeps_it_to_itself_and_returns_has_its_strike_too():
    def on_event(event):
        try:
            time.sleep(FOREVER)
        except BaseException:
            return

    house = House(on_event)
    async with Watchdog(house.watch):
        await house.tell()
    assert house.owners[0].strikes == 1 and "blocked the event loop for 0." in house.words[0]


async def test_an_except_clause_for_errors_does_not_see_it_and_a_finally_does():
    seen = []

    def on_event(event):
        try:
            time.sleep(FOREVER)
        except Exception:
            seen.append("error")
        finally:
            seen.append("finally")

    house = House(on_event)
    async with Watchdog(house.watch):
        await house.tell()
    assert seen == ["finally"] and not issubclass(LoopBlockInterrupted, Exception)


@pytest.mark.parametrize("module", ["alipes.pretended", "pdb"])
async def test_our_own_code_and_a_debugger_are_never_broken_off_by_any_caller(module):
    ours = {"__name__": module, "time": time}
    exec("def rests(seconds):\n    time.sleep(seconds)\n    return 'whole'", ours)
    got = []

    def calls_us(event):
        got.append(ours["rests"](LIMIT * 4))

    def of_the_core(event):
        time.sleep(LIMIT * 4)
        got.append("core")

    house = House(calls_us)
    house.hooks.add(CORE, of_the_core, name="on_event")
    async with Watchdog(house.watch):
        await house.tell()
    assert got == ["whole", "core"]
    assert "blocked the event loop" in house.words[0], "it is named, and has its strike, as ever"


async def test_an_import_is_not_cut_in_two(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(f"import time\ntime.sleep({LIMIT * 4})\nDONE = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def on_event(event):
        __import__("slow_to_import")

    house = House(on_event)
    async with Watchdog(house.watch):
        await house.tell()
    assert sys.modules.pop("slow_to_import").DONE and "interrupted" not in "".join(house.words)


async def test_who_was_meant_is_hit_and_nobody_who_comes_after():
    """Deeds that end about when they would be broken off: each completes or fails, and alipes stays intact."""
    done = []

    def on_event(event):
        time.sleep(0.0075)
        done.append(1)

    house, rounds = House(on_event, limit=0.01), 150
    entry = house.hooks.dispatcher._entries["on_event"][0]
    async with Watchdog(house.watch):
        for _ in range(rounds):
            entry.off_loop = False
            house.owners[0].forgive()
            await house.tell()
            assert house.watch.deed is None
    failed = sum("interrupted at" in words for words in house.words)
    assert failed + len(done) >= rounds, "what was hit after its work was done counts for both"


async def test_a_tool_that_holds_the_loop_fails_and_is_a_strike():
    owner = PluginOwner("heavy")

    async def works():
        time.sleep(FOREVER)

    async with Watchdog():
        with pytest.raises(PluginError, match=r"the tool x: blocked the event loop for 1.*interrupted at"):
            await run_as(owner, "the tool x", works())
    assert owner.strikes == 1 and LOOP_ACTIVITY.deed is None


async def test_a_plain_call_that_holds_the_loop_fails_and_is_a_strike():
    owner = PluginOwner("heavy")
    async with Watchdog():
        with pytest.raises(PluginError, match=r"lines\.pieces: blocked the event loop"):
            call_as(owner, "lines.pieces", sleeps)
        assert call_as(owner, "lines.pieces", lambda: 3) == 3
    assert owner.strikes == 1 and LOOP_ACTIVITY.deed is None


async def test_a_command_that_holds_the_loop_fails_and_is_a_strike():
    owner = PluginOwner("heavy")

    async def works():
        await asyncio.sleep(0)
        time.sleep(FOREVER)

    async with Watchdog():
        with pytest.raises(PluginError, match="blocked the event loop"):
            await guard(owner, "/x", works(), max_block=0.1)
    assert owner.strikes == 1


async def test_a_task_of_a_plugin_that_holds_the_loop_ends_and_is_a_strike():
    owner = PluginOwner("heavy")

    async def works():
        time.sleep(FOREVER)

    async with Watchdog(), track_tasks(owner):
        with on_behalf_of(owner):
            task = asyncio.create_task(works())
        await asyncio.wait({task})
        assert isinstance(task.exception(), LoopBlockInterrupted) and owner.strikes == 1


async def test_a_knock_that_comes_late_is_nothing_and_all_is_put_back_at_the_end():
    before = signal.getsignal(INTERRUPT_SIGNAL), signal.getsignal(signal.SIGVTALRM)
    house = House(lambda event: None)
    async with Watchdog(house.watch):
        await house.tell()
        for _ in range(3):
            signal.pthread_kill(threading.get_ident(), INTERRUPT_SIGNAL)
            await asyncio.sleep(0)
        signal.raise_signal(signal.SIGVTALRM)
    assert (signal.getsignal(INTERRUPT_SIGNAL), signal.getsignal(signal.SIGVTALRM)) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_a_loop_on_another_thread_is_left_as_it_is():
    before, seen = signal.getsignal(INTERRUPT_SIGNAL), []

    def runs() -> None:
        async def main() -> None:
            house = House(lambda event: time.sleep(LIMIT * 3))
            async with Watchdog(house.watch):
                await house.tell()
            seen.extend(house.words)

        asyncio.run(main())

    thread = threading.Thread(target=runs)
    thread.start()
    thread.join()
    assert signal.getsignal(INTERRUPT_SIGNAL) == before and "blocked the event loop" in seen[0]
