"""The importable names: there while a Hermes plugin is open, gone afterwards, and nobody else's is touched."""

import asyncio
import importlib
import json
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hooks import VALID_HOOKS
from alipes.compat.hermes.modules import install
from alipes.compat.hermes.modules.install import NAMES
from alipes.compat.hermes.modules.tool_registry import CORE_TOOLS
from alipes.config.settings import Settings
from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import ModelReply, Usage
from alipes.plugins.interruption.attribution import TURN
from alipes.testing import call, results
from tests.unit.compat.agent_harness import open_harness
from tests.unit.compat.plugin_harness import TURN_HERE, RecordingHost


@pytest.fixture(autouse=True)
def without_our_tools_folder(monkeypatch):
    """Another test may have imported our own `tools/` folder as a namespace package."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tools"]:
        monkeypatch.delitem(sys.modules, name)


CONTRACT = """
hermes_constants get_hermes_home
hermes_cli.config load_config save_config get_env_value save_env_value set_config_value cfg_get
hermes_cli.plugins VALID_HOOKS
hermes_cli.profiles get_active_profile_name
hermes_cli.setup print_header print_info print_success print_warning print_error prompt prompt_yes_no prompt_choice
tools.registry registry tool_error tool_result
toolsets TOOLSETS _HERMES_CORE_TOOLS validate_toolset
tools.transcription_tools transcribe_audio
tools.approval resolve_gateway_approval
gateway.config Platform PlatformConfig
gateway.platforms.base BasePlatformAdapter MessageEvent MessageType SendResult cache_image_from_bytes
gateway.platforms.base cache_audio_from_bytes cache_document_from_bytes
gateway.session build_session_key SessionSource
gateway.session_context get_session_env
gateway.run _gateway_runner_ref
agent.memory_provider MemoryProvider
agent.secret_scope get_secret
agent.auxiliary_client call_llm
hermes_state SessionDB
cron.jobs load_jobs list_jobs create_job get_job resolve_job_ref update_job pause_job resume_job trigger_job remove_job
cron.jobs parse_schedule parse_duration compute_next_run get_due_jobs referenced_skill_names AmbiguousJobReference
gateway.platforms.base Platform PlatformConfig resolve_channel_prompt resolve_channel_skills cache_media_bytes
gateway.platforms.base merge_pending_message_event _thread_metadata_for_source ProcessingOutcome classify_send_error
gateway.platforms.base SUPPORTED_DOCUMENT_TYPES SUPPORTED_IMAGE_DOCUMENT_TYPES SUPPORTED_VIDEO_TYPES utf16_len
gateway.platforms.base _TEXT_INJECT_EXTENSIONS _prefix_within_utf16_limit _ssrf_redirect_guard safe_url_for_log
gateway.platforms.base cache_audio_from_url cache_image_from_url cache_video_from_bytes validate_inbound_media_size
gateway.platforms.base get_audio_cache_dir get_document_cache_dir get_image_cache_dir get_video_cache_dir
gateway.platforms.base resolve_proxy_url proxy_kwargs_for_aiohttp proxy_kwargs_for_bot is_host_excluded_by_no_proxy
gateway.platforms._http_client_limits platform_httpx_limits
gateway.platforms.helpers MessageDeduplicator redact_phone strip_markdown convert_table_to_bullets TABLE_SEPARATOR_RE
gateway.platforms.helpers ThreadParticipationTracker
gateway.platform_registry PlatformEntry platform_registry
gateway.status acquire_scoped_lock release_scoped_lock _pid_exists _read_process_cmdline get_process_start_time
gateway.config get_hermes_home _Platform__bundled_plugin_names load_gateway_config
gateway.channel_directory lookup_channel_type
gateway.pairing PairingStore
gateway.rich_sent_store record lookup
gateway.run cfg_get
gateway.slash_access _coerce_id_list
gateway.sticker_cache STICKER_VISION_PROMPT build_sticker_injection build_animated_sticker_injection
gateway.sticker_cache cache_sticker_description get_cached_description
gateway.whatsapp_identity to_whatsapp_jid
agent.async_utils consume_detached_task_result safe_schedule_threadsafe
agent.redact redact_sensitive_text
agent.secret_scope UnscopedSecretError
agent.skill_commands get_skill_commands
agent.tts_provider TTSProvider
agent.transcription_provider TranscriptionProvider
agent.web_search_provider WebSearchProvider get_provider_env
agent.browser_provider BrowserProvider
agent.image_gen_provider ImageGenProvider success_response error_response save_b64_image save_url_image
agent.video_gen_provider VideoGenProvider success_response error_response
agent.context_engine ContextEngine
agent.file_safety raise_if_read_blocked get_read_block_error
agent.memory_manager sanitize_context
agent.message_content flatten_message_text
hermes_cli __version__
hermes_cli.config read_raw_config write_platform_config_field atomic_config_write get_env_var set_env_var
hermes_cli.gateway get_env_value
hermes_cli._subprocess_compat windows_detach_popen_kwargs windows_hide_flags
hermes_cli.cli_output print_error print_header print_info print_success print_warning prompt prompt_yes_no
hermes_cli.colors Colors color
hermes_cli.commands COMMAND_REGISTRY _is_gateway_available _iter_plugin_command_entries _resolve_config_gates
hermes_cli.commands discord_skill_commands_by_category is_gateway_known_command slack_native_slashes
hermes_cli.commands slack_subcommand_map telegram_menu_commands telegram_menu_max_commands
hermes_cli.plugins get_plugin_manager
hermes_cli.secret_prompt masked_secret_prompt
hermes_cli.tools_config _pip_install
hermes_constants display_hermes_home find_node_executable get_hermes_dir
tools.approval has_blocking_approval
tools.clarify_gateway _entries mark_awaiting_text resolve_gateway_clarify
tools.slash_confirm resolve
tools.env_passthrough register_env_passthrough
tools.interrupt is_interrupted
tools.lazy_deps ensure ensure_and_bind feature_missing
tools.send_message_tool _error
tools.tts_tool text_to_speech_tool
tools.url_safety is_safe_url redirect_target_from_response
tools.vision_tools vision_analyze_tool
tools.voice_mode is_whisper_hallucination
utils atomic_json_write atomic_replace env_bool env_float env_int
"""
PROMISED = [line.split() for line in CONTRACT.strip().splitlines()]


@contextmanager
def installed(home, **env):
    bridge = Bridge(RecordingHost(), Settings(home=home))
    said = install.install(bridge)
    try:
        yield bridge, said
    finally:
        install.uninstall(bridge)


@pytest.fixture
def bridge(tmp_path):
    with installed(tmp_path) as (bridge, _):
        yield bridge


@pytest.mark.parametrize("line", PROMISED, ids=lambda line: line[0])
def test_every_name_of_the_contract_can_be_imported(bridge, line):
    module = importlib.import_module(line[0])
    assert all(hasattr(module, name) for name in line[1:])
    exec(f"from {line[0]} import {', '.join(line[1:])}", {})


def test_the_names_are_gone_with_the_last_plugin_and_other_modules_stay(tmp_path):
    before = dict(sys.modules)
    with installed(tmp_path):
        assert {*NAMES} <= {*sys.modules}
        home = importlib.import_module("hermes_constants").get_hermes_home
        assert home() == tmp_path
    assert {name: sys.modules.get(name) for name in NAMES} == dict.fromkeys(NAMES)
    assert all(sys.modules[name] is module for name, module in before.items() if name not in NAMES)
    with pytest.raises(RuntimeError, match="no Hermes plugin is open, so"):
        home()


def test_two_apps_share_the_names_and_the_last_one_speaks(tmp_path):
    (other := tmp_path / "other").mkdir()
    with installed(tmp_path):
        from hermes_constants import get_hermes_home

        with installed(other):
            assert get_hermes_home() == other
        assert get_hermes_home() == tmp_path
        assert "hermes_constants" in sys.modules


def test_what_is_not_there_is_an_import_error_like_any_other(bridge):
    with pytest.raises(ImportError, match=r"cannot import name 'nothing' from 'hermes_cli\.config'"):
        from hermes_cli.config import nothing  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"gateway\.platforms\.telegram"):
        import gateway.platforms.telegram
    import gateway

    assert getattr(gateway, "mirror", None) is None


def test_a_module_of_someone_else_is_not_touched_and_that_is_said(tmp_path, monkeypatch, caplog):
    (folder := tmp_path / "site" / "tools").mkdir(parents=True)
    (folder / "__init__.py").write_text("mine = True")
    (folder / "approval.py").write_text("mine = True")
    monkeypatch.syspath_prepend(tmp_path / "site")
    theirs = importlib.import_module("tools")
    try:
        with installed(tmp_path) as (_, said):
            assert sys.modules["tools"] is theirs and theirs.mine
            from tools.registry import registry  # beside it: this one they do not have

            assert registry.get_entry("x") is None
            assert importlib.import_module("tools.approval").mine
            assert said == ("another module tools is already loaded; plugins will find that one",)
            assert said[0] in caplog.text
        assert sys.modules["tools"] is theirs and not hasattr(theirs, "registry")
        assert "tools.registry" not in sys.modules
    finally:
        for name in ("tools", "tools.approval"):
            sys.modules.pop(name, None)


def test_an_original_that_is_installed_is_hidden_meanwhile_and_that_is_said(tmp_path, monkeypatch):
    (site := tmp_path / "site").mkdir()
    (site / "hermes_constants.py").write_text("def get_hermes_home(): return 'theirs'")
    monkeypatch.syspath_prepend(site)
    with installed(tmp_path) as (_, said):
        from hermes_constants import get_hermes_home

        assert get_hermes_home() == tmp_path
    assert len(said) == 1 and "hermes_constants" in said[0] and "is hidden while" in said[0]
    assert importlib.import_module("hermes_constants").get_hermes_home() == "theirs"
    del sys.modules["hermes_constants"]


def test_nothing_of_this_is_loaded_where_no_plugin_is_enabled(tmp_path):
    program = """
