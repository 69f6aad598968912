"""Incoming messages: each once, in order, only from people with access; commands at any time."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from alipes.agent.attachments import FileAttacher
from alipes.config.settings import DocumentsConfig, Settings
from alipes.gateway.outbound.replies import delete_old_files
from alipes.gateway.policy import PlatformPolicy
from alipes.kernel.errors import MessageRejected, StoreError
from alipes.kernel.messages import Image, Message, Text, ToolCall, user
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import ReceivedFile
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Address, Inbound, Said
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE, PluginOwner
from alipes.plugins.registry import CommandContribution, PromptTemplate
from alipes.plugins.specs import Admission
from alipes.providers.transcription import command_transcriber
from alipes.store.sqlite.store import open_store
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.tools.documents.documents import DocumentConverter
from tests.world.fake_platform import FakePlatform
from tests.world.gateway_harness import make_message, open_gateway

NAP = ToolCall("c1", "nap", {})
QUEUE = PlatformPolicy(allow=("me",), busy="queue", progress="off")


class Nap:
    """A tool that reports when it runs and sleeps until cancelled or woken."""

    spec = ToolSpec("nap", "sleep", {"type": "object", "properties": {}})

    def __init__(self):
        self.running, self.woken, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self, args, act):
        self.running.set()
        try:
            await self.woken.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "slept"


def asked(provider):
    """The person's messages in the last model request."""
    return [message.text for message in provider.asked[-1].messages if message.role == "user"]


def manners(**more):
    return PlatformPolicy(**{"allow": ("me",), "busy": "queue", "progress": "off", **more})


async def test_a_message_is_answered_in_its_chat_and_menus_show_the_commands(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider(["hi", "there"])) as g:
        await g.take("hello", chat="a")
        await g.take("hello", chat="b", thread="7")
        await g.messenger.until_said("hi", chat="a")
        await g.messenger.until_said("there", chat="b")
        await g.messenger.until(lambda: g.messenger.commands)
        names = [name for name, _ in g.messenger.commands]
        assert {"stop", "new", "sethome", "pair", "platforms", "approve", "deny", "restart"} <= set(names)
        assert len(names) == len(set(names)) and "quit" not in names


async def test_a_second_copy_is_ignored_also_after_a_restart(tmp_path):
    messenger = FakePlatform()
    async with open_gateway(tmp_path, ScriptedProvider(["hi"]), messenger=messenger) as g:
        for _ in range(3):
            await g.take("hello", id="1")
        await messenger.until_said("hi")
    async with open_gateway(tmp_path, ScriptedProvider([]), messenger=messenger) as g:
        await g.take("hello", id="1")
        await g.quiet()
    assert messenger.said() == ["hi"]


async def test_a_burst_is_answered_in_order_and_never_merged(tmp_path):
    nap, provider = Nap(), ScriptedProvider([NAP, "one", "two", "three", "four", "five"])
    async with open_gateway(tmp_path, provider, nap) as g:
        await g.take("1", id="1")
        await nap.running.wait()
        for id in ("2", "3", "3", "4", "3", "5"):
            await g.take(f"text {id}", id=id)
        nap.woken.set()
        await g.messenger.until_said("one", "two", "three", "four", "five")
        assert asked(provider) == ["1", "text 2", "text 3", "text 4", "text 5"]


async def test_concurrent_messages_are_handled_in_order(tmp_path):
    provider = ScriptedProvider([f"answer {n}" for n in range(8)])
    async with open_gateway(tmp_path, provider) as g:
        await asyncio.gather(*(g.take(f"text {n}", id=str(n)) for n in range(8)))
        await g.quiet()
        assert asked(provider) == [f"text {n}" for n in range(8)]


@pytest.mark.parametrize(
    ("busy", "answers"), [("queue", ["slept well", "and you"]), ("interrupt", ["and you"]), ("steer", ["and you"])]
)
async def test_a_message_during_a_turn_follows_the_busy_mode(busy, answers, tmp_path):
    nap = Nap()
    script = [NAP, *(["slept well"] if busy == "queue" else []), "and you"]
    async with open_gateway(tmp_path, ScriptedProvider(script), nap, manners=manners(busy=busy)) as g:
        await g.take("sleep")
        await nap.running.wait()
        await g.take("how are you")
        if busy == "interrupt":
            await nap.cancelled.wait()
        else:
            nap.woken.set()
        await g.messenger.until_said(*answers)
        await g.quiet()
        assert g.messenger.said() == answers


