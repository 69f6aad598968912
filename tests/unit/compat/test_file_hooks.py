"""File hooks on a whole app: real folders, real handlers in the style of the original's documentation."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from textwrap import dedent

import pytest

from alipes.kernel.errors import PluginError
from alipes.kernel.turns import Address, Inbound
from alipes.plugins import specs
from alipes.plugins.discovery import DiscoveredPlugin
from alipes.plugins.dispatch import Hooks
from alipes.testing import call, stall
from alipes.testing.scripted_model import ScriptedModel
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.compat.agent_harness import open_harness
from tests.unit.compat.plugin_harness import PluginHarness
from tests.world.session_harness import inbound, open_sessions

LOGGING = """
import json
from pathlib import Path

LOG = Path(__file__).with_name("log.jsonl")

{async_}def handle(event_type: str, context: dict):
    with open(LOG, "a") as f:
        f.write(json.dumps({{"event": event_type, **context}}) + "\\n")
"""
PLAIN, ASYNC = LOGGING.format(async_=""), LOGGING.format(async_="async ")


def folder_of(home, events, handler=PLAIN, name="my-hook", **more):
    folder = home / "hooks" / name
    folder.mkdir(parents=True)
    lines = [f"name: {name}", "description: writes down what happens", "events:"]
    (folder / "HOOK.yaml").write_text("\n".join([*lines, *(f'  - "{each}"' for each in events)]))
    (folder / "handler.py").write_text(dedent(handler))
    return folder


def seen(folder):
    log = folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def events(folder):
    return [each["event"] for each in seen(folder)]


@asynccontextmanager
async def listening(home, wanted, handler=PLAIN, *, model=None, **more):
    """An app with one file hook; gives the app and the hook's folder."""
    folder = folder_of(home, wanted, handler)
    async with open_harness(home, model, **more) as agent:
        async with agent.harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
            yield agent, folder


@pytest.mark.parametrize("handler", [PLAIN, ASYNC], ids=["plain", "async"])
async def test_a_turn_is_reported_from_its_start_over_its_steps_to_its_end(tmp_path, handler):
    script = [call("search_files", pattern="x"), "found nothing"]
    async with listening(tmp_path, ["agent:*"], handler, model=script) as (agent, folder):
        await agent.say("look for x")
    assert events(folder) == ["agent:start", "agent:step", "agent:step", "agent:end"]
    start, first, second, end = seen(folder)
    assert start["message"] == "look for x" and start["session_key"] == agent.key
    assert {"platform", "user_id", "chat_id", "thread_id", "chat_type", "session_id"} <= start.keys()
    assert (first["iteration"], first["tool_names"]) == (1, [])
    assert (second["iteration"], second["tool_names"]) == (2, ["search_files"])
    assert (end["response"], end["status"]) == ("found nothing", "answered")


async def test_the_end_is_reported_with_its_status_also_when_the_turn_was_stopped_or_failed(tmp_path):
    waits = stall()
    async with listening(tmp_path, ["agent:end"], model=[waits]) as (agent, folder):
        thinking = asyncio.create_task(agent.say("think"))
        await waits.reached.wait()
        assert (await agent.command("/stop")).text == "Stopped."
        await thinking
        agent.model.set_script()
        await agent.say("and now?")
    assert [each["status"] for each in seen(folder)] == ["stopped", "failed"]
    assert seen(folder)[0]["detail"] == "user_stop"


async def test_sessions_are_reported_from_their_start_over_a_reset_to_the_end_of_the_process(tmp_path):
    async with listening(tmp_path, ["session:*"], model=["one", "two"]) as (agent, folder):
        await agent.say("hello")
        await agent.command("/new")
        await agent.settled()
        await agent.say("again")
        first, second = (each["session_id"] for each in seen(folder) if each["event"] == "session:start")
    names = events(folder)
    assert names[:3] == ["session:start", "session:end", "session:reset"] and names[3] == "session:start"
    end, reset = seen(folder)[1:3]
    assert (end["session_id"], end["reason"], end["user_id"]) == (first, "reset", seen(folder)[0]["user_id"])
    assert (reset["session_id"], reset["old_session_id"]) == (second, first)
    assert reset["platform"] == seen(folder)[0]["platform"] != ""


async def test_the_end_of_a_session_is_reported_at_shutdown_too(tmp_path):
    folder, hooks = folder_of(tmp_path, ["session:end"]), Hooks()
    harness = PluginHarness(tmp_path)
    harness.hooks = hooks
    async with harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
        async with open_sessions(tmp_path / "house", ScriptedProvider(["one"]), hooks=hooks) as house:
            await house.ask(inbound("1", "hello"))
    assert [(each["event"], each["reason"]) for each in seen(folder)] == [("session:end", "shutdown")]


