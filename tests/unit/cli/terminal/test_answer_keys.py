"""Keys at an approval prompt: letters, digits, arrows and Enter; a key that comes too early is no answer."""

import asyncio

import pytest
from prompt_toolkit.buffer import Buffer

from alipes.cli.terminal.input.approval import KEY_PAUSE_S, ApprovalPrompt
from alipes.cli.terminal.input.key_bindings import EARLY_KEY, AnswerKeys, ApprovalKey
from alipes.cli.terminal.screen.layout import BottomArea, PasteStore
from alipes.console.styles import make_style
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAsked


class Question:
    """An open question with its keys, and a clock."""

    def __init__(self, pattern: str = "") -> None:
        self.now, self.hints = 100.0, list[str]()
        self.buffer = Buffer()
        bottom = BottomArea(self.buffer, PasteStore(), make_style("none"))
        self.prompt = bottom.approvals = ApprovalPrompt(lambda: self.now)
        self.events = asyncio.Queue()
        self.keys = AnswerKeys(self.buffer, bottom, self.events, lambda text, _seconds: self.hints.append(text))
        self.decided = asyncio.Event()
        self.keys.on_answer = self.decided.set
        self.prompt.ask(ApprovalAsked("1", ToolCall("c", "terminal", {"command": "x"}), "why", "rule", pattern=pattern))

    async def press(self, key: str) -> None:
        """Press the key and wait until it is an answer or ignored."""
        self.decided.clear()
        self.keys.press(key)
        self.prompt.key_pressed()
        async with asyncio.timeout(60):
            await self.decided.wait()

    @property
    def answer(self) -> object:
        return self.events.get_nowait() if not self.events.empty() else None


async def test_a_key_in_the_first_moment_is_neither_an_answer_nor_text_and_the_next_one_answers():
    question = Question()
    assert question.keys.is_early() and not question.keys.can_answer()
    await question.press("y")
    assert question.answer is None and question.buffer.text == "" and question.hints == [EARLY_KEY]
    question.now += KEY_PAUSE_S
    assert question.keys.can_answer()
    await question.press("n")
    assert question.answer == ApprovalKey("1", "no") and question.buffer.text == ""


async def test_text_that_is_typed_when_the_question_appears_is_kept():
    question = Question()
    question.keys.press("a")
    question.keys.type_on("a")
    question.keys.type_on("n")
    assert question.buffer.text == "aan" and question.answer is None and not question.keys.is_waiting


async def test_a_key_that_is_held_down_answers_once():
    question = Question()
    question.now += KEY_PAUSE_S
    question.keys.press("y")
    question.keys.type_on("y")
    await question.press("y")
    assert question.answer == ApprovalKey("1", "once") and question.answer is None and question.buffer.text == ""


@pytest.mark.parametrize(
    ("pattern", "key", "choice"), [("", "1", "once"), ("", "3", "always"), ("", "4", "no"), ("x *", "5", "no")]
)
async def test_a_digit_gives_the_answer_with_that_number(pattern, key, choice):
    question = Question(pattern)
    question.now += KEY_PAUSE_S
    assert question.keys.accepts(key) and not question.keys.accepts("7")
    await question.press(key)
    assert question.answer == ApprovalKey("1", choice)


async def test_arrows_choose_and_enter_answers_without_a_pause_after_the_arrow():
    question = Question()
    question.now += KEY_PAUSE_S
    for step in (-1, -1, 1, -1):
        question.keys.choose(step)
        question.prompt.key_pressed()
    assert any("▸4 [n] no" in row for row in question.prompt.rows(80, make_style("none"), typing=False))
    assert question.keys.can_answer()
    question.keys.press_enter()
    assert question.answer == ApprovalKey("1", "no")


async def test_enter_in_the_first_moment_is_ignored():
    question = Question()
    question.keys.press_enter()
    assert question.answer is None and question.hints == [EARLY_KEY]


async def test_a_key_does_not_answer_a_question_that_came_after_it():
    question = Question()
    question.now += KEY_PAUSE_S
    question.keys.press("y")
    question.prompt.close("1")
    question.prompt.ask(ApprovalAsked("2", ToolCall("c", "terminal", {"command": "rm"}), "why", "rule"))
    question.keys.confirm()
    assert question.answer is None
