"""What is typed quickly is done in the order it was typed."""

import pytest

from tests.e2e.program import Home
from tests.world.glass import ENTER, Glass
from tests.world.model_server import ModelServer, Say

pytestmark = pytest.mark.deadline(60)


async def test_a_message_typed_right_after_new_reaches_the_new_conversation(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("first answer"), Say("second answer")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("first" + ENTER)
            await glass.until("first answer")
            glass.type("/new" + ENTER + "second" + ENTER)
            await glass.until("second answer")
    before, after = (
        [m["content"] for m in body["messages"] if m["role"] == "user"] for body in server.bodies
    )
    assert (before, after) == (["first"], ["second"])
