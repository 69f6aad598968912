"""A platform plugin of the oldest style, served on a whole app: what people say in it, and what they hear."""

import asyncio
import struct
import sys
import zlib
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from alipes.compat.hermes.adapters_values import (
    MessageEvent,
    MessageType,
    Platform,
    PlatformConfig,
    SendResult,
)
from alipes.compat.hermes.hosting import Manners, open_platform
from alipes.compat.hermes.session_keys import build_session_key
from alipes.hooks.owners import CORE
from alipes.kernel.errors import PluginError
from alipes.kernel.turns import Address, Inbound
from alipes.testing import call, stall
from tests.unit.compat.flat import open_flat

OLDEST = """
import asyncio
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult

calls = []

class OldAdapter(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("oldchat"))
        self.sent, self.happened, self.refusals = [], [], []

    async def connect(self):                       # knows nothing of is_reconnect
        self.happened.append("connect")
        self._mark_connected()
        return self.config.extra.get("up", True)

    async def disconnect(self):
        self.happened.append("disconnect")
        self._mark_disconnected()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        if self.refusals:
            return self.refusals.pop(0)
        self.sent.append((chat_id, content))
        self.replies = getattr(self, "replies", []) + [(reply_to, metadata)]
        return SendResult(success=True, message_id=str(len(self.sent)))

    async def send_typing(self, chat_id):          # no metadata in the old days
        self.happened.append("typing")

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

    async def play_tts(self, chat_id, audio_path):
        return SendResult(success=True)

    async def on_processing_start(self, event):
        self.happened.append(f"start {event.text}")

    async def on_processing_complete(self, event, success):
        self.happened.append(f"complete {success}")

def register(ctx):
    ctx.register_platform(
        name="oldchat", label="Old Chat", adapter_factory=lambda cfg: OldAdapter(cfg),
        check_fn=lambda: True, allowed_users_env="OLDCHAT_ALLOWED", allow_all_env="OLDCHAT_ALLOW_ALL",
        max_message_length=60,
    )
    ctx.register_hook("agent_loop_stopped", lambda **k: calls.append((k["reason"], k["invalidation_reason"])))
    ctx.register_hook("pre_gateway_dispatch", dispatched)

def dispatched(event, gateway, session_store):
    calls.append(("dispatch", event.text, event.source.user_name))
    if event.text == "ignore me":
        return {"action": "skip"}
"""

REMOVES = "rm -rf /nowhere/at/all"
"""Asked about, and harmless."""


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """What is lent to plugins in one test is not there in the next."""
    for name in ("OLDCHAT_ALLOWED", "OLDCHAT_ALLOW_ALL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


class Chat:
    """Someone in the chat."""

    def __init__(self, flat, hosting):
        self.flat, self.adapter, self.follower = flat, hosting.adapter, hosting.follower
        self.number = 0

    def event(self, text, user="7", kind=MessageType.TEXT, chat="42", **more):
        self.number += 1
        source = self.adapter.build_source(chat_id=chat, user_id=user, user_name="Ada")
        return MessageEvent(text, kind, source, message_id=f"n{self.number}", **more)

    async def say(self, text, **more):
        await self.adapter.handle_message(self.event(text, **more))

    @property
    def heard(self):
        return [text for _, text in self.adapter.sent]

    async def hear(self, number):
        """What was sent, once it is this much."""
        return await self.see(lambda: self.heard if len(self.heard) >= number else None)

    async def see(self, look):
        async with asyncio.timeout(8):
            while not (found := look()):
                await asyncio.sleep(0.005)
        return found

    @property
    def calls(self):
        return sys.modules["hermes_plugins.old_plugin"].calls


@asynccontextmanager
async def chatting(home, script, *, plugin=OLDEST, config=None, manners=None, settings=None, **more):
    manners = manners or Manners(may_speak=lambda event: True, burst=0.05)
    async with open_flat(home, script, plugins={"old-plugin": plugin}, config=settings or {}, **more) as flat:
        error = None
        async with open_platform(flat.app, flat.bridge, "oldchat", config, manners=manners) as hosting:
            try:
                yield Chat(flat, hosting)
            except Exception as raised:
                error = raised
        if error is not None:
            raise error


async def test_a_message_is_answered_through_an_adapter_of_the_oldest_style(tmp_path):
    async with chatting(tmp_path, ["hello yourself"]) as chat:
        await chat.say("hello")
        assert await chat.hear(1) == ["hello yourself"]
        happened = chat.adapter.happened
        await chat.see(lambda: "complete True" in happened)
        assert happened[0] == "connect" and "typing" in happened
        assert happened.index("start hello") < happened.index("complete True")
        assert chat.adapter.replies == [("n1", None)]
        runner = chat.flat.bridge.gateway
        assert runner.adapters == {Platform("oldchat"): chat.adapter}
        assert not chat.adapter._active_sessions
    assert happened[-1] == "disconnect" and not chat.adapter.is_connected and not runner.adapters


async def test_the_start_of_the_gateway_is_told_with_its_platform(tmp_path):
    heard = []

    async def gateway_started(platforms):
        heard.append(platforms)

    async with open_flat(tmp_path, plugins={"old-plugin": OLDEST}) as flat:
        flat.app.hooks.add(CORE, gateway_started)
        async with open_platform(flat.app, flat.bridge, "oldchat"):
            assert heard == [("oldchat",)]


async def test_a_slow_command_of_a_plugin_keeps_nobody_from_stopping(tmp_path):
    slow = OLDEST.replace(
        "def register(ctx):",
        """async def slow(args):
    await asyncio.sleep(30)

def register(ctx):
    ctx.register_command("slow", slow)
    ctx.register_command("whoami", lambda args: __import__("gateway.session_context").session_context.get_session_env("HERMES_SESSION_USER_NAME"))""",
    )
    waits = stall()
    async with chatting(tmp_path, [(waits, "never")], plugin=slow) as chat:
        await chat.say("think")
        await waits.reached.wait()
        await chat.say("/slow")
        await chat.say("/whoami")
        assert await chat.hear(1) == ["Ada"]
        await chat.say("/stop")
        assert await chat.hear(2) == ["Ada", "Stopping."]


async def test_the_session_has_the_key_that_plugins_compute(tmp_path):
    async with chatting(tmp_path, ["yes"]) as chat:
        event = chat.event("hello")
        await chat.adapter.handle_message(event)
        await chat.hear(1)
        key = build_session_key(event.source)
        assert key == "agent:main:oldchat:dm:42"
        assert await chat.flat.app.store.sessions.standing(key) is not None


async def test_stop_ends_the_turn_and_the_next_message_is_answered(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "never"), "here I am"]) as chat:
        await chat.say("think")
        await waits.reached.wait()
        assert list(chat.adapter._active_sessions) == ["agent:main:oldchat:dm:42"]
        await chat.say("/stop")
        assert "Stopping." in await chat.hear(1)
        await chat.see(lambda: "complete False" in chat.adapter.happened)
        await chat.say("are you there?")
        assert (await chat.hear(2))[-1] == "here I am"
        assert ("user_stop", "stop_command") in chat.calls


