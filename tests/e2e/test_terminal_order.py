"""Quickly typed input is handled in order."""

import pytest

from tests.e2e.program import Home
from tests.world.model_server import ModelServer, Say
from tests.world.terminal_process import ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(60)


async def test_a_message_typed_right_after_new_reaches_the_new_conversation(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("first answer"), Say("second answer")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("first" + ENTER)
            await terminal.until("first answer")
            terminal.type("/new" + ENTER + "second" + ENTER)
            await terminal.until("second answer")
    before, after = ([m["content"] for m in body["messages"] if m["role"] == "user"] for body in server.bodies)
    assert (before, after) == (["first"], ["second"])
