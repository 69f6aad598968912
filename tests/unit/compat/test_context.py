"""What `register(ctx)` gives a plugin: every method of the table."""

import argparse
import asyncio

import pytest

from alipes.kernel.errors import SessionError
from alipes.kernel.messages import ToolResult
from alipes.plugins import specs
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.registry import CliContribution, CommandContribution, ProviderContribution, SkillContribution
from tests.unit.compat.plugin_harness import FAR, TURN_HERE
from tests.world.environment import LIMIT_S

KEEP = """
    calls = []
    def register(ctx):
        global ctx_
        ctx_ = ctx
"""
METHODS = (
    *("register_tool", "register_hook", "register_command", "register_cli_command", "register_platform"),
    *("register_skill", "register_memory_provider", "register_middleware", "dispatch_tool", "inject_message"),
    *("get_config", "register_context_engine", "register_auxiliary_task"),
    *(f"register_{kind}_provider" for kind in ("tts", "transcription", "image_gen", "web_search", "browser")),
)


async def test_every_method_of_the_table_is_there(harness):
    async with harness.plugin(KEEP):
        ctx = harness.module.ctx_
        assert [name for name in METHODS if not callable(getattr(ctx, name, None))] == []
        for name in ("complete", "acomplete", "complete_structured", "acomplete_structured"):
            assert callable(getattr(ctx.llm, name))
        assert (ctx.manifest.name, ctx.manifest.version, ctx.manifest.author) == ("sample", "1.2", "ada")
        assert ctx.manifest.path == str(harness.folder)
        assert ctx.profile_name == "default"


@pytest.mark.parametrize("handler", ["lambda raw_args: 'got ' + raw_args", "waiting", "Thing()"])
async def test_a_command_is_given_what_follows_its_name(harness, handler):
    source = f"""
    async def waiting(raw):
        return "got " + raw
    class Thing:
        def __call__(self, raw):
            return "got " + raw
    def register(ctx):
        ctx.register_command("hello", {handler}, description="Says hello.", args_hint="NAME")
    """
    async with harness.plugin(source):
        offer = harness.contributions.find(CommandContribution, "hello")
        assert (offer.help, offer.hint) == ("Says hello.", "NAME")
        assert await offer.act("Ada", FAR) == "got Ada"


async def test_a_command_may_say_nothing_and_may_ask_a_model(harness):
    source = """
    def ask(raw):
        return ctx_.llm.complete(messages=[{"role": "user", "content": raw}]).text
    def register(ctx):
        global ctx_
        ctx_ = ctx
        ctx.register_command("/quiet", lambda raw: None)
        ctx.register_command("ask", ask)
    """
    async with harness.plugin(source):
        assert await harness.contributions.find(CommandContribution, "quiet").act("", FAR) is None
        assert await harness.contributions.find(CommandContribution, "ask").act("why", FAR) == "an answer"


async def test_a_command_of_the_houses_is_refused_and_the_plugin_continues(harness, caplog):
    source = """
    def register(ctx):
        global refused
        refused = ctx.register_command("stop", print)
        ctx.register_command("mine", print)
    """
    async with harness.plugin(source):
        assert harness.module.refused is None
        assert [offer.name for offer in harness.contributions.all(CommandContribution)] == ["mine"]
        assert "this command name is built in" in caplog.text


async def test_a_cli_command_prepares_its_parser_and_runs(harness):
    source = """
    calls = []
    def setup(parser):
        parser.add_argument("--name")
        parser.set_defaults(func=lambda args: calls.append(("func", args.name)))
    def handle(args):
        calls.append(("handler", args.name))
        return 3
    def register(ctx):
        ctx.register_cli_command("one", "First.", setup, handle, description="More.")
        ctx.register_cli_command(name="two", help="Second.", setup_fn=setup)
    """
    async with harness.plugin(source):
        for name, status in (("one", 3), ("two", None)):
            offer = harness.contributions.find(CliContribution, name)
            parser = argparse.ArgumentParser()
            offer.prepare(parser)
            assert offer.run(parser.parse_args(["--name", "ada"])) == status
        assert harness.calls == [("handler", "ada"), ("func", "ada")]


async def test_a_platform_is_kept_with_every_field(harness, caplog):
    fields = {
        "is_connected": "print",
        "setup_fn": "print",
        "allowed_users_env": "'A'",
        "allow_all_env": "'B'",
        "max_message_length": 4000,
        "pii_safe": True,
        "emoji": "'*'",
        "allow_update_command": False,
        "platform_hint": "'short'",
        "env_enablement_fn": "print",
        "apply_yaml_config_fn": "print",
        "cron_deliver_env_var": "'C'",
        "standalone_sender_fn": "print",
    }
    more = ", ".join(f"{name}={value}" for name, value in fields.items())
    source = f"""
    def register(ctx):
        ctx.register_platform("chat", "Chat", dict, lambda: True, validate_config=print,
                              required_env=["CHAT_TOKEN"], install_hint="pip install chat", newer=5, {more})
    """
    async with harness.plugin(source):
        offer = harness.contributions.find(ProviderContribution, "platform:chat")
        entry = offer.thing.entry
        assert harness.door.bridge.platforms == {"chat": entry}
        assert (entry.label, entry.required_env, entry.install_hint) == ("Chat", ("CHAT_TOKEN",), "pip install chat")
        for name, value in fields.items():
            assert getattr(entry, name) == (eval(value) if isinstance(value, str) else value), name
        assert entry.more == {"newer": 5}
        assert "newer" in caplog.text
    assert harness.door.bridge.platforms == {}


