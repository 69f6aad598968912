"""Plugins that block, hang or raise in the real service: each is named and switched off, and the loop stays free."""

from pathlib import Path

import pytest

from tests.e2e.program import Home
from tests.e2e.service import ServeProcess, open_serve
from tests.torture.homes import bot_texts, last_user_text, write_home
from tests.torture.probes import watch_lag
from tests.torture.trials import LONG
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.model_validation import since_user
from tests.world.plugin_sources import hermes, native
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

AFFECTED, OTHER = 10, 20
HEAD = """
import asyncio, queue, re, socket, subprocess, threading, time

LOCK = threading.Lock()
LOCK.acquire()
OURS, THEIRS = socket.socketpair()


def stubborn():
    while True:
        try:
            time.sleep(10**6)
        except BaseException:
            continue


def loops():
    while True:
        pass

"""
BLOCKERS = {
    "sleep": "time.sleep(10**6)",
    "lock": "LOCK.acquire()",
    "queue": "queue.Queue().get()",
    "loop": "loops()",
    "receive": "OURS.recv(1)",
    "child": 'subprocess.run(["sleep", "1000"])',
    "stubborn": "stubborn()",
    "await": "await asyncio.sleep(10**6)",
    "raise": 'raise RuntimeError("I break")',
}
"""What a plugin does, by the word in the message that triggers it."""
SHORT = {
    "context": ("sleep", "loop", "stubborn", "await", "raise"),
    "event": ("sleep", "lock", "receive"),
    "gate": ("sleep", "queue", "await"),
}
HOOKS = {
    "context": "async def turn_context(context, turn):",
    "event": "async def on_event(event, turn):",
    "gate": "async def before_tool(call, turn):",
}
CALLBACKS = {
    "dispatch": ("pre_gateway_dispatch", "event.text"),
    "thread": ("pre_llm_call", "user_message"),
    "ruling": ("pre_tool_call", "str(args)"),
    "after": ("post_llm_call", "user_message"),
}


def blocking_plugin(kind: str, blocker: str) -> str:
    return f"{HEAD}\n{HOOKS[kind]}\n    if {kind + blocker!r} in turn.inbound.text:\n        {BLOCKERS[blocker]}\n"


def blocking_hermes_plugin(name: str) -> str:
    hook, said = CALLBACKS[name]
    taken = said.partition(".")[0].removeprefix("str(").rstrip(")")
    return (
        f"{HEAD}\ndef hang({taken}, **more):\n    if {name!r} in {said}:\n        time.sleep(10**6)\n\n"
        f"def register(ctx):\n    ctx.register_hook({hook!r}, hang)\n"
    )


def reply(body):
    said, _ = since_user("openai-chat", body)
    if "stalls" in last_user_text(body):
        return Stall()
    if last_user_text(body).startswith(("gate", "ruling")) and not said:
        return Calls((Call("terminal", {"command": f"echo {last_user_text(body)} > gate.txt"}),))
    return Say(f"answer {last_user_text(body)}")


def enable(home: Home, *names: str) -> None:
    quick = "\n".join(f"{name} = 0.4" for name in (hook for hook, _ in CALLBACKS.values()))
    with (home.path / "config.toml").open("a") as file:
        file.write(f"[plugins]\nenabled = {list(names)}\ndeadline = 0.4\n[plugins.deadlines]\n{quick}\n")


async def warm_up(served: ServeProcess, telegram: TelegramServer) -> None:
    """The first turn of a chat is slow without any plugin."""
    await served.ready()
    for chat in (AFFECTED, OTHER):
        telegram.chats.say("hello", chat=chat)
        await telegram.shows(chat, "answer hello")


def read_log(home: Home) -> str:
    return (home.path / "logs" / "alipes.log").read_text()


def is_silenced(home: Home, name: str) -> bool:
    return f"of plugin {name} is off after 3 failures" in read_log(home)


def tool_results(model: ModelServer) -> list[str]:
    last = [body["messages"][-1] for body in model.bodies]
    return [str(each["content"]) for each in last if each["role"] == "tool"]


@pytest.mark.deadline(180)
@pytest.mark.parametrize("kind", HOOKS)
async def test_a_hook_that_never_returns_blocks_no_one_and_its_callback_is_switched_off(tmp_path, kind, figures):
    home, blockers = Home(tmp_path / "home"), tuple(BLOCKERS) if LONG else SHORT[kind]
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        for blocker in blockers:
            native(home.path / "plugins" / blocker, blocker, code=blocking_plugin(kind, blocker))
        enable(home, *blockers)
        async with open_serve(home) as served:
            await warm_up(served, telegram)
            async with watch_lag(served) as lag:
                for blocker in blockers:
                    for number in range(1 if kind == "event" else 3):
                        telegram.chats.say(f"{kind}{blocker} {number}", chat=AFFECTED)
                        telegram.chats.say(f"well {blocker} {number}", chat=OTHER)
                        await telegram.shows(OTHER, f"answer well {blocker} {number}")
                        await telegram.shows(AFFECTED, f"answer {kind}{blocker} {number}")
                    await until(lambda blocker=blocker: is_silenced(home, blocker), 10)
                telegram.chats.say("and now?", chat=AFFECTED)
                await telegram.shows(AFFECTED, "answer and now?")
            assert await served.left() == 0
        hook = HOOKS[kind].split()[2].partition("(")[0]
        for blocker in blockers:
            assert f"plugin {blocker} failed in {hook}: " in read_log(home), "the log names it"
        if kind == "gate":
            assert len(tool_results(model)) == 3 * len(blockers)
            for denied in tool_results(model):
                assert denied.startswith("not run: plugin "), "a failing check denies the call"
            assert not Path(home.path.parent, "gate.txt").exists()
        figures.worst("loop lag with hung hooks, 99.9 of 100", lag.worst, "s")
        figures.tried(len(blockers))
        lag.check()


