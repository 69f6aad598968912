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
from alipes.plugins.discovery import Found
from alipes.plugins.dispatch import Hooks
from alipes.providers.scripted import Scripted
from alipes.testing import call, stall
from alipes.testing.scripted_model import Model
from tests.unit.compat.flat import open_flat
from tests.unit.compat.stage import Stage
from tests.world.house import inbound, open_house

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


def told(folder):
    log = folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def events(folder):
    return [each["event"] for each in told(folder)]


@asynccontextmanager
async def listening(home, wanted, handler=PLAIN, *, model=None, **more):
    """An app with one file hook; gives the app and the hook's folder."""
    folder = folder_of(home, wanted, handler)
    async with open_flat(home, model, **more) as flat:
        async with flat.stage.opened(Found("my-hook", "file-hook", folder)):
            yield flat, folder


@pytest.mark.parametrize("handler", [PLAIN, ASYNC], ids=["plain", "async"])
async def test_a_turn_is_told_from_its_start_over_its_steps_to_its_end(tmp_path, handler):
    script = [call("search_files", pattern="x"), "found nothing"]
    async with listening(tmp_path, ["agent:*"], handler, model=script) as (flat, folder):
        await flat.say("look for x")
    assert events(folder) == ["agent:start", "agent:step", "agent:step", "agent:end"]
    start, first, second, end = told(folder)
    assert start["message"] == "look for x" and start["session_key"] == flat.key
    assert {"platform", "user_id", "chat_id", "thread_id", "chat_type", "session_id"} <= start.keys()
    assert (first["iteration"], first["tool_names"]) == (1, [])
    assert (second["iteration"], second["tool_names"]) == (2, ["search_files"])
    assert (end["response"], end["status"]) == ("found nothing", "answered")


async def test_the_end_is_told_with_its_status_also_when_the_turn_was_stopped_or_failed(tmp_path):
    waits = stall()
    async with listening(tmp_path, ["agent:end"], model=[waits]) as (flat, folder):
        thinking = asyncio.create_task(flat.say("think"))
        await waits.reached.wait()
        assert (await flat.command("/stop")).text == "Stopping."
        await thinking
        flat.model.follow()
        await flat.say("and now?")
    assert [each["status"] for each in told(folder)] == ["stopped", "failed"]
    assert told(folder)[0]["detail"] == "user_stop"


async def test_sessions_are_told_from_their_start_over_a_reset_to_the_end_of_the_process(tmp_path):
    async with listening(tmp_path, ["session:*"], model=["one", "two"]) as (flat, folder):
        await flat.say("hello")
        await flat.command("/new")
        await flat.settled()
        await flat.say("again")
        first, second = (each["session_id"] for each in told(folder) if each["event"] == "session:start")
    names = events(folder)
    assert names[:3] == ["session:start", "session:end", "session:reset"] and names[3] == "session:start"
    end, reset = told(folder)[1:3]
    assert (end["session_id"], end["reason"], end["user_id"]) == (first, "reset", told(folder)[0]["user_id"])
    assert (reset["session_id"], reset["old_session_id"]) == (second, first)
    assert reset["platform"] == told(folder)[0]["platform"] != ""


async def test_the_end_of_a_session_is_told_at_shutdown_too(tmp_path):
    folder, hooks = folder_of(tmp_path, ["session:end"]), Hooks()
    stage = Stage(tmp_path)
    stage.hooks = hooks
    async with stage.opened(Found("my-hook", "file-hook", folder)):
        async with open_house(tmp_path / "house", Scripted(["one"]), hooks=hooks) as house:
            await house.ask(inbound("1", "hello"))
    assert [(each["event"], each["reason"]) for each in told(folder)] == [("session:end", "shutdown")]


async def test_the_end_of_a_session_is_told_when_nobody_came_back(tmp_path):
    folder, stage = folder_of(tmp_path, ["session:end"]), Stage(tmp_path)
    async with stage.opened(Found("my-hook", "file-hook", folder)):
        async with open_house(tmp_path / "house", Scripted(["one"]), hooks=stage.hooks, linger=0.02) as house:
            await house.ask(inbound("1", "hello"))
            while not told(folder):
                await asyncio.sleep(0.01)
    assert [(each["event"], each["reason"]) for each in told(folder)] == [("session:end", "idle")]


