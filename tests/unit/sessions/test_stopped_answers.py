"""A turn that is stopped keeps what the model had said, and what that used is counted."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.agent.budget import ESTIMATED_TASK, SpendingLimits
from alipes.config.settings import Amount, SpendConfig
from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import ModelReply, Said, Stop, TextDelta, TurnEnded, Usage
from alipes.store.sql.usage import UsageLedger
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.features.openai.openai_harness import open_desk
from tests.world.api_harness import open_api
from tests.world.session_harness import inbound, make_agent, open_sessions

KEY = inbound("", "").address.key


class Counted:
    """Agents that share one ledger; it needs a store, which is opened later."""

    def __init__(self, provider, spend=None):
        self.provider, self.spend, self.store = provider, spend, None

    def __call__(self, _turn):
        ledger = UsageLedger(self.store.database)
        return make_agent(self.provider, spending=SpendingLimits(ledger, self.spend))


@asynccontextmanager
async def open_counted(home, script, spend=None):
    counted = Counted(ScriptedProvider(script), spend)
    async with open_sessions(home, counted.provider, agent=counted) as house:
        counted.store = house.store
        yield house


async def stop_after_first_words(house, id="1"):
    """Ask, and stop once the model has said something; all events."""
    events = []
    async with house.sessions.ask(inbound(id, "tell me a story")) as following:
        async for event in following:
            events.append(event)
            if isinstance(event, TextDelta):
                await house.sessions.post(KEY, Stop())
    return events


async def test_a_stopped_turn_keeps_the_text_so_far(tmp_path):
    async with open_counted(tmp_path, [("Once upon", asyncio.Event())]) as house:
        events = await stop_after_first_words(house)
        facts = await house.store.archive.turn(events[-1].turn)
    assert (facts.ending, facts.said[-1].role) == ("stopped", "assistant")
    assert facts.said[-1].text and "Once upon".startswith(facts.said[-1].text)
    assert events[-2] == Said(facts.said[-1], partial=True)


async def test_the_next_turn_sees_the_text_of_the_stopped_one(tmp_path):
    async with open_counted(tmp_path, [("Once", asyncio.Event()), "Fine."]) as house:
        await stop_after_first_words(house)
        await house.ask(inbound("2", "go on"))
        messages = await house.store.archive.messages((await house.store.archive.sessions())[0].id)
    assert [message.text for message in messages] == ["tell me a story", "Once", "go on", "Fine."]


async def test_the_usage_of_a_stopped_answer_is_estimated_and_marked_so(tmp_path):
    async with open_counted(tmp_path, [("Once upon a time", asyncio.Event())]) as house:
        ended = (await stop_after_first_words(house))[-1]
        (task,) = await house.store.archive.usage_by("task")
        facts = await house.store.archive.turn(ended.turn)
    assert task.name == ESTIMATED_TASK and task.usage.input > 0
    assert isinstance(ended, TurnEnded) and ended.usage == facts.spent.usage == task.usage


async def test_usage_that_the_server_reported_is_not_estimated(tmp_path):
    reported = ModelReply(assistant(Text("Done.")), Usage(7, 3))
    async with open_counted(tmp_path, [reported, ("Half ", asyncio.Event())]) as house:
        await house.ask(inbound("1", "hello"))
        await stop_after_first_words(house, "2")
        tasks = {each.name: each for each in await house.store.archive.usage_by("task")}
    assert (tasks["answer"].usage.input, tasks["answer"].usage.output) == (7, 3)
    assert set(tasks) == {"answer", ESTIMATED_TASK}


async def test_spending_limits_count_stopped_answers(tmp_path):
    spend = SpendConfig(per_day=Amount("1 token", tokens=1))
    async with open_counted(tmp_path, [("Once ", asyncio.Event()), "unused"], spend) as house:
        await stop_after_first_words(house)
        end = await house.ask(inbound("2", "another one"))
    assert end.ending == "failed" and "spend.per_day" in end.detail


async def test_a_stopped_run_shows_its_text_and_usage(tmp_path):
    counted = Counted(ScriptedProvider([("Once upon", asyncio.Event())]))
    async with open_api(tmp_path, counted.provider, agent=counted) as api:
        counted.store = api.house.store
        run = await api.begin("tell me a story")
        async with api.listening(run) as listener:
            await listener.until("text_delta")
            await api.ask("POST", f"/runs/{run}/stop")
            events = await listener.rest()
        seen = await api.look(run)
    assert (seen["status"], seen["text"]) == ("stopped", events[-2].text)
    assert seen["text"] and seen["usage"]["input"] > 0
    assert events[-2].data["partial"] and events[-1].data["usage"] == seen["usage"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_chat_completion_whose_client_left_keeps_its_text_and_usage(tmp_path, stream):
    said = asyncio.Event()

    class Mark:
        async def wait(self):
            said.set()
            await asyncio.Event().wait()

    counted = Counted(ScriptedProvider([("Once upon", Mark())]))
    async with open_desk(tmp_path, counted.provider, agent=counted) as desk:
        counted.store = desk.store
        body = {"messages": [{"role": "user", "content": "a"}], "stream": stream}
        headers = {"authorization": "Bearer anns-key"}
        async with asyncio.TaskGroup() as group:
            request = group.create_task(desk.http.post("/v1/chat/completions", json=body, headers=headers))
            await said.wait()
            request.cancel()
        await desk.sessions.wait_idle()
        (session,) = await desk.list_sessions()
        messages = await desk.store.archive.messages(session.id)
        (task,) = await desk.store.archive.usage_by("task")
    assert [message.text for message in messages] == ["a", "Once upon"]
    assert task.name == ESTIMATED_TASK and task.usage.output > 0
