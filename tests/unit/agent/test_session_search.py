"""`session_search`: what a turn finds, how it is marked, and what the conversation counts as having read."""

import pytest
from msgspec import structs

from alipes.agent.search.session_search import SOURCE, visible_scope
from alipes.kernel.turns import Address, Inbound, Origin, Turn
from alipes.store.ports.search import EVERYTHING, SearchScope, SessionOwner
from alipes.testing.agent import open_agent
from alipes.testing.scripted_model import call

ANN = Address("telegram", "ann")


def turn(address=ANN, **more) -> Turn:
    return Turn("t", "s", Inbound("1", address, more.pop("sender", "ann"), "hi", **more))


@pytest.mark.parametrize(
    "given,seen",
    [
        (turn(Address("terminal", "x")), EVERYTHING),
        (turn(), EVERYTHING),
        (turn(untrusted="a message from ann, who is not an owner"), SearchScope(key=ANN.key)),
        (turn(notice="answered"), SearchScope(key=ANN.key)),
        (turn(sender=""), SearchScope(key=ANN.key)),
        (turn(structs.replace(ANN, chat_type="group")), SearchScope(key="agent:main:telegram:group:ann")),
        (turn(Address("webhook", "w")), SearchScope(key="agent:main:webhook:dm:w")),
        (turn(Address("api", "x", user="bob")), SearchScope(owner=SessionOwner("api", "bob"))),
        (turn(Address("subagent", "x"), origin=Origin(ANN)), SearchScope(key=ANN.key)),
        (turn(Address("subagent", "x"), origin=Origin(Address("terminal", "x"))), EVERYTHING),
    ],
)
def test_only_owners_see_conversations_of_other_chats(given, seen):
    assert visible_scope(given) == seen


async def new_conversation(agent) -> None:
    await agent.app.store.sessions.reset(agent.address.key)


async def test_words_of_an_earlier_conversation_are_found_as_data(tmp_path):
    script = ["The capital is Oslo.", call("session_search", query="Oslo"), "done"]
    async with open_agent(model=script, home=tmp_path) as agent:
        await agent.say("What is the capital of Norway?")
        await new_conversation(agent)
        reply = await agent.say("What did you say about Oslo?")
        (result,) = reply.results
        assert result.text.startswith(f'<untrusted source="{SOURCE}">') and "[Oslo]" in result.text
        assert "assistant, “What is the capital of Norway?”" in result.text
        assert "What did you say" not in result.text, "not the question itself"


async def test_the_messages_around_a_hit_can_be_read(tmp_path):
    script = ["The capital is Oslo.", call("session_search", around=2, before=1, after=0), "done"]
    async with open_agent(model=script, home=tmp_path) as agent:
        await agent.say("What is the capital of Norway?")
        await new_conversation(agent)
        (result,) = (await agent.say("And?")).results
        assert "#1 " in result.text and "user: What is the capital of Norway?" in result.text
        assert "> #2 " in result.text and "assistant: The capital is Oslo." in result.text


@pytest.mark.parametrize(
    "args,problem",
    [
        ({}, "query is empty"),
        ({"query": "x", "scope": "moon"}, "scope must be one of"),
        ({"around": 999}, "No message 999"),
    ],
)
async def test_wrong_arguments_are_explained(tmp_path, args, problem):
    async with open_agent(model=[call("session_search", **args), "done"], home=tmp_path) as agent:
        (result,) = (await agent.say("search")).results
        assert result.outcome == "failed" and problem in result.text


async def test_what_a_found_conversation_had_read_of_strangers_counts_as_read(tmp_path):
    script = ["The page says: buy tulips.", call("session_search", query="tulips"), "done"]
    async with open_agent(model=script, home=tmp_path) as agent:
        store = agent.app.store
        await agent.say("Read the page")
        (facts,) = await store.archive.sessions()
        first = Turn("t", facts.id, Inbound("x", agent.address, "me", ""))
        await store.sources.add(first, "page", "text from example.org")
        await new_conversation(agent)
        await agent.say("What about tulips?")
        (now, _) = await store.archive.sessions()
        second = Turn("t", now.id, Inbound("x", agent.address, "me", ""))
        assert dict(await store.sources.list_read(second)) == {"page": "text from example.org"}


async def test_a_search_in_clean_conversations_taints_nothing(tmp_path):
    async with open_agent(model=["Oslo.", call("session_search", query="Oslo"), "done"], home=tmp_path) as agent:
        await agent.say("Capital?")
        await new_conversation(agent)
        await agent.say("Again?")
        (now, _) = await agent.app.store.archive.sessions()
        second = Turn("t", now.id, Inbound("x", agent.address, "me", ""))
        assert dict(await agent.app.store.sources.list_read(second)) == {}


async def test_the_scope_can_be_this_conversation(tmp_path):
    script = ["Oslo it is.", "Bergen.", call("session_search", query="Oslo", scope="conversation"), "done"]
    async with open_agent(model=script, home=tmp_path) as agent:
        await agent.say("Capital?")
        await new_conversation(agent)
        await agent.say("Second city?")
        (result,) = (await agent.say("Did we say O s l o?")).results
        assert result.text.startswith("No matches")
