"""Limits of spending: met once, asked about, never passed by more than one call, never in silence."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.agent.budget import BudgetExceeded, SpendingLimits
from alipes.app import open_app
from alipes.config.known_providers import KNOWN
from alipes.config.loader import parse_amount
from alipes.config.settings import Settings, SpendConfig
from alipes.kernel.messages import Message, ToolCall
from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import Address, AnswerApproval, ApprovalAsked, Inbound, ModelReply, Notice, Said, Turn, Usage
from alipes.store.sql.usage import UsageLedger, UsageRecord
from alipes.store.sqlite.store import open_store
from tests.unit.agent_harness import Hand
from tests.world.environment import LIMIT_S
from tests.world.session_harness import inbound, open_sessions
from tests.world.window_model import WindowModel, WindowModels, open_compaction, settings_with

KEY = inbound("", "").address.key
PRICED = ModelFacts(price_input=1_000.0, price_output=1_000.0)
"""A thousandth of a dollar for each token."""


def look(n):
    return ToolCall(f"c{n}", "look", {"at": n})


class Person:
    """Answers the questions of a session, and remembers them."""

    def __init__(self, house, *words):
        self.house, self.words, self.asked = house, list(words), []

    async def watch(self):
        async with self.house.sessions.watch(KEY) as envelopes:
            async for envelope in envelopes:
                if isinstance(envelope.event, ApprovalAsked):
                    self.asked.append(envelope.event)
                    await self.house.sessions.post(KEY, AnswerApproval(envelope.event.ask, self.words.pop(0), "me"))


@asynccontextmanager
async def at_home(home, reader, spend, *words, facts=PRICED, interactive=True):
    rooms = {}
    hands = {"look": Hand("look", "read", does="seen")}

    async with open_sessions(
        home, None, agent=lambda _turn: rooms["side"].agent(hands), interactive=interactive
    ) as house:
        consent = house.sessions.questions.ask_approval
        rooms["side"] = open_compaction(
            house.store, WindowModels(reader, facts), settings_with(spend=spend), consent=consent
        )
        person = Person(house, *words)
        watching = asyncio.create_task(person.watch())
        await asyncio.sleep(0)
        yield house, person, rooms["side"]
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_turn_that_meets_its_limit_asks_and_continues_with_as_much_again(tmp_path):
    reader = WindowModel(*[look(n) for n in range(6)], "done", window=100_000)
    limit = SpendConfig(per_turn=parse_amount("20 tokens"))
    async with at_home(tmp_path, reader, limit, "once", "session") as (house, person, _):
        assert (await house.ask(inbound("1", "go"))).ending == "answered"
        assert len(person.asked) == 2
        first = person.asked[0]
        assert first.call.name == "spend" and "per_turn = 20 tokens" in first.call.args["command"]
        assert "has used" in first.reason and "tokens in this turn" in first.reason


async def test_who_says_no_ends_the_turn_and_nothing_more_is_asked_of_the_model(tmp_path):
    reader = WindowModel(*[look(n) for n in range(6)], "done", window=100_000)
    async with at_home(tmp_path, reader, SpendConfig(per_turn=parse_amount("$0.02")), "no") as (house, person, side):
        ended = await house.ask(inbound("1", "go"))
        assert ended.ending == "stopped" and "stopped by the user" in ended.detail
        costs = [event.usage.cost for event in house.events if isinstance(event, Said) and event.usage]
        used = (await side.spending.bill.session_total(await session(house))).dollars
        assert sum(costs) == pytest.approx(used) and used >= 0.02 > used - costs[-1]
        assert len(reader.asked) == len(costs) and len(person.asked) == 1


async def session(house):
    return (await house.store.sessions.active(KEY)).session


async def test_where_nobody_can_be_asked_the_turn_ends_and_says_what_to_change(tmp_path):
    reader = WindowModel(*[look(n) for n in range(6)], "done", window=100_000)
    limit = SpendConfig(per_session=parse_amount("20 tokens"))
    async with at_home(tmp_path, reader, limit, interactive=False) as (house, _, side):
        ended = await house.ask(inbound("1", "go"))
        assert ended.ending == "failed"
        assert "spend.per_session = 20 tokens, and nobody can approve more" in ended.detail and "--yes" in ended.detail
        asked = len(reader.asked)
        again = await house.ask(inbound("2", "go on"))
        assert again.ending == "failed" and len(reader.asked) == asked
        reader.script = ["yes"] * 3
        trusted = await house.ask(inbound("3", "go on", trusted=True))
        assert trusted.ending == "answered"
        assert any("because of --yes" in e.text for e in house.events if isinstance(e, Notice))
        assert (await side.spending.bill.session_total(await session(house))).tokens > 20
        assert (await house.ask(inbound("4", "and without --yes?"))).ending == "failed"


async def test_a_limit_that_was_lifted_for_a_conversation_is_not_asked_about_again(tmp_path):
    reader = WindowModel(*["hi"] * 5, window=100_000)
    async with at_home(tmp_path, reader, SpendConfig(per_session=parse_amount("1 tokens")), "session") as (
        house,
        person,
        _,
    ):
        for n in range(4):
            assert (await house.ask(inbound(str(n), "hello"))).ending == "answered"
        assert len(person.asked) == 1


async def test_the_limit_of_a_day_counts_every_conversation(tmp_path):
    reader = WindowModel(*["hi"] * 5, window=100_000)
    async with at_home(tmp_path, reader, SpendConfig(per_day=parse_amount("3 tokens")), interactive=False) as (
        house,
        _,
        _side,
    ):
        assert (await house.ask(inbound("1", "hello to you all", chat="one"))).ending == "answered"
        ended = await house.ask(inbound("2", "hello", chat="two"))
        assert ended.ending == "failed" and "today" in ended.detail and "per_day" in ended.detail


async def test_a_price_that_is_unknown_is_said_to_be_and_counts_as_nothing(tmp_path):
    reader = WindowModel(*["hi"] * 3, window=100_000)
    limit = SpendConfig(per_turn=parse_amount("$0.01"))
    async with at_home(tmp_path, reader, limit, facts=ModelFacts()) as (house, person, _):
        for n in range(3):
            assert (await house.ask(inbound(str(n), "hello"))).ending == "answered"
        notes = [event.text for event in house.events if isinstance(event, Notice)]
        assert len(notes) == 1 and "the price of this model is unknown" in notes[0]
        assert person.asked == []


async def test_answers_that_nobody_got_are_on_the_bill(tmp_path):
    reader = WindowModel("", "", window=100_000)
    async with at_home(tmp_path, reader, SpendConfig()) as (house, _, side):
        ended = await house.ask(inbound("1", "say nothing"))
        assert ended.ending == "failed" and "empty answer" in ended.detail
        assert len(reader.asked) == 2
        assert (await side.spending.bill.session_total(await session(house))).tokens > 0


@asynccontextmanager
async def a_bill(home, spend, consent=None):
    """The limits of a person's turn; `lived` makes it and its children rows."""
    async with open_store(home) as store:
        yield store, SpendingLimits(UsageLedger(store.database), spend, consent)


