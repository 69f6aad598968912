"""Who may speak: nobody, unless somebody said so; codes that are shown once, compared as hashes, and run out."""

import re
import sqlite3
from contextlib import closing

import pytest

from alipes.gateway.access import Access, approve
from alipes.gateway.policy import Manners, Rules
from alipes.kernel.errors import NotTaken
from alipes.kernel.outbox import Outbound, lane
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.providers.scripted import Scripted
from alipes.store.inbox import KEPT, SqliteArrivals
from alipes.store.people import MISSES, REST, VALID, WAITING, SqlitePeople
from alipes.store.store import FILE, open_store
from tests.world.gatehouse import open_gatehouse

EVE = Address("test", "eve")


def hello(person="eve", id="1", **more):
    return Arrival(id, Address("test", person), person, name=person.title(), text="hello", **more)


class Gate:
    """Access and people with a clock of their own."""

    def __init__(self, store, **manners):
        self.now, self.store = 1000.0, store
        self.people = SqlitePeople(store.database, clock=lambda: self.now)
        rules = Rules(manners={"test": Manners(**manners)})
        self.access = Access(self.people, rules, clock=lambda: self.now)

    async def code(self, person="eve", id="1"):
        """The code that they were shown last."""
        shown = await self.access.show_code(hello(person, id))
        if not shown:
            return None
        debt = await self.store.outbox.find(f"code:test:{id}")
        return re.search(r"`([A-Z2-9]{4}-[A-Z2-9]{4})`", debt.outbound.text)[1]


async def test_nobody_may_speak_unless_named(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store, allow=("1", "2"), owners=("3",))
        assert await gate.access.role("test", "1") == "user"
        assert await gate.access.role("test", "3") == "owner"
        for person in ("4", "", "*"):
            assert await gate.access.role("test", person) is None
        assert await gate.access.role("other", "1") is None
        alone = Gate(store, allow=("1",))
        assert await alone.access.role("test", "1") == "owner", (
            "whom the operator wrote down, if no owner is named"
        )
        everyone = Gate(store, allow=("*", "1"))
        assert await everyone.access.role("test", "anyone") == "user"
        assert await everyone.access.role("test", "1") == "owner"
        assert await everyone.access.role("test", "") is None


async def test_who_was_let_in_may_speak_until_dismissed(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        await gate.access.approve(await gate.code("nine", "1"))
        gate.now += VALID
        await gate.access.approve(await gate.code("nine", "2"), "owner")
        assert await gate.access.role("test", "nine") == "owner"
        assert [(each.person, each.role) for each in await gate.people.all()] == [("nine", "owner")]
        assert await gate.people.dismiss("test", "nine") and not await gate.people.dismiss("test", "nine")
        assert await gate.access.role("test", "nine") is None


async def test_a_stranger_is_let_in_by_the_code_they_were_shown_once(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        code = await gate.code()
        assert [each.name for each in await gate.people.applicants()] == ["Eve"]
        person = await gate.access.approve(code.lower().replace("-", " "))
        assert (person.person, person.role) == ("eve", "user")
        assert await gate.access.role("test", "eve") == "user"
        assert await gate.people.applicants() == ()
        with pytest.raises(NotTaken, match="nobody was shown this code"):
            await gate.access.approve(code)
        texts = []
        while (debt := await store.outbox.head(lane(EVE))) is not None:
            texts.append(debt.outbound.text)
            await store.outbox.pay(debt, "1")
        assert len(texts) == 2 and texts[1].startswith("You were let in")


async def test_the_code_itself_is_nowhere_but_in_what_the_stranger_is_shown(tmp_path):
    async with open_store(tmp_path) as store:
        code = (await Gate(store).code()).replace("-", "")
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        rows = db.execute("SELECT * FROM pairings").fetchall()
    assert (
        len(rows) == 1
        and code not in repr(rows)
        and code.encode() not in b"".join(value for value in rows[0] if isinstance(value, bytes))
    )


async def test_a_stranger_who_insists_costs_nothing(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        assert await gate.code(id="1") is not None
        await store.database.close()
        assert not await gate.access.show_code(hello(id="2"))


async def test_codes_run_out_and_are_rare(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        first = await gate.code(id="1")
        assert await gate.code(id="2") is None, "not twice within a while"
        gate.now += REST + 1
        second = await gate.code(id="3")
        assert second not in (None, first)
        with pytest.raises(NotTaken):
            await gate.access.approve(first)
        gate.now += VALID + 1
        with pytest.raises(NotTaken, match="too old"):
            await gate.access.approve(second)
        shown = [await gate.code(f"p{n}", f"p{n}") for n in range(WAITING + 3)]
        assert sum(code is not None for code in shown) == WAITING
        gate.now += VALID + 1
        assert await gate.code("late", "late") is not None


async def test_after_a_few_wrong_codes_not_even_a_right_one_is_taken_for_a_while(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        code = await gate.code()
        for _ in range(MISSES):
            with pytest.raises(NotTaken, match="nobody"):
                await gate.access.approve("AAAA-AAAA")
        with pytest.raises(NotTaken, match="none is taken for the next 60 min"):
            await gate.access.approve(code)
        gate.now += VALID + 1
        code = await gate.code(id="2")
        assert (await approve(gate.people, code, "owner")).role == "owner"


async def test_no_code_is_shown_in_a_group_or_where_pairing_is_off(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        assert not await gate.access.show_code(hello(group=True))
        closed = Access(gate.people, Rules(pairing=False))
        assert not await closed.show_code(hello())
        assert await gate.people.applicants() == ()


async def test_an_owner_lets_somebody_in_from_their_chat(tmp_path):
    async with open_gatehouse(tmp_path, Scripted(["hi Eve"])) as g:
        await g.take("hello", sender="eve", chat="eve", name="Eve")
        await g.take("hello?", sender="eve", chat="eve", name="Eve")
        await g.messenger.until(lambda: g.messenger.said("eve"))
        code = re.search(r"pair (\S+)`", g.messenger.said("eve")[0])[1]
        await g.take(f"/pair {code}", sender="eve", chat="eve")
        await g.take("/pair")
        await g.take("/pair AAAA-AAAA")
        await g.take(f"/pair {code} king")
        await g.take(f"/pair {code} owner")
        await g.messenger.until(lambda: len(g.messenger.said()) == 4)
        waiting, wrong, what, done = g.messenger.said()
        assert "Eve, just now" in waiting and "nobody was shown" in wrong and "/pair CODE owner" in what
        assert done == "Eve may speak on test now, as owner."
        await g.take("hello!", sender="eve", chat="eve")
        await g.messenger.until(lambda: g.messenger.said("eve")[-1] == "hi Eve")
        assert len(g.messenger.said("eve")) == 3


async def test_what_was_dealt_with_is_forgotten_after_long(tmp_path):
    async with open_store(tmp_path) as store:
        now = [1000.0]
        arrivals = SqliteArrivals(store.database, clock=lambda: now[0])
        assert await arrivals.keep(hello()) and not await arrivals.keep(hello())
        assert await arrivals.known("test", "1") and not await arrivals.known("other", "1")
        now[0] += KEPT * 2
        assert await arrivals.forget() == 0, "it waits still"
        await arrivals.settle("test", "1", owed=(Outbound("o", EVE, "done"),))
        await arrivals.settle("test", "1", owed=(Outbound("o", EVE, "done"),))
        assert await arrivals.waiting("test") == ()
        assert (await store.outbox.head(lane(EVE))).outbound.text == "done"
        now[0] += KEPT * 2
        assert await arrivals.forget() == 1 and not await arrivals.known("test", "1")