import asyncio, sys
from pathlib import Path
from alipes.app import open_app
from alipes.config.settings import Settings
async def main():
    settings = Settings(home=Path(sys.argv[1]))
    settings.paths.make()
    async with open_app(settings):
        pass
asyncio.run(main())
print([name for name in sys.modules if "compat" in name or name in ("yaml", "gateway", "hermes_constants")])
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


# --- what they do


def test_hooks_profiles_and_the_runner_are_those_of_alipes(bridge):
    from gateway.run import _gateway_runner_ref
    from hermes_cli.plugins import VALID_HOOKS as valid
    from hermes_cli.profiles import get_active_profile_name

    assert valid == VALID_HOOKS and "agent_loop_stopped" in valid
    assert get_active_profile_name() == "default"
    assert _gateway_runner_ref() is None
    bridge.gateway.adapters["x"] = "adapter"
    assert _gateway_runner_ref().adapters["x"] == "adapter"


def test_results_of_tools_are_json(bridge):
    from tools.registry import tool_error, tool_result

    assert json.loads(tool_error("no such thing", code=404)) == {"error": "no such thing", "code": 404}
    assert json.loads(tool_result({"a": [1]})) == {"a": [1]}
    assert json.loads(tool_result(ok=True)) == {"ok": True}


def test_toolsets_know_alipes_the_plugins_and_what_is_written_in(bridge):
    from toolsets import _HERMES_CORE_TOOLS, TOOLSETS, create_custom_toolset, resolve_toolset, validate_toolset

    assert validate_toolset("core") and validate_toolset("all") and not validate_toolset("nothing")
    assert resolve_toolset("hermes-cli") == list(CORE_TOOLS)
    create_custom_toolset("mine", "my own", ["one"], ["file"])
    TOOLSETS["yours"] = {"tools": ["two"], "includes": ["mine"]}
    _HERMES_CORE_TOOLS.append("two")
    assert resolve_toolset("yours") == ["two", "one", "read_file", "write_file", "patch", "search_files"]
    assert "yours" in TOOLSETS and TOOLSETS.get("nothing") is None
    install.uninstall(bridge)
    assert "yours" not in TOOLSETS and "two" not in _HERMES_CORE_TOOLS


