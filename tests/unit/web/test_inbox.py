"""The inbox over HTTP: open questions of every surface, each answered once."""

import asyncio
from pathlib import Path
from typing import Any

from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.store.sql.approvals import Approval
from tests.unit.agent_harness import Hand, call, play
from tests.unit.web.test_run_approvals import open_guarded, waiting
from tests.world.api_harness import ApiHarness, open_api


async def inbox(api: ApiHarness, *, by: str = "page") -> list[dict[str, Any]]:
    answer = await api.ask("GET", "/inbox", by=by)
    assert answer.status_code == 200, answer.text
    questions: list[dict[str, Any]] = answer.json()["questions"]
    return questions


async def test_an_approval_is_listed_with_all_that_is_decided_and_answered(tmp_path: Path):
    hand = Hand("hand")
    async with open_guarded(tmp_path, call("c", "hand", x=1), "Done.", hand=hand) as api:
        run = await api.begin("go", session="talk")
        ask = await waiting(api, run)
        (question,) = await inbox(api)
        assert (question["ask"], question["kind"], question["run"], question["tool"]) == (ask, "approval", run, "hand")
        assert question["origin"] == "API · ann" and question["title"] == "go" and question["created"] > 0
        assert question["reason"] == "it explodes" and "x: 1" in question["command"]
        assert question["answers"] == ["once", "session", "always", "no"]
        listed = (await api.ask("GET", "/sessions/talk")).json()
        assert listed["status"] == "waiting"
        activity = (await api.ask("GET", "/sessions/talk/activity")).json()
        assert activity["run"] == run and [each["ask"] for each in activity["questions"]] == [ask]
        answer = await api.ask("POST", f"/inbox/{ask}", {"choice": "once"}, by="page")
        assert (answer.status_code, answer.json()) == (200, {"done": True})
        assert (await api.finish(run))["text"] == "Done." and len(hand.ran) == 1
        assert await inbox(api) == []


async def test_the_second_answer_is_refused_and_says_what_was_decided(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand"), "So not.") as api:
        run = await api.begin("go")
        ask = await waiting(api, run)
        answers = await asyncio.gather(
            *(api.ask("POST", f"/inbox/{ask}", {"choice": "no", "note": "too late"}, by=by) for by in ("root", "page"))
        )
        assert sorted(each.status_code for each in answers) == [200, 409]
        refused = next(each for each in answers if each.status_code == 409).json()
        assert refused["code"] == "answered" and "denied" in refused["detail"]
        assert "by root" in refused["detail"] or "by page" in refused["detail"]
        await api.finish(run)


async def test_only_who_may_see_a_conversation_answers_its_questions(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand"), "Done.") as api:
        run = await api.begin("go")
        ask = await waiting(api, run)
        assert await inbox(api, by="bob") == [] and len(await inbox(api, by="phone")) == 1
        for by, status in (("bob", 404), ("phone", 403)):
            assert (await api.ask("POST", f"/inbox/{ask}", {"choice": "once"}, by=by)).status_code == status
        for body, status in (({"choice": "always"}, 403), ({"text": "yes"}, 400), ({"choice": "maybe"}, 422)):
            assert (await api.ask("POST", f"/inbox/{ask}", body)).status_code == status
        pattern = {"choice": "once", "pattern": "git *"}
        assert (await api.ask("POST", f"/inbox/{ask}", pattern, by="page")).json()["code"] == "pattern"
        assert (await api.ask("POST", "/inbox/nothing", {"choice": "once"}, by="page")).status_code == 404
        await api.ask("POST", f"/inbox/{ask}", {"choice": "no"})
        await api.finish(run)


async def test_a_question_of_the_model_is_answered_once_from_any_surface(tmp_path: Path):
    turns: list[Turn] = []

    async def work(_args: object, _act: object) -> str:
        reply = await api.house.sessions.questions.ask_question(turns[0], "Which one?", ("red", "blue"), 30)
        return "nobody" if reply is None else f"{reply.text} by {reply.by}"

    async def before_tool(call: ToolCall, turn: Turn) -> None:
        turns.append(turn)

    hooks = Hooks()
    hooks.add(CORE, before_tool)
    async with open_api(tmp_path, play(call("c", "hand"), "Thanks."), Hand("hand", does=work), hooks=hooks) as api:
        run = await api.begin("ask me", session="talk")
        async with api.listening(run) as listener:
            await listener.until("asked")
            (question,) = await inbox(api)
            assert (question["kind"], question["run"], question["question"]) == ("question", run, "Which one?")
            assert question["choices"] == ["red", "blue"] and question["until"] > question["created"]
            path = f"/inbox/{question['ask']}"
            assert (await api.ask("POST", path, {"text": " "})).status_code == 400
            assert (await api.ask("POST", path, {"text": "red"}, by="page")).status_code == 200
            again = await api.ask("POST", path, {"text": "blue"})
            assert (again.status_code, again.json()["code"]) == (409, "answered")
            assert "by page: red" in again.json()["detail"]
            heard = await listener.until("heard")
            assert (heard.data["text"], heard.data["by"]) == ("red", "page")
            await listener.rest()
        assert await inbox(api) == []


async def test_an_approval_of_another_process_is_listed_and_answered(tmp_path: Path):
    async with open_guarded(tmp_path, "Hi.") as api:
        store, address = api.house.store, Address("terminal", "t1")
        turn = await store.turns.accept(Inbound("1", address, "me", "hello"))
        session = await store.sessions.active(address.key)
        assert turn is not None and session is not None
        row = Approval(
            "abcdefabcdef",
            session.session,
            address.key,
            turn,
            "terminal",
            '{"command":"rm x"}',
            "/w",
            "risky",
            "rule",
            1.0,
        )
        await store.approvals.ask(row)
        (question,) = await inbox(api)
        assert (question["origin"], question["command"].splitlines()[0]) == ("terminal", "rm x")
        assert (await api.ask("POST", "/inbox/abcdefabcdef", {"choice": "no"}, by="page")).status_code == 200
        assert (await store.approvals.find("abcdefabcdef")).choice == "no"
        assert (await api.ask("POST", "/inbox/abcdefabcdef", {"choice": "once"}, by="page")).status_code == 409
