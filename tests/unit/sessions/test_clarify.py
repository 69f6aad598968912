"""The model asks the person: on every surface, answered by number, button or words, or by nobody."""

import asyncio

import pytest

from alipes.gateway.policy import PlatformPolicy
from alipes.kernel.errors import DeliveryError, ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import QuestionAsked
from alipes.plugins.interruption.attribution import TURN
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.tools.clarify import Clarify
from tests.world.environment import LIMIT_S
from tests.world.fake_platform import FakePlatform
from tests.world.gateway_harness import open_gateway

ASK = ToolCall("c1", "clarify", {"question": "Which *one*?", "choices": ["the red", "the blue"]})
OPEN = ToolCall("c1", "clarify", {"question": "What is its name?"})
PEOPLE = PlatformPolicy(allow=("me", "you", "boss"), owners=("boss",), busy="interrupt", progress="off")
TEAM = {"chat": "team", "chat_type": "group", "group": True}


class Curious(Clarify):
    """Asks as alipes does."""

    def __init__(self, seconds=30.0):
        super().__init__(self._put)
        self.seconds, self.sessions = seconds, None

    async def _put(self, question, choices):
        reply = await self.sessions.questions.ask_question(TURN.get(), question, choices, self.seconds)
        if reply is not None and reply.unasked:
            raise ToolError(reply.unasked)
        return None if reply is None else reply.text


async def question(g, words, chat="me"):
    def found():
        return [each for each in g.messenger.bubbles if each.chat == chat and words in each.text]

    await g.messenger.until(found)
    return found()[0]


@pytest.mark.parametrize(
    ("answer", "means"), [("2", "the blue"), ("1.", "the red"), ("neither", "neither"), ("7", "7")]
)
async def test_words_or_a_number_answer_in_a_chat_and_begin_no_turn(tmp_path, answer, means):
    provider, tool = ScriptedProvider([ASK, "thanks"]), Curious()
    async with open_gateway(tmp_path, provider, tool, manners=PEOPLE) as g:
        tool.sessions = g.sessions
        await g.take("paint it", sender="me")
        bubble = await question(g, "Which")
        assert "1. the red" in bubble.text and [each.label for each in bubble.piece.buttons] == ["the red", "the blue"]
        await g.take(answer, sender="me")
        await g.messenger.until(lambda: "thanks" in g.messenger.said())
        await g.quiet()
        assert len(provider.asked) == 2 and provider.asked[-1].messages[-1].parts[0].text.endswith(f": {means}")
        assert means.replace("*", "") in bubble.text and bubble.piece.buttons == ()


async def test_a_button_answers_and_only_for_who_may(tmp_path):
    provider, tool = ScriptedProvider([ASK, "thanks"]), Curious()
    async with open_gateway(tmp_path, provider, tool, manners=PEOPLE) as g:
        tool.sessions = g.sessions
        await g.take("paint it", sender="me", **TEAM)
        bubble = await question(g, "Which", chat="team")
        blue = bubble.piece.buttons[1].data
        await g.take(sender="you", pressed=blue, **TEAM)
        await g.messenger.until(lambda: any("Only the person who asked" in each for each in g.messenger.said("team")))
        await g.take("good morning", sender="you", addressed=False, **TEAM)  # no answer of theirs
        await g.take(sender="boss", pressed=blue, **TEAM)
        await g.messenger.until(lambda: "thanks" in g.messenger.said("team"))
        await g.take(sender="me", pressed=blue, **TEAM)
        await g.messenger.until(lambda: any("has expired" in each for each in g.messenger.said("team")))


async def test_a_command_is_no_answer_and_stop_ends_the_question(tmp_path):
    provider, tool = ScriptedProvider([OPEN, "later"]), Curious()
    async with open_gateway(tmp_path, provider, tool, manners=PEOPLE) as g:
        tool.sessions = g.sessions
        await g.take("name it", sender="me")
        await question(g, "its name")
        await g.take("/stop", sender="me")
        await g.sessions.wait_idle()
        assert g.sessions.questions.open("agent:main:test:dm:me") == ()
        await g.take("good evening", sender="me")
        await g.messenger.until(lambda: "later" in g.messenger.said())


async def test_nobody_answers_in_time_and_the_work_continues(tmp_path):
    provider, tool = ScriptedProvider([OPEN, "I took Max."]), Curious(seconds=0.05)
    async with open_gateway(tmp_path, provider, tool, manners=PEOPLE) as g:
        tool.sessions = g.sessions
        await g.take("name it", sender="me")
        await g.messenger.until(lambda: "I took Max." in g.messenger.said())
        assert provider.asked[-1].messages[-1].parts[0].text.startswith("No answer.")


async def test_a_question_that_reaches_nobody_is_not_waited_for(tmp_path):
    provider, tool = ScriptedProvider([OPEN, "I took Max."]), Curious(seconds=1000)
    messenger = FakePlatform()
    messenger.fail("send", *(DeliveryError("no answer came", uncertain=True) for _ in range(2)))
    async with open_gateway(tmp_path, provider, tool, manners=PEOPLE, messenger=messenger) as g:
        tool.sessions = g.sessions
        await g.take("name it", sender="me")
        await g.messenger.until(lambda: "I took Max." in g.messenger.said())
        (seen,) = provider.asked[-1].messages[-1].parts
        assert seen.outcome == "failed" and "the question was not delivered" in seen.text
        assert any("continued without an answer" in text for text in g.messenger.said())


async def test_where_nobody_could_answer_nobody_is_asked(tmp_path):
    provider, tool = ScriptedProvider([OPEN, "I took Max."]), Curious(seconds=1000)
    async with open_gateway(tmp_path, provider, tool, manners=PEOPLE, interactive=False) as g:
        tool.sessions = g.sessions
        await g.take("name it", sender="me")
        async with asyncio.timeout(LIMIT_S):
            await g.messenger.until(lambda: "I took Max." in g.messenger.said())
        assert not any("its name" in each for each in g.messenger.said())


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"question": "  "}, "question is empty"),
        ({"question": "?", "choices": ["a"] * 7}, "at most"),
        ({"question": "?", "choices": ["x" * 81]}, "at most"),
        ({"question": "?", "choices": [""]}, "at most"),
    ],
)
async def test_what_cannot_be_asked_is_said(args, why):
    with pytest.raises(ToolError, match=why):
        await Clarify(None).run(args, None)


def test_a_number_means_a_choice_only_where_there_is_one():
    asked = QuestionAsked("a", "?", ("x", "y"))
    assert [asked.interpret(each) for each in ("1", " 2) ", "3", "0", "1x", "")] == ["x", "y", "3", "0", "1x", ""]
