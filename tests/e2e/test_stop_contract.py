"""The stop contract in the real program: shutdown order, and `/stop` in a chat wherever the turn runs."""

import asyncio
import json
import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.e2e.test_serve_plugins import a_port, add, connected, heard, plant
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.telegram_server import TelegramServer
from tests.world.terminal_process import CTRL_C, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(120)
RECORDER = """
import asyncio, json, os
from pathlib import Path
HERE = Path(__file__).parent

def record(*words):
    with open(HERE / "seen.jsonl", "a") as file:
        file.write(json.dumps([os.getpid(), *words]) + "\\n")

def checked():
    record("set up")
    while (HERE / "hold").exists():
        import time; time.sleep(0.01)
    return True

async def ponder(args, **kwargs):
    record("tool runs")
    try:
        await asyncio.Event().wait()
    finally:
        record("tool over")

def register(ctx):
    nothing = {"type": "object", "properties": {}}
    schema = {"name": "ponder", "description": "Think.", "parameters": nothing}
    ctx.register_tool("ponder", "ponder", schema, ponder, is_async=True, check_fn=checked)
    ctx.register_hook("agent_loop_stopped", lambda **k: record("stopped", k["reason"], k["invalidation_reason"]))
    ctx.register_hook("post_tool_call", lambda **k: record("post_tool_call", k["status"]))
    ctx.register_hook("on_session_end", lambda **k: record("on_session_end", k.get("reason") or ""))
"""
TUBE = (
    RECORDER.replace("def register(ctx):", "def register(ctx):\n    register_tube(ctx)").replace(
        "await asyncio.Event().wait()", "OPEN.write('CALL'); await asyncio.Event().wait()"
    )
    + """
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult

class Tube(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("tube"))
        self.writer = None

    async def connect(self):
        global OPEN
        OPEN = self
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", int(self.config.extra["port"]))
        self._mark_connected()
        return True

    async def disconnect(self):
        record("disconnected")
        self.server.close()
        if self.writer is not None:
            self.writer.close()
        self._mark_disconnected()

    async def serve(self, reader, writer):
        self.writer = writer
        number = 0
        while line := (await reader.readline()).decode().strip():
            number += 1
            source = self.build_source(chat_id="42", user_id="7")
            event = MessageEvent(text=line, source=source, message_id=f"{os.getpid()}-{number}")
            asyncio.create_task(self.handle_message(event))

    def write(self, line):
        if self.writer is None or self.writer.is_closing():
            record("nobody is connected")
        else:
            self.writer.write(f"{line}\\n".encode())

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        self.write(content)
        return SendResult(success=True, message_id="1")

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

def register_tube(ctx):
    ctx.register_platform("tube", "Tube", Tube, lambda: True, allowed_users_env="TUBE_USERS")
    ctx.register_hook("agent_loop_stopped", lambda **k: OPEN.write("CANCEL " + k["reason"]))
"""
)
PONDER = Calls((Call("ponder", {}),))


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def seen(home, name):
    """What the plugin recorded, without process ids."""
    return [words for _, *words in records(home, name)]


def records(home, name):
    path = home.path / "plugins" / name / "seen.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def until(home, name, *words):
    while list(words) not in seen(home, name):
        await asyncio.sleep(0.01)


def tube(home, model, port):
    write_settings(home, model)
    plant(home, "tubes", TUBE, manifest="name: tubes\nversion: 1.0.0\n")
    add(home, "[serve]", "drain = 0.1", "[plugins]", 'enabled = ["tubes"]')
    add(home, "[plugins.entries.tubes]", f"port = {port}")
    (home.path / ".env").write_text("TUBE_USERS=7\n")


STOPPED = [
    ["stopped", "shutdown", "shutdown"],
    ["tool over"],
    ["post_tool_call", "cancelled"],
    ["on_session_end", "shutdown"],
    ["disconnected"],
]


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT", "/restart"])
async def test_a_remote_client_is_notified_before_its_platform_is_disconnected(home, way):
    port = a_port()
    async with ModelServer([PONDER, Say("after the restart")]) as model:
        tube(home, model, port)
        async with open_serve(home) as served:
            await served.ready()
            reader, writer = await connected(port)
            writer.write(b"go\n")
            await heard(reader, "CALL")
            if way == "/restart":
                writer.write(b"/restart\n")
            else:
                served.process.send_signal(getattr(signal, way))
            assert await heard(reader, "CANCEL") == "CANCEL shutdown"
            if way != "/restart":
                assert await served.left(by=None) == 0
            await until(home, "tubes", "disconnected")
            writer.close()
        events = [each for each in seen(home, "tubes") if each not in (["set up"], ["tool runs"])]
        assert events[: len(STOPPED)] == STOPPED