async def lived(store, text, chat, parent=""):
    address = Address("test", chat)
    await store.turns.accept(Inbound(f"{chat}-{text}", address, "me", text, parent=parent))
    return await store.turns.claim_next(address.key)


async def used(spending, turn, tokens):
    async with spending.reserve(turn, Usage(input=tokens)):
        await spending.record(UsageRecord(turn, "web", "p/m", Usage(input=tokens)))


async def test_what_children_and_their_children_use_counts_for_who_asked(tmp_path):
    asked = []

    async def consent(call, reason, turn):
        asked.append((call.args["command"], turn.id, turn.key))
        return "no"

    async with a_bill(tmp_path, SpendConfig(per_turn=parse_amount("100 tokens")), consent) as (store, spending):
        root = await lived(store, "go", "root")
        child = await lived(store, "look", "child", root.id)
        grandchild = await lived(store, "look closer", "grandchild", child.id)
        for turn in (root, child, grandchild):
            await used(spending, turn, 40)
        assert (await spending.bill.turn_total(root)).tokens == 120
        assert (await spending.bill.session_total(root.session)).tokens == 120
        assert (await spending.bill.turn_total(child)).tokens == 80
        with pytest.raises(BudgetExceeded, match="120 tokens used in this turn"):
            await used(spending, grandchild, 40)
        assert [(turn, key) for _, turn, key in asked] == [(root.id, root.key)]
        with pytest.raises(BudgetExceeded):
            await used(spending, root, 1)
        assert len(asked) == 1
        other = await lived(store, "else", "other")
        await used(spending, other, 40)
        by_tool = {each.name: each.usage.input for each in await store.archive.usage_by("task")}
        assert by_tool == {"web": 160}


