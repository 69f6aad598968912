"""The words of platform plugins: platforms, sources, keys, messages, files, and the adapter itself."""

import asyncio
import copy
import dataclasses
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.compat.hermes.platform import values as media
from alipes.compat.hermes.platform.adapter import BasePlatformAdapter, call_plugin, split_text
from alipes.compat.hermes.platform.platform import OpenApprovals
from alipes.compat.hermes.platform.values import (
    MessageEvent,
    MessageType,
    Platform,
    PlatformConfig,
    SendResult,
    event_of,
)
from alipes.compat.hermes.session_keys import SessionSource, address_of, build_session_key, source_of
from alipes.kernel.messages import Image, ToolCall
from alipes.kernel.turns import Address, ApprovalAsked, Inbound

PNG = b"\x89PNG\r\n\x1a\n1234"


class Small(BasePlatformAdapter):
    """As little as an adapter may be."""

    def __init__(self, extra=None):
        super().__init__(PlatformConfig(extra=extra or {}), Platform("my_chat"))
        self.sent = []

    async def connect(self):
        return True

    async def disconnect(self): ...

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        self.sent.append((chat_id, content, reply_to))
        return SendResult(True, "1")

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}


@pytest.fixture
def cache(tmp_path):
    media.set_cache_home(tmp_path)
    yield tmp_path
    media.set_cache_home(None)


# --- platforms and keys


def test_every_name_is_a_platform_and_always_the_same_one():
    assert Platform("my_chat") is Platform("MY_CHAT") is Platform(Platform("my_chat"))
    assert Platform("telegram") is Platform.TELEGRAM and Platform.TELEGRAM.value == "telegram"
    assert {Platform("my_chat"): 1}[Platform("my_chat")] == 1
    assert Platform("other") is Platform.OTHER and Platform("a-b").name == "A_B"
    for wrong in ("", "two words", None, 7):
        with pytest.raises(ValueError, match="not a valid Platform"):
            Platform(wrong)


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"chat_id": "42"}, "dm:42"),
        ({"chat_id": "42", "thread_id": "7"}, "dm:42:7"),
        ({"chat_id": "", "user_id": "9"}, "dm:9"),
        ({"chat_id": "42", "user_id": "9"}, "dm:42"),
        ({"chat_id": "-1", "chat_type": "group", "user_id": "9"}, "group:-1:9"),
        ({"chat_id": "-1", "chat_type": "group", "user_id": "9", "thread_id": "3"}, "group:-1:3"),
        ({"chat_id": "-1", "chat_type": "channel"}, "channel:-1"),
        ({"chat_id": "!r:example.org", "chat_type": "dm"}, "dm:!r%3Aexample.org"),
    ],
)
def test_a_source_has_the_key_of_its_address(source, key):
    made = SessionSource(platform=Platform("matrix"), **source)
    assert build_session_key(made) == address_of(made).key == f"agent:main:matrix:{key}"


def test_who_shares_a_conversation_can_be_chosen_and_a_profile_has_keys_of_its_own():
    group = SessionSource(Platform.SLACK, "c", chat_type="group", user_id="9")
    assert build_session_key(group, group_sessions_per_user=False) == "agent:main:slack:group:c"
    thread = dataclasses.replace(group, thread_id="t")
    assert build_session_key(thread, thread_sessions_per_user=True) == "agent:main:slack:group:c:t:9"
    assert build_session_key(group, profile="work") == "agent:work:slack:group:c:9"
    assert build_session_key(group, profile="default") == build_session_key(group)


@given(st.text(), st.text(), st.sampled_from(["dm", "group", "channel"]), st.text(max_size=5))
def test_an_address_and_its_source_lead_to_one_another(chat, user, kind, thread):
    address = Address("irc", chat or "x", kind, thread, "" if kind == "dm" else user)
    again = address_of(source_of(address), thread_sessions_per_user=True)
    assert again.key == address.key


def test_a_source_survives_as_a_dictionary_and_as_a_copy():
    source = SessionSource(Platform.DISCORD, "1", user_id="2", user_name="Ada", thread_id="3")
    assert source.to_dict()["platform"] == "discord" and "chat_topic" not in source.to_dict()
    again = SessionSource.from_dict({**source.to_dict(), "unknown": 1})
    assert (again.chat_id, again.user_name, again.thread_id) == ("1", "Ada", "3")
    assert copy.copy(source) == source
    assert source.description == "DM with Ada"
    assert dataclasses.replace(source, chat_type="group").description == "group: 1, thread 3"


