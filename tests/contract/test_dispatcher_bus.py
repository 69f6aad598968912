"""What every `Dispatcher` and `Bus` promise. Another implementation joins with one line in `STORES`."""

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial

import pytest

from alipes.kernel.errors import Held
from alipes.kernel.messages import Image, Message, Text, assistant
from alipes.kernel.turns import Address, Envelope, Inbound, Said, Stop, Take, TextDelta, TurnEnded
from alipes.store.peers import bus, peers
from alipes.store.store import open_store
from tests.world.environment import LIMIT_S

STORES = {"sqlite": open_store}
HERE, THERE = Address("cli", "here"), Address("cli", "there")
KEY = HERE.key


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Calling it opens the store of one home; twice is two processes."""
    return partial(STORES[request.param], tmp_path / "home")


class Ops:
    """An `on_op` whose calls can be awaited."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue = asyncio.Queue()

    def __call__(self, key, op) -> None:
        self.queue.put_nowait((key, op))

    async def next(self):
        return await self.queue.get()

    @property
    def none(self) -> bool:
        return self.queue.empty()


@asynccontextmanager
async def serving(store):
    """The dispatcher of `store` at work."""
    ops = Ops()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.dispatcher.run(ops))
        await asyncio.sleep(0)
        yield ops
        task.cancel()


async def hold(store, address=HERE, id="1"):
    await store.turns.accept(Inbound(id=id, address=address, sender="me", text="hello"))
    return await store.turns.next_turn(address.key)


def told(text: str, key: str = KEY) -> Envelope:
    return Envelope(key, "turn", TextDelta(text))


async def heard(iterator, count: int) -> list[str]:
    return [(await anext(iterator)).event.text for _ in range(count)]


# The dispatcher


async def test_work_nobody_holds_is_ours(opened):
    async with opened() as store, serving(store) as ops:
        await store.dispatcher.wake(KEY)
        assert await ops.next() == (KEY, Take())


async def test_work_we_hold_is_ours(opened):
    async with opened() as store, opened() as other, serving(store) as ops, serving(other) as others:
        await hold(store)
        await store.dispatcher.wake(KEY)
        assert await ops.next() == (KEY, Take())
        assert others.none


async def test_a_wake_before_we_serve_is_not_lost(opened):
    async with opened() as store:
        await store.dispatcher.wake(KEY)
        async with serving(store) as ops:
            assert await ops.next() == (KEY, Take())


async def test_work_another_holds_is_told_to_it(opened):
    async with opened() as holder, opened() as other, serving(holder) as ops, serving(other) as others:
        await hold(holder)
        await other.dispatcher.wake(KEY)
        assert await ops.next() == (KEY, Take())
        assert others.none and ops.none


async def test_work_of_one_who_left_is_ours(opened):
    async with opened() as other, serving(other) as others:
        async with opened() as holder:
            await hold(holder)
        await other.dispatcher.wake(KEY)
        assert await others.next() == (KEY, Take())


async def test_who_wakes_one_that_is_leaving_takes_the_work_when_it_has_left(opened):
    async with opened() as other, serving(other) as others, asyncio.TaskGroup() as group:
        async with opened() as holder:
            await hold(holder)
            waking = group.create_task(other.dispatcher.wake(KEY))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waking), 0.2)
        await waking
        assert await others.next() == (KEY, Take())
        assert (await other.turns.next_turn(KEY)).attempt == 2


async def test_one_that_lives_but_does_not_answer_keeps_nobody_waiting(opened):
    async with opened() as holder, opened(within=0.05) as other, serving(other) as others:
        await hold(holder)
        await other.dispatcher.wake(KEY)
        await other.dispatcher.signal(KEY, Stop())
        assert others.none
        async with serving(holder) as ops:
            assert {await ops.next(), await ops.next()} == {(KEY, Take()), (KEY, Stop())}


async def test_a_stop_reaches_the_process_that_lives_the_turn_once(opened):
    stop = Stop("user_stop", "stop_command", "the turn")
    async with opened() as holder, opened() as other, serving(holder) as ops, serving(other) as others:
        await hold(holder)
        await other.dispatcher.signal(KEY, stop)
        assert await ops.next() == (KEY, stop)
        assert others.none and ops.none
        assert await holder.turns.drain_control(KEY) == ()


async def test_a_stop_reaches_our_own_turn(opened):
    async with opened() as store, serving(store) as ops:
        await hold(store)
        await store.dispatcher.signal(KEY, Stop())
        assert await ops.next() == (KEY, Stop())


async def test_a_stop_for_an_idle_session_is_heard_where_it_was_said(opened):
    async with opened() as store, serving(store) as ops:
        await store.dispatcher.signal(KEY, Stop())
        assert await ops.next() == (KEY, Stop())


