"""What the verbs decide, through the classes that call them. The contract suites test the rest."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.errors import Fenced, SessionHeld
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, user
from alipes.kernel.outbox import Outbound, lane
from alipes.kernel.turns import Address, Inbound, Said, Stop, ToolFinished, ToolStarted, Usage
from alipes.store.postgres.capacity import Capacity
from alipes.store.postgres.outbox import PostgresOutbox
from alipes.store.postgres.turns import PostgresTurns
from alipes.store.sql.turns import INSERT_OP, make_op_row
from tests.unit.store.postgres.verb_database import open_calls
from tests.world.postgres_server import postgres_schema

HERE = Address("telegram", "1", user="me")
LANE = lane(HERE)
CALL = ToolCall("c1", "terminal", {"command": "ls"})


def make_inbound(id="1", text="hello", **more):
    return Inbound(id, HERE, "me", text, **more)


def says(text, *calls):
    return Said(Message("assistant", (Text(text), *calls)), "m", Usage(10, 2))


def serving(**limits):
    capacity = Capacity(frozenset({"work"}), **limits)
    capacity.serves = True
    return capacity


class Liveness:
    """`Processes` that says who is dead."""

    def __init__(self, own_name, dead):
        self.own_name, self._dead = own_name, dead

    def is_alive(self, host):
        return host is not None and host not in self._dead


class WorkerStore:
    def __init__(self, database, dead=(), capacity=None):
        self.database, self.capacity = database, capacity
        self.turns = PostgresTurns(database, Liveness(database.worker, dead), capacity)
        self.outbox = PostgresOutbox(database, database.worker)

    def put_op(self, op):
        self.database.db.execute(INSERT_OP.replace("?", "%s"), make_op_row(HERE.key, op))

    def fetch(self, sql):
        return self.database.db.execute(sql).fetchall()


@asynccontextmanager
async def open_worker(url, name="w1", dead=(), capacity=None):
    async with open_calls(url, name) as database:
        yield WorkerStore(database, dead, capacity)


@pytest.fixture
def url():
    with postgres_schema() as url:
        yield url


async def test_a_claimed_turn_has_its_transcript_and_the_results_of_its_calls(url):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound())
        first = await store.turns.claim_next(HERE.key, lambda turn: (turn.inbound.message,))
        assert (first.said, first.unpublished, first.attempt) == ((user("hello"),), (user("hello"),), 1)
        await store.turns.record(first, says("wait", CALL))
        await store.turns.record(first, ToolStarted(CALL))
        await store.turns.record(first, ToolFinished(CALL, ToolResult("c1", "a file")))
        again = await store.turns.claim_next(HERE.key)
        assert [message.text for message in again.said] == ["hello", "wait"]
        assert (again.tool_results, again.attempt) == ({"c1": ToolResult("c1", "a file")}, 2)
        assert again.measured_tokens == (12, 2)
        await store.turns.finish(again, "answered", "")
        await store.turns.admit(make_inbound("2"))
        following = await store.turns.claim_next(HERE.key)
        assert [message.text for message in following.history] == ["hello", "wait"]
        with pytest.raises(Fenced):
            await store.turns.record(again, says("late"))


async def test_a_new_call_with_a_used_id_has_not_been_run(url):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound())
        turn = await store.turns.claim_next(HERE.key)
        await store.turns.record(turn, ToolFinished(CALL, ToolResult("c1", "a file")))
        await store.turns.record(turn, says("again", CALL))
        assert (await store.turns.claim_next(HERE.key)).tool_results == {}


async def test_an_answer_to_a_question_is_not_admitted_as_a_message(url):
    async with open_worker(url) as store:
        sql = "INSERT INTO inbox (platform, id, batch, created, handled) VALUES ('telegram', '1', 'answer', 1, 1)"
        store.database.db.execute(sql)
        assert await store.turns.admit(make_inbound()) is None
        assert store.fetch("SELECT 1 FROM turns") == []


@pytest.mark.parametrize(
    ("more", "mode"),
    [({}, "steer"), ({"model": "p/m"}, "queue"), ({"instructions": "x"}, "queue"), ({"only": ()}, "queue")],
)
async def test_a_message_that_does_not_fit_into_the_running_turn_is_queued(url, more, mode):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound())
        admitted = await store.turns.admit(make_inbound("2", **more), usual="steer")
        assert (admitted.busy, [each.text for each in admitted.ahead]) == (mode, ["hello"])
        assert (await store.turns.admit(make_inbound("3", **more), busy="steer")).busy == "steer"


async def test_the_mode_of_the_session_comes_before_the_usual_one(url):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound())
        store.database.db.execute("UPDATE sessions SET busy_mode = 'interrupt'")
        assert (await store.turns.admit(make_inbound("2"))).busy == "interrupt"


async def test_a_stop_that_found_nothing_does_not_stop_a_later_turn(url):
    async with open_worker(url) as store:
        store.put_op(Stop())
        await store.turns.admit(make_inbound())
        assert await store.turns.take_ops(HERE.key) == ()


async def test_a_stop_of_a_queued_turn_stays_until_it_is_first(url):
    async with open_worker(url) as store:
        first = await store.turns.admit(make_inbound())
        second = await store.turns.admit(make_inbound("2"))
        store.put_op(Stop(turn=second.turn))
        store.put_op(Stop(turn=first.turn))
        assert await store.turns.take_ops(HERE.key) == (Stop(turn=first.turn),)
        turn = await store.turns.claim_next(HERE.key)
        assert not turn.queue_empty
        await store.turns.finish(turn, "stopped", "")
        assert await store.turns.take_ops(HERE.key) == (Stop(turn=second.turn),)


async def test_a_session_is_held_until_it_is_released_or_its_worker_is_dead(url):
    async with open_worker(url) as first, open_worker(url, "w2") as second, open_worker(url, "w3", ("w1",)) as third:
        await first.turns.admit(make_inbound())
        turn = await first.turns.claim_next(HERE.key)
        with pytest.raises(SessionHeld):
            await second.turns.claim_next(HERE.key)
        with pytest.raises(SessionHeld):
            await second.turns.take_ops(HERE.key)
        taken = await third.turns.claim_next(HERE.key)
        assert (taken.id, taken.epoch) == (turn.id, turn.epoch + 1)
        await third.turns.release(HERE.key)
        assert (await second.turns.claim_next(HERE.key)).attempt == 3


async def test_untrusted_text_is_noted_and_a_text_may_contain_nul(url):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound(text="a\0b", untrusted="mail from x@y"))
        turn = await store.turns.claim_next(HERE.key, lambda turn: (turn.inbound.message,))
        assert turn.inbound.text == "a\0b"
        await store.turns.finish(turn, "failed", "a\0b")
        assert store.fetch("SELECT source FROM untrusted_sources") == [("mail from x@y",)]


async def test_a_delivery_is_taken_once_and_by_one_worker(url):
    async with open_worker(url) as first, open_worker(url, "w2") as second:
        turn = Outbound("a", HERE, "text", turn="t1")
        await first.turns.admit(make_inbound(), owed=(turn, Outbound("b", HERE, "more")))
        first.database.db.execute("INSERT INTO drafts VALUES (%s, 't1', '77', 1)", (LANE,))
        assert (await first.outbox.take(LANE, lambda _: False)).state == "queued"
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.outbox.take(LANE, lambda _: True)) for each in (first, second)]
        (taken,) = [task.result() for task in tasks if task.result() is not None]
        assert (taken.state, taken.attempts, taken.drafts, taken.outbound) == ("sending", 1, ("77",), turn)
        part = await first.outbox.mark_sent(taken, "5", rest=True, uncertain=True)
        assert (part.state, part.paid, part.uncertain) == ("sending", ("5",), True)
        sent = await first.outbox.mark_sent(part, "6")
        assert (sent.state, sent.paid) == ("sent", ("5", "6"))
        assert first.fetch("SELECT 1 FROM drafts") == []
        assert (await second.outbox.take(LANE, lambda _: True)).outbound.id == "b"


async def test_no_step_of_a_turn_takes_more_than_two_round_trips(url):
    async with open_worker(url) as store:
        trips = []

        async def count(step):
            before = store.database.round_trips
            result = await step
            trips.append(store.database.round_trips - before)
            return result

        await count(store.turns.admit(make_inbound()))
        turn = await count(store.turns.claim_next(HERE.key, lambda turn: (turn.inbound.message,)))
        await count(store.turns.record(turn, says("wait", CALL)))
        await count(store.turns.record(turn, ToolStarted(CALL)))
        await count(store.turns.record(turn, says("done"), Outbound("a", HERE, "done")))
        delivery = await count(store.outbox.take(LANE, lambda _: True))
        await count(store.outbox.mark_sent(delivery, "5"))
        await count(store.turns.finish(turn, "answered", ""))
        assert await count(store.turns.claim_next(HERE.key)) is None
        await count(store.turns.release(HERE.key))
    assert trips == [1, 2, 1, 1, 1, 1, 1, 1, 1, 1]


async def test_a_free_session_is_taken_with_its_message_if_there_is_room(url):
    async with open_worker(url, capacity=serving(sessions=1)) as first, open_worker(url, "w2") as second:
        assert (await first.turns.admit(make_inbound())).holder == "w1"
        assert (await second.turns.admit(make_inbound("2"))).holder == "w1"
        first.capacity.busy = {"another"}
        elsewhere = Inbound("3", Address("telegram", "2"), "me", "hello")
        assert (await first.turns.admit(elsewhere)).holder is None


async def test_a_worker_without_room_takes_no_session_of_anybody(url):
    async with open_worker(url) as store:
        nobody = Inbound("1", Address("telegram", "2"), "me", "hello")
        assert (await store.turns.admit(nobody)).holder is None


async def test_no_more_sessions_of_a_person_are_taken_than_may_run(url):
    async with open_worker(url, capacity=serving(per_person=2)) as store:
        places = [Address("telegram", str(chat), user="me") for chat in range(4)]
        found = [await store.turns.admit(Inbound(place.chat, place, "me", "hello")) for place in places]
        assert [each.holder for each in found] == ["w1", "w1", None, None]
        turn = await store.turns.claim_next(places[0].key)
        await store.turns.finish(turn, "answered", "")
        assert await store.turns.claim_next(places[0].key, release=True) is None
        again = Address("telegram", "5", user="me")
        assert (await store.turns.admit(Inbound("5", again, "me", "hello"))).holder == "w1"


async def test_a_session_without_work_is_released_by_the_claim_that_finds_none(url):
    async with open_worker(url) as first, open_worker(url, "w2") as second:
        await first.turns.admit(make_inbound())
        turn = await first.turns.claim_next(HERE.key)
        await first.turns.finish(turn, "answered", "")
        assert await first.turns.claim_next(HERE.key) is None
        assert await second.turns.holder(HERE.key) == "w1"
        assert await first.turns.claim_next(HERE.key, release=True) is None
        assert await second.turns.holder(HERE.key) is None


async def test_a_sent_delivery_says_whether_its_lane_is_empty(url):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound(), owed=(Outbound("a", HERE, "one"), Outbound("b", HERE, "two")))
        first = await store.outbox.take(LANE, lambda _: True)
        assert not (await store.outbox.mark_sent(first, "5", rest=True)).emptied_lane
        assert not (await store.outbox.mark_sent(first, "5")).emptied_lane
        second = await store.outbox.take(LANE, lambda _: True)
        assert (await store.outbox.mark_sent(second, "6")).emptied_lane


async def test_a_delivery_that_is_not_ready_stays_queued_and_was_not_tried(url):
    async with open_worker(url) as store:
        await store.turns.admit(make_inbound(), owed=(Outbound("a", HERE, "text"),))
        head = await store.outbox.take(LANE, lambda _: False)
        assert (head.state, head.attempts) == ("queued", 0)
        assert store.fetch("SELECT state, attempts, sender FROM outbox") == [("queued", 0, "")]