# --- messages


@pytest.mark.parametrize(
    ("text", "command", "args"),
    [
        ("/stop", "stop", ""),
        ("/Model@mybot fast one", "model", "fast one"),
        ("/etc/hosts", None, ""),
        ("hello /stop", None, "hello /stop"),
        ("/", None, ""),
    ],
)
def test_a_message_knows_whether_it_is_a_command(text, command, args):
    event = MessageEvent(text)
    assert (event.get_command(), event.get_command_args()) == (command, args)


def test_a_message_of_any_surface_reads_as_plugins_know_it():
    inbound = Inbound("m1", Address("irc", "#a", "group", user="ada"), "ada", "/new")
    event = event_of(inbound)
    assert (event.text, event.message_type, event.message_id) == ("/new", MessageType.COMMAND, "m1")
    assert (event.source.platform, event.source.chat_id, event.source.user_id) == (Platform.IRC, "#a", "ada")
    shown = Inbound("m2", Address("irc", "#a"), "ada", "look", (Image("image/png", b"x"),))
    assert event_of(shown).message_type is MessageType.PHOTO


# --- text


def test_a_long_text_is_broken_where_it_hurts_least():
    text = "First line.\n\nSecond paragraph that is longer.\nThird."
    assert split_text(text, 40) == ["First line.", "Second paragraph that is longer.\nThird."]
    assert split_text("short", 40) == ["short"] and split_text("x" * 10, 4) == ["xxxx", "xxxx", "xx"]
    assert split_text("äöü " * 5, 12, lambda t: len(t.encode())) == ["äöü", "äöü", "äöü", "äöü", "äöü"]


def test_a_block_of_code_that_is_broken_is_closed_and_opened_again():
    code = "\n".join(f"line {number}" for number in range(20))
    parts = split_text(f"Look:\n```python\n{code}\n```\ndone", 80)
    assert all(part.count("```") % 2 == 0 and len(part) <= 80 for part in parts)
    assert parts[1].startswith("```python\n")
    assert [line for part in parts for line in part.split("\n") if line.startswith("line")] == code.split("\n")


@given(st.text(alphabet="ab `\n", max_size=300), st.integers(30, 80))
def test_no_piece_is_too_long_and_no_word_is_lost(text, most):
    parts = split_text(text, most)
    assert all(len(part) <= most for part in parts)
    letters = [letter for part in parts for letter in part if letter in "ab"]
    assert "".join(letters) == "".join(letter for letter in text if letter in "ab")


# --- files


def test_files_that_came_along_are_kept_for_our_eyes_under_the_home(cache):
    image, voice = media.cache_image_from_bytes(PNG, ".png"), media.cache_audio_from_bytes(b"ogg")
    document = media.cache_document_from_bytes(b"text", "../../etc/my report.pdf")
    assert [Path(each).parent.name for each in (image, voice, document)] == ["images", "audio", "documents"]
    assert Path(image).suffix == ".png" and Path(voice).suffix == ".ogg"
    assert Path(document).name.endswith("_my report.pdf") and Path(document).read_bytes() == b"text"
    assert all(Path(each).is_relative_to(cache / "cache") for each in (image, voice, document))
    assert Path(image).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "..", "a/b/..", "\x00\n", "x" * 500 + ".txt", "C:\\temp\\a.txt"])
def test_no_name_leads_out_of_the_folder(cache, name):
    path = Path(media.cache_document_from_bytes(b"1", name))
    assert path.parent == cache / "cache" / "documents" and path.read_bytes() == b"1"


def test_what_is_no_image_is_not_kept_as_one(cache):
    with pytest.raises(ValueError, match="not an image"):
        media.cache_image_from_bytes(b"<html>404</html>")
    assert Path(media.cache_image_from_bytes(PNG, "/../../x")).suffix == ".jpg"


def test_old_files_are_thrown_away(cache):
    old, new = (Path(media.cache_document_from_bytes(b"1", name)) for name in ("old", "new"))
    os.utime(old, (time.time() - 90_000,) * 2)
    assert media.cleanup_document_cache() == 1
    assert (old.exists(), new.exists()) == (False, True)


# --- the adapter


async def test_what_a_platform_cannot_do_is_reported_and_never_passed_over():
    small = Small()
    for verb in (small.send_voice, small.send_document, small.send_video, small.send_image_file):
        result = await verb("1", "/a/file", caption="look", reply_to="2")
        assert not result.success and result.error.startswith("My Chat cannot send")
    assert not (await small.edit_message("1", "2", "new")).success
    assert await small.delete_message("1", "2") is False
    assert not (await small.play_tts("1", "/a/voice.ogg", metadata={"x": 1})).success
    assert small.sent == []