@pytest.mark.parametrize(
    ("wanted", "chosen", "mode"),
    [
        (None, None, "steer"),
        ("interrupt", None, "interrupt"),
        ("interrupt", "queue", "queue"),
        (None, "queue", "queue"),
    ],
)
def test_the_operator_chooses_the_busy_mode_before_the_platform(wanted, chosen, mode):
    assert PlatformPolicy(busy=chosen, wanted_busy=lambda: wanted).usual_busy == mode


async def test_stop_keeps_the_queued_messages_of_a_chat(tmp_path):
    nap = Nap()
    provider = ScriptedProvider([NAP, "two", "three"])
    async with open_gateway(tmp_path, provider, nap, manners=manners(busy="queue")) as g:
        await g.take("sleep")
        await nap.running.wait()
        await g.take("second")
        await g.take("third")
        await g.take("/stop")
        kept = "Stopped. 2 queued messages kept: /queue send to send them, /queue drop to discard."
        await g.messenger.until_said(kept)
        await g.quiet()
        assert g.messenger.said() == [kept] and asked(provider) == ["sleep"]
        await g.take("/queue send")
        await g.messenger.until_said(kept, "Sent 2 messages.", "two", "three")
        assert asked(provider) == ["sleep", "second", "third"]


async def test_a_chat_can_choose_its_busy_mode(tmp_path):
    nap = Nap()
    async with open_gateway(tmp_path, ScriptedProvider([NAP, "next"]), nap) as g:
        await g.take("/busy interrupt")
        await g.take("sleep")
        await nap.running.wait()
        await g.take("wake up")
        await nap.cancelled.wait()
        await g.messenger.until(lambda: "next" in g.messenger.said())


async def test_stop_ends_the_turn_and_only_the_reply_is_sent(tmp_path):
    nap = Nap()
    async with open_gateway(tmp_path, ScriptedProvider([NAP, "hi"]), nap) as g:
        await g.take("sleep")
        await nap.running.wait()
        await g.take("/stop")
        await nap.cancelled.wait()
        await g.sessions.wait_idle()
        await g.take("/stop")
        await g.take("hello")
        await g.messenger.until_said("Stopped.", "Nothing is running.", "hi")
        await g.quiet()
        assert g.messenger.said() == ["Stopped.", "Nothing is running.", "hi"]
        assert g.gateway.counters.turns == {"stopped": 1, "answered": 1}
        assert len(g.gateway.counters.stops) == 1


async def test_ten_stopped_chats_do_not_delay_an_eleventh(tmp_path):
    naps = [Nap() for _ in range(10)]

    class Naps(Nap):
        async def run(self, args, act):
            await naps[int(args["n"])].run(args, act)

    script = [ToolCall(f"c{n}", "nap", {"n": str(n)}) for n in range(10)]
    async with open_gateway(tmp_path, ScriptedProvider([*script, "hi"]), Naps(), manners=manners(allow=("*",))) as g:
        for n, nap in enumerate(naps):
            await g.take("sleep", chat=f"c{n}", sender=f"p{n}")
            await nap.running.wait()
        for n in range(10):
            await g.take("/stop", chat=f"c{n}", sender=f"p{n}")
        await g.take("hello", chat="eleven", sender="p11")
        await g.messenger.until_said("hi", chat="eleven")


async def test_new_during_a_turn_stops_it_and_starts_a_new_conversation(tmp_path):
    nap, provider = Nap(), ScriptedProvider([NAP, "hi"])
    async with open_gateway(tmp_path, provider, nap) as g:
        await g.take("sleep")
        await nap.running.wait()
        await g.take("/new")
        await nap.cancelled.wait()
        await g.take("hello")
        await g.messenger.until_said("Started a new conversation. Stopped: the running turn.", "hi")
        assert asked(provider) == ["hello"]


