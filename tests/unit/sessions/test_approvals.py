"""Questions before dangerous calls: who may answer, what an answer allows, and what a stop makes of it."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import pytest

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import AnswerApproval, ApprovalAnswered, ApprovalAsked, Said, Stop, ToolFinished, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Verdict
from alipes.sessions.questions import rule_for
from alipes.store.sqlite.store import open_store
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import turn as a_turn
from tests.world.session_harness import inbound, open_sessions

KEY = inbound("", "").address.key


class Hand:
    """A tool that remembers what it was given; it only reads, so that calls of it run side by side."""

    spec = ToolSpec("hand", "", {"type": "object", "properties": {"x": {"type": "string"}}}, "read")

    def __init__(self):
        self.ran = []

    async def run(self, args, act):
        self.ran.append(args["x"])
        return "done"


def call(id, x="boom"):
    return ToolCall(id, "hand", {"x": x})


@asynccontextmanager
async def open_guarded(home, *script, interactive=True, hand=None, **more):
    """A house in which every call of `hand` is dangerous, and the tool."""
    hand, hooks = hand or Hand(), Hooks(deadline=0.05)

    async def before_tool(call, turn):
        word = await house.sessions.questions.ask_approval(call, "it explodes", turn)
        return None if word not in (None, "no") else Verdict("deny", f"the word was {word}")

    hooks.add(CORE, before_tool, patient=True)
    opened = open_sessions(home, ScriptedProvider(script), hand, hooks=hooks, interactive=interactive, **more)
    async with opened as house:
        yield house, hand


async def answered(house, message, *choices):
    """Ask, answer the questions as they come, and give all events."""
    words, events = list(choices), []
    async with house.sessions.ask(message) as following:
        async for event in following:
            events.append(event)
            if isinstance(event, ApprovalAsked) and words:
                await house.sessions.post(KEY, AnswerApproval(event.ask, words.pop(0), "me"))
    return events


async def standing(house):
    """The rules that are allowed for a conversation or always."""
    return [each.rule for each in await house.store.approvals.list_current() if each.choice]


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


async def test_the_call_runs_after_a_yes_and_everyone_is_reported(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok") as (house, hand):
        events = await answered(house, inbound("1", "go"), "once")
        (asked,) = of(events, ApprovalAsked)
        assert (asked.call, asked.reason) == (call("c1"), "it explodes")
        assert asked.rule == 'hand {"x":"boom"}'
        assert of(events, ApprovalAnswered) == [ApprovalAnswered(asked.ask, "once", "me")]
        assert hand.ran == ["boom"]
        assert house.sessions.questions.open(KEY) == ()


async def test_a_no_is_reported_to_the_model_and_nothing_runs(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "then not") as (house, hand):
        events = await answered(house, inbound("1", "go"), "no")
        assert of(events, ToolFinished)[0].result == ToolResult("c1", "the word was no", "denied")
        assert hand.ran == [] and events[-1].ending == "answered"


async def test_once_is_once(tmp_path):
    async with open_guarded(tmp_path, call("c1"), call("c2"), "ok") as (house, hand):
        events = await answered(house, inbound("1", "go"), "once", "no")
        assert len(of(events, ApprovalAsked)) == 2 and hand.ran == ["boom"]


async def test_session_holds_for_this_call_in_this_conversation_also_after_a_restart(tmp_path):
    async with open_guarded(tmp_path, call("c1"), call("c2"), call("c3", "bang"), "ok") as (house, hand):
        events = await answered(house, inbound("1", "go"), "session", "no")
        assert [asked.call.id for asked in of(events, ApprovalAsked)] == ["c1", "c3"]
        assert hand.ran == ["boom", "boom"]
    async with open_guarded(tmp_path, call("c5"), "ok", call("c4"), "ok") as (house, hand):
        assert not of(await answered(house, inbound("3", "go"), "no"), ApprovalAsked)
        left = await house.store.sessions.reset(KEY)
        await house.sessions.announce_switch(KEY, left, "new")
        events = await answered(house, inbound("2", "go"), "no")
        assert len(of(events, ApprovalAsked)) == 1, "another conversation is asked again"


async def test_always_holds_for_exactly_this_call_also_later_and_where_nobody_can_answer(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok") as (house, _):
        await answered(house, inbound("1", "go"), "always")
    more = (call("c2"), call("c3", "boom "), "ok")
    async with open_guarded(tmp_path, *more, interactive=False) as (house, hand):
        events = await answered(house, inbound("2", "go"))
        assert hand.ran == ["boom"] and not of(events, ApprovalAsked)


async def test_a_rule_names_the_folder_and_all_arguments():
    one = rule_for(call("c1"), a_turn(workdir="/a"))
    assert one == 'hand {"x":"boom"} in /a'
    assert one == rule_for(call("c2"), a_turn(workdir="/a"))
    assert one != rule_for(call("c1"), a_turn(workdir="/b"))
    assert one != rule_for(ToolCall("c", "hand", {"x": "boom", "y": 1}), a_turn(workdir="/a"))
    assert one != rule_for(call("c", 'boom"} in /a'), a_turn())


async def test_where_nobody_could_answer_nobody_is_asked(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok", interactive=False) as (house, hand):
        events = await answered(house, inbound("1", "go"), "once")
        assert of(events, ToolFinished)[0].result.text == "the word was None"
        assert hand.ran == [] and not of(events, ApprovalAsked)


async def test_where_nobody_watches_nobody_is_asked(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok") as (house, hand):
        turn = await house.sessions.submit(inbound("1", "go"))
        await house.sessions.wait_idle()
        facts = await house.store.archive.turn(turn)
        assert facts.ending == "answered" and facts.said[2].parts[0].outcome == "denied"
        assert hand.ran == []


async def test_calls_side_by_side_are_asked_about_one_after_another(tmp_path):
    three = (call("c1", "a"), call("c2", "b"), call("c3", "a"))
    async with open_guarded(tmp_path, three, "ok") as (house, hand):
        events = await answered(house, inbound("1", "go"), "session", "no")
        order = [type(e).__name__ for e in events if isinstance(e, ApprovalAsked | ApprovalAnswered)]
        assert order == ["ApprovalAsked", "ApprovalAnswered"] * 2, "the third was allowed with the first"
        assert sorted(hand.ran) == ["a", "a"]


async def test_a_stop_while_waiting_is_a_no_and_takes_the_question_away(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "hello") as (house, hand):
        async with house.sessions.ask(inbound("1", "go")) as following:
            events = []
            async for event in following:
                events.append(event)
                if isinstance(event, ApprovalAsked):
                    assert [asked for _, asked in house.sessions.questions.open(KEY)] == [event]
                    await house.sessions.post(KEY, Stop(turn=following.turn))
        (asked,) = of(events, ApprovalAsked)
        assert of(events, ApprovalAnswered) == [ApprovalAnswered(asked.ask, "no", "stop")]
        assert events[-1].ending == "stopped" and hand.ran == []
        await house.sessions.post(KEY, AnswerApproval(asked.ask, "always"))
        assert (await house.ask(inbound("2", "hi"))).ending == "answered"
        assert await standing(house) == []


async def test_only_the_first_word_counts(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok") as (house, hand):
        async with house.sessions.ask(inbound("1", "go")) as following:
            async for event in following:
                if isinstance(event, ApprovalAsked):
                    for choice in ("no", "always"):
                        await house.sessions.post(KEY, AnswerApproval(event.ask, choice))
                    await house.sessions.post(KEY, AnswerApproval("another question", "always"))
        assert hand.ran == [] and await standing(house) == []


async def interrupted_question(home):
    """Ask about a call and end the process before anybody answers; the question."""
    async with open_guarded(home, call("c1")) as (house, _), house.sessions.ask(inbound("1", "go")) as following:
        async for event in following:
            if isinstance(event, ApprovalAsked):
                return event
    raise AssertionError("nothing was asked")


async def test_a_question_cut_off_by_the_end_of_the_process_is_asked_again_under_the_same_id(tmp_path):
    asked = await interrupted_question(tmp_path)
    async with open_guarded(tmp_path, "ok") as (house, hand):
        async with house.sessions.watch(KEY) as envelopes:
            async for envelope in envelopes:
                if isinstance(envelope.event, ApprovalAsked):
                    assert envelope.event == asked
                    await house.sessions.post(KEY, AnswerApproval(envelope.event.ask, "once"))
                if isinstance(envelope.event, TurnEnded):
                    break
        assert hand.ran == ["boom"]


@pytest.mark.parametrize(("choice", "ran"), [("once", ["boom"]), ("no", [])])
async def test_an_answer_that_arrives_while_no_process_waits_counts_once(tmp_path, choice, ran):
    asked = await interrupted_question(tmp_path)
    async with open_store(tmp_path) as store:
        assert await store.approvals.answer(asked.ask, choice, "me")
    async with open_guarded(tmp_path, call("c2"), "ok") as (house, hand):
        questions = []
        async with house.sessions.watch(KEY) as envelopes:
            async for envelope in envelopes:
                if isinstance(envelope.event, ApprovalAsked):
                    questions.append(envelope.event)
                    await house.sessions.post(KEY, AnswerApproval(envelope.event.ask, "no"))
                if isinstance(envelope.event, TurnEnded):
                    break
        assert hand.ran == ran and [each.call.id for each in questions] == ["c2"]


async def test_a_recorded_answer_counts_although_the_process_that_took_it_passed_nothing_on(tmp_path, monkeypatch):
    monkeypatch.setattr("alipes.sessions.questions.RECHECK_S", 0.05)
    async with open_guarded(tmp_path, call("c1"), "ok") as (house, hand):
        async with house.sessions.ask(inbound("1", "go")) as following:
            async for event in following:
                if isinstance(event, ApprovalAsked):
                    assert await house.store.approvals.answer(event.ask, "once", "me")
        assert hand.ran == ["boom"]


async def test_what_is_stored_about_a_call_has_no_secrets(tmp_path):
    asked = call("c1", "curl -H s3cret")
    async with open_guarded(tmp_path, asked, "ok", mask=lambda text: text.replace("s3cret", "***")) as (house, _):
        events = await answered(house, inbound("1", "go"), "once")
        row = await house.store.approvals.find(of(events, ApprovalAsked)[0].ask)
        assert row.arguments == '{"x":"curl -H ***"}'


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        ({"host": "pypi.org", "port": 443}, "connect to pypi.org"),
        ({"group": "package registries", "hosts": ["b", "a"]}, "connect to package registries (a, b)"),
    ],
)
def test_a_rule_for_a_connection_names_the_host_and_no_folder(args, rule):
    assert rule_for(ToolCall("c", "network", args), a_turn(workdir="/a")) == rule


def test_a_rule_for_a_command_has_every_argument_that_changes_its_effect():
    plain = ToolCall("c", "terminal", {"command": "make"})
    rules = {
        rule_for(ToolCall("c", "terminal", {"command": "make", **more}), a_turn(workdir="/a"))
        for more in ({"background": True}, {"pty": True}, {"workdir": "/b"}, {"outside": True}, {})
    }
    assert len(rules) == 5
    timed = ToolCall("c", "terminal", {"command": "make", "timeout": 9})
    assert rule_for(timed, a_turn(workdir="/a")) == rule_for(plain, a_turn(workdir="/a"))


# --- after untrusted text


@asynccontextmanager
async def open_reading(home, *script, interactive=True):
    """Like `open_guarded`; the call `page` reads untrusted text."""
    hand, hooks = Hand(), Hooks()

    async def before_tool(call, turn):
        if call.args["x"] == "page":
            await house.store.sources.add(turn, call.id, "the result of web_extract (https://x.org)")
            return None
        word = await house.sessions.questions.ask_approval(call, "it explodes", turn)
        return None if word not in (None, "no") else Verdict("deny", f"the word was {word}")

    hooks.add(CORE, before_tool, patient=True)
    async with open_sessions(home, ScriptedProvider(script), hand, hooks=hooks, interactive=interactive) as house:
        yield house, hand


async def test_always_is_asked_again_after_untrusted_text_and_once_per_turn(tmp_path):
    script = (call("c1"), call("p", "page"), call("c2"), call("c3"), "ok")
    async with open_reading(tmp_path, *script) as (house, hand):
        events = await answered(house, inbound("1", "go"), "always", "once")
        first, again = of(events, ApprovalAsked)
        assert first.reason == "it explodes"
        assert again.reason == (
            "it explodes. Asked again, although you always allow it: this conversation has read the result of "
            "web_extract (https://x.org)"
        )
        assert hand.ran == ["boom", "page", "boom", "boom"]


async def test_an_earlier_turn_that_read_untrusted_text_counts_also_after_a_restart(tmp_path):
    async with open_reading(tmp_path, call("c1"), call("p", "page"), "ok") as (house, _):
        await answered(house, inbound("1", "go"), "always")
    async with open_reading(tmp_path, call("c2"), "ok") as (house, hand):
        events = await answered(house, inbound("2", "go"), "no")
        assert len(of(events, ApprovalAsked)) == 1 and hand.ran == []


async def test_a_session_yes_after_untrusted_text_holds_until_more_of_it_is_read(tmp_path):
    script = (call("p1", "page"), call("c1"), "ok", call("c2"), "ok", call("p2", "page"), call("c3"), "ok")
    async with open_reading(tmp_path, *script) as (house, _):
        asked = [
            len(of(await answered(house, inbound(str(number), "go"), "session"), ApprovalAsked)) for number in range(3)
        ]
        assert asked == [1, 0, 1]


async def test_where_nobody_can_answer_always_does_not_hold_after_untrusted_text(tmp_path):
    async with open_reading(tmp_path, call("c1"), "ok") as (house, _):
        await answered(house, inbound("1", "go"), "always")
    async with open_reading(tmp_path, call("c2"), call("p", "page"), call("c3"), "ok", interactive=False) as (
        house,
        hand,
    ):
        await answered(house, inbound("2", "go"))
        assert hand.ran == ["boom", "page"]


@pytest.mark.deadline(60)
@pytest.mark.parametrize("choice", ["once", "no", None])
async def test_the_whole_app_asks_before_it_runs_what_is_dangerous(tmp_path, choice):
    """`None`: the app was opened by who cannot answer."""
    settings = load_settings(tmp_path / "home", {"ALIPES_MODEL": "scripted"})
    order = f'!call terminal {{"command": "touch {tmp_path}/ran; sudo --version || true"}}'
    message = inbound("1", order, workdir=str(tmp_path))
    async with open_app(settings, interactive=choice is not None) as app:
        events = []
        async with app.sessions.ask(message) as following:
            async for event in following:
                events.append(event)
                if isinstance(event, ApprovalAsked):
                    await app.sessions.post(KEY, AnswerApproval(event.ask, choice))
    assert len(of(events, ApprovalAsked)) == (choice is not None)
    assert (tmp_path / "ran").exists() is (choice == "once")
    (finished,) = of(events, ToolFinished)
    assert finished.result.outcome == ("ok" if choice == "once" else "denied")
    assert ("--yes" in finished.result.text) is (choice is None)


def run_script(id, tmp_path, script="t.sh"):
    return inbound(
        id, f'!call terminal {{"command": "sh {script}; sudo --version || true"}}', workdir=str(tmp_path / "work")
    )


@asynccontextmanager
async def open_work(tmp_path, *, interactive=True, **files):
    (tmp_path / "work").mkdir(exist_ok=True)
    for name, text in files.items():
        (tmp_path / "work" / f"{name}.sh").write_text(text.format(out=tmp_path / "out"))
    settings = load_settings(tmp_path / "home", {"ALIPES_MODEL": "scripted"})
    async with open_app(settings, interactive=interactive) as app:
        yield app


async def answer_in_turn(app, message, *answers):
    """Ask, and answer each question; what is a function is done instead of an answer."""
    answers, events = list(answers), []
    async with app.sessions.ask(message) as following:
        async for event in following:
            events.append(event)
            if isinstance(event, ApprovalAsked):
                answer = answers.pop(0)
                if callable(answer):
                    answer()
                else:
                    await app.sessions.post(KEY, AnswerApproval(event.ask, answer))
    return events


@pytest.mark.deadline(60)
async def test_a_right_holds_for_the_content_of_a_script_and_not_for_its_name(tmp_path):
    async with open_work(tmp_path, t="echo one >> {out}\n") as app:
        (asked,) = of(await answer_in_turn(app, run_script("1", tmp_path), "always"), ApprovalAsked)
        assert "t.sh" in asked.files and "echo one" in asked.files and asked.once == ""
        assert of(await answer_in_turn(app, run_script("2", tmp_path)), ApprovalAsked) == []
        (tmp_path / "work" / "t.sh").write_text(f"echo evil >> {tmp_path}/out\n")
        (again,) = of(await answer_in_turn(app, run_script("3", tmp_path), "no"), ApprovalAsked)
        assert "+echo evil" in again.files
    assert (tmp_path / "out").read_text() == "one\none\n"


@pytest.mark.deadline(60)
async def test_where_nobody_can_answer_a_right_holds_until_the_content_changes(tmp_path):
    async with open_work(tmp_path, t="echo one >> {out}\n") as app:
        await answer_in_turn(app, run_script("1", tmp_path), "always")
    async with open_work(tmp_path, interactive=False) as app:
        same = await answer_in_turn(app, run_script("2", tmp_path))
        (tmp_path / "work" / "t.sh").write_text(f"echo evil >> {tmp_path}/out\n")
        changed = await answer_in_turn(app, run_script("3", tmp_path))
    assert of([*same, *changed], ApprovalAsked) == []
    (finished,) = of(changed, ToolFinished)
    assert finished.result.outcome == "denied" and "nobody is available to approve it" in finished.result.text
    assert (tmp_path / "out").read_text() == "one\none\n"


@pytest.mark.deadline(60)
async def test_a_question_is_withdrawn_when_the_script_changes_while_it_is_open(tmp_path):
    def change():
        (tmp_path / "work" / "t.sh").write_text(f"echo two >> {tmp_path}/out\n")

    async with open_work(tmp_path, t="echo one >> {out}\n") as app:
        events = await answer_in_turn(app, run_script("1", tmp_path), change, "once")
        first, second = of(events, ApprovalAsked)
        withdrawn, answered = of(events, ApprovalAnswered)
        assert "echo one" in first.files and "echo two" in second.files
        assert (withdrawn.ask, withdrawn.by, answered.choice) == (first.ask, "stop", "once")
        await app.sessions.post(KEY, AnswerApproval(first.ask, "always"))
        assert (await app.store.approvals.find(first.ask)).choice == "no"
    assert (tmp_path / "out").read_text() == "two\n"


@pytest.mark.deadline(60)
async def test_an_answer_gives_no_standing_right_to_what_cannot_be_known(tmp_path):
    async with open_work(tmp_path, t='"$1" x || true\n') as app:
        events = await answer_in_turn(app, run_script("1", tmp_path), "always")
        (asked,), (answered,) = of(events, ApprovalAsked), of(events, ApprovalAnswered)
        assert "only known at run time" in asked.once and answered.choice == "once"
        assert [each for each in await app.store.approvals.list_current() if each.choice] == []
        assert len(of(await answer_in_turn(app, run_script("2", tmp_path), "no"), ApprovalAsked)) == 1


OTHER = """
import asyncio, sys
from pathlib import Path
from tests.unit.sessions.test_approvals import call, open_guarded
from tests.world.session_harness import inbound

async def main(home):
    async with open_guarded(Path(home), call("c1"), "ok") as (house, hand):
        turn = await house.sessions.submit(inbound("1", "go"))
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.deadline(60)
@pytest.mark.parametrize("choice", ["once", "no"])
async def test_the_word_may_come_from_another_process(tmp_path, choice):
    async with open_sessions(tmp_path, ScriptedProvider([])) as house, house.sessions.watch(KEY) as envelopes:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            OTHER,
            str(tmp_path),
            stdin=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": "src:."},
        )
        seen = []
        async for envelope in envelopes:
            seen.append(envelope.event)
            if isinstance(envelope.event, ApprovalAsked):
                await house.sessions.post(KEY, AnswerApproval(envelope.event.ask, choice, "next door"))
            if isinstance(envelope.event, TurnEnded):
                break
        child.stdin.write(b"\n")
        await child.wait()
    assert of(seen, ApprovalAnswered)[0].by == "next door"
    results = [e.message for e in of(seen, Said) if e.message.role == "tool"]
    outcome = "ok" if choice == "once" else "denied"
    assert [part.outcome for part in results[0].parts] == [outcome]