async def test_a_stop_before_the_turn_is_claimed_waits_for_whoever_claims_it(opened):
    async with opened() as store, opened() as other, serving(other) as others:
        await store.turns.accept(Inbound(id="1", address=HERE, sender="me", text="hello"))
        await other.dispatcher.signal(KEY, Stop())
        assert await others.next() == (KEY, Take())
        await store.turns.next_turn(KEY)
        assert await store.turns.drain_control(KEY) == (Stop(),)
        with pytest.raises(Held):
            await other.turns.next_turn(KEY)


async def test_a_stop_said_by_one_that_does_not_serve_stays_for_the_holder(opened):
    async with opened() as holder:
        await hold(holder)
        await holder.dispatcher.signal(KEY, Stop())
        assert await holder.turns.drain_control(KEY) == (Stop(),)


async def test_stops_from_everywhere_arrive_in_the_order_of_the_store(opened):
    async with opened() as holder, opened() as a, opened() as b, serving(holder) as ops:
        await hold(holder)
        stops = [Stop("user_stop", f"number {n}") for n in range(20)]
        for n, stop in enumerate(stops):
            await (a, b, holder)[n % 3].dispatcher.signal(KEY, stop)
        assert [await ops.next() for _ in stops] == [(KEY, stop) for stop in stops]


# The bus


async def test_a_subscriber_hears_its_key_in_order_and_nothing_else(opened):
    async with opened() as store, store.bus.subscribe(KEY) as events:
        for envelope in (told("a"), told("x", THERE.key), told("b")):
            store.bus.publish(envelope)
        assert await heard(events, 2) == ["a", "b"]


async def test_every_subscriber_hears_it(opened):
    async with opened() as store, store.bus.subscribe(KEY) as one, store.bus.subscribe(KEY) as two:
        store.bus.publish(told("a"))
        assert (await heard(one, 1), await heard(two, 1)) == (["a"], ["a"])


async def test_what_nobody_listens_to_goes_nowhere(opened):
    async with opened() as store:
        store.bus.publish(told("lost"))
        async with store.bus.subscribe(KEY) as events:
            store.bus.publish(told("heard"))
            assert await heard(events, 1) == ["heard"]


async def test_one_can_know_whether_anybody_listens_here_or_elsewhere(opened):
    async with opened() as store, opened() as other:
        assert not store.bus.heard(HERE.key)
        async with store.bus.subscribe(HERE.key):
            assert store.bus.heard(HERE.key) and not store.bus.heard("another")
        assert not store.bus.heard(HERE.key)
        async with other.bus.subscribe(HERE.key):
            assert store.bus.heard(HERE.key)
        while store.bus.heard(HERE.key):
            await asyncio.sleep(0.005)


async def test_another_process_that_holds_the_session_is_heard(opened):
    everything = Said(Message("assistant", (Text("é\n\0" * 9), Image("image/png", os.urandom(3_000_000)))))
    async with opened() as holder, opened() as watcher:
        await hold(holder)
        async with watcher.bus.subscribe(KEY) as events:
            holder.bus.publish(told("a"))
            holder.bus.publish(told("x", THERE.key))
            holder.bus.publish(Envelope(KEY, "turn", everything))
            assert await heard(events, 1) == ["a"]
            assert (await anext(events)).event == everything


async def test_a_process_that_comes_later_and_takes_the_session_is_heard(opened):
    async with opened() as watcher, watcher.bus.subscribe(KEY) as events:
        async with opened() as late:
            await hold(late)
            late.bus.publish(told("here I am"))
            assert await heard(events, 1) == ["here I am"]


async def test_a_process_that_was_there_and_takes_the_session_later_is_heard(opened):
    async with opened() as watcher, opened() as late, watcher.bus.subscribe(KEY) as events:
        await hold(late)
        late.bus.publish(told("now it is mine"))
        assert await heard(events, 1) == ["now it is mine"]


async def test_the_iterator_ends_with_the_process_that_published(opened):
    async with opened() as watcher, watcher.bus.subscribe(KEY) as events:
        async with opened() as holder:
            await hold(holder)
            holder.bus.publish(told("last words"))
            assert await heard(events, 1) == ["last words"]
        assert [event async for event in events] == []
        assert await watcher.turns.orphans() == (KEY,)


async def test_the_iterator_ends_when_the_holder_goes_before_it_said_a_word(opened):
    async with opened() as watcher, opened() as bystander, watcher.bus.subscribe(KEY) as events:
        async with opened() as holder:
            await hold(holder)
        assert [event async for event in events] == []
        assert bystander.host != watcher.host


async def test_the_iterator_outlives_a_process_that_had_nothing_to_do_with_it(opened):
    async with opened() as watcher, opened() as holder:
        await hold(holder)
        async with watcher.bus.subscribe(KEY) as events, watcher.bus.subscribe(THERE.key) as others:
            async with opened() as visitor:
                await hold(visitor, THERE, "2")
                visitor.bus.publish(told("bye", THERE.key))
                assert await heard(others, 1) == ["bye"]
            assert [event async for event in others] == []
            holder.bus.publish(told("still here"))
            assert await heard(events, 1) == ["still here"]


