"""Contract of every dispatcher and bus."""

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.errors import SessionHeld
from alipes.kernel.messages import Image, Message, Text, assistant
from alipes.kernel.turns import Address, Envelope, Inbound, Said, Stop, TextDelta, TurnEnded, Wake
from alipes.runtime.subscription import MAX_BACKLOG
from alipes.store.sqlite import peers
from tests.world.environment import LIMIT_S

HERE, THERE = Address("cli", "here"), Address("cli", "there")
KEY = HERE.key


class Ops:
    """An `on_op` whose calls can be awaited."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue = asyncio.Queue()

    def __call__(self, key, op) -> None:
        self.queue.put_nowait((key, op))

    async def next(self):
        return await self.queue.get()

    @property
    def is_empty(self) -> bool:
        return self.queue.empty()


@asynccontextmanager
async def run_dispatcher(store):
    """Run the dispatcher of `store` inside the context."""
    ops = Ops()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.dispatcher.run(ops))
        await asyncio.sleep(0)
        yield ops
        task.cancel()


async def claim_session(store, address=HERE, id="1"):
    await store.turns.accept(Inbound(id=id, address=address, sender="me", text="hello"))
    return await store.turns.claim_next(address.key)


def make_event(text: str, key: str = KEY) -> Envelope:
    return Envelope(key, "turn", TextDelta(text))


async def read_texts(iterator, count: int) -> list[str]:
    return [(await anext(iterator)).event.text for _ in range(count)]


# The dispatcher


async def test_a_wake_for_a_free_session_is_ours(opened):
    async with opened() as store, run_dispatcher(store) as ops:
        await store.dispatcher.wake(KEY)
        assert await ops.next() == (KEY, Wake())


async def test_a_wake_for_our_session_is_ours(opened):
    async with opened() as store, opened() as other, run_dispatcher(store) as ops, run_dispatcher(other) as others:
        await claim_session(store)
        await store.dispatcher.wake(KEY)
        assert await ops.next() == (KEY, Wake())
        assert others.is_empty


async def test_a_wake_before_run_is_not_lost(opened):
    async with opened() as store:
        await store.dispatcher.wake(KEY)
        async with run_dispatcher(store) as ops:
            assert await ops.next() == (KEY, Wake())


async def test_a_session_held_by_another_process_wakes_that_process(opened):
    async with opened() as holder, opened() as other, run_dispatcher(holder) as ops, run_dispatcher(other) as others:
        await claim_session(holder)
        await other.dispatcher.wake(KEY)
        assert await ops.next() == (KEY, Wake())
        assert others.is_empty and ops.is_empty


async def test_a_session_of_an_exited_process_is_ours(opened):
    async with opened() as other, run_dispatcher(other) as others:
        async with opened() as holder:
            await claim_session(holder)
        await other.dispatcher.wake(KEY)
        assert await others.next() == (KEY, Wake())


async def test_waking_a_process_that_exits_takes_over_its_session(opened):
    async with opened() as other, run_dispatcher(other) as others, asyncio.TaskGroup() as group:
        async with opened() as holder:
            await claim_session(holder)
            waking = group.create_task(other.dispatcher.wake(KEY))
            await asyncio.wait((waking,), timeout=0.2)  # SQLite waits for the answer of the other process
            assert others.is_empty
        await waking
        assert await others.next() == (KEY, Wake())
        assert (await other.turns.claim_next(KEY)).attempt == 2


async def test_a_process_that_does_not_answer_blocks_nobody(opened):
    async with opened() as holder, opened(peer_timeout_s=0.05) as other, run_dispatcher(other) as others:
        await claim_session(holder)
        await other.dispatcher.wake(KEY)
        await other.dispatcher.signal(KEY, Stop())
        assert others.is_empty
        async with run_dispatcher(holder) as ops:
            assert {await ops.next(), await ops.next()} == {(KEY, Wake()), (KEY, Stop())}


async def test_a_stop_reaches_the_process_that_runs_the_turn_once(opened):
    stop = Stop("user_stop", "stop_command", "the turn")
    async with opened() as holder, opened() as other, run_dispatcher(holder) as ops, run_dispatcher(other) as others:
        await claim_session(holder)
        await other.dispatcher.signal(KEY, stop)
        assert await ops.next() == (KEY, stop)
        assert others.is_empty and ops.is_empty
        assert await holder.turns.take_ops(KEY) == ()


async def test_a_stop_reaches_our_own_turn(opened):
    async with opened() as store, run_dispatcher(store) as ops:
        await claim_session(store)
        await store.dispatcher.signal(KEY, Stop())
        assert await ops.next() == (KEY, Stop())


async def test_a_stop_for_an_idle_session_is_delivered_locally(opened):
    async with opened() as store, run_dispatcher(store) as ops:
        await store.dispatcher.signal(KEY, Stop())
        assert await ops.next() == (KEY, Stop())


async def test_a_stop_before_the_turn_is_claimed_reaches_the_process_that_claims_it(opened):
    async with opened() as store, opened() as other, run_dispatcher(other) as others:
        await store.turns.accept(Inbound(id="1", address=HERE, sender="me", text="hello"))
        await other.dispatcher.signal(KEY, Stop())
        assert await others.next() == (KEY, Wake())
        await store.turns.claim_next(KEY)
        assert await store.turns.take_ops(KEY) == (Stop(),)
        with pytest.raises(SessionHeld):
            await other.turns.claim_next(KEY)


async def test_a_stop_from_a_process_without_a_dispatcher_stays_in_the_store(opened):
    async with opened() as holder:
        await claim_session(holder)
        await holder.dispatcher.signal(KEY, Stop())
        assert await holder.turns.take_ops(KEY) == (Stop(),)


async def test_stops_of_several_processes_arrive_in_the_order_of_the_store(opened):
    async with opened() as holder, opened() as a, opened() as b, run_dispatcher(holder) as ops:
        await claim_session(holder)
        stops = [Stop("user_stop", f"number {n}") for n in range(20)]
        for n, stop in enumerate(stops):
            await (a, b, holder)[n % 3].dispatcher.signal(KEY, stop)
        assert [await ops.next() for _ in stops] == [(KEY, stop) for stop in stops]


# The bus


async def test_a_subscriber_gets_the_events_of_its_key_in_order(opened):
    async with opened() as store, store.bus.subscribe(KEY) as events:
        for envelope in (make_event("a"), make_event("x", THERE.key), make_event("b")):
            store.bus.publish(envelope)
        assert await read_texts(events, 2) == ["a", "b"]


async def test_every_subscriber_gets_an_event(opened):
    async with opened() as store, store.bus.subscribe(KEY) as one, store.bus.subscribe(KEY) as two:
        store.bus.publish(make_event("a"))
        assert (await read_texts(one, 1), await read_texts(two, 1)) == (["a"], ["a"])


async def test_events_without_a_subscriber_are_dropped(opened):
    async with opened() as store:
        store.bus.publish(make_event("lost"))
        async with store.bus.subscribe(KEY) as events:
            store.bus.publish(make_event("heard"))
            assert await read_texts(events, 1) == ["heard"]


async def test_has_subscribers_counts_those_of_other_processes(opened):
    async with opened() as store, opened() as other:
        assert not store.bus.has_subscribers(HERE.key)
        async with store.bus.subscribe(HERE.key):
            assert store.bus.has_subscribers(HERE.key) and not store.bus.has_subscribers("another")
        assert not store.bus.has_subscribers(HERE.key)
        async with other.bus.subscribe(HERE.key):
            assert store.bus.has_subscribers(HERE.key)
        while store.bus.has_subscribers(HERE.key):
            await asyncio.sleep(0.005)


async def test_events_of_another_process_arrive(opened):
    everything = Said(Message("assistant", (Text("é\n\0" * 9), Image("image/png", os.urandom(3_000_000)))))
    async with opened() as holder, opened() as watcher:
        await claim_session(holder)
        async with watcher.bus.subscribe(KEY) as events:
            holder.bus.publish(make_event("a"))
            holder.bus.publish(make_event("x", THERE.key))
            holder.bus.publish(Envelope(KEY, "turn", everything))
            assert await read_texts(events, 1) == ["a"]
            assert (await anext(events)).event == everything


async def test_events_of_a_process_that_starts_later_arrive(opened):
    async with opened() as watcher, watcher.bus.subscribe(KEY) as events:
        async with opened() as late:
            await claim_session(late)
            late.bus.publish(make_event("here I am"))
            assert await read_texts(events, 1) == ["here I am"]


async def test_events_of_a_process_that_claims_later_arrive(opened):
    async with opened() as watcher, opened() as late, watcher.bus.subscribe(KEY) as events:
        await claim_session(late)
        late.bus.publish(make_event("now it is mine"))
        assert await read_texts(events, 1) == ["now it is mine"]


async def test_the_iterator_ends_with_the_process_that_published(opened):
    async with opened() as watcher, watcher.bus.subscribe(KEY) as events:
        async with opened() as holder:
            await claim_session(holder)
            holder.bus.publish(make_event("last words"))
            assert await read_texts(events, 1) == ["last words"]
        assert [event async for event in events] == []
        assert await watcher.turns.list_orphans() == (KEY,)


async def test_the_iterator_ends_when_the_holder_exits_without_an_event(opened):
    async with opened() as watcher, opened() as bystander, watcher.bus.subscribe(KEY) as events:
        async with opened() as holder:
            await claim_session(holder)
        assert [event async for event in events] == []
        assert bystander.host != watcher.host


async def test_the_iterator_survives_the_exit_of_an_unrelated_process(opened):
    async with opened() as watcher, opened() as holder:
        await claim_session(holder)
        async with watcher.bus.subscribe(KEY) as events, watcher.bus.subscribe(THERE.key) as others:
            async with opened() as visitor:
                await claim_session(visitor, THERE, "2")
                visitor.bus.publish(make_event("bye", THERE.key))
                assert await read_texts(others, 1) == ["bye"]
            assert [event async for event in others] == []
            holder.bus.publish(make_event("still here"))
            assert await read_texts(events, 1) == ["still here"]


async def test_local_subscribers_are_notified_when_the_store_closes(opened):
    async with opened() as store:
        events = await (subscribing := store.bus.subscribe(KEY)).__aenter__()
        store.bus.publish(make_event("a"))
    assert [event.event.text async for event in events] == ["a"]
    await subscribing.__aexit__(None, None, None)


async def test_a_slow_reader_loses_the_oldest_events_and_their_count_is_known(opened):
    async with opened() as store, store.bus.subscribe(KEY) as events:
        for n in range(MAX_BACKLOG + 10):
            store.bus.publish(make_event(str(n)))
        assert events.missed == 10
        assert await read_texts(events, 1) == ["10"]


@pytest.mark.deadline(60)
async def test_a_slow_reader_in_another_process_still_gets_the_ending(opened):
    async with opened() as holder, opened() as watcher:
        turn = await claim_session(holder)
        async with watcher.bus.subscribe(KEY) as events:
            for n in range(3 * MAX_BACKLOG):
                holder.bus.publish(make_event(f"{n} " + "x" * 500))
            holder.bus.publish(Envelope(KEY, turn.id, TurnEnded(turn.id, "answered")))
            count = 0
            while not isinstance((await anext(events)).event, TurnEnded):
                count += 1
            assert 0 < count < 3 * MAX_BACKLOG
            assert events.missed >= 3 * MAX_BACKLOG - count


async def test_a_stream_read_in_time_is_complete_and_in_order(opened):
    async with opened() as holder, opened() as watcher, watcher.bus.subscribe(KEY) as events:
        await claim_session(holder)
        for start in range(0, 5000, 500):
            for n in range(start, start + 500):
                holder.bus.publish(make_event(str(n)))
            assert await read_texts(events, 500) == [str(n) for n in range(start, start + 500)]
        assert events.missed == 0


async def test_the_last_unsubscribe_closes_the_connection(opened_sqlite):
    async with opened_sqlite() as holder, opened_sqlite() as watcher:
        await claim_session(holder)
        idle = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            async with watcher.bus.subscribe(KEY) as events:
                async with watcher.bus.subscribe(KEY) as more, watcher.bus.subscribe(THERE.key):
                    holder.bus.publish(make_event("a"))
                    assert (await read_texts(events, 1), await read_texts(more, 1)) == (["a"], ["a"])
                holder.bus.publish(make_event("b"))
                assert await read_texts(events, 1) == ["b"]
        async with asyncio.timeout(LIMIT_S):
            while len(os.listdir("/proc/self/fd")) > idle or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)


async def test_a_hundred_keys_share_one_connection(opened):
    async with opened() as holder, opened() as watcher:
        await claim_session(holder)  # by then they know each other
        await claim_session(watcher, THERE, "2")
        idle = len(os.listdir("/proc/self/fd"))
        async with asyncio.TaskGroup() as group:
            ready, done = asyncio.Barrier(101), asyncio.Event()

            async def watch(key):
                async with watcher.bus.subscribe(key) as events:
                    await ready.wait()
                    assert await read_texts(events, 1) == [key]
                    await done.wait()

            for n in range(100):
                group.create_task(watch(str(n)))
            await ready.wait()
            assert len(os.listdir("/proc/self/fd")) <= idle + 2
            for n in range(100):
                holder.bus.publish(make_event(str(n), str(n)))
            done.set()


async def test_invalid_lines_on_the_socket_do_no_harm(opened_sqlite, tmp_path):
    async with opened_sqlite() as store:
        (path,) = (tmp_path / "home" / "run").glob("*.sock")
        for line in (b"\xff\xfe\n", b"{}\n", b'{"type":"wake"}\n', b'{"type":"boo"}\n', b"half a li"):
            async with peers.open_connection(str(path)) as (reader, writer):
                writer.write(line)
                writer.write_eof()
                assert await reader.read() == b""
        async with store.bus.subscribe(KEY) as events:
            store.bus.publish(make_event("fine"))
            assert await read_texts(events, 1) == ["fine"]


async def test_an_error_inside_an_open_store_is_raised_as_it_is(opened):
    with pytest.raises(KeyError, match="mine"):
        async with opened() as store, store.bus.subscribe(KEY):
            raise KeyError("mine")
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancelled_store_closes_and_raises_the_cancellation(opened, tmp_path):
    async def live(opening):
        async with opening as store, store.bus.subscribe(KEY) as events:
            await claim_session(store)
            open_now.set()
            await anext(events)

    open_now = asyncio.Event()
    opening = opened()  # skips the test without PostgreSQL
    task = asyncio.create_task(live(opening))
    await open_now.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list((tmp_path / "home" / "run").glob("*")) == []
    assert len(asyncio.all_tasks()) == 1


async def test_an_answer_of_another_process_is_complete(opened):
    async with opened() as holder, opened() as watcher, watcher.bus.subscribe(KEY) as events:
        turn = await claim_session(holder)
        shown = Said(assistant(Text("42")))
        await holder.turns.record(turn, shown)
        holder.bus.publish(Envelope(KEY, turn.id, shown))
        assert await anext(events) == Envelope(KEY, turn.id, shown)
