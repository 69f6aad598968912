"""Providers of Hermes plugins: what they offer is used by our tools, chats and prompts."""

import asyncio
import json
import struct
import zlib
from pathlib import Path

import pytest

from alipes.compat.hermes.platform.values import MessageType, cache_audio_from_bytes
from alipes.testing import call, open_agent
from tests.compat.chat_harness import open_chat
from tests.compat.plugin_files import plugin_module

pytestmark = pytest.mark.deadline(40)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PIXEL = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
PIXEL += _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + _chunk(b"IEND", b"")
VOICE = """
from agent.tts_provider import TTSProvider

class Voice(TTSProvider):
    name = "voice"
    said = []
    def synthesize(self, text, output_path, *, voice=None, model=None, speed=None, format="mp3", **extra):
        Voice.said.append((text, format))
        with open(output_path, "wb") as file:
            file.write(b"OggS" + text.encode())
        return output_path

def register(ctx):
    ctx.register_tts_provider(Voice())
"""
EAR = """
from agent.transcription_provider import TranscriptionProvider
from tools.transcription_tools import transcribe_audio

class Deaf(TranscriptionProvider):
    name = "deaf"
    def transcribe(self, file_path, **more):
        raise OSError("no service")

class Ear(TranscriptionProvider):
    name = "ear"
    def transcribe(self, file_path, *, model=None, language=None, **extra):
        with open(file_path, "rb") as file:
            return {"success": True, "transcript": file.read().decode().upper(), "provider": "ear"}

def listen(args):
    return transcribe_audio(args["path"])

def register(ctx):
    ctx.register_transcription_provider(Deaf())
    ctx.register_transcription_provider(Ear())
    ctx.register_tool("listen", "ear", {"description": "d", "parameters": {"type": "object", "properties": {}}}, listen)
"""
SEARCH = """
from agent.web_search_provider import WebSearchProvider

class Search(WebSearchProvider):
    name = "search"
    asked = []
    def is_available(self):
        return True
    def supports_extract(self):
        return True
    def search(self, query, limit=5):
        Search.asked.append((query, limit))
        if query == "broken":
            return {"success": False, "error": "quota exceeded"}
        found = {"title": "A page", "url": "https://example.org/a", "description": "about " + query, "position": 1}
        return {"success": True, "data": {"web": [found]}}
    async def extract(self, urls, **more):
        return [{"url": url, "title": "T", "content": "the text"} for url in urls]

def register(ctx):
    ctx.register_web_search_provider(Search())
"""
PAINTER = """
from agent.image_gen_provider import ImageGenProvider, error_response, save_b64_image, success_response
import base64

class Painter(ImageGenProvider):
    name = "painter"
    asked = []
    def generate(self, prompt, aspect_ratio="landscape", *, image_url=None, reference_image_urls=None, **more):
        Painter.asked.append((prompt, aspect_ratio, image_url, reference_image_urls))
        if prompt == "broken":
            return error_response(error="no credit", provider="painter")
        path = save_b64_image(base64.b64encode(PIXEL).decode())
        return success_response(
            image=str(path), model="m", prompt=prompt, aspect_ratio=aspect_ratio, provider="painter"
        )

def register(ctx):
    ctx.register_image_gen_provider(Painter())
"""


async def test_a_voice_note_is_transcribed_by_a_provider_and_answered_in_voice(home, folder):
    voice, ear = folder("voice", VOICE), folder("ear", EAR)
    async with open_chat(home, ["**well** said"], voice, ear) as chat:
        note = cache_audio_from_bytes(b"good morning")
        await chat.say("", message_type=MessageType.VOICE, media_urls=[note], media_types=["audio/ogg"])
        await chat.until("well")
        await chat.until(lambda: chat.adapter.spoken)
        (asked,) = chat.agent.model.requests
        assert asked.messages[-1].text == "GOOD MORNING", "the first provider failed, the second answered"
        assert plugin_module("voice").Voice.said == [("well said", "ogg")]
        assert [each[:2] for each in chat.adapter.spoken] == [("tts", "42")]


async def test_a_written_message_and_a_chat_without_voice_get_no_spoken_answer(home, folder):
    async with open_chat(home, ["one", "two"], folder("voice", VOICE), folder("ear", EAR)) as chat:
        await chat.say("hello")
        await chat.until("one")
        chat.adapter._auto_tts_disabled_chats.add("42")
        note = cache_audio_from_bytes(b"hello")
        await chat.say("", message_type=MessageType.VOICE, media_urls=[note], media_types=["audio/ogg"])
        await chat.until("two")
        await asyncio.sleep(0.1)
        assert chat.adapter.spoken == [] and plugin_module("voice").Voice.said == []


async def test_transcribe_audio_asks_our_own_transcription_first_and_then_the_providers(home, folder, tmp_path):
    (tmp_path / "a.ogg").write_text("hello")
    script = [call("listen", path=str(tmp_path / "a.ogg")), "done"]
    async with open_agent(home=home, plugins=[folder("ear", EAR)], model=script) as agent:
        heard = json.loads((await agent.say("go")).result("listen").text)
        assert heard == {"success": True, "transcript": "HELLO", "text": "HELLO"}
    config = {"gateway": {"stt_command": "echo ours; cat {file}"}}
    async with open_agent(home=home, plugins=[tmp_path / "sources" / "ear"], model=script, config=config) as agent:
        heard = json.loads((await agent.say("go")).result("listen").text)
        assert heard["transcript"] == "ours\nhello"


