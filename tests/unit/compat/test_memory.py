"""A memory provider: recalled before a turn, reported after it was answered, and never in its way."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from alipes.agent.auxiliary import BackgroundTasks
from alipes.features.memory.recall import MemoryRecall
from alipes.features.memory.settings import MemoryConfig
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.turns import Origin
from alipes.plugins import specs
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.owner import CORE
from alipes.plugins.registry import ProviderContribution
from tests.unit.compat import plugin_harness
from tests.unit.compat.plugin_harness import Act
from tests.world.environment import LIMIT_S

SAID = (user("do it"), assistant(Text("done")))
PROVIDER = """
    import json, threading
    from agent.memory_provider import MemoryProvider

    calls = []

    class Pouch(MemoryProvider):
        name = "pouch"
        available = True

        def is_available(self):
            return self.available

        def initialize(self, session_id, **kwargs):
            calls.append(("initialize", session_id, kwargs["hermes_home"], kwargs["platform"]))

        def system_prompt_block(self):
            calls.append(("block",))
            return "You have a pouch."

        def prefetch(self, query, *, session_id=""):
            assert threading.current_thread() is not threading.main_thread()
            calls.append(("prefetch", query, session_id))
            return "likes tea"

        def queue_prefetch(self, query, *, session_id=""):
            calls.append(("queue", query, session_id))

        def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
            calls.append(("sync", user_content, assistant_content, session_id, len(messages)))

        def get_tool_schemas(self):
            return [{"name": "pouch_search", "description": "Searches.",
                     "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]

        def handle_tool_call(self, tool_name, args, **kwargs):
            return json.dumps([tool_name, args, kwargs["session_id"]])

        def on_session_end(self, messages):
            calls.append(("end", len(messages)))

        def on_session_switch(self, new_session_id, *, parent_session_id="", reset=False, **kwargs):
            calls.append(("switch", new_session_id, parent_session_id, reset))

        def on_delegation(self, task, result, *, child_session_id="", **kwargs):
            calls.append(("delegation", task, result))

        def shutdown(self):
            calls.append(("shutdown",))

    def register(ctx):
        global registered
        registered = ctx.register_memory_provider(Pouch())
"""


INBOUND = structs.replace(plugin_harness.TURN_HERE.inbound, owner=True)
TURN_HERE = structs.replace(plugin_harness.TURN_HERE, inbound=INBOUND)


@asynccontextmanager
async def open_memory(harness, source=PROVIDER, **more):
    """The plugin, and the port through which alipes uses it."""
    async with BackgroundTasks() as tasks, harness.plugin(source, **more):
        recall = MemoryRecall(harness.contributions, MemoryConfig(recall_wait=LIMIT_S), tasks)
        hooks = (recall.turn_context, recall.turn_ended)
        for hook in hooks:
            harness.hooks.add(CORE, hook, patient=True)
        try:
            yield recall
        finally:
            harness.hooks.remove(CORE)


async def ended(dispatcher, ending="answered", turn=TURN_HERE):
    await dispatcher.notify(specs.turn_ended, turn=turn, ending=ending, detail="", said=SAID, usage=None)


async def until(harness, what):
    async with asyncio.timeout(LIMIT_S):
        while what not in [call[0] for call in harness.calls]:
            await asyncio.sleep(0.001)


async def test_what_is_recalled_is_reported_beside_the_message(harness):
    async with open_memory(harness):
        assert harness.module.registered is True
        seen = await harness.dispatcher.filter(specs.turn_context, "the hour", turn=TURN_HERE)
        assert seen.startswith("the hour\n\nRecalled from memory")
        assert "likes tea" in seen
        assert harness.calls == [("initialize", "s1", str(harness.settings.home), "cli"), ("prefetch", "do it", "s1")]
        assert harness.contributions.find(ProviderContribution, "memory:pouch").thing.name == "pouch"


async def test_its_part_of_the_system_prompt_is_asked_for(harness):
    async with open_memory(harness) as recall:
        assert await recall.prompt_block(TURN_HERE) == "You have a pouch."


async def test_other_people_neither_see_nor_fill_it(harness):
    guest = structs.replace(TURN_HERE, inbound=structs.replace(INBOUND, owner=False))
    async with open_memory(harness) as recall:
        assert await harness.dispatcher.filter(specs.turn_context, "the hour", turn=guest) == "the hour"
        assert await recall.prompt_block(guest) == ""
        await recall._after_turn(guest, {"message": "m", "answer": "a", "messages": ()})
        TURN.set(guest)
        with pytest.raises(ToolError, match="owner"):
            await harness.tool("pouch_search").run({"q": "tea"}, Act())
        assert harness.calls == []


async def test_an_answered_turn_is_remembered_and_the_next_recall_is_queued(harness):
    async with open_memory(harness):
        await ended(harness.dispatcher)
        await until(harness, "queue")
        assert ("sync", "do it", "done", "s1", 4) in harness.calls
        assert harness.calls[-1] == ("queue", "do it", "s1")


async def test_a_turn_that_was_not_answered_is_not_remembered(harness):
    async with open_memory(harness):
        for ending in ("stopped", "failed", "out_of_steps", "suspended"):
            await ended(harness.dispatcher, ending)
        await asyncio.sleep(0.02)
        assert harness.calls == []


async def test_its_tools_are_offered_and_answered_by_it(harness):
    async with open_memory(harness):
        TURN.set(TURN_HERE)
        tool = harness.tool("pouch_search")
        assert tool.spec.description == "Searches."
        assert json.loads(await tool.run({"q": "tea"}, Act())) == ["pouch_search", {"q": "tea"}, "s1"]
        assert harness.calls[0][0] == "initialize"


async def test_it_is_reported_when_another_conversation_is_meant(harness):
    other = structs.replace(TURN_HERE, session="s2")
    async with open_memory(harness):
        dispatcher = harness.dispatcher
        await dispatcher.filter(specs.turn_context, "", turn=TURN_HERE)
        await dispatcher.filter(specs.turn_context, "", turn=other)
        await dispatcher.notify(specs.session_reset, session="s3", session_key="k", reason="reset", predecessor="s2")
        switches = [call for call in harness.calls if call[0] == "switch"]
        assert switches == [("switch", "s2", "s1", False), ("switch", "s3", "s2", True)]


async def test_the_end_of_a_conversation_is_reported_with_all_that_was_said(harness):
    async with open_memory(harness):
        await ended(harness.dispatcher, "stopped")
        left = {"session_key": "k", "reason": "reset", "successor": "s2"}
        await harness.dispatcher.notify(specs.session_left, session="s1", **left)
        await harness.dispatcher.notify(specs.session_left, session="unknown", **left)
        assert harness.calls == [("end", 4)]


async def test_what_a_child_found_is_asked_to_the_parents_memory(harness):
    async with open_memory(harness):
        await harness.dispatcher.notify(
            specs.subagent_ended,
            parent=TURN_HERE,
            session="s2",
            role="worker",
            goal="look",
            ending="answered",
            summary="found",
            seconds=1.0,
        )
        assert harness.calls == [("delegation", "look", "found")]


async def test_what_no_person_said_is_neither_recalled_for_nor_remembered(harness):
    child = structs.replace(TURN_HERE.inbound, origin=Origin(TURN_HERE.inbound.address))
    notice = structs.replace(TURN_HERE.inbound, notice="answered")
    async with open_memory(harness) as recall:
        worker = structs.replace(TURN_HERE, inbound=child)
        assert await harness.dispatcher.filter(specs.turn_context, "the hour", turn=worker) == "the hour"
        assert await recall.prompt_block(worker) == ""
        await ended(harness.dispatcher, turn=worker)
        await ended(harness.dispatcher, turn=structs.replace(TURN_HERE, inbound=notice))
        await asyncio.sleep(0.02)
        assert harness.calls == []


async def test_it_is_shut_down_with_the_plugin_if_it_was_ever_used(harness):
    async with open_memory(harness):
        calls = harness.calls
        await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE)
    assert calls[-1] == ("shutdown",)
    async with open_memory(harness):
        calls = harness.calls
    assert calls == []
    assert harness.door.bridge.memory is None


async def test_one_that_breaks_does_no_harm_to_the_turn(harness):
    source = PROVIDER.replace('calls.append(("prefetch", query, session_id))', "raise OSError('down')")
    async with open_memory(harness, source):
        assert await harness.dispatcher.filter(specs.turn_context, "the hour", turn=TURN_HERE) == "the hour"
        await ended(harness.dispatcher)
        await until(harness, "sync")


async def test_one_that_is_not_available_is_left_alone(harness, caplog):
    source = PROVIDER.replace("available = True", "available = False")
    async with open_memory(harness, source):
        assert harness.module.registered is None
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == ""
        assert "pouch_search" not in harness.contributions.tools()
        assert "pouch is not available" in caplog.text


async def test_there_is_one_at_a_time(harness, caplog):
    async with open_memory(harness):
        async with harness.plugin(PROVIDER.replace("pouch", "sack"), name="second"):
            assert harness.module.registered is None
            assert "pouch is already the memory provider" in caplog.text


async def test_a_provider_that_is_no_subclass_and_has_only_the_old_signatures_will_do(harness):
    source = """
    calls = []
    class Old:
        name = "old"
        def is_available(self):
            return True
        def initialize(self, session_id):
            calls.append(session_id)
        def get_tool_schemas(self):
            return []
        def prefetch(self, query):
            return f"about {query}"
        def sync_turn(self, user, assistant):
            calls.append((user, assistant))
    def register(ctx):
        ctx.register_memory_provider(Old())
    """
    async with open_memory(harness, source):
        assert (await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE)).count("about do it") == 1
        await ended(harness.dispatcher)
        async with asyncio.timeout(LIMIT_S):
            while len(harness.calls) < 2:
                await asyncio.sleep(0.001)
        assert harness.calls == ["s1", ("do it", "done")]