async def test_the_tools_of_alipes_are_those_that_are_named(tmp_path):
    async with open_harness(tmp_path) as agent:
        assert set(agent.app.contributions.tools()) == set(CORE_TOOLS)


def test_what_is_not_there_yet_says_so_and_pretends_nothing(bridge):
    from cron.jobs import create_job, get_job, list_jobs, load_jobs, mark_job_run, remove_job, save_jobs
    from hermes_state import SessionDB
    from tools.transcription_tools import transcribe_audio

    assert (load_jobs(), list_jobs(include_disabled=True), get_job("1"), remove_job("1")) == ([], [], None, False)
    with pytest.raises(NotImplementedError, match=r"cron\.jobs without a running alipes is not available"):
        create_job(prompt="say hello", schedule="every 1h")
    with pytest.raises(NotImplementedError, match="save_jobs"):
        save_jobs([{"id": 1}])
    with pytest.raises(NotImplementedError, match="keeps their history"):
        mark_job_run("1", True)
    heard = transcribe_audio("/a.ogg")
    assert not heard["success"] and heard["transcript"] == "" and "/a.ogg is not a file" in heard["error"]
    with pytest.raises(NotImplementedError, match=r"SessionDB\.create_session"):
        SessionDB().create_session(session_id="x", source="cli")
    assert SessionDB().get_session("x") is None