async def test_the_end_of_a_session_is_reported_when_nobody_came_back(tmp_path):
    folder, harness = folder_of(tmp_path, ["session:end"]), PluginHarness(tmp_path)
    async with harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
        async with open_sessions(
            tmp_path / "house", ScriptedProvider(["one"]), hooks=harness.hooks, idle_seconds=0.02
        ) as house:
            await house.ask(inbound("1", "hello"))
            while not seen(folder):
                await asyncio.sleep(0.01)
    assert [(each["event"], each["reason"]) for each in seen(folder)] == [("session:end", "idle")]


async def test_a_turn_cut_off_by_the_end_of_the_process_is_reported_as_suspended(tmp_path):
    folder, harness, waits = folder_of(tmp_path, ["agent:end"]), PluginHarness(tmp_path), stall()
    async with harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
        async with open_sessions(tmp_path / "house", ScriptedModel([(waits, "never")]), hooks=harness.hooks) as house:
            await house.sessions.submit(inbound("1", "think"))
            await waits.reached.wait()
    assert [(each["status"], each["detail"]) for each in seen(folder)] == [("suspended", "shutdown")]


async def test_a_folder_under_the_home_is_enough_and_commands_are_reported_while_a_turn_runs(tmp_path):
    waits, folder = stall(), folder_of(tmp_path / "house", ["command:*", "agent:end"])
    async with open_harness(tmp_path, [(waits, "done")]) as agent:
        thinking = asyncio.create_task(agent.say("think"))
        await waits.reached.wait()
        await agent.command("/status")
        assert [(each["event"], each["args"]) for each in seen(folder)] == [("command:status", "")]
        waits.go()
        await thinking
        assert events(folder) == ["command:status", "agent:end"]
        assert "my-hook" in [facts.name for facts in agent.app.plugins.statuses()]


async def test_commands_are_reported_by_name_and_by_wildcard(tmp_path):
    given = Inbound("1", Address("telegram", "9"), "ada", "/model fast")
    for pattern, wanted in {"command:*": True, "command:model": True, "command:new": False, "*": True}.items():
        home = tmp_path / pattern.replace("*", "star").replace(":", "-")
        folder, harness = folder_of(home, [pattern]), PluginHarness(home)
        async with harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
            await harness.dispatcher.notify(specs.command_given, name="model", args="fast", inbound=given)
        one = {"event": "command:model", "platform": "telegram", "user_id": "ada", "command": "model"}
        heard = [{name: each[name] for name in one} | {"args": each["args"]} for each in seen(folder)]
        assert heard == ([one | {"args": "fast"}] if wanted else []), pattern


async def test_the_start_of_the_gateway_is_reported_with_its_platforms(tmp_path):
    folder, harness = folder_of(tmp_path, ["gateway:startup"]), PluginHarness(tmp_path)
    async with harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
        await harness.dispatcher.notify(specs.gateway_started, platforms=("telegram", "irc"))
    assert seen(folder) == [{"event": "gateway:startup", "platforms": ["telegram", "irc"]}]


async def test_a_handler_that_raises_disturbs_nobody_and_is_named(tmp_path, caplog):
    breaking = "def handle(event_type, context):\n    raise ValueError('no disk')\n"
    async with listening(tmp_path, ["agent:start"], breaking, model=["fine"]) as (agent, _folder):
        answer, _end = await agent.say("hello")
    assert answer == "fine"
    assert "plugin my-hook failed in on_event" in caplog.text


async def test_what_nobody_tells_is_said_when_the_hook_is_opened(tmp_path, caplog):
    folder, harness = folder_of(tmp_path, ["agent:strat", "session:compress"]), PluginHarness(tmp_path)
    async with harness.opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
        pass
    assert "unknown event agent:strat. Did you mean agent:start or agent:step?" in caplog.text
    assert "the event session:compress is not supported yet" in caplog.text


async def test_a_folder_that_is_not_whole_is_refused_in_a_sentence(tmp_path, monkeypatch):
    async def trouble(change):
        folder = folder_of(tmp_path / change.__name__, ["agent:end"])
        change(folder)
        with pytest.raises(PluginError) as raised:
            async with PluginHarness(tmp_path).opened(DiscoveredPlugin("my-hook", "file-hook", folder)):
                pass
        return str(raised.value)

    def no_handler(folder):
        (folder / "handler.py").unlink()

    def no_function(folder):
        (folder / "handler.py").write_text("def handler(): ...")

    def no_events(folder):
        (folder / "HOOK.yaml").write_text("name: x\nevents: []")

    def no_mapping(folder):
        (folder / "HOOK.yaml").write_text("- one\n- two")

    def no_yaml(folder):
        (folder / "HOOK.yaml").write_text("events: [unclosed")

    def no_parser(folder):
        monkeypatch.setitem(sys.modules, "yaml", None)

    assert "handler.py: does not exist" in await trouble(no_handler)
    assert "has no function `handle(event_type, context)`" in await trouble(no_function)
    assert "HOOK.yaml: needs a list of events" in await trouble(no_events)
    assert "must be a mapping" in await trouble(no_mapping)
    assert "HOOK.yaml: cannot be read:" in await trouble(no_yaml)
    assert "needs PyYAML: run `alipes install hermes`" in await trouble(no_parser)