async def test_a_skill_is_a_file_or_a_folder_with_one(harness):
    source = """
    from pathlib import Path
    HERE = Path(__file__).parent
    def register(ctx):
        ctx.register_skill("plain", HERE / "plain.md", "A text.")
        ctx.register_skill("deep", str(HERE / "deep"))
        for name, path in (("none", HERE / "none.md"), ("a:b", HERE / "plain.md")):
            try:
                ctx.register_skill(name, path)
            except (FileNotFoundError, ValueError) as error:
                calls.append(type(error).__name__)
    calls = []
    """
    async with harness.plugin(source, files={"plain.md": "x", "deep/SKILL.md": "y"}):
        offers = {each.name: each for each in harness.contributions.all(SkillContribution)}
        assert set(offers) == {"sample:plain", "sample:deep"}
        assert offers["sample:plain"].description == "A text."
        assert offers["sample:deep"].path.endswith("deep/SKILL.md")
        assert harness.calls == ["FileNotFoundError", "ValueError"]


async def test_providers_are_kept_for_the_features_that_will_ask(harness):
    source = """
    class Voice:
        name = "alto"
    def register(ctx):
        for kind in ("tts", "transcription", "image_gen", "web_search", "browser"):
            getattr(ctx, f"register_{kind}_provider")(Voice())
        ctx.register_context_engine(Voice())
        ctx.register_auxiliary_task("titles", display_name="Titles", description="d", defaults={"a": 1})
    """
    async with harness.plugin(source):
        kept = {(each.kind, each.name): each.thing for each in harness.contributions.all(ProviderContribution)}
        assert {kind for kind, name in kept if name == "alto"} == {
            *("tts", "transcription", "image_gen", "web_search", "browser", "context_engine")
        }
        assert kept["auxiliary_task", "titles"]["display_name"] == "Titles"


async def test_dispatch_gives_text_and_errors_as_json(harness):
    async with harness.plugin(KEEP):
        ctx = harness.module.ctx_
        assert await asyncio.to_thread(ctx.dispatch_tool, "terminal", {"command": "ls"}, task_id="t") == "done"
        harness.host.result = ToolResult("x", "not allowed", "denied")
        assert await ctx.adispatch_tool("terminal", {}) == '{"error": "not allowed"}'
        harness.host.result = ToolResult("x", '{"error": "own"}', "failed")
        assert await ctx.adispatch_tool("terminal") == '{"error": "own"}'


async def test_what_would_wait_for_the_loop_on_the_loop_says_so(harness):
    async with harness.plugin(KEEP):
        with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
            harness.module.ctx_.dispatch_tool("terminal", {})
        with pytest.raises(RuntimeError, match="await the async variant"):
            harness.module.ctx_.llm.complete([{"role": "user", "content": "x"}])


async def test_what_is_injected_is_said_in_the_conversation_of_the_moment(harness):
    async with harness.plugin(KEEP):
        ctx = harness.module.ctx_
        assert ctx.inject_message("nobody there") is False
        token = TURN.set(TURN_HERE)
        assert ctx.inject_message("from the loop") is True
        await harness.host.received.wait()
        (said,) = harness.host.submitted
        assert (said.text, said.address, said.sender) == ("from the loop", TURN_HERE.inbound.address, "ada")
        assert said.workdir == "/work"
        assert said.id.startswith("plugin:sample:")
        TURN.reset(token)


async def test_what_is_injected_from_a_thread_goes_to_the_last_conversation_or_the_named_one(harness):
    async with harness.plugin(KEEP):
        ctx = harness.module.ctx_
        await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE)
        key = "agent:main:telegram:group:42:7"
        assert await asyncio.to_thread(ctx.inject_message, "psst", "system")
        assert await asyncio.to_thread(lambda: ctx.inject_message("there", session_key=key))
        assert not ctx.inject_message("x", session_key="nonsense")
        async with asyncio.timeout(LIMIT_S):
            while len(harness.host.submitted) < 2:
                await asyncio.sleep(0)
        first, second = harness.host.submitted
        assert (first.text, first.address.key) == ("[system] psst", TURN_HERE.key)
        assert (second.text, second.address.key) == ("there", key)


async def test_a_refused_injection_is_reported_and_is_no_fault_of_the_plugin(harness, caplog):
    async with harness.plugin(KEEP):
        TURN.set(TURN_HERE)
        harness.host.refusal = SessionError("not now")
        assert harness.module.ctx_.inject_message("x")
        async with asyncio.timeout(LIMIT_S):
            while "not now" not in caplog.text:
                await asyncio.sleep(0)
        assert harness.owner.strikes == 0


async def test_config_is_the_plugins_own_table(harness):
    config = {"url": "http://x", "limits": {"calls": 3}, "config": {"deep": {"key": 1}}, "off": False}
    async with harness.plugin(KEEP, config=config):
        get = harness.module.ctx_.get_config
        assert (get("url"), get("limits.calls"), get("deep.key"), get("off")) == ("http://x", 3, 1, False)
        assert (get("model"), get("limits.none", 5), get("url.more", "d")) == (None, 5, "d")


async def test_unloading_calls_back(harness):
    source = """
    from tests.unit.compat.test_context import UNLOADED
    async def later():
        UNLOADED.append("async")
    def register(ctx):
        ctx.on_unload(lambda: UNLOADED.append("plain"))
        ctx.on_unload(later)
    """
    async with harness.plugin(source):
        assert UNLOADED == []
    assert UNLOADED == ["async", "plain"]


UNLOADED: list[str] = []