def test_a_memory_provider_needs_four_things_and_may_have_more(bridge):
    from agent.memory_provider import MemoryProvider

    class Small(MemoryProvider):
        name = "small"

        def is_available(self):
            return True

        def initialize(self, session_id, **kwargs): ...

        def get_tool_schemas(self):
            return []

    small = Small()
    assert (small.prefetch("x", session_id="s"), small.system_prompt_block()) == ("", "")
    small.sync_turn("a", "b", session_id="s")
    small.on_session_end([])
    with pytest.raises(NotImplementedError, match="small has no tool x"):
        small.handle_tool_call("x", {})
    with pytest.raises(TypeError, match="abstract"):
        MemoryProvider()


# --- in a plugin


REMOTE = """
import threading
from tools.registry import registry, tool_error, tool_result
from gateway.session_context import get_session_env
from hermes_state import SessionDB

SCHEMA = {"name": "ping", "description": "answers", "parameters": {"type": "object", "properties": {}}}
NAMES = ("PLATFORM", "CHAT_ID", "USER_ID", "KEY", "ID")

def ping(args, **kwargs):
    reported = {name: get_session_env(f"HERMES_SESSION_{name}") for name in NAMES}
    kept = SessionDB().get_session(reported["ID"])
    return tool_result(reported | {"kept": kept["session_key"], "unset": get_session_env("HERMES_SESSION_X", "none")})

async def aping(args):
    return ping(args)

def connect():
    registry.register(name="ping", toolset="remote", schema=SCHEMA, handler=ping, emoji="x", new_keyword=1)
    registry.register("aping", "remote", {**SCHEMA, "name": "aping"}, aping, is_async=True)

def disconnect():
    registry.deregister("ping")

def register(ctx):
    global context
    context = ctx
"""


async def in_a_thread_of_the_plugins_own(act):
    """Without the context of any task: nobody knows whose thread it is."""
    thread = threading.Thread(target=act)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.002)