async def test_a_redelivered_command_runs_once_and_is_answered_once(tmp_path):
    messenger, provider = FakePlatform(), ScriptedProvider(["one", "two", "three"])
    async with open_gateway(tmp_path, provider, messenger=messenger) as g:
        await g.take("hello")
        await messenger.until_said("one")
        await g.sessions.wait_idle()  # /new says so if it stops a turn
        await g.take("/new", id="n1")
        await g.take("again")
        await messenger.until_said("one", "Started a new conversation.", "two")
        await g.take("/new", id="n1")
    async with open_gateway(tmp_path, provider, messenger=messenger) as g:
        await g.take("/new", id="n1")
        await g.take("still here?")
        await messenger.until_said("one", "Started a new conversation.", "two", "three")
        assert asked(provider) == ["again", "still here?"]


async def test_a_path_is_text_and_an_unknown_command_is_not_sent_to_the_model(tmp_path):
    provider = ScriptedProvider(["one"])
    async with open_gateway(tmp_path, provider) as g:
        await g.take("/sesions now")
        await g.messenger.until_said("Unknown command /sesions. Did you mean /sessions?")
        await g.take("/etc/passwd")
        await g.messenger.until_said("Unknown command /sesions. Did you mean /sessions?", "one")
        assert asked(provider) == ["/etc/passwd"]


async def test_a_template_is_a_command_in_chats_and_in_their_menu(tmp_path):
    provider = ScriptedProvider(["hello"])
    async with open_gateway(tmp_path, provider, rules={"menu_interval": 0.01}) as g:
        g.templates["greet"] = PromptTemplate("greet", "greet.md", "Greet $1.", "Greet somebody")
        await g.messenger.until(lambda: ("greet", "Greet somebody") in g.messenger.commands)
        await g.take("/greet Ann", id="1")
        await g.take("/greet Ann", id="1")
        await g.messenger.until_said("hello")
        assert asked(provider) == ["Greet Ann."]


async def test_strangers_are_rejected_on_every_path(tmp_path):
    nap = Nap()
    async with open_gateway(tmp_path, ScriptedProvider([NAP, "hi"]), nap, rules={"pairing": False}) as g:
        for more in ({"text": "hello"}, {"text": "/stop"}, {"pressed": "ask:1:once"}, {"text": "x", "edits": "1"}):
            await g.take(sender="eve", chat="eve", **more)
        await g.take("sleep", chat="team", chat_type="group", group=True)
        await nap.running.wait()
        for text in ("/stop", "/new", "what is this?", "yes", "/approve"):
            await g.take(text, sender="eve", chat="team", chat_type="group", group=True)
        assert not nap.cancelled.is_set()
        nap.woken.set()
        await g.messenger.until_said("hi", chat="team")
        await g.quiet()
        assert g.messenger.said("eve") == [] and g.messenger.said("team") == ["hi"]
        assert g.gateway.counters.strangers["test"] == 9


async def test_plugins_judge_a_message_before_access_is_checked(tmp_path):
    seen, hooks = [], Hooks()

    async def before_message(inbound):
        seen.append((inbound.sender, inbound.text))
        if inbound.text == "drop":
            return Admission("drop")
        return Admission("rewrite", "other words") if inbound.text == "change" else None

    hooks.add(PluginOwner("ruler"), before_message)
    provider = ScriptedProvider(["hi"])
    async with open_gateway(tmp_path, provider, hooks=hooks, rules={"pairing": False}) as g:
        await g.take("drop")
        await g.take("psst", sender="eve")
        await g.take("change", quoted="theirs")
        await g.messenger.until_said("hi")
        assert seen == [("me", "drop"), ("eve", "psst"), ("me", "change")], (
            "once per message: the sessions do not ask again"
        )
        assert asked(provider) == ["[quoted message, written by someone else:]\n> theirs\n\nother words"]


