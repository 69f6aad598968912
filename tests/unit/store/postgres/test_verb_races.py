"""Races between workers: each runs `apply` on a connection of its own, at the same time."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier

import msgspec
import psycopg
import pytest

from alipes.kernel.messages import assistant
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.postgres.migrate import migrate
from alipes.store.postgres.turns import admit_args, message_args
from tests.unit.store.postgres.verb_database import APPLY
from tests.world.postgres_server import postgres_schema

LOCK = "ORDER BY key FOR UPDATE"


class Worker:
    """One worker with its connection."""

    def __init__(self, name, url):
        self.name, self.db = name, psycopg.connect(url, autocommit=True)
        self._batches = itertools.count(1)

    def apply(self, *calls, batch=0):
        text = msgspec.json.encode(calls).decode()
        (found,) = self.db.execute(APPLY, (self.name, batch or next(self._batches), text, True)).fetchone()
        return msgspec.json.decode(found)

    def admit(self, id, chat):
        (found,) = self.apply(admit_call(id, chat))
        return found

    def messages(self, number):
        return self.db.execute("SELECT message FROM messages WHERE turn_number = %s", (number,)).fetchall()


def admit_call(id, chat):
    address = Address("cli", chat)
    return ("admit", address.key, *admit_args(Inbound(id, address, "me", "hello"), 1.0, None, "queue", ()))


def record_call(key, turn, epoch):
    return ("record", key, turn, epoch, 1.0, [message_args(Said(assistant("late")))], (), ())


@contextmanager
def open_workers(*names):
    with ExitStack() as stack:
        url = stack.enter_context(postgres_schema())
        migrate(stack.enter_context(psycopg.connect(url, autocommit=True)))
        workers = [Worker(name, url) for name in names]
        for worker in workers:
            stack.callback(worker.db.close)
        yield (*workers, stack.enter_context(ThreadPoolExecutor(len(names))))


def run_together(pool, *works):
    start = Barrier(len(works))

    def run(work):
        start.wait()
        return work()

    return list(pool.map(run, works))


def count_late_writes(first, second, pool, rounds, writes=30):
    """Writes of the first worker that were accepted and that the second did not see after its claim."""
    late = 0
    for n in range(rounds):
        key = Address("cli", str(n)).key
        first.admit(str(n), str(n))
        ((number, epoch, _),) = first.apply(("claim", key, 1.0, ()))
        (turn,) = first.db.execute("SELECT id FROM turns WHERE number = %s", (number,)).fetchone()

        def take_over(key=key, number=number):
            (claimed,) = second.apply(("claim", key, 1.0, (first.name,)))
            assert claimed[0] == number
            return len(second.messages(number))

        calls = [record_call(key, turn, epoch)] * writes
        results, seen = run_together(pool, lambda calls=calls: first.apply(*calls), take_over)
        late += max(0, sum(results) - seen)
        assert first.apply(record_call(key, turn, epoch)) == [False]
    return late


def test_none_of_3000_raced_late_writes_is_accepted():
    with open_workers("w1", "w2") as (first, second, pool):
        assert count_late_writes(first, second, pool, 100) == 0


def test_without_the_row_lock_late_writes_are_accepted():
    with open_workers("w1", "w2") as (first, second, pool):
        (source,) = first.db.execute("SELECT pg_get_functiondef('apply'::regproc)").fetchone()
        assert LOCK in source
        first.db.execute(source.replace(LOCK, "ORDER BY key").encode())
        assert any(count_late_writes(first, second, pool, 1, 200 + n) for n in _fresh_schemas(first))


def _fresh_schemas(worker, tries=50):
    for n in range(tries):
        worker.db.execute("TRUNCATE sessions, leases, turns, messages, worker_batches CASCADE")
        yield n


def test_of_two_simultaneous_copies_of_a_message_one_is_admitted():
    with open_workers("w1", "w2") as (first, second, pool):
        for n in map(str, range(50)):
            found = run_together(pool, lambda n=n: first.admit(n, n), lambda n=n: second.admit(n, n))
            assert sorted(each is None for each in found) == [False, True]
        assert first.db.execute("SELECT count(*) FROM sessions").fetchone() == (50,)


def test_of_two_simultaneous_copies_in_different_chats_one_is_admitted():
    with open_workers("w1", "w2") as (first, second, pool):
        for n in map(str, range(50)):
            found = run_together(pool, lambda n=n: first.admit(n, "a" + n), lambda n=n: second.admit(n, "b" + n))
            assert sorted(each is None for each in found) == [False, True]
        assert first.db.execute("SELECT count(*) FROM sessions").fetchone() == (50,)


def test_two_workers_admit_into_one_session():
    with open_workers("w1", "w2") as (first, second, pool):
        for n in map(str, range(50)):
            run_together(pool, lambda n=n: first.admit("a" + n, n), lambda n=n: second.admit("b" + n, n))
        assert first.db.execute("SELECT count(*) FROM turns").fetchone() == (100,)
        assert first.db.execute("SELECT count(*) FROM sessions").fetchone() == (50,)


def test_batches_over_the_same_new_and_old_keys_in_other_order_do_not_deadlock():
    with open_workers("w1", "w2") as (first, second, pool):
        for n in range(40):
            chats = [str(m) for m in range(n // 2 * 2, n // 2 * 2 + 8)]  # each key is new once
            batches = [
                [admit_call(f"{worker.name}:{n}:{chat}", chat) for chat in order]
                for worker, order in ((first, chats), (second, chats[::-1]))
            ]
            found = run_together(pool, lambda b=batches[0]: first.apply(*b), lambda b=batches[1]: second.apply(*b))
            assert all(each is not None for results in found for each in results)


def test_a_batch_that_is_sent_again_returns_the_first_results_and_writes_nothing():
    with open_workers("w1") as (worker, _):
        results = worker.apply(admit_call("1", "a"), admit_call("2", "a"), batch=7)
        assert worker.apply(admit_call("1", "a"), admit_call("2", "a"), batch=7) == results
        assert [mode for mode, *_ in results] == ["queue", "queue"]
        assert worker.db.execute("SELECT count(*) FROM turns").fetchone() == (2,)


def test_a_batch_that_is_sent_again_while_it_still_runs_waits_for_its_results():
    with open_workers("w1", "w1") as (worker, again, pool):
        for n in range(1, 30):
            calls = [admit_call(f"{n}:{m}", str(m)) for m in range(5)]
            once, twice = run_together(
                pool, lambda c=calls, n=n: worker.apply(*c, batch=n), lambda c=calls, n=n: again.apply(*c, batch=n)
            )
            assert once == twice
        assert worker.db.execute("SELECT count(*) FROM turns").fetchone() == (145,)


@pytest.mark.parametrize(
    ("change", "holder"), [("state = 'dead'", None), ("lease_until = now()", "w1"), ("pid = 1", "w1")]
)
def test_a_session_is_free_once_its_worker_was_declared_dead(change, holder):
    with open_workers("w1", "w2") as (first, second, _):
        first.db.execute("INSERT INTO workers (id, lease_until) VALUES ('w1', 'infinity')")
        first.admit("1", "a")
        key = Address("cli", "a").key
        first.apply(("claim", key, 1.0, ()))
        first.db.execute(f"UPDATE workers SET {change} WHERE id = 'w1'".encode())
        (found,) = second.apply(("claim", key, 1.0, ()))
        assert found == (["held", holder] if holder else [1, 2, 2])
