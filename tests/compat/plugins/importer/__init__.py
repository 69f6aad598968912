"""Imports every name that plugins expect; `use_all` uses each of them and tells what it gave."""

import asyncio

import agent.auxiliary_client
import cron.jobs
import gateway.run
import toolsets
from agent.memory_provider import MemoryProvider
from agent.secret_scope import get_secret
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    BasePlatformAdapter,
    MessageEvent,
    MessageType,
    SendResult,
    cache_audio_from_bytes,
    cache_document_from_bytes,
    cache_image_from_bytes,
)
from gateway.session import SessionSource, build_session_key
from gateway.session_context import get_session_env
from hermes_cli.config import cfg_get, get_env_value, load_config, save_config, save_env_value, set_config_value
from hermes_cli.plugins import VALID_HOOKS
from hermes_cli.profiles import get_active_profile_name
from hermes_cli.setup import print_error, print_header, print_info, print_success, print_warning, prompt
from hermes_constants import get_hermes_home
from hermes_state import SessionDB
from tools.approval import resolve_gateway_approval
from tools.registry import registry, tool_error, tool_result
from tools.transcription_tools import transcribe_audio
from toolsets import _HERMES_CORE_TOOLS, TOOLSETS, validate_toolset

NOTHING = {"parameters": {"type": "object", "properties": {}}}


def config():
    set_config_value("plugins.entries.importer.colour", "green")
    whole = load_config()
    whole["plugins"]["entries"]["importer"]["size"] = 3
    save_config(whole)
    save_env_value("IMPORTER_TOKEN", "t0ken")
    own = cfg_get(load_config(), "plugins", "entries", "importer")
    missing = cfg_get(load_config(), "no", "such", default="usual")
    return (own, missing, get_env_value("IMPORTER_TOKEN"), get_secret("IMPORTER_TOKEN"), get_secret("NOT_SET", "d"))


def tools():
    registry.register(name="made", toolset="fresh", schema=NOTHING, handler=lambda args: "x")
    entry = registry.get_entry("made")
    found = entry.name, entry.toolset, validate_toolset("fresh"), TOOLSETS["fresh"]["tools"]
    registry.deregister("made")
    return (found, registry.get_entry("made"), "terminal" in _HERMES_CORE_TOOLS, toolsets.validate_toolset("no"))


def places():
    source = SessionSource(platform=Platform("anychat"), chat_id="9", chat_type="group", user_id="5")
    key = get_session_env("HERMES_SESSION_KEY")
    session = SessionDB().get_session(get_session_env("HERMES_SESSION_ID"))
    runner = gateway.run._gateway_runner_ref()
    served = {} if runner is None else {platform.value: each.name for platform, each in runner.adapters.items()}
    return build_session_key(source), key, session["session_key"], served


def media():
    image = cache_image_from_bytes(b"\x89PNG\r\n\x1a\n", ".png")
    files = (image, cache_audio_from_bytes(b"ogg"), cache_document_from_bytes(b"text", "a.txt"))
    heard = transcribe_audio(files[1])
    return (
        [file.startswith(str(get_hermes_home())) for file in files],
        heard["success"],
        {"transcript", "text"} <= set(heard),
    )


def values():
    event = MessageEvent(text="/stop now", message_type=MessageType.COMMAND, source=None)
    platform = PlatformConfig()
    platform.extra["x"] = 1
    kinds = [each.name for each in MessageType]
    return (
        event.get_command(),
        SendResult(success=True).success,
        platform.extra,
        sorted(kinds),
        Platform("anychat").value,
    )


def use_all(args, **kwargs):
    print_header("All"), print_info("i"), print_success("s"), print_warning("w"), print_error("e")
    answer = agent.auxiliary_client.call_llm(task="t", messages=[{"role": "user", "content": "aside"}])
    return {
        "config": config(),
        "tools": tools(),
        "places": places(),
        "media": media(),
        "values": values(),
        "model": answer.choices[0].message.content,
        "jobs": cron.jobs.list_jobs(),
        "profile": get_active_profile_name(),
        "approvals": resolve_gateway_approval("agent:main:nowhere:dm:1", "deny"),
        "errors": [tool_error("no", code=3), tool_result(a=1), tool_result([1])],
        "home": str(get_hermes_home()),
        "classes": [MemoryProvider.__name__, BasePlatformAdapter.__name__, callable(prompt), len(VALID_HOOKS)],
        "loop": asyncio.get_event_loop().is_running(),
    }


def register(ctx):
    ctx.register_tool("use_all", "importing", NOTHING, use_all)
