"""`/usage` in a conversation."""

from alipes.features.usage.feature import UsageFeature
from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import ModelReply, Usage
from alipes.plugins.registry import Contributions
from alipes.sessions.commands import registry
from tests.unit.sessions.test_commands import at_desk


def open_desk(home, *script):
    return at_desk(home, *script, contributions=Contributions(lambda: (*registry.COMMANDS, *UsageFeature.commands())))


async def test_usage_tells_tokens_and_cost_and_which_prices_are_unknown(tmp_path):
    priced = ModelReply(assistant(Text("hi")), Usage(input=1000, output=50, cached=900, cost=0.5))
    free = ModelReply(assistant(Text("hi")), Usage(input=10, output=5, reasoning=2))
    async with open_desk(tmp_path, priced, free, free) as desk:
        assert "this conversation" not in (await desk.type("/usage")).text
        await desk.say("one")
        text = (await desk.type("/usage")).text
        expected = "1 call · 1,000 tokens in (900 cached) · 50 out · $0.5000"
        assert f"this conversation  {expected}" in text and f"today              {expected}" in text
        await desk.say("two")
        await desk.type("/model p/big")
        await desk.say("three")
        text = (await desk.type("/usage")).text
        assert "3 calls" in text and "$0.5000 and 2 calls of unknown price" in text
        assert "  p/big            1 call · 10 tokens in · 5 out (2 thinking)" in text


async def test_a_price_that_is_not_known_is_left_out(tmp_path):
    async with open_desk(tmp_path, ModelReply(assistant(Text("hi")), Usage(input=10, output=5))) as desk:
        await desk.say("one")
        text = (await desk.type("/usage")).text
        assert "this conversation  1 call · 10 tokens in · 5 out\n" in text and "price" not in text


async def test_usage_is_listed_with_its_alias_which_runs_it(tmp_path):
    async with open_desk(tmp_path) as desk:
        listed = (await desk.type("/help")).text.partition("Model and cost")[2].partition("\n\n")[0]
        assert "  /usage [DAYS]" in listed and "also /cost" in listed
        assert registry.parse("/cost", desk.context.contributions).command.name == "usage"