async def test_new_in_the_middle_of_a_turn_ends_it_and_never_becomes_a_question(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "never"), "a fresh start"]) as chat:
        await chat.say("think")
        await waits.reached.wait()
        await chat.say("/new@oldbot")
        assert "A new conversation." in (await chat.hear(1))[0]
        await chat.say("hello")
        assert (await chat.hear(2))[-1] == "a fresh start"
        assert ("reset", "new_command") in chat.calls
        asked = chat.flat.model.requests[-1].messages
        assert [message.text for message in asked] == ["hello"]


async def test_a_further_message_ends_the_turn_or_waits_as_was_chosen(tmp_path):
    first, second = stall(), stall()
    async with chatting(tmp_path, [(first, "never"), (second, "to the second"), "to the third"]) as chat:
        await chat.say("one")
        await first.reached.wait()
        await chat.say("two")  # interrupts
        await second.reached.wait()
        assert ("superseded", "superseded") in chat.calls
        await chat.say("/busy queue")
        await chat.say("three")  # waits
        second.go()
        await chat.see(lambda: "to the third" in chat.heard)
        assert chat.heard[-2:] == ["to the second", "to the third"]


async def test_a_long_answer_comes_in_pieces_and_a_refused_one_once_more(tmp_path):
    words = " ".join(f"word{number}" for number in range(20))
    async with chatting(tmp_path, [words]) as chat:
        chat.adapter.refusals = [SendResult(False, error="slow down", retryable=True, retry_after=0.01)]
        await chat.say("tell me")
        await chat.see(lambda: "complete True" in chat.adapter.happened)
        assert len(chat.heard) > 1 and all(len(text) <= 60 for text in chat.heard)
        assert " ".join(chat.heard) == words
        assert chat.adapter.replies == [("n1", None), *[(None, None)] * (len(chat.heard) - 1)]


async def test_a_turn_that_failed_is_told(tmp_path):
    async with chatting(tmp_path, []) as chat:
        await chat.say("hello")
        assert "That failed: " in (await chat.hear(1))[0]
        await chat.see(lambda: "complete False" in chat.adapter.happened)