async def test_a_failing_plugin_rejects_the_message_and_the_sender_is_informed(tmp_path):
    hooks = Hooks()

    async def before_message(inbound):
        raise ValueError("oops")

    hooks.add(PluginOwner("ruler"), before_message)
    async with open_gateway(tmp_path, ScriptedProvider([]), hooks=hooks) as g:
        await g.take("hello")
        await g.take("hello", sender="eve", chat="eve")
        await g.messenger.until(lambda: g.messenger.said())
        assert "the message was rejected" in g.messenger.said()[0]
        await g.quiet()
        assert len(g.messenger.said()) == 1


async def test_in_a_group_only_addressed_messages_count_and_each_names_its_sender(tmp_path):
    provider = ScriptedProvider(["hi", "and hi"])
    group = {"chat": "team", "chat_type": "group", "group": True, "name": "Ann"}
    async with open_gateway(tmp_path, provider) as g:
        await g.take("psst", addressed=False, **group)
        await g.take("/new", addressed=False, **group)
        await g.take("hello", message="77", **group)
        await g.messenger.until_said("hi", chat="team")
        assert asked(provider) == ["Ann: hello"]
        assert g.messenger.bubbles[0].piece.reply_to == "77"
        await g.take("mine", user="me", **group)
        await g.messenger.until_said("hi", "and hi", chat="team")
        assert asked(provider) == ["mine"], "their own conversation"


async def test_a_group_can_be_set_to_all_messages(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider(["hi"]), manners=manners(group="all")) as g:
        await g.take("psst", chat="team", chat_type="group", group=True, addressed=False)
        await g.messenger.until_said("hi", chat="team")


def picture(n):
    return {"images": (Image("image/png", bytes([n])),), "files": (ReceivedFile(f"/tmp/{n}.png", "image", f"{n}.png"),)}


async def test_an_album_is_one_message_and_a_text_after_it_another(tmp_path):
    provider = ScriptedProvider(["nice", "thanks"])
    async with open_gateway(tmp_path, provider, rules={"batch_window": 30.0}) as g:
        await g.take("look", id="p1", album="a", **picture(1))
        await g.take("", id="p2", album="a", **picture(2))
        await g.take("", id="p2", album="a", **picture(2))
        await g.take("well?", id="t1")
        await g.messenger.until_said("nice", "thanks")
        first, second = (message for message in provider.asked[-1].messages if message.role == "user")
        assert first.text == ("look\n\n[image 1.png saved at /tmp/1.png]\n\n[image 2.png saved at /tmp/2.png]")
        assert len(first.parts) == 3 and second.text == "well?"
        await g.take("look", id="p1", album="a", **picture(1))
        await g.take("", id="p2", album="a", **picture(2))
        await g.take("well?", id="t1")
        await g.quiet()
        assert len(g.messenger.said()) == 2


async def test_pictures_in_a_row_are_one_message_and_two_albums_are_two(tmp_path):
    provider = ScriptedProvider(["one", "two", "three"])
    async with open_gateway(tmp_path, provider) as g:
        await g.take("", **picture(1))
        await g.take("", **picture(2))
        await g.messenger.until_said("one")
        assert len(provider.asked[0].messages[-1].parts) == 3
        await g.take("", album="a", **picture(3))
        await g.take("", album="b", **picture(4))
        await g.messenger.until_said("one", "two", "three")


async def test_waiting_pictures_survive_a_crash(tmp_path):
    messenger = FakePlatform()
    async with open_gateway(tmp_path, ScriptedProvider([]), messenger=messenger, rules={"batch_window": 60.0}) as g:
        await g.take("look", id="p1", **picture(1))
        await g.take("", id="p2", **picture(2))
    provider = ScriptedProvider(["nice"])
    async with open_gateway(tmp_path, provider, messenger=messenger) as g:
        await g.take("", id="p2", **picture(2))
        await messenger.until_said("nice")
        assert len(provider.asked[-1].messages[-1].parts) == 3


VOICE = {"files": (ReceivedFile("/tmp/v.ogg", "voice"),)}


