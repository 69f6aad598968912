"""Runs over HTTP, at a real door: begun once, looked at, stopped, steered, answered; each to its own caller."""

import asyncio
from pathlib import Path

import pytest

from alipes.kernel.turns import Address, Inbound
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Admission
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import Hand, call, play
from tests.world.api_harness import open_api
from tests.world.session_harness import open_sessions


def held() -> tuple[asyncio.Event, Hand]:
    """A tool that works until it is cancelled, and the sign that it has begun."""
    begun = asyncio.Event()

    async def work(_args: object, _act: object) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    return begun, Hand("hold", does=work)


def _terminal() -> Address:
    return Address("terminal", "main")


async def test_a_run_is_accepted_at_once_and_its_answer_is_there_later(tmp_path: Path):
    async with open_api(tmp_path, play("It is four.")) as api:
        answer = await api.ask("POST", "/runs", {"input": "two and two?", "session": "sums"})
        assert answer.status_code == 202
        run = answer.json()
        assert answer.headers["location"] == f"/v1/runs/{run['id']}"
        assert (run["status"], run["session"]) == ("queued", "sums")
        seen = await api.finish(run["id"])
    assert (seen["status"], seen["text"], seen["input"]) == ("answered", "It is four.", "two and two?")
    assert seen["usage"]["output"] and seen["ended"] >= seen["created"]


async def test_what_is_sent_along_reaches_the_model(tmp_path: Path):
    model, hand, other = play("Fine."), Hand("one"), Hand("two")
    picture = "data:image/png;base64,aGVsbG8="
    async with open_api(tmp_path, model, hand, other) as api:
        run = await api.begin("look", images=[picture], instructions="Be brief.", tools=["one"], model="a/b")
        await api.finish(run)
        (facts,) = [await api.house.store.archive.turn(run)]
    assert facts is not None
    inbound = facts.inbound
    assert (inbound.instructions, inbound.only, inbound.model) == ("Be brief.", ("one",), "a/b")
    assert inbound.attachments[0].data == b"hello" and model.asked[0].messages[-1].parts[1].data == b"hello"


async def test_runs_of_one_session_follow_each_other_and_remember(tmp_path: Path):
    model = play("One.", "Two.")
    async with open_api(tmp_path, model) as api:
        runs = [await api.begin(word, session="same") for word in ("first", "second")]
        texts = [(await api.finish(run))["text"] for run in runs]
    assert texts == ["One.", "Two."]
    assert [message.text for message in model.asked[1].messages] == ["first", "One.", "second"]


async def test_the_same_key_is_the_same_run_also_for_many_at_once_and_after_a_restart(tmp_path: Path):
    body = {"input": "pay the bill", "session": "bills"}
    async with open_api(tmp_path, ScriptedProvider()) as api:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(api.ask("POST", "/runs", body, idempotency_key="k1")) for _ in range(8)]
        ids = {task.result().json()["id"] for task in asked}
        assert {task.result().status_code for task in asked} == {202} and len(ids) == 1
        assert sum("idempotent-replayed" in task.result().headers for task in asked) == 7
        await api.finish(*ids)
    async with open_api(tmp_path, ScriptedProvider()) as api:
        again = await api.ask("POST", "/runs", body, idempotency_key="k1")
        assert (again.status_code, again.json()["id"]) == (202, *ids)
        assert again.json()["status"] == "answered"
        assert len(await api.house.store.archive.messages(again.json()["session_id"])) == 2