@pytest.mark.parametrize("width", [2, 5, 20])
async def test_calls_side_by_side_pass_a_limit_by_one_call_at_most(tmp_path, width):
    async with a_bill(tmp_path, SpendConfig(per_turn=parse_amount("100 tokens"))) as (store, spending):
        root = await lived(store, "go", "root")
        done = []

        async def one(n):
            try:
                async with spending.reserve(root, Usage(input=60)):
                    await asyncio.sleep(0)
                    await spending.record(UsageRecord(root, "moa", "p/m", Usage(input=30)))
                    done.append(n)
            except BudgetExceeded:
                return

        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            for n in range(width):
                group.create_task(one(n))
        assert len(done) == min(width, 4)
        assert (await spending.bill.turn_total(root)).tokens <= 100 + 30


async def test_calls_inside_a_call_do_not_wait_for_it(tmp_path):
    """As where several models answer as one."""
    async with a_bill(tmp_path, SpendConfig(per_turn=parse_amount("100 tokens"))) as (store, spending):
        root = await lived(store, "go", "root")

        async def reference():
            async with spending.reserve(root, Usage(input=90)):
                await spending.record(UsageRecord(root, "moa", "p/m", Usage(input=10)))

        async with asyncio.timeout(LIMIT_S), spending.reserve(root, Usage(input=90)):
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(reference())
        assert (await spending.bill.turn_total(root)).tokens == 50


async def test_many_who_meet_a_limit_at_once_ask_one_question(tmp_path):
    asked = []

    async def consent(call, _reason, _turn):
        asked.append(call.id)
        await asyncio.sleep(0.01)
        return "once"

    async with a_bill(tmp_path, SpendConfig(per_session=parse_amount("10 tokens")), consent) as (store, spending):
        root = await lived(store, "go", "root")
        await used(spending, root, 10)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(used(spending, root, 1))
        assert len(asked) == 1


async def test_without_limits_nothing_is_looked_up(tmp_path):
    async with a_bill(tmp_path, SpendConfig()) as (store, spending):
        turn = Turn("t", "s", Inbound("i", Address("test", "c"), "me", "go"))
        store.database.read = None
        async with spending.reserve(turn, Usage()):
            pass
        assert not spending.limits(turn)


async def test_a_call_that_is_cancelled_frees_its_place(tmp_path):
    async with a_bill(tmp_path, SpendConfig(per_turn=parse_amount("10 tokens"))) as (store, spending):
        root = await lived(store, "go", "root")
        inside = asyncio.Event()

        async def hang():
            async with spending.reserve(root, Usage(input=100)):
                inside.set()
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hang())
        await inside.wait()
        waiting = asyncio.create_task(used(spending, root, 5))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        hanging.cancel()
        async with asyncio.timeout(LIMIT_S):
            await waiting
        assert (await spending.bill.turn_total(root)).tokens == 5


class Foreman:
    """Gives work to two subagents; each looks around for ever."""

    def __init__(self):
        self.asked = 0

    @asynccontextmanager
    async def stream(self, request):
        self.asked += 1
        yield self._deltas(request)

    async def _deltas(self, request):
        if request.messages[-1].text == "go":
            part = ToolCall("d1", "delegate_task", {"tasks": [{"goal": "one"}, {"goal": "two"}]})
        else:
            part = ToolCall(f"r{self.asked}", "read_file", {"path": "nothing.txt", "offset": self.asked})
        yield ModelReply(Message("assistant", (part,)), Usage(input=100, output=10), "calls")


async def test_subagents_that_meet_the_limit_of_a_turn_ask_its_person_and_end_with_it(tmp_path):
    """The whole house: one question for all of them, put where the person is."""
    foreman = Foreman()
    settings = Settings(
        home=tmp_path,
        model="scripted",
        providers={"scripted": KNOWN["scripted"]},
        spend=SpendConfig(per_turn=parse_amount("1k tokens")),
    )
    questions = []
    async with open_app(settings, interactive=True, lent={"scripted": foreman}) as app:
        message = inbound("1", "go", workdir=str(tmp_path))
        async with app.sessions.ask(message) as following:
            async for event in following:
                if isinstance(event, ApprovalAsked):
                    questions.append(event)
                    await app.sessions.post(
                        KEY, AnswerApproval(event.ask, "no" if len(questions) > 1 else "once", "me")
                    )
        assert event.ending == "stopped" and "stopped by the user" in event.detail
        bill = app.spending.bill
        turn = (await app.store.archive.turn(event.turn)).session
        used = (await bill.session_total(turn)).tokens
        assert 2_000 <= used <= 2_110 and used == foreman.asked * 110
        by_tool = {each.name: each.calls for each in await app.store.archive.usage_by("tool")}
    assert by_tool == {"": 1, "delegate_task": foreman.asked - 1}
    assert len(questions) == 2 and "tokens in this turn" in questions[0].reason