@pytest.mark.deadline(60)
async def test_sync_callbacks_of_hermes_plugins_that_never_return_block_no_one(tmp_path, figures):
    home = Home(tmp_path / "home")
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        for name in CALLBACKS:
            hermes(home.path / "plugins" / name, name, code=blocking_hermes_plugin(name))
        enable(home, *CALLBACKS)
        async with open_serve(home) as served:
            await warm_up(served, telegram)
            async with watch_lag(served) as lag:
                for name in CALLBACKS:
                    for number in range(3):
                        telegram.chats.say(f"{name} {number}", chat=AFFECTED)
                        telegram.chats.say(f"well {name} {number}", chat=OTHER)
                        await telegram.shows(OTHER, f"answer well {name} {number}")
                        await telegram.shows(AFFECTED, f"answer {name} {number}")
                    await until(lambda name=name: is_silenced(home, name), 10)
            assert await served.left() == 0
        for name, (hook, _) in CALLBACKS.items():
            assert f"plugin {name} failed in {hook}: " in read_log(home)
        assert [each.startswith("not run: plugin ruling failed") for each in tool_results(model)] == [True] * 3
        figures.worst("loop lag with hung callbacks, 99.9 of 100", lag.worst, "s")
        lag.check()


@pytest.mark.deadline(60)
async def test_a_stop_works_despite_hung_plugins_and_the_next_message_is_answered(tmp_path, figures):
    """Four plugins block the stop in different ways, while another blocks turns that are not stopped."""
    home = Home(tmp_path / "home")
    blocker = "async def agent_loop_stopped(reason):\n    "
    code = {
        "sleeping": f"{HEAD}\n{blocker}time.sleep(10**6)\n",
        "looping": f"{HEAD}\n{blocker}loops()\n",
        "waiting": f"{HEAD}\n{blocker}await asyncio.sleep(10**6)\n",
        "context": blocking_plugin("context", "sleep"),
    }
    plain = (
        f"{HEAD}\ndef hang(reason, **more):\n    time.sleep(10**6)\n\n"
        "def register(ctx):\n    ctx.register_hook('agent_loop_stopped', hang)\n"
    )
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        for name in code:
            native(home.path / "plugins" / name, name, code=code[name])
        hermes(home.path / "plugins" / "plain", "plain", code=plain)
        enable(home, *code, "plain")
        async with open_serve(home) as served:
            await warm_up(served, telegram)
            async with watch_lag(served) as lag:
                for number in range(3):
                    telegram.chats.say(f"stalls {number}", chat=AFFECTED)
                    await model.asked(3 + 3 * number)
                    telegram.chats.say(f"contextsleep {number}", chat=OTHER)
                    telegram.chats.say("/stop", chat=AFFECTED)
                    telegram.chats.say(f"next {number}", chat=AFFECTED)
                    await telegram.shows(AFFECTED, f"answer next {number}")
                    await telegram.shows(OTHER, f"answer contextsleep {number}")
                for name in ("sleeping", "looping", "waiting", "plain"):
                    await until(lambda name=name: is_silenced(home, name), 10)
            assert await served.left() == 0
        assert not [each for each in bot_texts(telegram, AFFECTED) if "answer stalls" in each]
        for name in ("sleeping", "looping", "waiting", "plain"):
            assert f"plugin {name} failed in agent_loop_stopped: " in read_log(home)
        figures.worst("loop lag while stopping, 99.9 of 100", lag.worst, "s")
        lag.check()


@pytest.mark.deadline(60)
async def test_a_tool_a_command_and_a_task_that_never_return_are_interrupted(tmp_path, figures):
    home = Home(tmp_path / "home")
    code = f"""{HEAD}
from alipes.plugin import tool


@tool(effect="read")
async def hold() -> str:
    "Block the loop."
    time.sleep(10**6)


async def held(args, inbound):
    loops()


async def setup(ctx):
    ctx.command("hold", held)
    ctx.run(later(), "later")


async def later():
    await asyncio.sleep(1)
    LOCK.acquire()
"""

    def uses(body):
        said, _ = since_user("openai-chat", body)
        if "use it" in last_user_text(body) and not said:
            return Calls((Call("hold", {}),))
        return Say(f"answer {last_user_text(body)}")

    async with ModelServer(uses) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, plugin=code)
        async with open_serve(home) as served:
            await warm_up(served, telegram)
            async with watch_lag(served) as lag:
                telegram.chats.say("/hold", chat=AFFECTED)
                await telegram.shows(AFFECTED, "blocked the event loop")
                for number in range(3):
                    telegram.chats.say(f"use it {number}", chat=AFFECTED)
                    telegram.chats.say(f"well {number}", chat=OTHER)
                    await telegram.shows(AFFECTED, f"answer use it {number}")
                    await telegram.shows(OTHER, f"answer well {number}")
                await until(
                    lambda: "plugin trial is disabled: the tool hold blocked the event loop" in read_log(home), 15
                )
                telegram.chats.say("and now?", chat=OTHER)
                await telegram.shows(OTHER, "answer and now?")
            assert await served.left() == 0
        assert "blocked the event loop" in tool_results(model)[0]
        figures.worst("loop lag with hung tools, 99.9 of 100", lag.worst, "s")
        lag.check(1.25)  # tools may block for a second