async def test_pictures_by_address_and_questions_become_text():
    small = Small()
    await small.send_image("1", "https://x.test/a.png", "look", reply_to="7")
    await small.send_clarify("1", "Which one?", ["red", "blue"], clarify_id="c", session_key="k")
    assert small.sent == [("1", "look\nhttps://x.test/a.png", "7"), ("1", "Which one?\n1. red\n2. blue", None)]


async def test_the_oldest_signatures_are_called_with_what_they_take():
    class Oldest(Small):
        async def connect(self):
            return "connected"

        async def play_tts(self, chat_id, audio_path):
            return audio_path

        def send_typing(self, chat_id):  # not even async
            self.sent.append(chat_id)

    oldest = Oldest()
    assert await call_plugin(oldest.connect, is_reconnect=True) == "connected"
    assert await call_plugin(oldest.play_tts, "1", "/v.ogg", metadata={}, caption="x", reply_to="1") == "/v.ogg"
    await call_plugin(oldest.send_typing, "1", metadata={"thread_id": "2"})
    assert oldest.sent == ["1"]


def test_a_source_is_built_by_position_and_by_name():
    small = Small()
    by_position = small.build_source(42, "Room", "group", 7, "Ada", 3)
    by_name = small.build_source(
        chat_id="42", chat_name="Room", chat_type="group", user_id="7", user_name="Ada", thread_id="3", new_field=1
    )
    assert by_position == by_name
    assert (by_name.platform, by_name.chat_id, by_name.thread_id) == (Platform("my_chat"), "42", "3")
    assert small.build_source("1").chat_type == "dm" and small.build_source("1").user_id is None


def test_an_adapter_tells_whether_it_is_connected_and_what_went_wrong():
    small = Small()
    assert not small.is_connected and not small.has_fatal_error
    small._mark_connected()
    assert small._running and small.is_connected
    small._set_fatal_error("auth", "the token is wrong", retryable=False)
    assert (small.fatal_error_code, small.fatal_error_message) == ("auth", "the token is wrong")
    assert not small.is_connected and not small.fatal_error_retryable
    small._mark_connected()
    assert not small.has_fatal_error


async def test_without_a_gateway_a_handler_of_the_plugins_own_tests_is_enough():
    small = Small()

    async def handler(event):
        return f"heard {event.text}"

    small.set_message_handler(handler)
    await small.handle_message(MessageEvent("hello", source=small.build_source("5")))
    assert small.sent == [("5", "heard hello", None)]
    await small.cancel_session_processing("any")


async def test_typing_continues_until_it_is_cancelled_also_under_a_layer_of_the_plugins_own():
    class Layered(Small):
        async def send_typing(self, chat_id, metadata=None):
            self.sent.append("typing")

        async def _keep_typing(self, chat_id, *args, **kwargs):
            side = asyncio.create_task(self._bubble())
            try:
                await super()._keep_typing(chat_id, interval=0.005)
            finally:
                side.cancel()

        async def _bubble(self):
            self.sent.append("still thinking")

    layered = Layered()
    typing = asyncio.create_task(layered._keep_typing("1", metadata=None))
    while layered.sent.count("typing") < 3:
        await asyncio.sleep(0.002)
    typing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await typing
    assert "still thinking" in layered.sent


def test_an_adapter_without_its_verbs_cannot_be_made():
    class Mute(BasePlatformAdapter): ...

    with pytest.raises(TypeError, match="abstract"):
        Mute(PlatformConfig(), Platform("mute"))


# --- questions


def test_the_oldest_question_is_answered_first_or_all_of_them():
    asking, heard = OpenApprovals(), []
    for number in range(3):
        asked = ApprovalAsked(f"a{number}", ToolCall("c", "terminal", {}), "why", "rule")
        asking.put("key", asked, heard.append)
    assert asking.resolve("other", "once") == 0
    assert asking.resolve("key", "session", by="ada") == 1
    assert (heard[0].ask, heard[0].choice, heard[0].by) == ("a0", "session", "ada")
    asking.drop("key", "a1")
    assert asking.resolve("key", "deny", everything=True) == 1 and heard[1].choice == "no"
    assert not asking.has_open("key") and asking.resolve("key", "once") == 0
    with pytest.raises(ValueError, match="unknown answer 'maybe'"):
        asking.resolve("key", "maybe")