async def test_the_same_key_for_something_else_is_refused_and_for_somebody_else_is_another(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        first = await api.ask("POST", "/runs", {"input": "one"}, idempotency_key="k")
        other = await api.ask("POST", "/runs", {"input": "two"}, idempotency_key="k")
        theirs = await api.ask("POST", "/runs", {"input": "two"}, by="bob", idempotency_key="k")
        long = await api.ask("POST", "/runs", {"input": "two"}, idempotency_key="k" * 256)
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_conflict")
        assert theirs.status_code == 202 and theirs.json()["id"] != first.json()["id"]
        assert long.status_code == 422


async def test_what_a_plugin_rewrote_is_still_the_same_and_what_it_drops_is_refused(tmp_path: Path):
    hooks = Hooks()

    async def before_message(inbound: Inbound) -> Admission:
        return Admission("drop", "not that") if "secret" in inbound.text else Admission("rewrite", "changed")

    hooks.add(CORE, before_message)
    async with open_api(tmp_path, ScriptedProvider(), hooks=hooks) as api:
        ids = [(await api.ask("POST", "/runs", {"input": "one"}, idempotency_key="k")).json()["id"] for _ in range(2)]
        assert ids[0] == ids[1] and (await api.look(ids[0]))["input"] == "changed"
        refused = await api.ask("POST", "/runs", {"input": "a secret"})
        assert (refused.status_code, refused.json()["detail"]) == (422, "not that")


async def test_a_stop_ends_the_run_and_cancels_its_tool(tmp_path: Path):
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold")), hand) as api:
        run = await api.begin("hold on")
        await begun.wait()
        assert (await api.look(run))["status"] == "running"
        stopped = await api.ask("POST", f"/runs/{run}/stop")
        assert stopped.status_code == 202
        seen = await api.finish(run)
        assert (seen["status"], seen["detail"]) == ("stopped", "user_stop")
        again = await api.ask("POST", f"/runs/{run}/stop")
        assert (again.status_code, again.json()["status"]) == (202, "stopped")


async def test_a_run_that_waits_behind_another_is_queued_and_can_be_stopped_before_it_begins(tmp_path: Path):
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold")), hand) as api:
        first = await api.begin("hold on", session="s")
        await begun.wait()
        second = await api.begin("and then", session="s")
        assert (await api.look(second))["status"] == "queued"
        await api.ask("POST", f"/runs/{second}/stop")
        await api.ask("POST", f"/runs/{first}/stop")
        seen = await api.finish(second)
        assert seen["status"] == "stopped" and "text" not in seen


async def test_a_stop_holds_the_queued_runs_until_they_are_sent_or_dropped(tmp_path: Path):
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold"), "Third."), hand) as api:
        first = await api.begin("hold on", session="s")
        await begun.wait()
        second = await api.begin("and then", session="s", busy="queue")
        third = await api.begin("and last", session="s", busy="queue")
        stopped = (await api.ask("POST", f"/runs/{first}/stop")).json()
        assert stopped["held"] == [second, third]
        await api.finish(first)
        assert (await api.look(second))["status"] == (await api.look(third))["status"] == "held"
        listed = (await api.ask("GET", "/runs?status=held")).json()["runs"]
        assert [each["id"] for each in listed] == [third, second]
        dropped = await api.ask("POST", "/sessions/s/queue", {"action": "drop", "run": second})
        assert dropped.json() == {"runs": [second]}
        seen = await api.finish(second)
        assert (seen["status"], seen["detail"]) == ("stopped", "dropped")
        assert (await api.ask("POST", "/sessions/s/queue", {"action": "send"})).json() == {"runs": [third]}
        assert (await api.finish(third))["text"] == "Third."


async def test_a_run_for_a_busy_conversation_reaches_the_running_one(tmp_path: Path):
    begun, opened = asyncio.Event(), asyncio.Event()

    async def work(_args: object, _act: object) -> str:
        begun.set()
        await opened.wait()
        return "went through"

    async with open_api(tmp_path, play(call("c", "hold"), "Both."), Hand("hold", does=work)) as api:
        first = await api.begin("hold on", session="s")
        await begun.wait()
        second = await api.begin("and this", session="s")
        opened.set()
        assert (await api.finish(first))["text"] == "Both."
        seen = await api.finish(second)
        assert (seen["status"], seen["detail"]) == ("steered", first)


async def test_an_interrupting_run_ends_the_one_that_lives(tmp_path: Path):
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold"), "Now this."), hand) as api:
        first = await api.begin("hold on", session="s")
        await begun.wait()
        second = await api.begin("rather this", session="s", busy="interrupt")
        assert (await api.finish(second))["text"] == "Now this."
        seen = await api.look(first)
        assert (seen["status"], seen["detail"]) == ("stopped", "superseded")


async def test_what_is_steered_into_a_run_is_taken_in_at_its_next_step(tmp_path: Path):
    go, begun = asyncio.Event(), asyncio.Event()

    async def work(_args: object, _act: object) -> str:
        begun.set()
        await go.wait()
        return "done"

    model = play(call("c", "slow"), "Both then.")
    async with open_api(tmp_path, model, Hand("slow", does=work)) as api:
        run = await api.begin("do it")
        await begun.wait()
        steered = [
            await api.ask("POST", f"/runs/{run}/steer", {"input": "and that"}, idempotency_key="s") for _ in range(2)
        ]
        assert {answer.status_code for answer in steered} == {202}
        assert steered[0].json() == steered[1].json()
        go.set()
        assert (await api.finish(run))["text"] == "Both then."
        assert (await api.look(steered[0].json()["message"]))["status"] == "steered"
        late = await api.ask("POST", f"/runs/{run}/steer", {"input": "too late"})
        assert (late.status_code, late.json()["code"]) == (409, "over")
    assert "and that" in [message.text for message in model.asked[1].messages]


@pytest.mark.parametrize("way", ["", "/events", "/stop", "/steer", "/approval", "/reply"])
async def test_a_run_of_somebody_else_does_not_exist_but_for_admins(tmp_path: Path, way: str):
    bodies = {"/steer": {"input": "x"}, "/approval": {"choice": "no"}, "/reply": {"text": "x"}}
    method = "GET" if way in ("", "/events") else "POST"
    begun, hand = held()
    async with open_api(tmp_path, play(call("c", "hold")), hand) as api:
        run = await api.begin("mine")
        await begun.wait()
        theirs = await api.ask(method, f"/runs/{run}{way}", bodies.get(way), by="bob")
        none = await api.ask(method, f"/runs/nothing{way}", bodies.get(way), by="root")
        assert (theirs.status_code, theirs.json()["code"]) == (404, "no_run")
        assert (none.status_code, none.json()["code"]) == (404, "no_run")
        assert (await api.look(run, by="root"))["input"] == "mine"
        assert (await api.ask("POST", f"/runs/{run}/stop", by="root")).status_code == 202


async def test_a_run_continues_in_the_session_whose_id_is_named(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        first = await api.finish(await api.begin("one", session="talk"))
        second = await api.finish(await api.begin("two", session=first["session_id"]))
        assert (second["session"], second["session_id"]) == ("talk", first["session_id"])
        theirs = await api.ask("POST", "/runs", {"input": "x", "session": first["session_id"]}, by="bob")
        assert (theirs.status_code, theirs.json()["code"]) == (404, "no_session")
        other = await api.finish(await api.begin("x", session="talk", by="bob"), by="bob")
        assert other["session_id"] != first["session_id"]


async def test_a_session_of_the_terminal_is_continued_by_an_admin_as_the_owner(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        turn = await api.house.sessions.submit(Inbound("1", _terminal(), "me", "hello"))
        assert turn is not None
        seen = await api.finish(turn, by="root")
        assert seen["text"] == "You said: hello"
        theirs = await api.ask("POST", "/runs", {"input": "x", "session": seen["session_id"]}, by="ann")
        assert (theirs.status_code, theirs.json()["code"]) == (404, "no_session")
        run = await api.finish(await api.begin("x", session=seen["session_id"], by="page"), by="page")
        assert run["session_id"] == seen["session_id"]
        path = f"/sessions/{seen['session_id']}/messages"
        said = (await api.ask("GET", path, by="page")).json()["messages"]
        marks = [(each["text"], each["sender"], each.get("via", "")) for each in said if each["role"] == "user"]
        assert marks == [("hello", "me", ""), ("x", "owner", "page")]


async def test_a_message_of_the_owner_in_a_guests_chat_has_the_rights_and_notes_of_the_guest(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        chat, source = Address("telegram", "42"), "a message of Eve"
        turn = await api.house.sessions.submit(Inbound("1", chat, "42", "hello", workdir="/w", untrusted=source))
        assert turn is not None
        session = (await api.finish(turn, by="page"))["session_id"]
        run = await api.begin("be nice", session=session, by="page")
        await api.finish(run, by="page")
        facts = await api.house.store.archive.turn(run)
        assert facts is not None and facts.inbound.via == "page"
        given = (facts.inbound.sender, facts.inbound.owner, facts.inbound.untrusted, facts.inbound.workdir)
        assert given == ("42", False, source, "/w")


async def test_a_message_of_the_owner_in_a_group_names_its_sender(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        chat = Address("telegram", "-5", "group")
        turn = await api.house.sessions.submit(Inbound("1", chat, "42", "Ann: hello"))
        assert turn is not None
        session = (await api.finish(turn, by="page"))["session_id"]
        run = await api.finish(await api.begin("hi all", session=session, by="page"), by="page")
        assert run["input"] == "Owner: hi all"


async def test_a_turn_that_another_process_lives_is_heard_and_stopped_from_here(tmp_path: Path):
    model = play(("Half", asyncio.Event()))
    async with open_sessions(tmp_path, model) as other, open_api(tmp_path, ScriptedProvider()) as api:
        turn = await other.sessions.submit(Inbound("1", _terminal(), "me", "hello"))
        assert turn is not None
        async with api.listening(turn, by="root") as listener:
            assert (await listener.until("said")).text == "hello"
            assert (await api.ask("POST", f"/runs/{turn}/stop", by="root")).status_code == 202
            assert (await listener.until("turn_ended")).data["ending"] == "stopped"
        assert model.living == 0