async def test_an_adapter_that_breaks_everywhere_ends_neither_the_turn_nor_the_platform(tmp_path, caplog):
    broken = OLDEST.replace('self.happened.append("typing")', "raise OSError('no route')").replace(
        'self.happened.append(f"start {event.text}")', "raise ValueError('start')"
    )
    async with chatting(tmp_path, ["one", "two", "three", "four"], plugin=broken) as chat:
        for number in range(4):
            await chat.say(f"message {number}")
            await chat.hear(number + 1)
        assert chat.heard == ["one", "two", "three", "four"]
        assert not chat.flat.owner.off
    assert "plugin old-plugin (oldchat) failed in on_processing_start: ValueError" in caplog.text


async def test_strangers_are_told_to_plugins_and_answered_by_nobody_also_while_a_turn_runs(tmp_path, caplog):
    waits = stall()
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / ".env").write_text("OLDCHAT_ALLOWED='7, 8'\n")
    async with chatting(tmp_path, [(waits, "done")], manners=Manners(burst=0.05)) as chat:
        await chat.say("hello")
        await waits.reached.wait()
        await chat.say("/stop", user="66")
        await chat.say("me too", user="66", chat="43")
        waits.go()
        assert await chat.hear(1) == ["done"]
        await chat.flat.settled()
        assert chat.heard == ["done"]
        assert [each[1] for each in chat.calls if each[0] == "dispatch"] == ["hello", "/stop", "me too"]
        assert caplog.text.count("66 may not speak on oldchat") == 1


async def test_nobody_may_speak_where_nobody_is_named(tmp_path):
    async with chatting(tmp_path, ["one"], manners=Manners()) as chat:
        await chat.say("hello")
        await chat.flat.settled()
        assert chat.heard == [] and not chat.flat.model.requests
        (tmp_path / "house" / ".env").write_text("OLDCHAT_ALLOW_ALL=true\n")
        await chat.say("hello again")
        assert await chat.hear(1) == ["one"]


async def test_a_message_that_a_plugin_skips_is_no_turn(tmp_path):
    async with chatting(tmp_path, ["one"]) as chat:
        await chat.say("ignore me")
        await chat.say("hello")
        assert await chat.hear(1) == ["one"]
        assert ("dispatch", "ignore me", "Ada") in chat.calls  # with the source that the adapter built


async def test_unknown_commands_and_paths_are_words_for_the_model(tmp_path):
    async with chatting(tmp_path, ["one", "two"]) as chat:
        await chat.say("/unknown thing")
        await chat.hear(1)
        await chat.say("/etc/hosts is where?")
        await chat.hear(2)
        asked = [request.messages[-1].text for request in chat.flat.model.requests]
        assert asked == ["/unknown thing", "/etc/hosts is where?"]


async def test_the_second_copy_of_a_message_is_not_answered_again(tmp_path):
    async with chatting(tmp_path, ["one"]) as chat:
        event = chat.event("hello")
        await chat.adapter.handle_message(event)
        await chat.adapter.handle_message(event)
        await chat.hear(1)
        await chat.flat.settled()
        assert chat.heard == ["one"]


def a_picture(path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0\0\0\0"))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + data + chunk(b"IEND", b""))
    return str(path)


async def test_a_burst_of_pictures_is_one_message_and_texts_are_never_merged(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "one"), "pictures", "two", "three"]) as chat:
        await chat.say("/busy queue")
        await chat.say("first")
        await waits.reached.wait()
        for number in range(3):
            photo = a_picture(tmp_path / f"{number}.png")
            more = {"media_urls": [photo], "media_types": ["image/png"], "kind": MessageType.PHOTO}
            await chat.say("look" if number == 0 else "", **more)
        await chat.say("second")
        await chat.say("third")
        waits.go()
        await chat.see(lambda: "three" in chat.heard)
        requests = chat.flat.model.requests
        said = [message for message in requests[-1].messages if message.role == "user"]
        assert [message.text for message in said] == ["first", "look", "second", "third"]
        assert len(said[1].parts) == 4


async def test_other_files_are_told_by_their_path(tmp_path):
    (note := tmp_path / "note.pdf").write_bytes(b"%PDF")
    async with chatting(tmp_path, ["read it"]) as chat:
        await chat.say(
            "see this", media_urls=[str(note)], media_types=["application/pdf"], kind=MessageType.DOCUMENT
        )
        await chat.hear(1)
        assert f"[attached: {note}]" in chat.flat.model.requests[0].messages[-1].text


async def test_a_turn_that_a_plugin_began_is_told_in_its_chat(tmp_path):
    async with chatting(tmp_path, ["one", "by the way"]) as chat:
        await chat.say("hello")
        await chat.hear(1)
        injected = Inbound("x1", Address("oldchat", "42"), "plugin", "say something")
        await chat.flat.app.lobby.submit(injected)
        assert await chat.hear(2) == ["one", "by the way"]