async def test_a_voice_note_is_transcribed_and_keeps_its_place(tmp_path):
    spoken = asyncio.Event()

    async def transcribe(path):
        await spoken.wait()
        return f"words of {path}"

    provider = ScriptedProvider(["one", "two"])
    async with open_gateway(tmp_path, provider, transcribe=transcribe) as g:
        await g.take("", **VOICE)
        await g.take("after")
        await g.take("/title waits for nobody")
        await g.messenger.until(lambda: g.messenger.said())
        spoken.set()
        await g.messenger.until(lambda: "two" in g.messenger.said())
        assert asked(provider) == ["words of /tmp/v.ogg", "after"]


async def test_without_speech_to_text_the_sender_is_informed(tmp_path):
    async def deaf(path):
        raise MessageRejected("Please type it.")

    async with open_gateway(tmp_path, ScriptedProvider(["ok"])) as g:
        await g.take("", id="v1", **VOICE)
        await g.messenger.until(lambda: g.messenger.said())
        assert "Voice notes aren't set up here" in g.messenger.said()[0]
        await g.take("", id="v1", **VOICE)
        await g.quiet()
        assert len(g.messenger.said()) == 1
    async with open_gateway(tmp_path / "b", ScriptedProvider(["ok"]), transcribe=deaf) as g:
        await g.take("listen to this", **VOICE)
        await g.messenger.until_said("Please type it.", "ok")


async def test_a_command_transcribes_voice_notes(tmp_path):
    (tmp_path / "v.ogg").write_text("spoken")
    command = f"{sys.executable} -c \"import sys; print('I heard', open(sys.argv[1]).read())\" {{file}}"
    assert await command_transcriber(command, {})(str(tmp_path / "v.ogg")) == "I heard spoken"
    for broken in ("exit 3 #", f"{sys.executable} -c 'import time; time.sleep(60)' #"):
        with pytest.raises(MessageRejected, match="Please type it"):
            await command_transcriber(broken, {}, within=0.5)(str(tmp_path / "v.ogg"))


async def test_an_edit_replaces_a_waiting_message_and_is_sent_as_edited_if_too_late(tmp_path):
    nap, provider = Nap(), ScriptedProvider([NAP, "one", "two", "three"])
    async with open_gateway(tmp_path, provider, nap) as g:
        await g.take("sleep", id="1")
        await nap.running.wait()
        await g.take("helo", id="2")
        await g.take("hello", id="2e", edits="2")
        await g.take("hello", id="2f", edits="2")
        await g.take("sleep well", id="1e", edits="1")
        await g.take("sleep well", id="1e", edits="1")
        nap.woken.set()
        await g.messenger.until_said("one", "two", "three")
        assert asked(provider) == ["sleep", "hello", "edited: sleep well"]
        await g.take("sleep", id="1f", edits="1")
        await g.quiet()
        assert len(g.messenger.said()) == 3, "an edit that changes nothing says nothing"


async def test_an_edit_of_a_waiting_picture_replaces_it(tmp_path):
    provider = ScriptedProvider(["nice"])
    async with open_gateway(tmp_path, provider, rules={"batch_window": 0.3}) as g:
        await g.take("lok", id="p1", **picture(1))
        await asyncio.sleep(0)  # the batch waits for more now
        await g.take("look", id="p1e", edits="p1")
        await g.messenger.until_said("nice")
        assert asked(provider)[0].startswith("look\n")


async def test_a_failed_turn_and_one_out_of_steps_say_why(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([])) as g:
        await g.take("hello")
        await g.messenger.until(lambda: g.messenger.said())
        assert g.messenger.said()[0].startswith("It failed: The script has no line")


async def test_every_text_of_a_turn_is_sent(tmp_path):
    nap = Nap()
    nap.woken.set()
    async with open_gateway(tmp_path, ScriptedProvider([("let me sleep", NAP), "slept well"]), nap) as g:
        await g.take("sleep")
        await g.messenger.until_said("let me sleep", "slept well")


async def test_a_resumed_turn_sends_one_notice_and_one_answer(tmp_path):
    messenger, nap = FakePlatform(), Nap()
    async with open_gateway(tmp_path, ScriptedProvider([("first", NAP)]), nap, messenger=messenger) as g:
        await g.take("sleep", id="1")
        await nap.running.wait()
        await messenger.until_said("first")
    provider = ScriptedProvider(["second"])
    async with open_gateway(tmp_path, provider, nap, messenger=messenger) as g:
        await g.take("sleep", id="1")
        await messenger.until(lambda: "second" in messenger.said())
        await g.quiet()
        seen = "I was restarted. Continuing with “sleep”."
        assert messenger.said() == ["first", seen, "second"]


