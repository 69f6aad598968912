"""What plugins offer: whose it is, who may take a name, what a turn gets to see."""

import threading

import pytest

from alipes.kernel.errors import PluginError, ToolError
from alipes.plugins.interruption.attribution import PLUGIN
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import (
    CommandContribution,
    Contributions,
    ProviderContribution,
    SkillContribution,
    ToolContribution,
)
from alipes.plugins.tool_decorator import make_tool
from tests.world.commands import NamedCommand


def a_tool(name, answer="done"):
    async def run() -> str:
        return answer

    run.__name__ = name
    return make_tool(run)


def offer(owner, name, **more):
    return ToolContribution(owner, a_tool(name, owner.name), more.pop("toolset", owner.name), **more)


async def nothing(args, inbound):
    return None


def test_a_name_belongs_to_who_came_first_until_they_are_gone():
    offers, one, other = Contributions(), PluginOwner("one"), PluginOwner("other")
    offers.add(offer(one, "look"))
    with pytest.raises(PluginError, match="plugin other: look: plugin one has this tool already"):
        offers.add(offer(other, "look"))
    offers.add(SkillContribution(other, "look", "/x"))  # another kind of thing has names of its own
    one.disable("why")
    offers.add(offer(other, "look"))
    assert offers.find(ToolContribution, "look").owner is other
    offers.remove(other)
    assert offers.all(ToolContribution) == () and offers.all(SkillContribution) == ()


def test_a_newer_version_of_the_same_plugin_takes_its_names_over():
    offers, old, new = Contributions(), PluginOwner("one"), PluginOwner("one")
    offers.add(offer(old, "look"))
    offers.add(offer(old, "gone"))
    offers.add(offer(new, "look"))
    offers.remove(old)
    assert [each.name for each in offers.all(ToolContribution)] == ["look"]
    assert offers.by_owner(new)[0].name == "look" and offers.by_owner(old) == ()


@pytest.mark.parametrize("name", ["Look", "two words", "", "a/b", "x" * 33, "é"])
def test_a_command_that_nobody_could_type_is_refused(name):
    with pytest.raises(PluginError, match="a command name may have"):
        Contributions().add(CommandContribution(PluginOwner("one"), name, nothing))


@pytest.mark.parametrize("name", ["two words", "", "x" * 65, "é"])
def test_a_tool_that_no_model_could_call_is_refused(name):
    with pytest.raises(PluginError, match="a tool name may have"):
        Contributions().add(offer(PluginOwner("one"), name))


def test_built_in_commands_are_its_own():
    offers = Contributions(lambda: (NamedCommand("stop"),))
    with pytest.raises(PluginError, match="plugin one: /stop: this command name is built in"):
        offers.add(CommandContribution(PluginOwner("one"), "stop", nothing))


def test_providers_have_names_by_kind():
    offers, one, other = Contributions(), PluginOwner("one"), PluginOwner("other")
    offers.add(ProviderContribution(one, "tts", "x", object()))
    offers.add(ProviderContribution(other, "platform", "x", object()))
    with pytest.raises(PluginError, match="plugin one has this tts already"):
        offers.add(ProviderContribution(other, "tts", "x", object()))


def test_replacing_a_built_in_tool_needs_two_words_of_consent():
    offers, one = Contributions(), PluginOwner("one")
    offers.add_builtin(a_tool("read_file", "house"))
    with pytest.raises(PluginError, match=r"allow_tool_override = true in \[plugins.entries.one\]"):
        offers.add(offer(one, "read_file"))
    offers.add(offer(one, "read_file", override=True))
    assert list(offers.tools()) == ["read_file"]
    assert list(offers.tools(["core"])) == ["read_file"]
    one.disable("why")
    assert offers.tools()["read_file"].spec.name == "read_file"


async def test_an_override_speaks_and_its_absence_restores_the_built_in_one():
    offers, one = Contributions(), PluginOwner("one")
    offers.add_builtin(a_tool("read_file", "house"))
    offers.add(offer(one, "read_file", override=True))
    assert await offers.tools()["read_file"].run({}, None) == "one"
    offers.remove(one)
    assert await offers.tools()["read_file"].run({}, None) == "house"


def test_toolsets_narrow_what_a_turn_sees():
    offers, one, other = Contributions(), PluginOwner("one"), PluginOwner("other")
    offers.add_builtin(a_tool("read_file"), a_tool("terminal"))
    offers.add(offer(one, "a"))
    offers.add(offer(one, "b", toolset="special"))
    offers.add(offer(other, "c"))
    assert set(offers.tools()) == {"read_file", "terminal", "a", "b", "c"}
    assert set(offers.tools(["one"])) == {"a"}
    assert set(offers.tools(["core", "special"])) == {"read_file", "terminal", "b"}
    assert set(offers.tools(["read_file", "c"])) == {"read_file", "c"}
    assert set(offers.tools([])) == set()
    assert set(offers.tools(without=["terminal", "a"])) == {"read_file", "b", "c"}


async def test_a_tool_says_whether_it_is_available_in_a_thread_and_one_that_breaks_is_not():
    offers, one, threads = Contributions(), PluginOwner("one"), []

    def no():
        threads.append(threading.get_ident())
        return False

    def broken():
        raise OSError("no such device")

    offers.add(offer(one, "yes", available=lambda: True))
    offers.add(offer(one, "no", available=no))
    offers.add(offer(one, "broken", available=broken))
    offers.add(offer(one, "plain"))
    assert {*await offers.unavailable()} == {"no", "broken"}
    assert one.strikes == 1 and threads != [threading.get_ident()]


async def test_a_tool_runs_on_behalf_of_its_plugin_and_not_when_that_is_off():
    offers, one = Contributions(), PluginOwner("one")

    async def who() -> str:
        return PLUGIN.get().name

    offers.add(ToolContribution(one, make_tool(who), "one"))
    tool = offers.tools()["who"]
    assert await tool.run({}, None) == "one" and PLUGIN.get() is None
    one.disable("switched off for a reason")
    with pytest.raises(ToolError, match="the plugin one is switched off for a reason"):
        await tool.run({}, None)
    assert dict(offers.tools()) == {}


def test_only_its_owner_takes_an_offer_back():
    offers, one, other = Contributions(), PluginOwner("one"), PluginOwner("other")
    offers.add(offer(one, "a"))
    assert not offers.remove_one(other, ToolContribution, "a") and offers.remove_one(one, ToolContribution, "a")
    assert not offers.remove_one(one, ToolContribution, "a")