async def test_the_turns_of_a_removed_platform_are_stopped_before_it_is_disconnected(home):
    port = a_port()
    async with ModelServer([PONDER]) as model:
        tube(home, model, port)
        async with open_serve(home) as served:
            await served.ready()
            reader, writer = await connected(port)
            writer.write(b"go\n")
            await heard(reader, "CALL")
            writer.write(b"/plugins disable tubes\n")
            assert await heard(reader, "CANCEL") == "CANCEL shutdown"
            await until(home, "tubes", "disconnected")
            writer.close()
        events = [each for each in seen(home, "tubes") if each not in (["set up"], ["tool runs"])]
        assert events == STOPPED


async def test_a_stop_in_a_chat_while_the_turn_is_being_set_up(home):
    async with ModelServer([Say("the next answer")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        plant(home, "recorder", RECORDER, manifest="name: recorder\nversion: 1.0.0\n")
        add(home, "[plugins]", 'enabled = ["recorder"]')
        (hold := home.path / "plugins" / "recorder" / "hold").touch()
        async with open_serve(home):
            telegram.chats.say("go", chat=OWNER)
            await until(home, "recorder", "set up")
            telegram.chats.say("/stop", chat=OWNER)
            await until(home, "recorder", "on_session_end", "user_stop")
            hold.unlink()
            telegram.chats.say("and now?", chat=OWNER)
            await telegram.shows(OWNER, "the next answer")
    stops = [words for words in seen(home, "recorder") if words[0] == "stopped"]
    assert stops == [["stopped", "user_stop", "stop_command_pending"]]


async def test_a_stop_in_a_chat_whose_turn_another_process_runs(home):
    async with (
        ModelServer([PONDER, PONDER, Say("the next answer")]) as model,
        ModelServer([Say("asked")]) as other,
        TelegramServer() as telegram,
    ):
        write_settings(home, model, telegram)
        plant(home, "recorder", RECORDER, manifest="name: recorder\nversion: 1.0.0\n")
        add(home, "[plugins]", 'enabled = ["recorder"]')
        add(home, "[providers.other]", 'api = "openai-chat"', f'base_url = "{other.url("openai-chat")}"')
        async with open_serve(home) as served:
            telegram.chats.say("go", chat=OWNER)
            await until(home, "recorder", "tool runs")
            await served.left(by=signal.SIGKILL)
        async with home.started("ask", "-m", "other/scripted", "hello") as asking:  # it resumes the turn of the chat
            while [pid for pid, *words in records(home, "recorder") if words == ["tool runs"]][-1] != asking.pid:
                await asyncio.sleep(0.01)
            async with open_serve(home):
                telegram.chats.say("/stop", chat=OWNER)
                await telegram.shows(OWNER, "Stopped.")
                await until(home, "recorder", "on_session_end", "user_stop")
                assert await asking.wait() == 0
                telegram.chats.say("and now?", chat=OWNER)
                await telegram.shows(OWNER, "the next answer")
    stops = [(pid, words) for pid, *words in records(home, "recorder") if words[0] == "stopped"]
    assert stops == [(asking.pid, ["stopped", "user_stop", "stop_command_handler"])]


SLOW = """
import time
from pathlib import Path

def slowly(name):
    def callback(**kwargs):
        time.sleep(0.5)
        with open(Path(__file__).parent / "seen.jsonl", "a") as file:
            file.write(f'[0, "{name}", "{kwargs.get("reason") or ""}"]\\n')
    return callback

def register(ctx):
    for name in ("on_session_end", "on_session_finalize"):
        ctx.register_hook(name, slowly(name))
"""
HANDLER = """
import pathlib, time
def handle(event_type, context):
    time.sleep(0.3)
    path = pathlib.Path(__file__).parent / "seen.txt"
    path.write_text(f"{event_type} {context['status']}")
"""


@pytest.mark.parametrize("ended_by", ["SIGINT", "SIGTERM", "answer"])
async def test_ask_leaves_only_after_plugins_and_file_hooks_know_of_the_end(home, ended_by):
    async with ModelServer([Say("hello") if ended_by == "answer" else Stall("Once upon")]) as model:
        write_settings(home, model)
        plant(home, "slow", SLOW, manifest="name: slow\nversion: 1.0.0\n")
        add(home, "[plugins]", 'enabled = ["slow"]')
        (folder := home.path / "hooks" / "end").mkdir(parents=True)
        (folder / "HOOK.yaml").write_text('name: end\nevents: ["agent:end"]\n')
        (folder / "handler.py").write_text(HANDLER)
        async with home.started("ask", "hello") as asking:
            if ended_by != "answer":
                assert await asking.stdout.read(4) == b"Once"
                asking.send_signal(getattr(signal, ended_by))
            await asking.wait()
    reason = {"SIGINT": "user_stop", "SIGTERM": "shutdown", "answer": "answered"}[ended_by]
    assert seen(home, "slow") == [["on_session_end", reason], ["on_session_finalize", "shutdown"]]
    assert (folder / "seen.txt").read_text() == f"agent:end {'answered' if ended_by == 'answer' else 'stopped'}"


BLOCKER = """
import time

def register(ctx):
    ctx.register_hook("agent_loop_stopped", lambda **kwargs: time.sleep(600))
"""
WARNS = """
import asyncio, json
from pathlib import Path

def record(*words):
    with open(Path(__file__).parent / "seen.jsonl", "a") as file:
        file.write(json.dumps([0, *words]) + "\\n")

async def disconnect(reason, **kwargs):
    await asyncio.sleep(0.5)
    record("rest", reason)

def register(ctx):
    ctx.register_hook("agent_loop_stopped", lambda reason, **kwargs: record("called", reason))
    ctx.register_hook("agent_loop_stopped", disconnect)
"""


def blocked(home, model, telegram=None):
    """A home with a stop hook that blocks, and one behind it that takes its time."""
    write_settings(home, model, telegram)
    plant(home, "a_blocker", BLOCKER, manifest="name: a_blocker\nversion: 1.0.0\n")
    plant(home, "warns", WARNS, manifest="name: warns\nversion: 1.0.0\n")
    add(home, "[plugins]", 'enabled = ["a_blocker", "warns"]')


@pytest.mark.parametrize("way", ["once", "twice"])
async def test_a_stop_hook_behind_one_that_blocks_is_called_and_ends_before_ask_is_left(home, way):
    async with ModelServer([Stall("Once upon")]) as model:
        blocked(home, model)
        async with home.started("ask", "hello") as asking:
            assert await asking.stdout.read(4) == b"Once"
            asking.send_signal(signal.SIGINT)
            if way == "twice":
                await until(home, "warns", "called", "user_stop")
                asking.send_signal(signal.SIGINT)
            await asking.wait()
    assert seen(home, "warns") == [["called", "user_stop"], ["rest", "user_stop"]]


async def test_a_stop_hook_behind_one_that_blocks_ends_before_the_terminal_is_left(home):
    async with ModelServer([Stall("Once upon")]) as model:
        blocked(home, model)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once upon")
            terminal.type(CTRL_C)
            await terminal.until("Press Ctrl-C again to quit")
            terminal.type(CTRL_C)
            assert await terminal.ended() == 0
    assert seen(home, "warns") == [["called", "user_stop"], ["rest", "user_stop"]]


@pytest.mark.parametrize("way", ["stop", "shutdown"])
async def test_a_stop_hook_behind_one_that_blocks_ends_before_serve_is_left(home, way):
    reason = "user_stop" if way == "stop" else "shutdown"
    async with ModelServer([Stall("Once upon")]) as model, TelegramServer() as telegram:
        blocked(home, model, telegram)
        async with open_serve(home) as served:
            telegram.chats.say("a tale", chat=OWNER)
            await model.asked(1)
            if way == "stop":
                telegram.chats.say("/stop", chat=OWNER)
                await until(home, "warns", "called", reason)
            assert await served.left() == 0
    assert seen(home, "warns") == [["called", reason], ["rest", reason]]
