"""Runs that wait for a person's word: seen by any client that looks, answered over HTTP by who may."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Verdict
from tests.unit.agent_harness import Hand, call, play
from tests.world.api_harness import ApiHarness, open_api


@asynccontextmanager
async def open_guarded(
    home: Path, *script: object, hand: Hand | None = None, run: Path | None = None
) -> AsyncIterator[ApiHarness]:
    """A house in which every call is asked about."""
    hooks = Hooks()

    async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
        word = await api.house.sessions.questions.ask_approval(call, "it explodes", turn)
        return None if word not in (None, "no") else Verdict("deny", f"the word was {word}")

    hooks.add(CORE, before_tool, patient=True)
    async with open_api(home, play(*script), hand or Hand("hand"), hooks=hooks, run=run) as api:
        yield api


async def waiting(api: ApiHarness, run: str) -> str:
    """What is asked, once something is."""
    async with api.listening(run) as listener:
        return str((await listener.until("approval_asked")).data["ask"])


async def test_a_call_waits_for_a_word_also_while_nobody_listens(tmp_path: Path):
    hand = Hand("hand")
    async with open_guarded(tmp_path, call("c", "hand", x=1), "Done.", hand=hand) as api:
        run = await api.begin("go")
        ask = await waiting(api, run)
        seen = await api.look(run)
        assert seen["status"] == "waiting" and not hand.ran
        (asked,) = seen["waits_for"]
        assert (asked["type"], asked["ask"], asked["call"]["name"]) == ("approval_asked", ask, "hand")
        async with api.listening(run) as listener:
            assert (await listener.until("approval_asked")).data["ask"] == ask
            answer = await api.ask("POST", f"/runs/{run}/approval", {"choice": "once", "ask": ask})
            assert answer.status_code == 202
            answered = await listener.until("approval_answered")
            assert (answered.data["choice"], answered.data["by"]) == ("once", "ann")
            await listener.rest()
        assert (await api.look(run))["text"] == "Done." and len(hand.ran) == 1


async def test_the_only_question_need_not_be_named_and_a_no_is_reported_to_the_model(tmp_path: Path):
    hand = Hand("hand")
    async with open_guarded(tmp_path, call("c", "hand"), "So not.", hand=hand) as api:
        run = await api.begin("go")
        await waiting(api, run)
        wrong = await api.ask("POST", f"/runs/{run}/approval", {"choice": "once", "ask": "another"})
        assert (wrong.status_code, wrong.json()["code"]) == (409, "no_question")
        reply = await api.ask("POST", f"/runs/{run}/reply", {"text": "yes"})
        assert (reply.status_code, reply.json()["code"]) == (409, "no_question")
        await api.ask("POST", f"/runs/{run}/approval", {"choice": "no"})
        assert (await api.finish(run))["text"] == "So not." and not hand.ran
        late = await api.ask("POST", f"/runs/{run}/approval", {"choice": "once"})
        assert (late.status_code, late.json()["code"]) == (409, "over")


async def test_what_counts_for_everybody_only_admins_allow(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand"), "Done.") as api:
        run = await api.begin("go")
        await waiting(api, run)
        refused = await api.ask("POST", f"/runs/{run}/approval", {"choice": "always"})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope")
        assert (await api.ask("POST", f"/runs/{run}/approval", {"choice": "always"}, by="root")).status_code == 202
        await api.finish(run)
        (standing,) = await api.house.store.approvals.list_current()
        assert (standing.choice, standing.answered_by) == ("always", "root")


async def test_a_stop_takes_the_question_away(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand")) as api:
        run = await api.begin("go")
        await waiting(api, run)
        await api.ask("POST", f"/runs/{run}/stop")
        seen = await api.finish(run)
        assert seen["status"] == "stopped" and "waits_for" not in seen


async def test_a_question_of_the_models_is_replied_to(tmp_path: Path):
    turns: list[Turn] = []

    async def work(_args: object, _act: object) -> str:
        reply = await api.house.sessions.questions.ask_question(turns[0], "Which one?", ("red", "blue"), 30)
        return "nobody" if reply is None else f"{reply.text} by {reply.by}"

    hooks = Hooks()

    async def before_tool(call: ToolCall, turn: Turn) -> None:
        turns.append(turn)

    hooks.add(CORE, before_tool)
    hand = Hand("clarify", does=work)
    async with open_api(tmp_path, play(call("c", "clarify"), "Thanks."), hand, hooks=hooks) as api:
        run = await api.begin("ask me")
        async with api.listening(run) as listener:
            asked = (await listener.until("asked")).data
            (waits,) = (await api.look(run))["waits_for"]
            assert waits == asked and asked["choices"] == ["red", "blue"]
            answer = await api.ask("POST", f"/runs/{run}/reply", {"text": "blue", "ask": asked["ask"]})
            assert answer.status_code == 202
            assert (await listener.until("heard")).data["text"] == "blue"
            result = await listener.until("tool_finished")
            assert result.data["result"]["text"] == "blue by ann"
            await listener.rest()


async def test_a_run_that_a_restart_cut_off_while_it_waited_asks_again(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand")) as api:
        run = await api.begin("go")
        first = await waiting(api, run)
    hand = Hand("hand", effect="read")
    async with open_guarded(tmp_path, "Done.", hand=hand) as api:
        ask = await asyncio.wait_for(waiting(api, run), 5)
        assert ask == first
        await api.ask("POST", f"/runs/{run}/approval", {"choice": "once"})
        seen = await api.finish(run)
        assert (seen["text"], seen["attempts"]) == ("Done.", 2)


async def test_a_word_counts_for_the_run_that_asked_and_not_for_the_next(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand"), "Done.", "Next.") as api:
        first = await api.begin("go", session="s")
        await waiting(api, first)
        second = await api.begin("and then", session="s", busy="queue")
        seen = await api.look(second)
        assert seen["status"] == "queued" and "waits_for" not in seen
        wrong = await api.ask("POST", f"/runs/{second}/approval", {"choice": "once"})
        assert (wrong.status_code, wrong.json()["code"]) == (409, "no_question")
        await api.ask("POST", f"/runs/{first}/approval", {"choice": "once"})
        assert (await api.finish(second))["text"] == "Next."


async def test_a_no_can_say_why_and_a_pattern_must_fit(tmp_path: Path):
    async with open_guarded(tmp_path, call("c", "hand", command="git push --force"), "So not.") as api:
        run = await api.begin("go")
        ask = await waiting(api, run)
        wrong = {"choice": "always", "ask": ask, "pattern": "sudo *"}
        assert (await api.ask("POST", f"/runs/{run}/approval", wrong, by="root")).status_code == 400
        body = {"choice": "no", "ask": ask, "note": "it is Friday"}
        async with api.listening(run) as listener:
            assert (await api.ask("POST", f"/runs/{run}/approval", body)).status_code == 202
            assert (await listener.until("approval_answered")).data["note"] == "it is Friday"


async def test_a_run_sets_the_mode_of_its_conversation_and_all_needs_an_admin(tmp_path: Path):
    async with open_guarded(tmp_path, "Hi.", "Hi.") as api:
        refused = await api.ask("POST", "/runs", {"input": "go", "permission_mode": "all"})
        assert refused.status_code == 403
        assert (await api.ask("POST", "/runs", {"input": "go", "permission_mode": "yolo"})).status_code == 422
        accepted = await api.ask("POST", "/runs", {"input": "go", "permission_mode": "all"}, by="root")
        assert accepted.status_code == 202