async def test_tools_come_and_go_while_it_runs_from_any_thread_and_reach_the_next_turn(tmp_path):
    script = ["hello", call("ping"), lambda request: results(request)["ping"].text, call("aping"), "gone"]
    async with open_harness(tmp_path, script, plugins={"remote": REMOTE}) as agent:
        plugin = sys.modules["hermes_plugins.remote"]
        await agent.say("hello")
        await in_a_thread_of_the_plugins_own(plugin.connect)
        assert plugin.registry.get_entry("ping").toolset == "remote"
        assert plugin.registry.get_all_tool_names() == ["aping", "ping"]
        answer, _ = await agent.say("ping")
        seen = json.loads(answer)
        assert (seen["PLATFORM"], seen["CHAT_ID"], seen["USER_ID"]) == ("cli", "desk", "ada")
        assert seen["KEY"] == seen["kept"] == agent.key and seen["unset"] == "none"
        await in_a_thread_of_the_plugins_own(plugin.disconnect)
        await agent.say("once more")
        offered = [[spec.name for spec in request.tools] for request in agent.model.requests]
        assert "ping" not in offered[0] and {"ping", "aping"} <= {*offered[1]} and "ping" not in offered[-1]
        assert plugin.registry.get_entry("ping") is None
        plugin.disconnect()  # a second time is no trouble
    assert "tools.registry" not in sys.modules


async def test_a_plugin_cannot_remove_the_tool_of_another(tmp_path, caplog):
    other = "from tools.registry import registry\ndef register(ctx): ...\n"
    async with open_harness(tmp_path, plugins={"remote": REMOTE, "other": other}) as agent:
        await in_a_thread_of_the_plugins_own(sys.modules["hermes_plugins.remote"].connect)
        contexts = [context for context, _ in agent.bridge._contexts.values()]
        intruder = next(context for context in contexts if context.name == "other")
        from alipes.plugins.interruption.attribution import on_behalf_of

        with on_behalf_of(intruder.owner):
            sys.modules["hermes_plugins.other"].registry.deregister("ping")
        assert agent.bridge.tools["ping"]
        assert "plugin other may not remove ping, a tool of remote" in caplog.text


async def test_a_model_is_asked_beside_the_conversation_from_a_thread_and_on_the_loop(tmp_path):
    async with open_harness(tmp_path, plugins={"remote": REMOTE}) as agent:
        agent.bridge.host = host = RecordingHost()
        host.reply = ModelReply(assistant(Text("short")), Usage(input=5, output=1))
        from agent.auxiliary_client import async_call_llm, call_llm

        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sum it up."}]
        answers = []
        await in_a_thread_of_the_plugins_own(
            lambda: answers.append(call_llm(task="title", messages=messages, model="m", provider="p", max_tokens=9))
        )
        (response,) = answers
        assert response.choices[0].message.content == "short" and response.usage.prompt_tokens == 5
        asked, more = host.asked[0]
        assert [message.text for message in asked] == ["Sum it up."]
        assert (more["system"], more["model"], more["max_tokens"]) == ("Be brief.", "p/m", 9)
        assert (await async_call_llm(messages=messages)).choices[0].finish_reason == "stop"
        with pytest.raises(RuntimeError, match="would block the event loop"):
            call_llm(messages=messages)
        with pytest.raises(NotImplementedError, match=r"call_llm\(base_url=\.\.\.\)"):
            await async_call_llm(messages=messages, base_url="https://elsewhere.test")


async def test_outside_of_any_conversation_nothing_is_known_of_one(bridge):
    from gateway.session_context import get_session_env

    assert get_session_env("HERMES_SESSION_KEY", "nowhere") == "nowhere"
    token = TURN.set(TURN_HERE)
    try:
        assert get_session_env("HERMES_SESSION_KEY") == TURN_HERE.key
        assert get_session_env("HOME", "not a session's") == "not a session's"
    finally:
        TURN.reset(token)