async def test_a_turn_cut_off_by_the_end_of_the_process_is_told_as_suspended(tmp_path):
    folder, stage, waits = folder_of(tmp_path, ["agent:end"]), Stage(tmp_path), stall()
    async with stage.opened(Found("my-hook", "file-hook", folder)):
        async with open_house(tmp_path / "house", Model([(waits, "never")]), hooks=stage.hooks) as house:
            await house.lobby.submit(inbound("1", "think"))
            await waits.reached.wait()
    assert [(each["status"], each["detail"]) for each in told(folder)] == [("suspended", "shutdown")]


async def test_a_folder_under_the_home_is_enough_and_commands_are_told_while_a_turn_runs(tmp_path):
    waits, folder = stall(), folder_of(tmp_path / "house", ["command:*", "agent:end"])
    async with open_flat(tmp_path, [(waits, "done")]) as flat:
        thinking = asyncio.create_task(flat.say("think"))
        await waits.reached.wait()
        await flat.command("/status")
        assert [(each["event"], each["args"]) for each in told(folder)] == [("command:status", "")]
        waits.go()
        await thinking
        assert events(folder) == ["command:status", "agent:end"]
        assert "my-hook" in [facts.name for facts in flat.app.plugins.facts()]


async def test_commands_are_told_by_name_and_by_wildcard(tmp_path):
    given = Inbound("1", Address("telegram", "9"), "ada", "/model fast")
    for pattern, wanted in {
        "command:*": True,
        "command:model": True,
        "command:new": False,
        "*": True,
    }.items():
        home = tmp_path / pattern.replace("*", "star").replace(":", "-")
        folder, stage = folder_of(home, [pattern]), Stage(home)
        async with stage.opened(Found("my-hook", "file-hook", folder)):
            await stage.relay.tell(specs.command_given, name="model", args="fast", inbound=given)
        one = {"event": "command:model", "platform": "telegram", "user_id": "ada", "command": "model"}
        heard = [{name: each[name] for name in one} | {"args": each["args"]} for each in told(folder)]
        assert heard == ([one | {"args": "fast"}] if wanted else []), pattern


async def test_the_start_of_the_gateway_is_told_with_its_platforms(tmp_path):
    folder, stage = folder_of(tmp_path, ["gateway:startup"]), Stage(tmp_path)
    async with stage.opened(Found("my-hook", "file-hook", folder)):
        await stage.relay.tell(specs.gateway_started, platforms=("telegram", "irc"))
    assert told(folder) == [{"event": "gateway:startup", "platforms": ["telegram", "irc"]}]


async def test_a_handler_that_raises_disturbs_nobody_and_is_named(tmp_path, caplog):
    breaking = "def handle(event_type, context):\n    raise ValueError('no disk')\n"
    async with listening(tmp_path, ["agent:start"], breaking, model=["fine"]) as (flat, _folder):
        answer, _end = await flat.say("hello")
    assert answer == "fine"
    assert "plugin my-hook failed in on_event" in caplog.text


async def test_what_nobody_tells_is_said_when_the_hook_is_opened(tmp_path, caplog):
    folder, stage = folder_of(tmp_path, ["agent:strat", "session:compress"]), Stage(tmp_path)
    async with stage.opened(Found("my-hook", "file-hook", folder)):
        pass
    assert "agent:strat, which nobody tells. Did you mean agent:start or agent:step?" in caplog.text
    assert "session:compress, which the house does not tell yet" in caplog.text


async def test_a_folder_that_is_not_whole_is_refused_in_a_sentence(tmp_path, monkeypatch):
    async def trouble(change):
        folder = folder_of(tmp_path / change.__name__, ["agent:end"])
        change(folder)
        with pytest.raises(PluginError) as raised:
            async with Stage(tmp_path).opened(Found("my-hook", "file-hook", folder)):
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

    assert "handler.py: is not there" in await trouble(no_handler)
    assert "has no function `handle(event_type, context)`" in await trouble(no_function)
    assert "HOOK.yaml: lacks its events" in await trouble(no_events)
    assert "must hold names and values" in await trouble(no_mapping)
    assert "HOOK.yaml: cannot be read:" in await trouble(no_yaml)
    assert "needs PyYAML: pip install 'alipes[hermes]'" in await trouble(no_parser)