async def test_a_voice_is_a_tool_whose_file_can_be_sent(home, folder):
    script = [call("text_to_speech", text="good morning"), "done"]
    async with open_agent(home=home, plugins=[folder("voice", VOICE)], model=script) as agent:
        said = (await agent.say("go")).result("text_to_speech")
        path = Path(*said.files)
        assert said.outcome == "ok" and path.read_bytes() == b"OggSgood morning"
        assert path.parent == home / "files" / "outgoing" or path.is_relative_to(home)


async def test_our_web_tools_use_a_web_search_provider(home, folder):
    script = [
        call("web_search", query="larks", limit=3),
        call("web_search", query="broken"),
        call("web_extract", urls=["http://127.0.0.1:9/secret"]),
        call("web_extract", urls=["https://93.184.216.34/a"]),
        "done",
    ]
    config = {"web": {"extract": "plugin"}, "egress": {"allow": ["93.184.216.34"]}}
    async with open_agent(home=home, plugins=[folder("search", SEARCH)], model=script, config=config) as agent:
        reply = await agent.say("go")
        found, broken, refused, read = reply.results
        page = "[1] A page\n    https://example.org/a\n    about larks"
        assert found.text == f'<untrusted source="web_search">\n{page}\n</untrusted>'
        assert broken.outcome != "ok" and "search failed: quota exceeded" in broken.text
        assert refused.outcome != "ok" and "private network" in refused.text
        assert "[2] T\nhttps://93.184.216.34/a\n[8 characters]\n\nthe text" in read.text
        assert reply.text == "done\n\nSources:\n- [2] T: <https://93.184.216.34/a>"
        assert plugin_module("search").Search.asked == [("larks", 3), ("broken", 5)]


async def test_an_image_provider_draws_for_our_tool_and_gets_reference_images_as_files(home, folder, tmp_path):
    (tmp_path / "cat.png").write_bytes(PIXEL)
    painter = folder("painter", PAINTER.replace("PIXEL", repr(PIXEL)))
    script = [
        call("image_generate", prompt="a cat", aspect_ratio="square", image_url=str(tmp_path / "cat.png")),
        call("image_generate", prompt="broken"),
        "done",
    ]
    async with open_agent(home=home, plugins=[painter], model=script) as agent:
        drawn, broken = (await agent.say("go")).results
        assert drawn.outcome == "ok", drawn.text
        assert Path(*drawn.files).read_bytes() == PIXEL
        assert "painter failed: no credit" in broken.text
        (prompt, ratio, reference, others), _ = plugin_module("painter").Painter.asked
        assert (prompt, ratio, others) == ("a cat", "square", None) and Path(reference).read_bytes() == PIXEL


async def test_a_memory_provider_is_found_without_register(home, folder):
    source = """
    from agent.memory_provider import MemoryProvider

    class Notebook(MemoryProvider):
        name = "notebook"
        kept = []
        def is_available(self): return True
        def initialize(self, session_id, **more): ...
        def get_tool_schemas(self): return []
        def prefetch(self, query, *, session_id=""): return "the user likes larks"
        def sync_turn(self, user_content, assistant_content, **more):
            Notebook.kept.append((user_content, assistant_content))
    """
    async with open_agent(home=home, plugins=[folder("notebook", source)], model=["of course"]) as agent:
        await agent.say("which bird?")
        assert "the user likes larks" in agent.model.requests[0].messages[-1].text
        kept = plugin_module("notebook").Notebook.kept
        for _ in range(200):
            if kept:
                break
            await asyncio.sleep(0.01)
        assert kept == [("which bird?", "of course")]


async def test_a_section_of_the_system_prompt_is_rendered_once_per_conversation(home, folder):
    source = """
    calls = []
    def render(info):
        calls.append(sorted(info))
        return f"Render {len(calls)} on {info['platform']}." + "x" * 100
    def register(ctx):
        ctx.register_system_prompt_section("rules.fixed", "Always be brief.", position="after_memory")
        ctx.register_system_prompt_section("rules.made", render, max_chars=25)
        try:
            ctx.register_system_prompt_section("Not An Id", "x")
        except ValueError as error:
            calls.append(str(error))
    """
    async with open_agent(home=home, plugins=[folder("rules", source)], model=["one", "two"]) as agent:
        await agent.say("first")
        await agent.say("second")
        first, second = (request.system for request in agent.model.requests)
        assert first == second and "Always be brief." in first and first.endswith("Render 2 on test.xxxxxxxx")
        refused, facts = plugin_module("rules").calls
        assert "'Not An Id'" in refused
        assert facts == ["cwd", "model", "platform", "profile_name", "provider", "session_id"]


async def test_the_configuration_without_a_key_is_the_whole_table(home, folder):
    source = """
    seen = []
    def register(ctx):
        seen.extend([ctx.get_config(), ctx.get_config("a"), ctx.get_config("none", 5)])
    """
    config = {"plugins": {"entries": {"table": {"a": 1, "config": {"b": 2}}}}}
    async with open_agent(home=home, plugins=[folder("table", source)], config=config):
        everything, one, usual = plugin_module("table").seen
        assert (everything["a"], everything["b"], one, usual) == (1, 2, 1, 5)


async def test_a_provider_that_fails_to_say_whether_it_is_available_stops_no_turn(home, folder):
    source = PAINTER.replace("PIXEL", "b''").replace(
        'name = "painter"', 'name = "painter"\n    def is_available(self):\n        raise KeyError("no such key")'
    )
    async with open_agent(home=home, plugins=[folder("painter", source)], model=["fine"]) as agent:
        assert (await agent.say("go")).text == "fine"
        assert "image_generate" not in {each.name for each in agent.model.requests[0].tools}