async def test_a_turn_that_was_already_answered_ends_silently(tmp_path):
    """The crash came between the answer and the end of the turn: there is nothing to continue."""
    messenger, inbound = FakePlatform(), Inbound("1", Address("test", "me"), "me", "hello")
    async with open_store(tmp_path) as store:
        await store.turns.accept(inbound)
        turn = await store.turns.claim_next(inbound.address.key)
        for message in (user("hello"), Message("assistant", (Text("Good morning."),))):
            owed = (Outbound(f"{turn.id}:0", inbound.address, message.text, turn=turn.id),)
            await store.turns.record(turn, Said(message), *(owed if message.role == "assistant" else ()))
    async with open_gateway(tmp_path, ScriptedProvider([]), messenger=messenger) as g:
        await messenger.until_said("Good morning.")
        await g.quiet()
        assert (await g.store.archive.turn(turn.id)).ending == "answered"
    assert messenger.said() == ["Good morning."]


async def test_stop_does_not_wait_for_slow_plugin_commands(tmp_path):
    from alipes.plugins.registry import CommandContribution

    release, nap = asyncio.Event(), Nap()

    async def act(args, inbound):
        await release.wait()
        return f"did {args}"

    async with open_gateway(tmp_path, ScriptedProvider([NAP]), nap) as g:
        g.contributions.add(CommandContribution(PluginOwner("worker"), "work", act, help="works", hint=""))
        await g.take("sleep")
        await nap.running.wait()
        await g.take("/work hard")
        await g.take("/stop")
        await nap.cancelled.wait()
        release.set()
        await g.messenger.until_said("Stopped.", "did hard")
        g.contributions.remove(PluginOwner("worker"))


async def test_chat_commands_reply(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider(["hi"])) as g:
        await g.take("/sethome")
        await g.take("/platforms")
        await g.take("/progress full")
        await g.take("/progress")
        await g.take("/progress much")
        await g.take("/pair")
        await g.take("/help pair")
        await g.take("/help nothing")
        await g.take("/quit")
        await g.take("/approve")
        await g.take("/restart")
        await g.messenger.until(lambda: len(g.messenger.said()) == 11)
        home, platforms, *rest = g.messenger.said()
        assert home == "This is now the default chat for test."
        assert platforms.startswith("test  ready, just now")
        assert rest == [
            "Tool progress in this chat: full.",
            "Tool progress in this chat: full. Modes: off, short, full.",
            "Unknown mode “much”. Modes: off, short, full.",
            "No pairing requests.",
            "/pair \\[CODE\\] \\[owner\\]  list pairing requests, or approve one",
            "Unknown command /nothing. /help lists all commands.",
            "There is nothing to quit here; just stop writing.",
            "There is nothing to approve.",
            "Restarting. Running tasks will resume in a moment.",
        ]
        assert g.restarted == 1
        await g.take("/restart", id="r1")
        await g.take("/restart", id="r1")
        assert g.restarted == 2
        assert (await g.store.people.default_chats())["test"] == Address("test", "me")


async def test_an_export_is_sent_as_a_file(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider(["hi"])) as g:
        await g.take("hello")
        await g.messenger.until_said("hi")
        await g.take("/export talk.md", id="../e1")
        await g.take("/copy")
        await g.messenger.until_said("hi", "<file talk.md>", "hi")
        path = g.messenger.bubbles[1].piece.media.path
        assert path.startswith(str(tmp_path / "outgoing")) and "hello" in Path(path).read_text()


