"""Responses that continue a named conversation, and responses read again as events."""

import asyncio

import pytest

from alipes.kernel.messages import Text, ToolCall
from alipes.kernel.turns import Address
from tests.unit.agent_harness import Hand
from tests.unit.features.openai.openai_harness import Desk, open_desk, read
from tests.unit.features.openai.test_responses import made, text_of


async def new_conversation(desk: Desk, name: str = "work", user: str = "ann") -> str:
    return (await desk.store.sessions.open(Address("api", name, user=user))).session


@pytest.mark.parametrize("form", ["id", "name", "object"])
async def test_a_response_continues_the_conversation_it_names(tmp_path, form):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        session = await new_conversation(desk)
        named = {"id": session, "name": "work", "object": {"id": session}}[form]
        first = await made(desk, "a", conversation=named)
        second = await made(desk, "b", conversation=named)
        assert [text for _, text in desk.asked()] == ["a", "one", "b"]
        assert first["conversation"] == second["conversation"] == {"id": session}
        assert [each.id for each in await desk.list_sessions()] == [session]


async def test_a_response_that_is_not_stored_leaves_the_conversation_as_it_was(tmp_path):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        session = await new_conversation(desk)
        await made(desk, "a", conversation=session, store=False)
        await made(desk, "b", conversation=session)
        assert [text for _, text in desk.asked()] == ["b"]
        assert [each.id for each in await desk.list_sessions()] == [session]


async def test_an_unknown_conversation_is_not_found(tmp_path):
    async with open_desk(tmp_path, ["one"]) as desk:
        answer = await desk.post("/v1/responses", input="a", conversation="none")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "conversation_not_found")
        assert not desk.provider.asked


async def test_a_conversation_of_somebody_else_is_not_found(tmp_path):
    async with open_desk(tmp_path, ["one"]) as desk:
        session = await new_conversation(desk)
        answer = await desk.post("/v1/responses", key="bobs-key", input="a", conversation=session)
        assert answer.status_code == 404


async def test_a_conversation_at_work_is_locked(tmp_path):
    never = asyncio.Event()
    async with open_desk(tmp_path, [("half", never)]) as desk:
        session = await new_conversation(desk)
        await made(desk, "a", conversation=session, background=True)
        answer = await desk.post("/v1/responses", key="anns-key", input="b", conversation=session)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conversation_locked")


async def test_a_request_names_a_conversation_or_a_response_but_not_both(tmp_path):
    async with open_desk(tmp_path, ["one"]) as desk:
        first = await made(desk, "a")
        body = {"input": "b", "conversation": "work", "previous_response_id": first["id"]}
        answer = await desk.post("/v1/responses", key="anns-key", **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "conversation")


async def test_a_finished_response_is_read_again_as_the_same_events(tmp_path):
    script = [(Text("I look."), ToolCall("x", "look", {})), "It is a cat."]
    async with open_desk(tmp_path, script, Hand("look", does="a cat")) as desk:
        live = await desk.streamed("/v1/responses", input="a")
        id = live[-1][1]["response"]["id"]
        again = await replayed(desk, id)
    assert joined(again) == joined(live)
    assert again[-1] == live[-1], "also with the same number"


@pytest.mark.parametrize("after", range(0, 30))
async def test_a_replay_starts_after_the_number_it_is_given(tmp_path, after):
    async with open_desk(tmp_path, ["It is a cat."]) as desk:
        live = await desk.streamed("/v1/responses", input="a")
        events = await replayed(desk, live[-1][1]["response"]["id"], after)
    seen = [each for each in live if each[1]["sequence_number"] <= after]
    assert all(data["sequence_number"] > after for _, data in events)
    if seen and seen[-1][1]["sequence_number"] == after:  # the number of an event that the client had
        assert text(seen) + text(events) == "It is a cat."
        assert [name for name, _ in (*seen, *events)][-1] == "response.completed"


async def test_an_unfinished_response_is_followed_to_its_end(tmp_path):
    go = asyncio.Event()
    async with open_desk(tmp_path, [("Half ", go, "done.")]) as desk, asyncio.TaskGroup() as group:
        first = await made(desk, "a", background=True)
        following = group.create_task(replayed(desk, first["id"]))
        while (await desk.get(f"/v1/responses/{first['id']}")).json()["status"] == "queued":
            await asyncio.sleep(0.01)
        go.set()
        events = await following
    assert text(events) == "Half done." and text_of(events[-1][1]["response"]) == "Half done."
    assert (events[0][0], events[-1][0]) == ("response.created", "response.completed")


async def replayed(desk: Desk, id: str, after: int | None = None) -> list[tuple[str, dict]]:
    more = "" if after is None else f"&starting_after={after}"
    answer = await desk.get(f"/v1/responses/{id}?stream=true{more}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [read(event) for event in answer.text.split("\n\n") if event.strip()]


def text(events: list[tuple[str, dict]]) -> str:
    return "".join(data["delta"] for name, data in events if name == "response.output_text.delta")


def joined(events: list[tuple[str, dict]]) -> list[str]:
    """The names of the official events, with adjacent deltas as one."""
    names = [name for name, _ in events if name != "alipes.tool"]
    return [name for place, name in enumerate(names) if place == 0 or names[place - 1] != name]
