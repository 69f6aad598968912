"""A platform plugin of the oldest style behind the real gateway, on a whole app: what is said, and heard."""

import asyncio
import struct
import sys
import zlib
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from alipes.compat.hermes.platform import runner as adapters_serving
from alipes.compat.hermes.platform.values import MessageEvent, MessageType, Platform, SendResult
from alipes.compat.hermes.session_keys import build_session_key
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.plugin_platforms import PluginPlatform, plugin_platform_names
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address, Inbound
from alipes.plugins.owner import CORE
from alipes.plugins.registry import ProviderContribution
from alipes.testing import call, stall
from tests.unit.compat.agent_harness import open_harness
from tests.world.environment import LIMIT_S

KEY = "agent:main:oldchat:dm:42"
REMOVES = "rm -rf /nowhere/at/all"
"""Asked about, and harmless."""
OLDEST = """
import asyncio
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult

calls, made, down = [], [], []

class OldAdapter(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("oldchat"))
        self.sent, self.happened, self.refusals, self.received = [], [], [], []
        made.append(self)

    async def connect(self):                       # knows nothing of is_reconnect
        self.happened.append("connect")
        if down:
            self._set_fatal_error(*down.pop(0), retryable=True)
            return False
        self._mark_connected()
        return True

    async def disconnect(self):
        self.happened.append("disconnect")
        self._mark_disconnected()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        if self.refusals:
            refusal = self.refusals.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        self.sent.append((chat_id, content))
        self.received.append((reply_to, metadata))
        return SendResult(success=True, message_id=str(len(self.sent)))

    async def send_typing(self, chat_id):          # no metadata in the old days
        self.happened.append("typing")

    async def stop_typing(self, chat_id):
        self.happened.append("quiet")

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

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
EDITS = OLDEST.replace(
    "    async def get_chat_info",
    """    async def edit_message(self, chat_id, message_id, content):
        number = int(message_id) - 1
        self.sent[number] = (chat_id, content)
        self.happened.append("edit")
        return SendResult(success=True, message_id=message_id)

    async def send_document(self, chat_id, file_path, caption=None):
        self.sent.append((chat_id, f"<{file_path}>"))
        return SendResult(success=True, message_id=str(len(self.sent)))

    async def get_chat_info""",
)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """What is lent to plugins in one test is not there in the next."""
    for name in ("OLDCHAT_ALLOWED", "OLDCHAT_ALLOW_ALL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


class Chat:
    """Someone in the chat."""

    def __init__(self, agent, gateway):
        self.agent, self.gateway = agent, gateway
        self.number, self._module = 0, None

    @property
    def module(self):
        """As it is now, or was at the end."""
        self._module = sys.modules.get("hermes_plugins.old_plugin", self._module)
        return self._module

    @property
    def calls(self):
        return self.module.calls

    @property
    def adapter(self):
        """The latest."""
        return self.module.made[-1]

    @property
    def state(self):
        return self.gateway.states()[0]

    def event(self, text, user="7", kind=MessageType.TEXT, chat="42", **more):
        self.number += 1
        place = {name: more.pop(name) for name in ("chat_type", "thread_id") if name in more}
        source = self.adapter.build_source(chat_id=chat, user_id=user, user_name="Ada", **place)
        return MessageEvent(text, kind, source, message_id=more.pop("id", f"n{self.number}"), **more)

    async def say(self, text, **more):
        await self.adapter.handle_message(self.event(text, **more))

    @property
    def heard(self):
        return [text for each in self.module.made for _, text in each.sent]

    async def hear(self, number):
        """What was sent, once it is this much."""
        return await self.see(lambda: self.heard if len(self.heard) >= number else None)

    async def see(self, look):
        async with asyncio.timeout(LIMIT_S):
            while not (found := look()):
                await asyncio.sleep(0.005)
        return found

    async def quiet(self):
        await self.agent.settled()
        await self.gateway.delivery.wait_idle()


@asynccontextmanager
async def chatting(home, script, *, plugin=OLDEST, manners=None, settings=None, rules=None, up=True, **more):
    outbound_policy = OutboundPolicy(["oldchat"], [str(home)])
    more = {"interactive": True, **more}
    plugins = {"old-plugin": plugin}
    async with open_harness(
        home, script, plugins=plugins, config=settings or {}, outbound=outbound_policy, **more
    ) as agent:
        offers = agent.app.contributions
        assert plugin_platform_names(offers) == ("oldchat",)
        guest = PluginPlatform("oldchat", offers, agent.app.sessions, check_interval=0.02)
        usual = PlatformPolicy(allow=("7",), busy="interrupt", progress="off")
        how = structs.replace(manners or usual, known_role=guest.role)
        known = {
            "draft_delay": 0.02,
            "poll_interval": 0.05,
            "batch_window": 0.4,
            "edits_per_second": 1000.0,
            "outgoing": str(home),
            **(rules or {}),
        }
        gateway = Gateway(
            agent.app, {"oldchat": guest}, GatewayPolicy(platforms={"oldchat": how}, **known), outbound=outbound_policy
        )
        serving = asyncio.create_task(gateway.run())
        chat = Chat(agent, gateway)
        try:
            if up:
                await chat.see(lambda: chat.state.condition == "ready")
            yield chat
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            if not serving.cancelled() and serving.exception() is not None:
                raise serving.exception()


async def test_a_message_is_answered_through_an_adapter_of_the_oldest_style(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "hello yourself")]) as chat:
        adapter = chat.adapter
        await chat.say("hello")
        await chat.see(lambda: "typing" in adapter.happened)
        assert list(adapter._active_sessions) == [KEY]
        waits.go()
        assert await chat.hear(1) == ["hello yourself"]
        await chat.see(lambda: "complete True" in adapter.happened)
        assert adapter.happened[0] == "connect"
        steps = [adapter.happened.index(each) for each in ("start hello", "typing", "quiet", "complete True")]
        assert steps == sorted(steps)
        runner = chat.agent.bridge.gateway
        assert runner.adapters == {Platform("oldchat"): adapter}
        assert not adapter._active_sessions
        assert await chat.agent.app.store.sessions.active(KEY) is not None
        assert build_session_key(chat.event("x").source) == KEY
    assert adapter.happened[-1] == "disconnect" and not adapter.is_connected and not runner.adapters
    with pytest.raises(RuntimeError, match="Oldchat is not running"):
        await adapter.handle_message(chat.event("hello"))


async def test_a_thread_of_a_group_is_answered_there_and_each_person_on_their_own(tmp_path):
    async with chatting(tmp_path, ["one", "two"]) as chat:
        await chat.say("hello", chat_type="group", chat="g", thread_id="5", id="a")
        await chat.hear(1)
        await chat.say("hello", chat_type="group", chat="g", id="b")
        await chat.hear(2)
        assert chat.adapter.received == [("a", {"thread_id": "5"}), ("b", None)]
        active = chat.agent.app.store.sessions.active
        assert await active("agent:main:oldchat:group:g:5") is not None
        assert await active("agent:main:oldchat:group:g:7") is not None


async def test_stop_ends_the_turn_and_the_next_message_is_answered(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "never"), "here I am"]) as chat:
        await chat.say("think")
        await waits.reached.wait()
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
        assert "Started a new conversation." in (await chat.hear(1))[0]
        await chat.say("hello")
        assert (await chat.hear(2))[-1] == "a fresh start"
        assert ("reset", "new_command") in chat.calls
        assert [message.text for message in chat.agent.model.requests[-1].messages] == ["hello"]


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


async def test_the_second_copy_is_not_answered_again_also_after_a_restart(tmp_path):
    async with chatting(tmp_path, ["one"]) as chat:
        await chat.say("hello", id="same")
        await chat.say("hello", id="same")
        await chat.hear(1)
        await chat.quiet()
        assert chat.heard == ["one"]
    async with chatting(tmp_path, []) as chat:
        await chat.say("hello", id="same")
        await chat.quiet()
        assert chat.heard == []


async def test_a_long_answer_comes_in_pieces_and_what_is_refused_comes_later(tmp_path):
    words = " ".join(f"word{number}" for number in range(20))
    async with chatting(tmp_path, [words]) as chat:
        chat.adapter.refusals = [
            SendResult(False, error="slow down", retryable=True, retry_after=0.01),
            ConnectionRefusedError("nobody there"),
        ]
        await chat.say("tell me")
        await chat.see(lambda: " ".join(chat.heard) == words)
        assert len(chat.heard) > 1 and all(len(text) <= 60 for text in chat.heard)
        assert chat.gateway.counters.postponed["oldchat"] == 2
        assert chat.gateway.counters.uncertain["oldchat"] == 0


async def test_a_chat_that_is_gone_is_given_up_and_the_next_one_is_served(tmp_path):
    async with chatting(tmp_path, ["one", "two"]) as chat:
        chat.adapter.refusals = [SendResult(False, error="you were blocked", error_kind="forbidden")]
        await chat.say("hello")
        await chat.see(lambda: chat.gateway.counters.failed["oldchat"])
        await chat.say("hello", chat="43")
        assert await chat.hear(1) == ["two"]


async def test_a_fatal_error_makes_a_new_adapter_and_nothing_is_lost(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "after all")]) as chat:
        first = chat.adapter
        chat.module.down.append(("net", "still no network"))
        await chat.say("hello")
        await waits.reached.wait()
        first._set_fatal_error("net", "the server hung up", retryable=True)
        waits.go()
        await chat.see(lambda: "still no network (net)" in chat.state.cause)
        assert await chat.hear(1) == ["after all"]
        await chat.see(lambda: chat.state.condition == "ready")
        assert chat.adapter is not first and len(chat.module.made) == 3 and chat.state.restarts == 2
        assert first.happened[-1] == "disconnect"
        assert [*chat.agent.bridge.gateway.adapters.values()] == [chat.adapter]


async def test_an_adapter_may_mend_its_own_connection_and_else_is_made_again(tmp_path, monkeypatch):
    async with chatting(tmp_path, ["one"]) as chat:
        first = chat.adapter
        first._mark_disconnected()
        await chat.see(lambda: chat.state.condition == "broken")
        await chat.say("hello")
        await asyncio.to_thread(first._mark_connected)  # libraries have threads
        assert await chat.hear(1) == ["one"]
        assert chat.state.restarts == 0 and chat.adapter is first
        monkeypatch.setattr(adapters_serving, "RECONNECT_TIMEOUT_S", 0.05)
        first._mark_disconnected()
        await chat.see(lambda: chat.adapter is not first and chat.state.condition == "ready")


async def test_what_the_operator_must_mend_is_reported_and_not_tried_in_haste(tmp_path):
    wrong = OLDEST.replace("        self._mark_connected()\n", "        self._set_fatal_error('auth', 'wrong token')\n")
    async with chatting(tmp_path, [], plugin=wrong, up=False) as chat:
        await chat.see(lambda: chat.state.cause == "wrong token (auth)")
        await asyncio.sleep(0.3)
        assert len(chat.module.made) == 1


async def test_strangers_are_reported_to_plugins_and_not_heard_also_while_a_turn_runs(tmp_path, caplog):
    waits = stall()
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / ".env").write_text("OLDCHAT_ALLOWED='7, 8'\n")
    silent = {"pairing": False}
    async with chatting(tmp_path, [(waits, "done")], manners=PlatformPolicy(progress="off"), rules=silent) as chat:
        await chat.say("hello")
        await waits.reached.wait()
        await chat.say("/stop", user="66")
        await chat.say("me too", user="66", chat="43")
        waits.go()
        assert await chat.hear(1) == ["done"]
        await chat.quiet()
        assert chat.heard == ["done"]
        assert [each[1] for each in chat.calls if each[0] == "dispatch"] == ["hello", "/stop", "me too"]
        assert caplog.text.count("66 has no access on oldchat") == 1
        assert chat.gateway.counters.strangers["oldchat"] == 2


async def test_variables_say_who_may_speak_and_those_they_name_are_owners(tmp_path):
    rules = {"pairing": False}
    async with chatting(tmp_path, ["one", "two", "three"], manners=PlatformPolicy(progress="off"), rules=rules) as chat:
        await chat.say("hello")
        await chat.quiet()
        assert chat.heard == [] and not chat.agent.model.requests
        (tmp_path / "house" / ".env").write_text("OLDCHAT_ALLOW_ALL=true\nOLDCHAT_ALLOWED=8\n")
        await chat.say("hello again")
        assert await chat.hear(1) == ["one"]
        await chat.say("/platforms")
        assert (await chat.hear(2))[-1] == "/platforms is for owners."
        await chat.say("/platforms", user="8")
        assert "oldchat" in (await chat.hear(3))[-1]
        role = chat.gateway.access.role
        assert (await role("oldchat", "8"), await role("oldchat", "9")) == ("owner", "user")


async def test_what_alipes_says_itself_is_heard_and_nobody_can_pretend_to_be_it(tmp_path):
    rules = {"pairing": False}
    async with chatting(tmp_path, ["one"], manners=PlatformPolicy(progress="off"), rules=rules) as chat:
        await chat.say("by the way", user="66", internal=True)
        assert await chat.hear(1) == ["one"]
        await chat.say("hello", user="internal:66")
        await chat.say("hello", user="66")
        await chat.quiet()
        assert chat.heard == ["one"]


async def test_an_adapter_that_asks_by_itself_who_may_speak_is_believed(tmp_path):
    own = OLDEST.replace(
        "    async def get_chat_info", "    enforces_own_access_policy = True\n\n    async def get_chat_info"
    )
    async with chatting(tmp_path, ["one"], plugin=own, manners=PlatformPolicy(progress="off")) as chat:
        await chat.say("hello", user="anyone")
        assert await chat.hear(1) == ["one"]


async def test_an_adapter_that_edits_shows_the_answer_while_it_is_written(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [("The begin", waits, "ning, and the end.")], plugin=EDITS) as chat:
        await chat.say("tell me")
        assert await chat.hear(1) == ["The begin …"]
        waits.go()
        await chat.see(lambda: chat.heard == ["The beginning, and the end."])
        assert "edit" in chat.adapter.happened


async def test_files_go_where_the_adapter_can_send_them_and_else_are_notified_of(tmp_path):
    paper = tmp_path / "paper.pdf"
    script = [call("write_file", path=str(paper), content="%PDF"), f"There:\nMEDIA: {paper}"]
    async with chatting(tmp_path, script, plugin=EDITS) as chat:
        await chat.say("send it")
        await chat.see(lambda: chat.heard == ["There:", f"<{paper}>"])
    async with chatting(tmp_path, script) as chat:
        await chat.say("send it", id="other")
        await chat.see(lambda: len(chat.heard) > 1 and "can't be sent on this platform" in " ".join(chat.heard))


async def test_what_the_adapter_formats_itself_is_not_formatted_before(tmp_path):
    formats = OLDEST.replace(
        "    async def get_chat_info",
        "    def format_message(self, content):\n        return f'<b>{content}</b>'\n\n    async def get_chat_info",
    )
    async with chatting(tmp_path, ["one"], plugin=formats) as chat:
        await chat.say("hello")
        assert await chat.hear(1) == ["<b>one</b>"]
    itself = formats.replace(
        "(chat_id, content))\n        self.received", "(chat_id, self.format_message(content)))\n        self.received"
    )
    async with chatting(tmp_path, ["one"], plugin=itself) as chat:
        await chat.say("hello", id="other")
        assert await chat.hear(1) == ["<b>one</b>"]


async def test_replies_are_plain_words_and_code_stays_as_it_is(tmp_path):
    async with chatting(tmp_path, [r"a \*star\* and `\*code\*`"]) as chat:
        await chat.say("/help busy")
        assert "/busy [MODE]" in (await chat.hear(1))[0]
        await chat.say("hello")
        await chat.see(lambda: chat.heard[-1] == r"a *star* and `\*code\*`")


async def test_a_turn_that_failed_is_reported(tmp_path):
    async with chatting(tmp_path, []) as chat:
        await chat.say("hello")
        assert "It failed: " in (await chat.hear(1))[0]
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
        assert not chat.agent.owner.disabled and chat.state.restarts == 0
    assert "plugin old-plugin (oldchat) failed in on_processing_start: ValueError" in caplog.text


async def test_a_message_that_a_plugin_skips_is_no_turn_and_hooks_see_the_adapters_event(tmp_path):
    async with chatting(tmp_path, ["one"]) as chat:
        await chat.say("ignore me")
        await chat.say("hello")
        assert await chat.hear(1) == ["one"]
        assert ("dispatch", "ignore me", "Ada") in chat.calls  # with the source that the adapter built


async def test_paths_are_words_for_the_model_and_unknown_commands_are_not(tmp_path):
    async with chatting(tmp_path, ["one"]) as chat:
        await chat.say("/unknown thing")
        assert (await chat.hear(1))[0].startswith("Unknown command /unknown.")
        await chat.say("/etc/hosts is where?")
        await chat.hear(2)
        asked = [request.messages[-1].text for request in chat.agent.model.requests]
        assert asked == ["/etc/hosts is where?"]


async def test_a_slow_command_of_a_plugin_keeps_nobody_from_stopping(tmp_path):
    slow = OLDEST.replace(
        "def register(ctx):",
        """async def slow(args):
    await asyncio.sleep(30)

