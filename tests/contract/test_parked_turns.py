"""Contract of every store for turns that wait for a limit, and what sessions make of it."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from alipes.agent.loop import Agent
from alipes.agent.model_call import RetryPolicy
from alipes.kernel.errors import Fenced, OutOfCredit, Transient
from alipes.kernel.messages import user
from alipes.kernel.turns import Address, Inbound, Notice, Said, Stop, TurnEnded, TurnParked, TurnStarted
from alipes.providers.registry import Backend
from alipes.testing.scripted_provider import ScriptedProvider
from tests.contract.test_turn_store import HERE, accept_and_claim, make_inbound
from tests.world.session_harness import inbound, open_sessions

FAR = 9_999_999_999.0


def opening(turn):
    return (turn.inbound.message,) if turn.attempt == 1 else ()


async def park(store, id="1", until=FAR, address=HERE):
    await store.turns.accept(make_inbound(id, address))
    turn = await store.turns.claim_next(address.key, opening)
    await store.turns.park(turn, until, "a limit")
    if until >= FAR:
        assert await store.turns.claim_next(address.key, release=True) is None
    return turn


async def test_a_parked_turn_is_not_claimed_before_its_time_and_its_session_is_released(opened):
    async with opened() as store:
        turn = await park(store)
        assert await store.turns.holder(HERE.key) is None
        assert await store.turns.list_parked() == ((HERE.key, FAR),)
        assert await store.turns.list_orphans() == ()
        assert not await store.turns.is_abandoned(HERE.key)
        (pending,) = await store.sessions.unfinished(HERE.key)
        assert (pending.id, pending.resumes_at, pending.started_at is None) == (turn.id, FAR, False)
        facts = await store.archive.turn(turn.id)
        assert (facts.ending, facts.detail, facts.resume_at) == (None, "a limit", FAR)


async def test_it_is_claimed_once_when_its_time_has_come_with_all_that_it_said(opened):
    async with opened() as store:
        first = await park(store, until=time.time() - 1)
        again = await store.turns.claim_next(HERE.key, opening)
        assert (again.id, again.said, again.attempt) == (first.id, (user("hello"),), 2)
        assert await store.turns.list_parked() == ()
        with pytest.raises(Fenced):
            await store.turns.park(first, FAR, "too late")
        assert (await store.archive.turn(first.id)).detail == ""


async def test_waiting_for_limits_does_not_count_towards_the_attempts_after_which_a_turn_is_given_up(opened):
    async with opened() as store:
        await park(store, until=1.0)
        for _ in range(5):
            turn = await store.turns.claim_next(HERE.key)
            assert turn.attempt == 2
            await store.turns.park(turn, 1.0, "a limit")


async def test_messages_behind_a_parked_turn_wait_for_it(opened):
    async with opened() as store:
        first = await park(store)
        await store.turns.accept(make_inbound("2"))
        assert await store.turns.claim_next(HERE.key) is None
        await store.turns.put_op(HERE.key, Stop("user_stop", "stop_command", first.id))
        assert (await store.turns.claim_next(HERE.key)).id == first.id


async def test_a_stop_of_the_parked_turn_makes_it_claimable_but_not_one_of_another_turn(opened):
    async with opened() as store:
        turn = await park(store)
        await store.turns.put_op(HERE.key, Stop("user_stop", "stop_command", "another"))
        assert await store.turns.claim_next(HERE.key) is None
        await store.turns.put_op(HERE.key, Stop("user_stop", "stop_command", turn.id))
        assert (await store.turns.claim_next(HERE.key)).id == turn.id


async def test_leaving_the_conversation_ends_a_parked_turn(opened):
    async with opened() as store:
        turn = await park(store)
        await store.sessions.reset(HERE.key)
        facts = await store.archive.turn(turn.id)
        assert (facts.ending, facts.detail, facts.resume_at) == ("stopped", "reset", 0.0)
        claimed = await accept_and_claim(store, make_inbound("2"))
        assert claimed.inbound.id == "2"


async def test_list_parked_names_the_first_ones_first(opened):
    async with opened() as store:
        others = [Address("cli", name) for name in ("a", "b", "c")]
        for place, until in zip(others, (300.0, 100.0, 200.0), strict=True):
            await park(store, place.chat, FAR + until, place)
        assert [key for key, _ in await store.turns.list_parked()] == [others[n].key for n in (1, 2, 0)]


# What sessions make of it ------------------------------------------------------------------------------------------


def limit(seconds):
    error = Transient("x is unavailable (429)", seconds, brief="Rate limit of test reached")
    error.status = 429
    return error


class Model:
    def __init__(self, provider, on_limit):
        self.provider, self.on_limit = provider, on_limit

    async def open(self, name):
        return Backend(name, "m", self.provider, on_limit=self.on_limit)


@asynccontextmanager
async def house(opened, provider, on_limit="wait", fallback=(), idle=0.05):
    def agent(_turn):
        return Agent(Model(provider, on_limit), "test/m", fallback, retry=RetryPolicy(attempts=1, max_wait=0.0))

    async with open_sessions(
        None, provider, agent=agent, opener=lambda _home: opened(), waits_for_limits=True, idle_seconds=idle
    ) as running:
        yield running


async def read_until(following, kind):
    async for event in following:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


async def test_a_turn_waits_for_its_limit_tells_until_when_and_resumes_by_itself(opened):
    provider = ScriptedProvider([limit(0.2), "hi"])
    async with house(opened, provider) as home:
        end = await home.ask(inbound("1", "hello"))
        assert end.ending == "answered"
        (parked,) = [each for each in home.events if isinstance(each, TurnParked)]
        assert parked.text.startswith("Rate limit of test reached. Resumes at ")
        assert parked.text.endswith("; /stop ends the wait.")
        starts = [each.attempt for each in home.events if isinstance(each, TurnStarted)]
        assert starts == [1, 2]
        said = [each.message.text for each in home.events if isinstance(each, Said)]
        assert said == ["hello", "hi"]
        assert len(provider.asked) == 2


async def test_the_last_turn_of_a_process_that_exits_afterwards_waits_and_resumes_there(opened):
    async with house(opened, ScriptedProvider([limit(0.2), "hi"]), idle=600.0) as home:
        message = inbound("1", "hello")
        async with home.sessions.ask(message) as following:
            home.sessions.activity.final_turns[message.address.key] = following.turn
            assert (await asyncio.wait_for(read_until(following, TurnEnded), 30)).ending == "answered"


async def test_it_holds_no_session_while_it_waits_and_a_stop_ends_it(opened):
    async with house(opened, ScriptedProvider([limit(3600.0)])) as home:
        message = inbound("1", "hello")
        async with home.sessions.ask(message) as following:
            parked = await read_until(following, TurnParked)
            await home.sessions.activity.wait_idle(message.address.key)
            assert await home.store.turns.holder(message.address.key) is None
            stopped = await home.sessions.stop(message.address.key, Stop("user_stop", "stop_command"))
            assert stopped.turn == parked.turn
            ended = await read_until(following, TurnEnded)
        assert (ended.ending, ended.detail) == ("stopped", "user_stop")
        assert await home.store.turns.list_parked() == ()


async def test_a_stop_that_comes_while_the_turn_is_being_parked_is_obeyed(opened):
    async with house(opened, ScriptedProvider([limit(3600.0)])) as home:
        message = inbound("1", "hello")
        park_now = home.store.turns.park

        async def park_late(turn, *given, **more):
            home.sessions._on_op(turn.key, Stop("user_stop", "stop_command", turn.id))
            await park_now(turn, *given, **more)

        home.store.turns.park = park_late
        assert (await home.ask(message)).ending == "stopped"


async def test_a_new_message_may_end_the_wait(opened):
    async with house(opened, ScriptedProvider([limit(3600.0), "second"])) as home:
        async with home.sessions.ask(inbound("1", "hello")) as first:
            await read_until(first, TurnParked)
            end = await asyncio.wait_for(_ask(home, inbound("2", "again"), "interrupt"), 30)
            assert (await read_until(first, TurnEnded)).detail == "superseded"
        assert end.ending == "answered"


async def _ask(home, message, busy):
    async with home.sessions.ask(message, busy) as following:
        return await read_until(following, TurnEnded)


async def test_the_model_is_never_changed_silently_while_a_limit_lasts(opened):
    provider = ScriptedProvider([limit(0.05), limit(0.05), "hi"])
    async with house(opened, provider, fallback=("test/other",)) as home:
        end = await home.ask(inbound("1", "hello"))
        models = [each.model for each in home.events if isinstance(each, Said) and each.model]
        assert (end.ending, models) == ("answered", ["test/m"])
        assert not [each for each in home.events if isinstance(each, Notice)]


@pytest.mark.parametrize("on_limit", ["fallback", "fail"])
async def test_without_waiting_a_limit_changes_the_model_or_fails(opened, on_limit):
    provider = ScriptedProvider([limit(3600.0), "hi"])
    async with house(opened, provider, on_limit, ("test/other",)) as home:
        end = await home.ask(inbound("1", "hello"))
        assert end.ending == ("answered" if on_limit == "fallback" else "failed")
        assert await home.store.turns.list_parked() == ()


async def test_credit_without_a_time_is_no_limit_to_wait_for(opened):
    async with house(opened, ScriptedProvider([OutOfCredit("test is out of credit")])) as home:
        assert (await home.ask(inbound("1", "hello"))).ending == "failed"


async def test_a_turn_parked_by_a_process_that_ended_is_resumed_by_the_next(opened):
    async with house(opened, ScriptedProvider([limit(0.3)])) as home, home.sessions.ask(inbound("1", "hello")) as first:
        parked = await read_until(first, TurnParked)
    async with house(opened, ScriptedProvider(["hi"])) as home, home.sessions.follow(HERE_KEY, parked.turn) as again:
        assert (await read_until(again, TurnEnded)).ending == "answered"


HERE_KEY = Inbound("1", Address("test", "me"), "me", "hello").address.key
