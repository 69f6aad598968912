"""Approvals in chats: by button or in words, and only from people who may answer."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from alipes.gateway.policy import PlatformPolicy
from alipes.kernel.conversations import denial_reason
from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Address
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Verdict
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.environment import LIMIT_S
from tests.world.fake_platform import FakePlatform
from tests.world.gateway_harness import open_gateway

KEY = Address("test", "me").key
TEAM = {"chat": "team", "chat_type": "group", "group": True}
PEOPLE = PlatformPolicy(allow=("me", "you", "boss"), owners=("boss",), busy="queue", progress="off")


class Hand:
    spec = ToolSpec("hand", "", {"type": "object", "properties": {"command": {"type": "string"}}})

    def __init__(self):
        self.ran = []

    async def run(self, args, act):
        self.ran.append(args["command"])
        return "done"


def call(id="c1", command="rm -rf `x`"):
    return ToolCall(id, "hand", {"command": command})


@asynccontextmanager
async def open_guarded(home, *script, manners=PEOPLE, **more):
    """Every call of `hand` needs approval."""
    hand, hooks = Hand(), Hooks()

    async def before_tool(call, turn):
        word = await g.sessions.questions.ask_approval(call, "*explodes*", turn)
        return Verdict("deny", f"not run: {denial_reason(word)}") if denial_reason(word) else None

    hooks.add(CORE, before_tool, patient=True)
    async with open_gateway(home, ScriptedProvider(script), hand, hooks=hooks, manners=manners, **more) as g:
        yield g, hand


async def question(g, chat="me", number=1):
    """The message of the question, once it was sent."""

    def found():
        return [each for each in g.messenger.bubbles if each.chat == chat and "Approve?" in each.text]

    await g.messenger.until(lambda: len(found()) >= number)
    return found()[number - 1]


def data(bubble, label):
    return next(button.data for button in bubble.piece.buttons if button.label == label)


async def test_a_button_answers_and_the_question_shows_the_result(tmp_path):
    async with open_guarded(tmp_path, call(), "ok") as (g, hand):
        await g.take("go", sender="boss")
        bubble = await question(g)
        assert "**Approve?** Why: \\*explodes\\*." in bubble.text and "hand: rm -rf `x`" in bubble.text
        assert [button.label for button in bubble.piece.buttons] == ["Yes", "Yes, this session", "Always", "No"]
        await g.take(sender="boss", pressed=data(bubble, "Yes"))
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.quiet()
        assert hand.ran == ["rm -rf `x`"]
        assert "Approved." in bubble.text and bubble.piece.buttons == ()
        assert len(g.messenger.said()) == 2


@pytest.mark.parametrize(
    ("word", "ran", "says"),
    [
        ("yes", True, "Approved."),
        ("No!", False, "Denied."),
        ("session", True, "Approved for this session."),
        ("/approve", True, "Approved."),
        ("/approve session", True, "Approved for this session."),
        ("/deny", False, "Denied."),
    ],
)
async def test_words_and_commands_answer_too(word, ran, says, tmp_path):
    async with open_guarded(tmp_path, call(), "ok") as (g, hand):
        await g.take("go")
        bubble = await question(g)
        await g.take(word)
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.quiet()
        assert bool(hand.ran) is ran and says in g.messenger.said()
        assert says in bubble.text


async def test_a_word_without_a_question_is_a_message_and_a_copy_answers_nothing(tmp_path):
    async with open_guarded(tmp_path, "what yes?", call("c1"), call("c2"), "ok") as (g, hand):
        await g.take("yes")
        await g.messenger.until_said("what yes?")
        await g.take("go")
        await question(g)
        await g.take("yes", id="y1")
        second = await question(g, number=2)
        await g.take("yes", id="y1")
        assert second.piece.buttons
        await g.take("no", id="n1")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        assert len(hand.ran) == 1


async def test_session_approval_holds_in_this_conversation(tmp_path):
    async with open_guarded(tmp_path, call("c1"), call("c2"), "ok") as (g, hand):
        await g.take("go")
        bubble = await question(g)
        await g.take(pressed=data(bubble, "Yes, this session"))
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        assert len(hand.ran) == 2


async def test_only_the_asker_or_an_owner_may_answer(tmp_path):
    async with open_guarded(tmp_path, call(), "ok") as (g, hand):
        await g.take("go", sender="me", **TEAM)
        bubble = await question(g, "team")
        assert "Always" not in [button.label for button in bubble.piece.buttons]
        yes = data(bubble, "Yes")
        await g.take(sender="you", pressed=yes, **TEAM)
        await g.take("/approve", sender="you", **TEAM)
        await g.take(sender="stranger", pressed=yes, **TEAM)
        await g.take("yes", sender="you", addressed=False, **TEAM)
        await g.take(sender="me", pressed=yes.replace("once", "always"), **TEAM)
        await g.messenger.until(lambda: len(g.messenger.said("team")) == 4)
        refused = "Only the person who asked, or an owner, can answer."
        assert g.messenger.said("team")[1:] == [refused, refused, "Only an owner can choose “always”."]
        assert hand.ran == [] and bubble.piece.buttons
        await g.take(sender="boss", pressed=yes, **TEAM)
        await g.messenger.until(lambda: "ok" in g.messenger.said("team"))


async def test_an_owner_can_choose_always(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok", call("c2"), "ok again") as (g, hand):
        await g.take("go", sender="boss")
        await question(g)
        await g.take("always", sender="boss")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.take("go", sender="boss", chat="other")
        await g.messenger.until_said("ok again", chat="other")
        assert len(hand.ran) == 2


async def test_what_an_owner_always_allows_is_asked_again_for_someone_else(tmp_path):
    async with open_guarded(tmp_path, call("c1"), "ok", call("c2"), call("c3"), "ok again") as (g, hand):
        await g.take("go", sender="boss")
        await question(g)
        await g.take("always", sender="boss")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.take("go", sender="me", chat="other")
        asked = await question(g, "other")
        assert "Asked again, although you always allow it: this conversation has read a message from me" in asked.text
        await g.take("yes", sender="me", chat="other")
        await g.messenger.until(lambda: "ok again" in g.messenger.said("other"))
        assert len(hand.ran) == 3, "once is enough for this turn"


@pytest.mark.parametrize(
    ("message", "source"),
    [
        ({"sender": "boss"}, []),
        ({"sender": "boss", "quoted": "an earlier answer"}, []),
        ({"sender": "boss", "quoted": "Forwarded from Eve:\nrun this"}, ["a forwarded message"]),
        ({"sender": "me", "name": "Me\u202e"}, ["a message from Me<U+202E>, who is not an owner"]),
    ],
)
async def test_only_text_that_an_owner_wrote_is_trusted(tmp_path, message, source):
    async with open_guarded(tmp_path, "ok") as (g, _):
        await g.take("go", **message)
        await g.quiet()
        (turn,) = [each.outbound.turn for each in await g.store.outbox.list_deliveries() if each.outbound.turn]
        facts = await g.store.archive.turn(turn)
        rows = await g.store.database.fetch_all("SELECT label FROM untrusted_sources")
        assert [label for (label,) in rows] == source == ([facts.inbound.untrusted] if source else [])


async def test_approvals_are_listed_for_owners_only(tmp_path):
    async with open_guarded(tmp_path) as (g, _):
        await g.take("/approvals", sender="me")
        await g.take("/approvals", sender="boss")
        await g.messenger.until(lambda: len(g.messenger.said()) == 2)
        refused, listed = g.messenger.said()
        assert refused == "/approvals is for owners." and listed.startswith("No approvals")


async def test_a_stop_withdraws_the_question_and_its_button_says_so(tmp_path):
    async with open_guarded(tmp_path, call()) as (g, hand):
        await g.take("go")
        bubble = await question(g)
        yes = data(bubble, "Yes")
        await g.take("/stop")
        await g.messenger.until(lambda: "Stopped." in bubble.text)
        assert bubble.piece.buttons == ()
        await g.take(pressed=yes)
        await g.messenger.until(lambda: "That question has expired." in g.messenger.said())
        assert hand.ran == []


async def test_a_question_that_was_answered_before_it_was_sent_is_not_sent(tmp_path):
    async with open_guarded(tmp_path, call()) as (g, _):
        g.messenger.tell("broken", "no network")
        await g.take("go")
        while not g.sessions.questions.open(next(iter(g.sessions.activity.busy), "")):
            await asyncio.sleep(0.005)
        await g.take("/stop")
        await g.sessions.wait_idle()
        while [debt.state for debt in await g.store.outbox.list_deliveries("expired")] != ["expired"]:
            await asyncio.sleep(0.005)
        g.messenger.tell("ready", "")
        await g.messenger.until_said("Stopped.")


async def test_a_resumed_turn_asks_again_and_the_buttons_of_before_still_count(tmp_path):
    messenger = FakePlatform()
    async with open_guarded(tmp_path, call(), messenger=messenger) as (g, _):
        await g.take("go")
        old = data(await question(g), "Yes")
    async with open_guarded(tmp_path, "ok", messenger=messenger) as (g, hand):
        assert data(await question(g, number=2), "Yes") == old
        await g.take(pressed=old)
        await messenger.until(lambda: "ok" in messenger.said())
        assert hand.ran == ["rm -rf `x`"]
        await g.take(pressed=old)
        await messenger.until(lambda: "That question has expired." in messenger.said())


async def test_a_button_pressed_before_the_turn_asks_again_counts(tmp_path):
    async with open_resumed(tmp_path, "ok") as (g, hand, ask):
        ((turn, _),) = [(each.id, each) for each in await g.store.sessions.unfinished(KEY)]
        yes = f"ask:{await g.store.outbox.find_unanswered(turn)}:once"
        await g.take(sender="you", pressed=yes)
        await g.messenger.until(lambda: "Only the person who asked, or an owner, can answer." in g.messenger.said())
        await g.take(sender="me", pressed=yes)
        ask.set()
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        assert hand.ran == ["rm -rf `x`"]


async def test_all_resumed_turns_ask_again_before_their_live_views_are_open(tmp_path):
    from tests.world.fake_platform import FakePlatform

    messenger, chats = FakePlatform(), ("a", "b", "c", "d")
    async with open_guarded(tmp_path, *[call()] * 4, messenger=messenger) as (g, _):
        for chat in chats:
            await g.take("go", chat=chat)
            await question(g, chat)
    async with open_guarded(tmp_path, *["ok"] * 4, messenger=messenger) as (g, hand):
        for chat in chats:
            asked = await question(g, chat, number=2)
            await g.take(pressed=data(asked, "Yes"), chat=chat)
        await messenger.until(lambda: all("ok" in messenger.said(chat) for chat in chats))
        assert len(hand.ran) == 4


@asynccontextmanager
async def open_resumed(home, *script, reason="*explodes*", command="rm -rf `x`"):
    """A gateway that was killed during a question; the resumed turn asks only after `ask` is set."""
    async with open_guarded(home, call(command=command)) as (g, _):
        await g.take("go", sender="me")
        await question(g)
        while [debt.state for debt in await g.store.outbox.list_deliveries()] != ["sent"]:
            await asyncio.sleep(0.005)
    hand, hooks, ask = Hand(), Hooks(), asyncio.Event()

    async def before_tool(call, turn):
        await ask.wait()
        word = await g.sessions.questions.ask_approval(call, reason, turn)
        return Verdict("deny", "not run") if denial_reason(word) else None

    hooks.add(CORE, before_tool, patient=True)
    provider = ScriptedProvider(script)
    async with open_gateway(home, provider, hand, hooks=hooks, manners=PEOPLE) as g:
        yield g, hand, ask


async def held(g):
    """Wait until the answer is held for the question."""
    while not g.gateway._questions._earlier[KEY].resolved._waiters:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(("word", "ran"), [("yes", True), ("no", False)])
async def test_an_answer_that_arrives_before_the_question_is_asked_again_counts(tmp_path, word, ran):
    async with open_resumed(tmp_path, "ok", "a message?") as (g, hand, ask), asyncio.TaskGroup() as group:
        group.create_task(g.take(word, id="y1", sender="me"))
        await held(g)
        ask.set()
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.quiet()
        assert bool(hand.ran) is ran
        await g.take(word, id="y1", sender="me")
        await g.quiet()
        assert "a message?" not in g.messenger.said()


@pytest.mark.parametrize("other", ["another reason", "another person"])
async def test_an_early_answer_approves_only_what_was_seen_by_that_person(tmp_path, other):
    reason = "melts" if other == "another reason" else "*explodes*"
    opened = open_resumed(tmp_path, "ok", "what yes?", reason=reason)
    async with opened as (g, hand, ask), asyncio.TaskGroup() as group:
        taking = group.create_task(g.take("yes", sender="you" if other == "another person" else "me"))
        await held(g)
        ask.set()
        await taking
        await question(g)
        assert hand.ran == [] and len(await g.sessions.unfinished(KEY)) == 2
        await g.take("/deny", sender="me")
        await g.messenger.until(lambda: "what yes?" in g.messenger.said())
        assert hand.ran == []


async def test_an_early_answer_becomes_a_message_if_nothing_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr("alipes.gateway.questions.HOLD_TIMEOUT", 0.05)
    async with open_resumed(tmp_path, "ok", "what yes?") as (g, hand, ask):
        await g.take("yes", sender="me")
        ask.set()
        await g.take(pressed=data(await question(g), "No"), sender="me")
        await g.messenger.until(lambda: "what yes?" in g.messenger.said())
        assert hand.ran == []


async def test_a_command_does_not_wait_behind_a_held_answer(tmp_path):
    async with open_resumed(tmp_path, "ok", "what yes?") as (g, hand, ask), asyncio.TaskGroup() as group:
        group.create_task(g.take("yes", sender="me"))
        await held(g)
        await g.take("/stop", sender="me")
        assert not ask.is_set()
        await g.messenger.until(lambda: any("top" in each for each in g.messenger.said()))
        assert hand.ran == []


async def test_a_long_command_is_shown_whole_in_several_messages(tmp_path):
    command = "\n".join(f"echo {number}" for number in range(300)) + "; rm -rf /"
    async with open_guarded(tmp_path, call(command=command), "ok") as (g, _):
        await g.take("go")
        await g.messenger.until(lambda: any(each.piece.buttons for each in g.messenger.bubbles))
        shown = "".join(each.text for each in g.messenger.bubbles)
        assert all(f"echo {number}" in shown for number in range(300)) and "rm -rf /" in shown
        await g.take("no")
        await g.messenger.until(lambda: "ok" in g.messenger.said())


async def test_a_very_long_command_is_sent_as_a_file_before_the_question(tmp_path):
    command = "echo \u202e" + "x" * 20_000 + "; rm -rf /"
    async with open_guarded(tmp_path, call(command=command), "ok") as (g, _):
        await g.take("go")
        await g.messenger.until(lambda: any(each.piece.buttons for each in g.messenger.bubbles))
        first = g.messenger.bubbles[0].piece
        assert first.media is not None
        assert Path(first.media.path).read_text() == "hand: " + command.replace("\u202e", "<U+202E>")
        shown = "".join(each.text for each in g.messenger.bubbles)
        assert "rm -rf /" in shown and "all 20,029 characters" in shown
        await g.take("no")
        await g.messenger.until(lambda: "ok" in g.messenger.said())


async def test_hidden_characters_of_a_command_are_shown(tmp_path):
    async with open_guarded(tmp_path, call(command="ls \u202e\x1b[2K"), "ok") as (g, _):
        await g.take("go")
        assert "hand: ls <U+202E><U+001B>[2K" in (await question(g)).text
        await g.take("no")
        await g.messenger.until(lambda: "ok" in g.messenger.said())


async def test_a_connection_is_asked_about_by_host(tmp_path):
    hooks = Hooks()

    async def before_tool(call, turn):
        asked = ToolCall("n1", "network", {"host": "pypi.org", "port": 443})
        await g.sessions.questions.ask_approval(asked, "pip install rich", turn)

    hooks.add(CORE, before_tool, patient=True)
    script = ScriptedProvider([call(), "ok"])
    async with open_gateway(tmp_path, script, Hand(), hooks=hooks, manners=PEOPLE) as g:
        await g.take("go")
        await g.messenger.until(lambda: any(each.piece.buttons for each in g.messenger.bubbles))
        (text,) = g.messenger.said()
        assert text.startswith("**Allow a connection to pypi.org?**\n\nWhy: pip install rich.")
        await g.take("yes")
        await g.messenger.until(lambda: "ok" in g.messenger.said())


async def test_an_answered_question_is_closed(tmp_path):
    """The next question may have the same words, and nobody has seen it."""
    messenger = FakePlatform()
    async with open_guarded(tmp_path, call("c1"), asyncio.Event(), messenger=messenger) as (g, hand):
        await g.take("go", sender="me")
        await question(g)
        (turn,) = await g.sessions.unfinished(KEY)
        ((_, asked),) = g.sessions.questions.open(KEY)
        while await g.store.outbox.find_unanswered(turn) != asked.ask:
            await asyncio.sleep(0.005)
        await g.take("yes", sender="me")
        while not hand.ran:
            await asyncio.sleep(0.005)
        assert await g.store.outbox.find_unanswered(turn) == ""
        await g.take("/stop", sender="me")
        await g.sessions.wait_idle()


async def waits(g):
    """Wait until no turn runs: none may wait for an answer that cannot come."""
    async with asyncio.timeout(LIMIT_S):
        await g.sessions.wait_idle()


@pytest.mark.parametrize("lost", ["unanswered twice", "chat gone", "given up by the operator"])
async def test_an_undelivered_question_counts_as_no_and_the_turn_continues(lost, tmp_path):
    messenger = FakePlatform()
    match lost:
        case "unanswered twice":
            messenger.fail("send", *(DeliveryError("no answer came", uncertain=True) for _ in range(2)))
        case "chat gone":
            messenger.fail("send", Undeliverable("no answer came"))
        case _:
            messenger.fail("send", DeliveryError("no answer came", retry_after=600.0))
    async with open_guarded(tmp_path, call(), "then I do not", messenger=messenger) as (g, hand):
        await g.take("go", sender="me")
        if lost == "given up by the operator":
            while not (owed := await g.store.outbox.list_deliveries("queued")) or not owed[0].why:
                await asyncio.sleep(0.01)
            assert await g.store.outbox.discard(owed[0].number)
        await waits(g)
        await g.messenger.until(lambda: "then I do not" in g.messenger.said())
        (turn,) = [debt.outbound.turn for debt in await g.store.outbox.list_deliveries() if debt.outbound.turn]
        (seen,) = (await g.store.archive.turn(turn)).said[-2].parts
        assert seen.outcome == "denied" and "could not be asked (the question was not delivered" in seen.text
        assert hand.ran == []
        (notice,) = [text for text in g.messenger.said() if "treated it as “no”" in text]
        assert "hand: rm -rf `x`" in notice


async def test_a_copy_of_an_answer_never_becomes_a_message(tmp_path):
    async with open_guarded(tmp_path, call(), "ok", "hello?") as (g, hand):
        await g.take("go", sender="me")
        await question(g)
        await g.take("yes", id="y1", sender="me")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.take("yes", id="y1", sender="me")
        await g.quiet()
        assert len(hand.ran) == 1 and "hello?" not in g.messenger.said()


async def test_a_copy_of_a_message_answers_no_question(tmp_path):
    """A message that was handled before, delivered again by its platform during a question."""
    async with open_guarded(tmp_path, call(), "ok") as (g, hand):
        await g.take("yes", id="m1", sender="me")
        await question(g)
        await g.take("yes", id="m1", sender="me")
        await g.take("no", sender="me")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        assert hand.ran == []


async def test_a_question_of_a_dead_process_is_not_sent(tmp_path):
    messenger = FakePlatform()
    messenger.fail("send", *(DeliveryError("not now", retry_after=0.5) for _ in range(50)))
    async with open_guarded(tmp_path, call(), messenger=messenger) as (g, _):
        await g.take("go", sender="me")
        while not await g.store.outbox.list_deliveries("queued"):
            await asyncio.sleep(0.01)
    messenger.faults["send"].clear()
    async with open_guarded(tmp_path, "ok", messenger=messenger) as (g, _):
        await question(g)
        await g.take("no", sender="me")
        await g.messenger.until(lambda: "ok" in g.messenger.said())
        await g.quiet()
        assert sum("Approve?" in text for text in g.messenger.said()) == 1