async def test_a_guest_reads_around_its_own_hits_only(tmp_path):
    both = manners(allow=("me", "you"), owners=("me",))
    async with open_gateway(tmp_path, ScriptedProvider(["secret answer", "mine"]), manners=both) as g:
        await g.take("the secret question")
        await g.messenger.until_said("secret answer")
        (hit,) = await g.store.archive.search("answer")
        await g.take("my own words", sender="you", chat="you")
        await g.messenger.until_said("mine", chat="you")
        (own,) = await g.store.archive.search("words")
        for text in (f"/search around {hit.message}", f"/search around {own.message}"):
            await g.take(text, sender="you", chat="you")
        await g.messenger.until(lambda: len(g.messenger.said("you")) == 3)
        refused, shown = g.messenger.said("you")[1:]
        assert refused.startswith("No message") and "my own words" in shown and "secret" not in shown


async def test_conversations_of_others_are_neither_shown_nor_resumed(tmp_path):
    both = manners(allow=("me", "you"), owners=("me",))
    async with open_gateway(tmp_path, ScriptedProvider(["secret answer", "mine"]), manners=both) as g:
        await g.take("the secret question")
        await g.messenger.until_said("secret answer")
        other = (await g.store.archive.sessions())[0].id
        await g.take("my own words", sender="you", chat="you")
        await g.messenger.until_said("mine", chat="you")
        for text in (
            "/sessions",
            "/search secret",
            "/search own",
            f"/resume {other}",
            "/plugins",
            "/pair X",
            "/restart",
        ):
            await g.take(text, sender="you", chat="you")
        await g.messenger.until(lambda: len(g.messenger.said("you")) == 8)
        listed, nothing, found, refused, *owners = g.messenger.said("you")[1:]
        assert "my own words" in listed and "secret" not in listed
        assert nothing.startswith("No matches for") and "own" in found
        assert refused.startswith("No conversation in this chat")
        assert owners == ["/plugins is for owners.", "/pair is for owners.", "/restart is for owners."]
        await g.take("/sessions")
        await g.take("/sessions", chat="team", chat_type="group", group=True)
        await g.messenger.until(lambda: g.messenger.said("team") and len(g.messenger.said()) == 2)
        assert "my own words" in g.messenger.said()[1], "an owner in a direct chat sees all"
        assert g.messenger.said("team") == ["No conversations in this chat."], "not in a group"


async def test_a_message_can_be_sent_without_a_turn(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([])) as g:
        for wrong, why in {
            "test": "has no default chat",
            "tset:1": "Did you mean",
            "home": "/sethome",
            "": "unknown platform",
        }.items():
            with pytest.raises(MessageRejected, match=why):
                await g.gateway.send(wrong, "psst")
        with pytest.raises(MessageRejected, match="nothing to send"):
            await g.gateway.send("test:a", " ")
        await g.gateway.send("test:a", "one")
        await g.gateway.send("test:a:7", "two")
        await g.take("/sethome")
        await g.gateway.send("home", "three")
        await g.gateway.send("test", "four")
        await g.messenger.until_said("one", "two", chat="a")
        await g.messenger.until(lambda: g.messenger.said()[1:] == ["three", "four"])


async def test_a_broken_platform_is_restarted_and_the_other_continues(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider(["hi", "there"])) as g:
        await g.take("hello")
        await g.messenger.until_said("hi")
        g.messenger.connected.clear()
        g.messenger.cut(ValueError("a bug"))
        await g.messenger.connected.wait()
        (state,) = g.gateway.states()
        assert state.condition == "ready" and state.restarts == 1 and state.cause == ""
        await g.take("hello")
        await g.messenger.until_said("hi", "there")


async def test_a_silent_platform_is_restarted(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([]), rules={"silence_timeout": 0.1}) as g:
        while g.messenger.starts < 2:
            g.messenger.connected.clear()
            await g.messenger.connected.wait()
        assert g.messenger.starts >= 2


async def test_a_broken_platform_reports_its_cause(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([])) as g:
        g.messenger.tell("broken", "401 Unauthorized")
        (state,) = g.gateway.states()
        assert (state.condition, state.cause) == ("broken", "401 Unauthorized")
        await g.take("/platforms")
        assert g.messenger.said() == []
        g.messenger.tell("ready", "")
        await g.messenger.until(lambda: g.messenger.said())


