"""A turn that is over is gone at once: what it held does not wait until Python looks for garbage."""

import gc

import pytest

from alipes.kernel.ports import ToolSpec
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.runtime.http.clients import ClientScope
from alipes.sessions.turn_runner import TurnRunner
from alipes.sessions.turn_state import RunningTurn
from tests.world.model_calls import provider
from tests.world.model_server import Call, Calls, Fail, ModelServer, Say
from tests.world.session_harness import inbound, open_sessions

API = "openai-chat"


class Look:
    spec = ToolSpec("look", "look", {"type": "object", "properties": {}}, effect="read")

    async def run(self, args, act):
        return "seen"


class Diarist:
    """Two observers of the end of a turn, called in parallel."""

    def __init__(self, hooks, name):
        self.ends = []
        hooks.add(PluginOwner(name), self.turn_ended)

    async def turn_ended(self, ending):
        self.ends.append(ending)


@pytest.fixture
def nobody_looks():
    """The collector rests."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left():
    return [each for each in gc.get_objects() if type(each) in (RunningTurn, TurnRunner)]  # isinstance wakes proxies


@pytest.mark.parametrize(
    ("ending", "replies"),
    [
        ("answered", [Say("hi")]),
        ("answered", [Calls((Call("look", {}),)), Say("seen")]),
        ("failed", [Fail(400, "not this")]),
        ("failed", [Fail(500, "not now", retry_after=0.01)] * 5),
    ],
)
async def test_nothing_is_left_of_a_turn_that_is_over(tmp_path, nobody_looks, ending, replies):
    hooks = Hooks()
    diarists = [Diarist(hooks, name) for name in ("ann", "ben")]
    async with ModelServer(replies) as model, ClientScope() as scope:
        asked = provider(API, model.url(API), scope)
        async with open_sessions(tmp_path, asked, Look(), hooks=hooks) as house:
            assert (await house.ask(inbound("1", "hello"))).ending == ending
            await house.sessions.wait_idle()
            assert all(each.ends == [ending] for each in diarists)
            assert left() == []