async def test_an_adapter_can_cancel_what_its_chat_has_running(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "never"), "two"]) as chat:
        await chat.say("think")
        await waits.reached.wait()
        await chat.adapter.cancel_session_processing("agent:main:oldchat:dm:42")
        assert ("user_stop", "session_interrupt") in chat.calls
        assert "complete False" in chat.adapter.happened
        assert not await chat.flat.app.store.sessions.unfinished("agent:main:oldchat:dm:42")


@pytest.mark.parametrize(
    ("word", "told", "ran"), [("/approve", "Approved.", True), ("/deny", "Denied.", False)]
)
async def test_a_dangerous_call_waits_for_a_word_in_the_chat(tmp_path, word, told, ran):
    (target := tmp_path / "gone").touch()
    script = [call("terminal", command=f"{REMOVES} {target}"), "so be it"]
    async with chatting(tmp_path, script, interactive=True) as chat:
        await chat.say("clean up")
        await chat.see(lambda: any("/deny" in text for text in chat.heard))
        assert "/approve session" in " ".join(chat.heard)
        await chat.say(word)
        await chat.see(lambda: "so be it" in chat.heard)
        assert told in chat.heard
        assert target.exists() is not ran
        await chat.say(word)
        await chat.see(lambda: "Nothing waits for your word." in chat.heard)


async def test_buttons_of_an_adapter_answer_through_the_importable_name(tmp_path):
    buttons = OLDEST.replace(
        "    async def play_tts",
        """    async def send_exec_approval(self, chat_id, command, session_key, description="dangerous"):
        from tools.approval import resolve_gateway_approval
        count = await asyncio.to_thread(resolve_gateway_approval, session_key, "deny")
        self.happened.append(f"resolved {count}: {command}")
        return SendResult(success=True)

    async def play_tts""",
    )
    (target := tmp_path / "stays").touch()
    script = [call("terminal", command=f"{REMOVES} {target}"), "so be it"]
    async with chatting(tmp_path, script, plugin=buttons, interactive=True) as chat:
        await chat.say("clean up")
        await chat.see(lambda: "so be it" in chat.heard)
        assert f"resolved 1: {REMOVES} {target}" in chat.adapter.happened
        assert target.exists()


async def test_what_was_left_unfinished_is_told_in_its_chat_at_the_next_start(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "never")]) as chat:
        await chat.say("think")
        await waits.reached.wait()
    assert chat.heard == []  # nobody stopped it: it goes on
    again = stall()
    async with chatting(tmp_path, [(again, "at last")]) as chat:
        again.go()
        assert await chat.hear(1) == ["at last"]
        assert chat.adapter.sent == [("42", "at last")]


async def test_a_platform_that_cannot_be_served_says_why(tmp_path):
    async with open_flat(tmp_path, plugins={"old-plugin": OLDEST}) as flat:
        bridge = flat.bridge

        async def trouble(name, config=None):
            with pytest.raises(PluginError) as raised:
                async with open_platform(flat.app, bridge, name, config):
                    pass
            return str(raised.value)

        bridge.platforms["broken"] = structs.replace(
            bridge.platforms["oldchat"], name="broken", adapter_factory=lambda cfg: cfg.extra["missing"]
        )
        assert "adapter_factory: KeyError" in await trouble("broken")
        bridge.platforms["poor"] = structs.replace(
            bridge.platforms["oldchat"],
            check_fn=lambda: False,
            install_hint="pip install oldchat",
            required_env=("OLDCHAT_TOKEN",),
        )
        assert "not met: pip install oldchat (it needs OLDCHAT_TOKEN)" in await trouble("poor")
        del bridge.platforms["broken"], bridge.platforms["poor"]
        assert "no plugin that is open serves it; there are: oldchat" in await trouble("newchat")
        assert "could not be connected" in await trouble("oldchat", PlatformConfig(extra={"up": False}))
        assert not bridge.gateway.adapters


async def test_variables_of_the_plugin_make_its_configuration(tmp_path):
    seeded = OLDEST.replace(
        "max_message_length=60,",
        'max_message_length=60, env_enablement_fn=lambda: {"channel": "#a", "home_channel": {"chat_id": "9"}}, '
        'validate_config=lambda cfg: cfg.extra["channel"] == "#a",',
    )
    table = {"plugins": {"entries": {"old-plugin": {"nick": "bot", "group_sessions_per_user": False}}}}
    async with chatting(tmp_path, ["yes"], plugin=seeded, settings=table) as chat:
        config = chat.adapter.config
        assert config.extra == {"channel": "#a", "nick": "bot", "group_sessions_per_user": False}
        assert (config.home_channel.chat_id, config.home_channel.platform) == ("9", Platform("oldchat"))


async def test_a_message_nobody_hears_is_an_error_and_not_silence(tmp_path):
    async with chatting(tmp_path, []) as chat:
        pass
    with pytest.raises(RuntimeError, match="nobody serves Oldchat now"):
        await chat.say("hello")
