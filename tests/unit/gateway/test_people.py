"""Access: nobody has it unless configured or paired; pairing codes are hashed, work once and expire."""

import re
import sqlite3
from contextlib import closing

import pytest

from alipes.gateway.people import Access, approve
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.kernel.errors import MessageRejected
from alipes.kernel.outbox import Outbound, lane
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.store.sql.inbox import KEEP_S, InboxStore
from alipes.store.sql.people import CODE_VALID_S, MAX_REQUESTS, MAX_WRONG_CODES, REQUEST_INTERVAL_S, PeopleStore
from alipes.store.sqlite.files import DATABASE_FILE
from alipes.store.sqlite.store import open_store
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.gateway_harness import open_gateway

EVE = Address("test", "eve")


def hello(person="eve", id="1", **more):
    return IncomingMessage(id, Address("test", person), person, name=person.title(), text="hello", **more)


class Gate:
    """Access and people with a fake clock."""

    def __init__(self, store, **manners):
        self.now, self.store = 1000.0, store
        self.people = PeopleStore(store.database, clock=lambda: self.now)
        rules = GatewayPolicy(platforms={"test": PlatformPolicy(**manners)})
        self.access = Access(self.people, rules, clock=lambda: self.now)

    async def code(self, person="eve", id="1"):
        """The latest code they were sent."""
        shown = await self.access.offer_code(hello(person, id))
        if not shown:
            return None
        debt = await self.store.outbox.find(f"code:test:{id}")
        return re.search(r"`([A-Z2-9]{4}-[A-Z2-9]{4})`", debt.outbound.text)[1]


async def test_nobody_has_access_unless_configured(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store, allow=("1", "2"), owners=("3",))
        assert await gate.access.role("test", "1") == "user"
        assert await gate.access.role("test", "3") == "owner"
        for person in ("4", "", "*"):
            assert await gate.access.role("test", person) is None
        assert await gate.access.role("other", "1") is None
        alone = Gate(store, allow=("1",))
        assert await alone.access.role("test", "1") == "owner", "allowed people are owners if no owner is configured"
        everyone = Gate(store, allow=("*", "1"))
        assert await everyone.access.role("test", "anyone") == "user"
        assert await everyone.access.role("test", "1") == "owner"
        assert await everyone.access.role("test", "") is None


async def test_a_paired_person_has_access_until_it_is_revoked(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        await approve(gate.access.people, await gate.code("nine", "1"))
        gate.now += CODE_VALID_S
        await approve(gate.access.people, await gate.code("nine", "2"), "owner")
        assert await gate.access.role("test", "nine") == "owner"
        assert [(each.person, each.role) for each in await gate.people.all()] == [("nine", "owner")]
        assert await gate.people.revoke_access("test", "nine") and not await gate.people.revoke_access("test", "nine")
        assert await gate.access.role("test", "nine") is None


async def test_a_pairing_code_gives_access_once(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        code = await gate.code()
        assert [each.name for each in await gate.people.list_requests()] == ["Eve"]
        person = await approve(gate.access.people, code.lower().replace("-", " "))
        assert (person.person, person.role) == ("eve", "user")
        assert await gate.access.role("test", "eve") == "user"
        assert await gate.people.list_requests() == ()
        with pytest.raises(MessageRejected, match="unknown or expired code"):
            await approve(gate.access.people, code)
        texts = []
        while (debt := await store.outbox.head(lane(EVE))) is not None:
            texts.append(debt.outbound.text)
            await store.outbox.mark_sent(debt, "1")
        assert len(texts) == 2 and texts[1].startswith("You now have access")


async def test_the_code_is_stored_nowhere_except_in_the_message_to_the_stranger(tmp_path):
    async with open_store(tmp_path) as store:
        code = (await Gate(store).code()).replace("-", "")
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as db:
        rows = db.execute("SELECT * FROM pairing_requests").fetchall()
    assert (
        len(rows) == 1
        and code not in repr(rows)
        and code.encode() not in b"".join(value for value in rows[0] if isinstance(value, bytes))
    )


async def test_repeated_messages_of_a_stranger_cost_no_database_access(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        assert await gate.code(id="1") is not None
        await store.database.close()
        assert not await gate.access.offer_code(hello(id="2"))


async def test_codes_expire_and_are_rate_limited(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        first = await gate.code(id="1")
        assert await gate.code(id="2") is None, "not twice within the interval"
        gate.now += REQUEST_INTERVAL_S + 1
        second = await gate.code(id="3")
        assert second not in (None, first)
        with pytest.raises(MessageRejected):
            await approve(gate.access.people, first)
        gate.now += CODE_VALID_S + 1
        with pytest.raises(MessageRejected, match="expired"):
            await approve(gate.access.people, second)
        shown = [await gate.code(f"p{n}", f"p{n}") for n in range(MAX_REQUESTS + 3)]
        assert sum(code is not None for code in shown) == MAX_REQUESTS
        gate.now += CODE_VALID_S + 1
        assert await gate.code("late", "late") is not None


async def test_after_several_wrong_codes_even_a_right_one_is_rejected_for_a_while(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        code = await gate.code()
        for _ in range(MAX_WRONG_CODES):
            with pytest.raises(MessageRejected, match="unknown or expired"):
                await approve(gate.access.people, "AAAA-AAAA")
        with pytest.raises(MessageRejected, match="wrong codes"):
            await approve(gate.access.people, code)
        gate.now += CODE_VALID_S + 1
        code = await gate.code(id="2")
        assert (await approve(gate.people, code, "owner")).role == "owner"


async def test_no_code_is_sent_in_a_group_or_with_pairing_off(tmp_path):
    async with open_store(tmp_path) as store:
        gate = Gate(store)
        assert not await gate.access.offer_code(hello(group=True))
        closed = Access(gate.people, GatewayPolicy(pairing=False))
        assert not await closed.offer_code(hello())
        assert await gate.people.list_requests() == ()


async def test_an_owner_can_pair_someone_from_a_chat(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider(["hi Eve"])) as g:
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
        assert "Eve, just now" in waiting and "unknown or expired code" in wrong and "Usage: /pair CODE" in what
        assert done == "Eve now has access on test (role: owner)."
        await g.take("hello!", sender="eve", chat="eve")
        await g.messenger.until(lambda: g.messenger.said("eve")[-1] == "hi Eve")
        assert len(g.messenger.said("eve")) == 3


async def test_handled_messages_are_deleted_after_a_week(tmp_path):
    async with open_store(tmp_path) as store:
        now = [1000.0]
        arrivals = InboxStore(store.database, clock=lambda: now[0])
        assert await arrivals.add(hello()) and not await arrivals.add(hello())
        assert await arrivals.contains("test", "1") and not await arrivals.contains("other", "1")
        now[0] += KEEP_S * 2
        assert await arrivals.delete_old() == 0, "it is still waiting"
        await arrivals.mark_handled("test", "1", owed=(Outbound("o", EVE, "done"),))
        await arrivals.mark_handled("test", "1", owed=(Outbound("o", EVE, "done"),))
        assert await arrivals.list_waiting("test") == ()
        assert (await store.outbox.head(lane(EVE))).outbound.text == "done"
        now[0] += KEEP_S * 2
        assert await arrivals.delete_old() == 1 and not await arrivals.contains("test", "1")