async def test_a_store_failure_ends_the_gateway(tmp_path):
    with pytest.raises(StoreError):
        async with open_gateway(tmp_path, ScriptedProvider([])) as g:
            await g.store.database.close()
            with pytest.raises(StoreError):
                await g.messenger.take(make_message("hello"))
            g.messenger.cut()
            await asyncio.sleep(0.5)


async def test_shutdown_can_wait_for_the_outbox(tmp_path):
    held = asyncio.Event()
    async with open_gateway(tmp_path, ScriptedProvider(["hi"])) as g:
        g.messenger.fail("send", held)
        await g.take("hello")
        await g.messenger.until(lambda: ("send", "me", "hi") in g.messenger.log)
        asyncio.get_running_loop().call_later(0.05, held.set)
        await g.gateway.delivery.wait_idle()
        assert g.messenger.said() == ["hi"]


async def test_plugins_are_notified_when_the_gateway_starts(tmp_path):
    seen, hooks = [], Hooks()

    async def gateway_started(platforms):
        seen.append(platforms)

    hooks.add(CORE, gateway_started)
    async with open_gateway(tmp_path, ScriptedProvider([]), hooks=hooks) as g:
        await g.messenger.until(lambda: g.messenger.commands)
        assert seen == [("test",)]


async def test_busy_shows_the_default_mode_of_the_chat(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([]), manners=manners(busy="steer"), busy="interrupt") as g:
        await g.take("/busy")
        await g.messenger.until(lambda: g.messenger.said())
        assert g.messenger.said()[0].startswith("steer:")


async def test_the_menu_follows_loaded_plugins(tmp_path):
    async def act(*_):
        return ""

    async with open_gateway(tmp_path, ScriptedProvider([]), rules={"menu_interval": 0.01}) as g:
        await g.messenger.until(lambda: g.messenger.commands)
        lamp = PluginOwner("lamp")
        g.contributions.add(CommandContribution(lamp, "lamp", act, help="light it"))
        await g.messenger.until(lambda: ("lamp", "light it") in g.messenger.commands)
        g.contributions.remove(lamp)
        await g.messenger.until(lambda: ("lamp", "light it") not in g.messenger.commands)


def test_old_outgoing_files_are_deleted_and_recent_ones_stay(tmp_path):
    old, new = tmp_path / "a" / "old.md", tmp_path / "b" / "new.md"
    for path, age in ((old, 100.0), (new, 0.0)):
        path.parent.mkdir()
        path.write_text("words")
        os.utime(path, (time.time() - age,) * 2)
    assert delete_old_files(str(tmp_path), time.time() - 50) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["b"] and new.exists()
    assert delete_old_files("", time.time()) == 0


async def test_a_document_sent_to_a_chat_becomes_untrusted_text(tmp_path):
    file = tmp_path / "files" / "1-plan.rtf"
    file.parent.mkdir()
    file.write_bytes(rb"{\rtf1 Our secret plan\par step one}")
    documents = DocumentConverter(DocumentsConfig())
    async with open_gateway(tmp_path / "home", ScriptedProvider(["I see."])) as g:
        g.files = FileAttacher(Settings(home=tmp_path), documents=documents)
        await g.take("look", files=(ReceivedFile(str(file), name="plan.rtf", mime="application/rtf"),))
        await g.quiet()
        (turn,) = [each.outbound.turn for each in await g.store.outbox.list_deliveries() if each.outbound.turn]
        inbound = (await g.store.archive.turn(turn)).inbound
    assert f"saved at {file}" in inbound.text
    assert (
        '<untrusted source="the file plan.rtf">\n[RTF document]\nOur secret plan\nstep one\n</untrusted>'
        in inbound.text
    )
    assert inbound.untrusted == "the attached file 1-plan.rtf"


async def test_rollback_is_for_owners(tmp_path):
    both = manners(allow=("me", "you"), owners=("me",))
    async with open_gateway(tmp_path, ScriptedProvider([]), manners=both) as g:
        await g.take("/rollback", sender="you")
        await g.messenger.until(lambda: g.messenger.said("you") or g.messenger.said())
        assert "/rollback is for owners." in str(g.messenger.said("you") + g.messenger.said())