async def test_our_own_subscribers_are_told_when_the_store_closes(opened):
    async with opened() as store:
        events = await (subscribing := store.bus.subscribe(KEY)).__aenter__()
        store.bus.publish(told("a"))
    assert [event.event.text async for event in events] == ["a"]
    await subscribing.__aexit__(None, None, None)


async def test_a_slow_reader_loses_the_oldest_and_can_know_it(opened):
    async with opened() as store, store.bus.subscribe(KEY) as events:
        for n in range(bus.BACKLOG + 10):
            store.bus.publish(told(str(n)))
        assert events.missed == 10
        assert await heard(events, 1) == ["10"]


@pytest.mark.deadline(60)
async def test_a_reader_elsewhere_that_is_slow_still_hears_the_end(opened):
    async with opened() as holder, opened() as watcher:
        turn = await hold(holder)
        async with watcher.bus.subscribe(KEY) as events:
            for n in range(3 * bus.BACKLOG):
                holder.bus.publish(told(f"{n} " + "x" * 500))
            holder.bus.publish(Envelope(KEY, turn.id, TurnEnded(turn.id, "answered")))
            count = 0
            while not isinstance((await anext(events)).event, TurnEnded):
                count += 1
            assert 0 < count < 3 * bus.BACKLOG
            assert events.missed >= 3 * bus.BACKLOG - count


async def test_a_stream_keeps_its_order_and_all_its_pieces_when_read_in_time(opened):
    async with opened() as holder, opened() as watcher, watcher.bus.subscribe(KEY) as events:
        await hold(holder)
        for start in range(0, 5000, 500):
            for n in range(start, start + 500):
                holder.bus.publish(told(str(n)))
            assert await heard(events, 500) == [str(n) for n in range(start, start + 500)]
        assert events.missed == 0


async def test_listening_ends_with_the_last_who_listens_and_leaves_no_connection(opened):
    async with opened() as holder, opened() as watcher:
        await hold(holder)
        idle = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            async with watcher.bus.subscribe(KEY) as events:
                async with watcher.bus.subscribe(KEY) as more, watcher.bus.subscribe(THERE.key):
                    holder.bus.publish(told("a"))
                    assert (await heard(events, 1), await heard(more, 1)) == (["a"], ["a"])
                holder.bus.publish(told("b"))
                assert await heard(events, 1) == ["b"]
        async with asyncio.timeout(LIMIT_S):
            while len(os.listdir("/proc/self/fd")) > idle or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)


async def test_a_hundred_keys_share_one_connection(opened):
    async with opened() as holder, opened() as watcher:
        await hold(holder)  # by then they know each other
        await hold(watcher, THERE, "2")
        idle = len(os.listdir("/proc/self/fd"))
        async with asyncio.TaskGroup() as group:
            ready, done = asyncio.Barrier(101), asyncio.Event()

            async def watch(key):
                async with watcher.bus.subscribe(key) as events:
                    await ready.wait()
                    assert await heard(events, 1) == [key]
                    await done.wait()

            for n in range(100):
                group.create_task(watch(str(n)))
            await ready.wait()
            assert len(os.listdir("/proc/self/fd")) <= idle + 2
            for n in range(100):
                holder.bus.publish(told(str(n), str(n)))
            done.set()


async def test_nonsense_on_the_socket_disturbs_nobody(opened, tmp_path):
    async with opened() as store:
        (path,) = (tmp_path / "home" / "run").glob("*.sock")
        for line in (b"\xff\xfe\n", b"{}\n", b'{"type":"wake"}\n', b'{"type":"boo"}\n', b"half a li"):
            async with peers.connected(str(path)) as (reader, writer):
                writer.write(line)
                writer.write_eof()
                assert await reader.read() == b""
        async with store.bus.subscribe(KEY) as events:
            store.bus.publish(told("fine"))
            assert await heard(events, 1) == ["fine"]


async def test_what_fails_inside_an_open_store_comes_out_as_it_is(opened):
    with pytest.raises(KeyError, match="mine"):
        async with opened() as store, store.bus.subscribe(KEY):
            raise KeyError("mine")
    assert len(asyncio.all_tasks()) == 1


async def test_a_store_that_is_cancelled_closes_and_says_so(opened, tmp_path):
    async def live():
        async with opened() as store, store.bus.subscribe(KEY) as events:
            await hold(store)
            open_now.set()
            await anext(events)

    open_now = asyncio.Event()
    task = asyncio.create_task(live())
    await open_now.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list((tmp_path / "home" / "run").iterdir()) == []
    assert len(asyncio.all_tasks()) == 1


async def test_an_answer_from_elsewhere_is_complete(opened):
    async with opened() as holder, opened() as watcher, watcher.bus.subscribe(KEY) as events:
        turn = await hold(holder)
        shown = Said(assistant(Text("42")))
        await holder.turns.record(turn, shown)
        holder.bus.publish(Envelope(KEY, turn.id, shown))
        assert await anext(events) == Envelope(KEY, turn.id, shown)