def whoami(args):
    from gateway.session_context import get_session_env
    return get_session_env("HERMES_SESSION_USER_NAME")

def register(ctx):
    ctx.register_command("slow", slow)
    ctx.register_command("whoami", whoami)""",
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
        said = [message for message in chat.agent.model.requests[-1].messages if message.role == "user"]
        assert [message.text for message in said] == ["first", "look", "second", "third"]
        assert len(said[1].parts) == 4


async def test_files_are_reported_by_their_path_and_what_is_answered_is_quoted(tmp_path):
    (note := tmp_path / "note.pdf").write_bytes(b"%PDF")
    async with chatting(tmp_path, ["read it"]) as chat:
        await chat.say(
            "see this",
            media_urls=[str(note), "https://far.example/a.pdf"],
            media_types=["application/pdf"],
            kind=MessageType.DOCUMENT,
            reply_to_text="which paper?",
        )
        await chat.hear(1)
        text = chat.agent.model.requests[0].messages[-1].text
        assert f"[file note.pdf (application/pdf, 4 bytes) saved at {note}]" in text
        assert "[attached: https://far.example/a.pdf]" in text and "> which paper?" in text


async def test_a_turn_that_a_plugin_began_is_described_in_its_chat(tmp_path):
    async with chatting(tmp_path, ["by the way"]) as chat:
        await chat.agent.app.sessions.submit(Inbound("x1", Address("oldchat", "42"), "plugin", "say something"))
        assert await chat.hear(1) == ["by the way"]
        assert chat.adapter.sent == [("42", "by the way")]


async def test_an_adapter_can_cancel_what_its_chat_has_running_and_waiting(tmp_path):
    waits = stall()
    manners = PlatformPolicy(allow=("7",), busy="queue", progress="off")
    async with chatting(tmp_path, [(waits, "never"), "two"], manners=manners) as chat:
        await chat.say("think")
        await waits.reached.wait()
        await chat.say("and then")
        await chat.adapter.cancel_session_processing(KEY)
        assert ("user_stop", "session_interrupt") in chat.calls
        assert "complete False" in chat.adapter.happened
        await chat.quiet()
        assert not await chat.agent.app.store.sessions.unfinished(KEY)
        assert len(chat.agent.model.requests) == 1


@pytest.mark.parametrize(("word", "ran"), [("/approve", True), ("yes", True), ("/deny", False), ("no", False)])
async def test_a_dangerous_call_waits_for_a_word_in_the_chat(tmp_path, word, ran):
    (target := tmp_path / "gone").touch()
    script = [call("terminal", command=f"{REMOVES} {target}"), "so be it"]
    async with chatting(tmp_path, script) as chat:
        await chat.say("clean up")
        await chat.see(lambda: any("Answer" in text for text in chat.heard))
        await chat.say(word)
        await chat.see(lambda: "so be it" in chat.heard)
        assert target.exists() is not ran
        await chat.say("/approve")
        await chat.see(lambda: "There is nothing to approve." in chat.heard)


async def test_buttons_of_an_adapter_answer_through_the_importable_name(tmp_path):
    buttons = OLDEST.replace(
        "    async def get_chat_info",
        """    async def send_exec_approval(self, chat_id, command, session_key, description="dangerous"):
        from tools.approval import resolve_gateway_approval
        count = await asyncio.to_thread(resolve_gateway_approval, session_key, "deny")
        self.happened.append(f"resolved {count}: {command}")
        return SendResult(success=True)

    async def get_chat_info""",
    ).replace("max_message_length=60", "max_message_length=4000")
    (target := tmp_path / "stays").touch()
    script = [call("terminal", command=f"{REMOVES} {target}"), "so be it"]
    async with chatting(tmp_path, script, plugin=buttons) as chat:
        await chat.say("clean up")
        await chat.see(lambda: "so be it" in chat.heard)
        assert f"resolved 1: {REMOVES} {target}" in chat.adapter.happened
        assert target.exists() and chat.heard == ["so be it"]


async def test_what_was_left_unfinished_is_described_in_its_chat_at_the_next_start(tmp_path):
    waits = stall()
    async with chatting(tmp_path, [(waits, "never")]) as chat:
        await chat.say("think")
        await waits.reached.wait()
    assert chat.heard == []  # nobody stopped it: it continues
    again = stall()
    async with chatting(tmp_path, [(again, "at last")]) as chat:
        again.go()
        await chat.see(lambda: chat.heard[-1:] == ["at last"])
        assert "Continuing with" in chat.heard[0]


async def test_the_start_of_the_gateway_is_reported_with_its_platform(tmp_path):
    heard = []

    async def gateway_started(platforms):
        heard.append(platforms)

    async with chatting(tmp_path, [], up=False) as chat:
        chat.agent.app.hooks.add(CORE, gateway_started)
        await chat.see(lambda: heard == [("oldchat",)])


async def test_a_plugin_that_is_closed_takes_its_platform_along_and_one_that_comes_back_is_served(tmp_path):
    async with chatting(tmp_path, ["one"]) as chat:
        assert "is disabled" in (await chat.agent.command("/plugins disable old-plugin")).text
        await chat.see(lambda: "no loaded plugin provides it" in chat.state.cause)
        await chat.agent.command("/plugins enable old-plugin")
        await chat.see(lambda: chat.state.condition == "ready")
        await chat.say("hello")
        assert await chat.hear(1) == ["one"]


async def test_a_platform_that_cannot_be_served_says_why(tmp_path):
    async with open_harness(tmp_path, plugins={"old-plugin": OLDEST}) as agent:
        registration = agent.app.contributions.find(ProviderContribution, "platform:oldchat").thing
        usual = registration.entry

        async def trouble(**changes):
            registration.entry = structs.replace(usual, **changes)
            with pytest.raises(ConfigError) as raised:
                async with registration():
                    pass
            return str(raised.value)

        assert "adapter_factory: KeyError" in await trouble(adapter_factory=lambda cfg: cfg.extra["missing"])
        poor = {"check_fn": lambda: False, "install_hint": "pip install oldchat", "required_env": ("OLD_TOKEN",)}
        assert "not met: pip install oldchat (it needs OLD_TOKEN)" in await trouble(**poor)
        assert "not set up" in await trouble(is_connected=lambda config: False)
        assert "incomplete" in await trouble(validate_config=lambda config: False)


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
