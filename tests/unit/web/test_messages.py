"""Messages over HTTP: pages by number, long results, pictures, facts about runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.sql.transcript import PageQuery, TranscriptStore
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import play
from tests.world.api_harness import ApiHarness, open_api

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


async def seen(api: ApiHarness, path: str, *, by: str = "ann") -> Any:
    answer = await api.ask("GET", path, by=by)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def record(api: ApiHarness, *messages: Message, chat: str = "talk", text: str = "go") -> str:
    """A finished turn with these messages, as a process would record it; returns its session."""
    store = api.house.store
    address = Address("api", chat, user="ann")
    await store.turns.accept(Inbound(f"{chat}-{text}", address, "ann", text))
    turn = await store.turns.claim_next(address.key)
    assert turn is not None
    for message in (turn.inbound.message, *messages):
        await store.turns.record(turn, Said(message))
    await store.turns.finish(turn, "answered", "")
    await store.turns.release(address.key)
    return turn.session


async def test_messages_are_read_page_by_page_in_both_directions(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        for n in range(5):
            await record(api, Message("assistant", (Text(f"a{n}"),)), text=f"q{n}")
        newest = await seen(api, "/sessions/talk/messages?limit=4")
        assert [each["text"] for each in newest["messages"]] == ["q3", "a3", "q4", "a4"]
        assert (newest["total"], newest["more_before"], newest["more_after"]) == (10, True, False)
        older = await seen(api, f"/sessions/talk/messages?limit=4&before={newest['first']}")
        assert [each["text"] for each in older["messages"]] == ["q1", "a1", "q2", "a2"]
        assert older["more_before"] and older["more_after"]
        again = await seen(api, f"/sessions/talk/messages?limit=4&after={older['last']}")
        assert again["messages"] == newest["messages"] and not again["more_after"]
        middle = await seen(api, f"/sessions/talk/messages?limit=3&around={older['last']}")
        assert [each["text"] for each in middle["messages"]] == ["q2", "a2", "q3"]
        first = await seen(api, f"/sessions/talk/messages?limit=50&before={older['first']}")
        assert [each["text"] for each in first["messages"]] == ["q0", "a0"] and not first["more_before"]


async def test_each_message_names_its_run_its_time_and_its_place_in_the_run(tmp_path: Path):
    async with open_api(tmp_path, play("One.", "Two.")) as api:
        run = await api.begin("first", session="talk")
        await api.finish(run)
        page = await seen(api, "/sessions/talk/messages")
        assert [(each["role"], each["run"], each["said"]) for each in page["messages"]] == [
            ("user", run, 1),
            ("assistant", run, 2),
        ]
        facts = page["runs"][run]
        assert facts["status"] == "answered" and facts["ended"] >= facts["created"] > 0
        assert page["messages"][0]["created"] > 0 and page["messages"][0]["sender"] == "ann"


async def test_an_undone_run_is_not_shown(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        for n in range(3):
            await record(api, Message("assistant", (Text(f"a{n}"),)), text=f"q{n}")
        await api.house.store.sessions.undo(Address("api", "talk", user="ann").key)
        page = await seen(api, "/sessions/talk/messages")
        assert [each["text"] for each in page["messages"]] == ["q0", "a0", "q1", "a1"] and page["total"] == 4


async def test_a_fork_shows_what_it_shares_and_pages_across_it(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await record(api, Message("assistant", (Text("a0"),)), text="q0")
        await record(api, Message("assistant", (Text("a1"),)), text="q1")
        numbers = [each["number"] for each in (await seen(api, "/sessions/talk/messages"))["messages"]]
        forked = await api.ask("POST", "/sessions/talk/fork", {"name": "other", "message": numbers[1]})
        assert forked.status_code == 201, forked.text
        await record(api, Message("assistant", (Text("b1"),)), chat="other", text="p1")
        page = await seen(api, "/sessions/other/messages?limit=3")
        assert [each["text"] for each in page["messages"]] == ["a0", "p1", "b1"]
        assert page["total"] == 4 and page["more_before"]
        deeper = await api.ask("POST", "/sessions/other/fork", {"name": "third", "message": numbers[0]})
        assert deeper.status_code == 201
        page = await seen(api, "/sessions/third/messages")
        assert [each["text"] for each in page["messages"]] == ["q0", "a0"]
        missing = await api.ask("POST", "/sessions/talk/fork", {"message": 10**9})
        assert (missing.status_code, missing.json()["code"]) == (404, "no_message")


async def test_a_long_result_is_cut_off_and_can_be_fetched_whole(tmp_path: Path):
    call, text = ToolCall("c:1 ü", "terminal", {"command": "npm test"}), "ä" * 40_000
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await record(
            api,
            Message("assistant", (call,)),
            Message("tool", (ToolResult(call.id, text, "failed"),)),
            Message("assistant", (Text("done"),)),
        )
        _, asked, answered, _ = (await seen(api, "/sessions/talk/messages"))["messages"]
        assert asked["calls"] == [{"id": call.id, "name": "terminal", "args": call.args, "label": "Run npm test"}]
        (result,) = answered["results"]
        assert (len(result["text"]), result["length"], result["truncated"]) == (16_384, 40_000, True)
        assert (result["name"], result["outcome"], result["error"]) == ("terminal", "failed", True)
        path = f"/sessions/talk/messages/{answered['number']}/results/c:1%20%C3%BC"
        whole = await api.ask("GET", path)
        assert whole.text == text and whole.headers["content-type"].startswith("text/plain")
        alone = await seen(api, f"/sessions/talk/messages?limit=1&around={answered['number']}")
        assert alone["messages"][0]["results"][0]["name"] == "terminal", "the call is on the page before"


async def test_a_command_that_failed_says_how(tmp_path: Path):
    calls = [ToolCall("a", "terminal", {"command": "make"}), ToolCall("b", "terminal", {"command": "true"})]
    calls.append(ToolCall("c", "read_file", {"path": "log"}))
    texts = ["no rule\n[exit code 2]", "[exit code 0]", "said\n[exit code 2]"]
    async with open_api(tmp_path, ScriptedProvider()) as api:
        results = tuple(ToolResult(call.id, text) for call, text in zip(calls, texts, strict=True))
        await record(
            api, Message("assistant", tuple(calls)), Message("tool", results), Message("assistant", (Text("x"),))
        )
        shown = (await seen(api, "/sessions/talk/messages"))["messages"][2]["results"]
    assert [each.get("problem", "") for each in shown] == ["exit code 2", "", ""]


async def test_pictures_are_served_as_pictures_only(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        call = ToolCall("c", "look", {})
        await record(
            api,
            Message("user", (Text("see"), Image("image/png", PNG))),
            Message("assistant", (call,)),
            Message("tool", (ToolResult("c", "", images=(Image("image/png", b"<script>"), Image("image/png", PNG))),)),
        )
        _, given, _, shown = (await seen(api, "/sessions/talk/messages"))["messages"]
        assert given["images"] == [{"id": 0, "type": "image/png", "size": len(PNG)}]
        assert [each["id"] for each in shown["results"][0]["images"]] == [0, 1]
        picture = await api.ask("GET", f"/sessions/talk/messages/{given['number']}/images/0")
        assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")
        assert picture.headers["x-content-type-options"] == "nosniff"
        for path in (
            f"{shown['number']}/images/0",
            f"{given['number']}/images/1",
            f"{given['number']}/images/x",
            "9/images/0",
        ):
            answer = await api.ask("GET", f"/sessions/talk/messages/{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "no_message"), path


async def test_the_cost_of_a_page_does_not_grow_with_the_conversation(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        database, steps = api.house.store.database, list[int]()

        def watch(db: Any) -> None:
            db.set_progress_handler(lambda: steps.append(1), 10)

        async def cost_after(turns: range) -> int:
            for n in turns:
                session = await record(api, Message("assistant", (Text("x" * 500),)), text=f"q{n}")
            steps.clear()
            await TranscriptStore(database).page(session, PageQuery(10))
            return len(steps)

        await database.read_long(watch)
        few = await cost_after(range(10))
        many = await cost_after(range(10, 80))
        assert many < few * 1.5


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "before=-1", "before=x", "before=1&after=2", "around=99999999999999999999"]
)
async def test_a_wrong_query_is_refused(tmp_path: Path, query: str):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await record(api)
        assert (await api.ask("GET", f"/sessions/talk/messages?{query}")).status_code == 422


async def test_the_messages_of_others_are_not_found(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        session = await record(api)
        for path in ("", "/1/results/c", "/1/images/0"):
            assert (await api.ask("GET", f"/sessions/{session}/messages{path}", by="bob")).status_code == 404
        assert (await seen(api, f"/sessions/{session}/messages", by="phone"))["total"] == 1


async def test_the_cut_off_answer_of_a_stopped_run_is_marked(tmp_path: Path):
    async with open_api(tmp_path, play(("Half an", asyncio.Event()))) as api:
        run = await api.begin("go", session="talk")
        async with api.listening(run) as listener:
            await listener.until("text_delta")
            await api.ask("POST", f"/runs/{run}/stop")
            await listener.rest()
        page = await seen(api, "/sessions/talk/messages")
        assert page["runs"][run]["status"] == "stopped"
        last = page["messages"][-1]
        assert (last["role"], last["partial"]) == ("assistant", True) and last["text"].startswith("Half an")
