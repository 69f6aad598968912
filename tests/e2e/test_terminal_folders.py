"""Conversations belong to folders: continue, choose, and resume them, at a real terminal."""

import re
import signal

import pytest

from tests.e2e.program import Home
from tests.world.model_server import ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return Home(tmp_path / "home")


def terminal_in(home: Home, folder: str, *words: str, **more: str):
    return TerminalProcess.running(words, home.environ(**more), home.path.parent / folder, size=(100, 30))


def flat(terminal: TerminalProcess) -> str:
    """The text without line breaks, which depend on the length of the temporary folder."""
    return re.sub(r"\s+", "", terminal.text)


async def talk(home: Home, folder: str, text: str, answer: str) -> None:
    async with terminal_in(home, folder) as terminal:
        terminal.type(text + ENTER)
        await terminal.until(answer)
        await terminal.until("›")
        terminal.type(CTRL_D)
        assert await terminal.ended() == 0


async def test_at_exit_one_line_says_how_to_come_back(home):
    async with ModelServer([Say("Hello Ada.")]) as server:
        home.use(server)
        async with terminal_in(home, "one") as terminal:
            terminal.type("I am Ada" + ENTER)
            await terminal.until("Hello Ada.\n\n")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
            assert "Continue with: alipes -c" in terminal.text
        async with terminal_in(home, "one") as terminal:
            await terminal.until("(from ")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
            assert "Continue with" not in terminal.text, "nothing was said"


async def test_continue_takes_the_latest_conversation_of_this_folder(home):
    """B21"""
    async with ModelServer([Say("Hello Ada."), Say("Hello Bob."), Say("You are Ada.")]) as server:
        home.use(server)
        await talk(home, "one", "I am Ada", "Hello Ada.")
        await talk(home, "two", "I am Bob", "Hello Bob.")
        async with terminal_in(home, "one", "-c") as terminal:
            await terminal.until("Hello Ada.")
            terminal.type("who am I?" + ENTER)
            await terminal.until("You are Ada.")
    said = [message["content"] for message in server.bodies[2]["messages"] if message["role"] == "user"]
    assert said == ["I am Ada", "who am I?"]


async def test_continue_in_a_folder_without_conversations_names_the_other_folder(home):
    """B21"""
    async with ModelServer([Say("Hello Ada.")]) as server:
        home.use(server)
        await talk(home, "one", "I am Ada", "Hello Ada.")
        async with terminal_in(home, "two", "-c") as terminal:
            assert await terminal.ended() == 2
            text = flat(terminal)
            assert "cd~/one&&alipes-c`" in text and "alipes-r" in text
    assert len(server.requests) == 1


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("y", 0)])
async def test_a_conversation_of_another_folder_is_named_and_confirmed(home, answer, status):
    """B21"""
    async with ModelServer([Say("Hello Ada."), Say("You are Ada.")]) as server:
        home.use(server)
        await talk(home, "one", "I am Ada", "Hello Ada.")
        async with terminal_in(home, "two", "-r", "I am Ada") as terminal:
            await terminal.until("[y/N]")
            assert "was last used in ~/one" in terminal.text
            terminal.type(answer + ENTER)
            if answer == "y":
                await terminal.until("Hello Ada.")
                terminal.type("who am I?" + ENTER)
                await terminal.until("You are Ada.")
                terminal.type(CTRL_D)
            assert await terminal.ended() == status
            assert ("alipes -r" in terminal.text) == (answer == "n")


async def test_resume_without_a_name_offers_a_list(home):
    async with ModelServer([Say("Hello Ada."), Say("You are Ada.")]) as server:
        home.use(server)
        await talk(home, "one", "I am Ada", "Hello Ada.")
        async with terminal_in(home, "one", "-r") as terminal:
            await terminal.until("Conversations")
            await terminal.until("I am Ada")
            terminal.type(ENTER)
            await terminal.until("Hello Ada.\n\n")
            terminal.type("who am I?" + ENTER)
            await terminal.until("You are Ada.")


async def test_in_plain_mode_the_list_is_numbered(home):
    async with ModelServer([Say("Hello Ada."), Say("You are Ada.")]) as server:
        home.use(server)
        await talk(home, "one", "I am Ada", "Hello Ada.")
        async with terminal_in(home, "one", "--plain", "-r") as terminal:
            await terminal.until("Number (Enter cancels):")
            terminal.type("7" + ENTER)
            await terminal.until("from 1 to 1")
            terminal.type("1" + ENTER)
            await terminal.until("Ctrl-D quits.")
            terminal.type("who am I?" + ENTER)
            await terminal.until("You are Ada.")


async def interrupt(home: Home, folder: str, server: ModelServer) -> None:
    async with terminal_in(home, folder) as terminal:
        terminal.type("a tale" + ENTER)
        await terminal.until("Once")
        terminal.signal(signal.SIGKILL)
        await terminal.ended()


@pytest.mark.parametrize("words", [(), ("--plain",)])
async def test_an_interrupted_turn_of_another_folder_is_resumed_only_after_a_yes(home, words):
    """B22"""
    async with ModelServer([Stall("Once"), Say("The end."), Say("Another answer.")]) as server:
        home.use(server)
        await interrupt(home, "one", server)
        async with terminal_in(home, "two", *words) as terminal:
            await terminal.until("Interrupted in ~/one: “a tale”")
            await terminal.until("(from ")
            assert len(server.requests) == 1, "nothing ran yet"
            terminal.type("y" + ENTER)
            await terminal.until("Resuming in")
            await terminal.until(lambda: len(server.requests) == 2)


async def test_a_message_instead_of_an_answer_leaves_the_interrupted_turn(home):
    """B22"""
    async with ModelServer([Stall("Once"), Say("Another answer."), Say("The end.")]) as server:
        home.use(server)
        await interrupt(home, "one", server)
        async with terminal_in(home, "two") as terminal:
            await terminal.until("Type y")
            terminal.type("hello" + ENTER)
            await terminal.until("Another answer.")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
        assert server.bodies[1]["messages"][-1]["content"] == "hello"
        async with terminal_in(home, "one") as terminal:
            await terminal.until("The end.")
    assert len(server.requests) == 3


async def test_an_interrupted_turn_of_this_folder_is_resumed_without_asking(home):
    """B22"""
    async with ModelServer([Stall("Once"), Say("The end.")]) as server:
        home.use(server)
        await interrupt(home, "one", server)
        async with terminal_in(home, "one") as terminal:
            await terminal.until("The end.")
            assert "Type y" not in terminal.text
