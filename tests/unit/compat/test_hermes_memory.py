"""A memory provider: recalled before a turn, told after it was answered, and never in its way."""

import asyncio
import json

from msgspec import structs

from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.ports import Request
from alipes.kernel.turns import Origin
from alipes.plugins import specs
from alipes.plugins.attribution import TURN
from alipes.plugins.registry import ProviderOffer
from tests.unit.compat.stage import TURN_HERE, Act

SAID = (user("do it"), assistant(Text("done")))
REQUEST = Request("large", "be good", (user("do it"),))
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


async def ended(relay, ending="answered", turn=TURN_HERE):
    await relay.tell(specs.turn_ended, turn=turn, ending=ending, detail="", said=SAID, usage=None)


async def until(stage, what):
    async with asyncio.timeout(5):
        while what not in [call[0] for call in stage.calls]:
            await asyncio.sleep(0.001)


async def test_what_is_recalled_is_told_beside_the_message(stage):
    async with stage.plugin(PROVIDER):
        assert stage.module.registered is True
        told = await stage.relay.filter(specs.turn_context, "the hour", turn=TURN_HERE)
        assert told.startswith("the hour\n\nRecalled from memory")
        assert told.endswith("likes tea")
        assert stage.calls == [
            ("initialize", "s1", str(stage.settings.home), "cli"),
            ("prefetch", "do it", "s1"),
        ]
        assert stage.offers.find(ProviderOffer, "memory:pouch").thing.name == "pouch"


async def test_its_part_of_the_system_prompt_is_asked_for_once(stage):
    async with stage.plugin(PROVIDER):
        for _ in range(2):
            request = await stage.relay.filter(specs.before_request, REQUEST, turn=TURN_HERE)
            assert request.system == "be good\n\nYou have a pouch."
        assert [call for call in stage.calls if call[0] == "block"] == [("block",)]


async def test_an_answered_turn_is_remembered_and_the_next_recall_is_queued(stage):
    async with stage.plugin(PROVIDER):
        await ended(stage.relay)
        await until(stage, "queue")
        assert ("sync", "do it", "done", "s1", 4) in stage.calls
        assert stage.calls[-1] == ("queue", "do it", "s1")


async def test_a_turn_that_was_not_answered_is_not_remembered(stage):
    async with stage.plugin(PROVIDER):
        for ending in ("stopped", "failed", "out_of_steps", "suspended"):
            await ended(stage.relay, ending)
        await asyncio.sleep(0.02)
        assert stage.calls == []


async def test_its_tools_are_offered_and_answered_by_it(stage):
    async with stage.plugin(PROVIDER):
        TURN.set(TURN_HERE)
        tool = stage.tool("pouch_search")
        assert tool.spec.description == "Searches."
        assert json.loads(await tool.run({"q": "tea"}, Act())) == ["pouch_search", {"q": "tea"}, "s1"]
        assert stage.calls[0][0] == "initialize"


async def test_it_is_told_when_another_conversation_is_meant(stage):
    other = structs.replace(TURN_HERE, session="s2")
    async with stage.plugin(PROVIDER):
        relay = stage.relay
        await relay.filter(specs.turn_context, "", turn=TURN_HERE)
        await relay.filter(specs.turn_context, "", turn=other)
        await relay.tell(specs.session_reset, session="s3", session_key="k", reason="reset", predecessor="s2")
        switches = [call for call in stage.calls if call[0] == "switch"]
        assert switches == [("switch", "s2", "s1", False), ("switch", "s3", "s2", True)]


async def test_the_end_of_a_conversation_is_told_with_all_that_was_said(stage):
    async with stage.plugin(PROVIDER):
        await ended(stage.relay, "stopped")
        left = {"session_key": "k", "reason": "reset", "successor": "s2"}
        await stage.relay.tell(specs.session_left, session="s1", **left)
        await stage.relay.tell(specs.session_left, session="unknown", **left)
        assert stage.calls == [("end", 4)]


async def test_what_a_child_found_is_told_to_the_parents_memory(stage):
    async with stage.plugin(PROVIDER):
        await stage.relay.tell(
            specs.subagent_ended,
            parent=TURN_HERE,
            session="s2",
            role="worker",
            goal="look",
            ending="answered",
            summary="found",
            seconds=1.0,
        )
        assert stage.calls == [("delegation", "look", "found")]


async def test_what_no_person_said_is_neither_recalled_for_nor_remembered(stage):
    child = structs.replace(TURN_HERE.inbound, origin=Origin(TURN_HERE.inbound.address))
    notice = structs.replace(TURN_HERE.inbound, notice="answered")
    async with stage.plugin(PROVIDER):
        worker = structs.replace(TURN_HERE, inbound=child)
        assert await stage.relay.filter(specs.turn_context, "the hour", turn=worker) == "the hour"
        assert await stage.relay.filter(specs.before_request, REQUEST, turn=worker) is REQUEST
        await ended(stage.relay, turn=worker)
        await ended(stage.relay, turn=structs.replace(TURN_HERE, inbound=notice))
        await asyncio.sleep(0.02)
        assert stage.calls == []


async def test_it_is_shut_down_with_the_plugin_if_it_was_ever_used(stage):
    async with stage.plugin(PROVIDER):
        calls = stage.calls
        await stage.relay.filter(specs.turn_context, "", turn=TURN_HERE)
    assert calls[-1] == ("shutdown",)
    async with stage.plugin(PROVIDER):
        calls = stage.calls
    assert calls == []
    assert stage.door.bridge.memory is None


async def test_one_that_breaks_does_no_harm_to_the_turn(stage):
    source = PROVIDER.replace('calls.append(("prefetch", query, session_id))', "raise OSError('down')")
    async with stage.plugin(source):
        assert await stage.relay.filter(specs.turn_context, "the hour", turn=TURN_HERE) == "the hour"
        await ended(stage.relay)
        await until(stage, "sync")


async def test_one_that_is_not_available_is_left_alone(stage, caplog):
    source = PROVIDER.replace("available = True", "available = False")
    async with stage.plugin(source):
        assert stage.module.registered is None
        assert await stage.relay.filter(specs.turn_context, "", turn=TURN_HERE) == ""
        assert "pouch_search" not in stage.offers.tools()
        assert "pouch is not available" in caplog.text


async def test_there_is_one_at_a_time(stage, caplog):
    async with stage.plugin(PROVIDER):
        async with stage.plugin(PROVIDER.replace("pouch", "sack"), name="second"):
            assert stage.module.registered is None
            assert "memory is kept by pouch already" in caplog.text


async def test_a_provider_that_is_no_subclass_and_has_only_the_old_signatures_will_do(stage):
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
    async with stage.plugin(source):
        assert (await stage.relay.filter(specs.turn_context, "", turn=TURN_HERE)).endswith("about do it")
        await ended(stage.relay)
        async with asyncio.timeout(5):
            while len(stage.calls) < 2:
                await asyncio.sleep(0.001)
        assert stage.calls == ["s1", ("do it", "done")]
