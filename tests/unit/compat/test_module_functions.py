"""Functions that platform plugins import: our own meaning behind the names."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules import install
from alipes.config.settings import FetchConfig, Settings
from tests.unit.compat.plugin_harness import PluginHarness, RecordingHost


@pytest.fixture(autouse=True)
def without_our_tools_folder(monkeypatch):
    """Another test may have imported our own `tools/` folder as a namespace package."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tools"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def bridge(tmp_path, without_our_tools_folder):
    made = Bridge(RecordingHost(), Settings(home=tmp_path, fetch=FetchConfig(allow=("127.0.0.1:8123",))))
    install.install(made)
    yield made
    install.uninstall(made)


@pytest.fixture
def harness(tmp_path):
    return PluginHarness(tmp_path)


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("http://127.0.0.1/x", False),
        ("http://[::1]/x", False),
        ("http://169.254.169.254/latest/meta-data", False),
        ("http://192.168.1.1", False),
        ("ftp://93.184.216.34/x", False),
        ("not a url", False),
        ("https://93.184.216.34/x", True),
        ("http://127.0.0.1:8123/allowed", True),
    ],
)
def test_a_url_is_safe_if_its_address_is_public_or_allowed(bridge, url, safe):
    from tools.url_safety import is_safe_url

    assert is_safe_url(url) is safe


async def test_a_redirect_to_a_private_address_is_refused(bridge):
    from gateway.platforms.base import _ssrf_redirect_guard
    from tools.url_safety import redirect_target_from_response

    headers = {"location": "http://127.0.0.1/admin?key=1"}
    response = SimpleNamespace(status_code=302, url="https://example.org/a", headers=headers)
    assert redirect_target_from_response(response) == "http://127.0.0.1/admin?key=1"
    with pytest.raises(ValueError, match=r"redirect to http://127\.0\.0\.1/admin is refused"):
        await _ssrf_redirect_guard(response)


async def test_media_are_downloaded_from_public_addresses_only(harness):
    source = """
    from gateway.platforms.base import cache_image_from_url
    def register(ctx): ...
    """
    async with harness.plugin(source):
        with pytest.raises(ValueError, match="private network"):
            await harness.module.cache_image_from_url("http://127.0.0.1:9/a.png")


def test_attachments_are_saved_by_their_type(bridge, tmp_path):
    from gateway.platforms.base import cache_media_bytes, validate_inbound_media_size

    picture = cache_media_bytes(b"\x89PNG....", filename="a b?.png")
    assert (picture.kind, picture.media_type, picture.display_name) == ("image", "image/png", "a b_.png")
    assert Path(picture.path).is_relative_to(tmp_path) and "[image 'a b_.png' saved at:" in picture.context_note()
    assert cache_media_bytes(b"no picture", mime_type="image/png") is None
    assert cache_media_bytes(b"x", mime_type="audio/ogg").kind == "audio"
    assert cache_media_bytes(b"x", filename="a.mp4").kind == "video"
    other = cache_media_bytes(b"x", filename="../../etc/passwd")
    assert other.kind == "document" and Path(other.path).parent == tmp_path / "cache" / "documents"
    validate_inbound_media_size(10)
    with pytest.raises(ValueError, match="the maximum is 5"):
        validate_inbound_media_size(10, max_bytes=5)


def test_an_account_is_used_by_one_process_at_a_time(bridge):
    from gateway.status import _pid_exists, acquire_scoped_lock, get_process_start_time, release_scoped_lock

    assert acquire_scoped_lock("bot", "t0ken")[0] and acquire_scoped_lock("bot", "t0ken")[0], "this process has it"
    look = (
        "from alipes.compat.hermes.modules.locks import acquire_scoped_lock, release_all\n"
        "print(acquire_scoped_lock('bot', 't0ken'))\n"
        "release_all()"
    )
    command = [sys.executable, "-c", look]
    refused = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "False" in refused and f"'pid': {os.getpid()}" in refused
    release_scoped_lock("bot", "t0ken")
    assert "True" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert _pid_exists(os.getpid()) and get_process_start_time(os.getpid()) > 0


def test_nothing_is_installed_at_run_time(bridge):
    from hermes_cli.tools_config import _pip_install
    from tools.lazy_deps import FeatureUnavailable, ensure, ensure_and_bind, feature_missing

    names: dict[str, object] = {}
    assert ensure_and_bind("platform.x", lambda: {"found": 1}, names) and names == {"found": 1}

    def importer() -> dict[str, object]:
        raise ImportError("no module named x")

    assert not ensure_and_bind("platform.x", importer, names)
    missing = feature_missing("platform.dingtalk")
    if missing:
        with pytest.raises(FeatureUnavailable, match="install dingtalk-stream yourself"):
            ensure("platform.dingtalk")
    failed = _pip_install(["--quiet", "thing"])
    assert failed.returncode == 1 and "pip install thing" in failed.stderr


def test_channels_have_their_own_prompts_and_skills(bridge):
    from gateway.platforms.base import resolve_channel_prompt, resolve_channel_skills

    extra = {
        "channel_prompts": {"c1": " be brief ", "p": "parent", "c2": ""},
        "channel_skill_bindings": [{"id": "c1", "skills": ["a", "b", "a"]}, {"id": "p", "skill": "solo"}],
    }
    assert resolve_channel_prompt(extra, "c1") == "be brief"
    assert resolve_channel_prompt(extra, "c2", "p") == "parent" and resolve_channel_prompt({}, "c1") is None
    assert resolve_channel_skills(extra, "c1") == ["a", "b"] and resolve_channel_skills(extra, "x", "p") == ["solo"]
    assert resolve_channel_skills(extra, "x") is None


def test_messages_that_wait_are_merged(bridge):
    from gateway.platforms.base import MessageEvent, MessageType, merge_pending_message_event

    waiting: dict[str, MessageEvent] = {}
    merge_pending_message_event(waiting, "k", MessageEvent("one"))
    merge_pending_message_event(waiting, "k", MessageEvent("two"))
    assert waiting["k"].text == "two", "texts are merged only if asked"
    merge_pending_message_event(waiting, "k", MessageEvent("three"), merge_text=True)
    assert waiting["k"].text == "two\nthree"
    merge_pending_message_event(waiting, "k", MessageEvent("look", MessageType.PHOTO, media_urls=["a"]))
    merge_pending_message_event(waiting, "k", MessageEvent("look", MessageType.PHOTO, media_urls=["b"]))
    assert waiting["k"].media_urls == ["a", "b"] and waiting["k"].message_type is MessageType.PHOTO
    assert waiting["k"].text == "two\nthree\n\nlook"


def test_threads_and_failed_sends(bridge):
    from gateway.platforms.base import SessionSource, _thread_metadata_for_source, classify_send_error

    assert _thread_metadata_for_source(SessionSource("irc", "1")) is None
    assert _thread_metadata_for_source(SessionSource("discord", "1", thread_id="5")) == {"thread_id": "5"}
    slack = _thread_metadata_for_source(SessionSource("slack", "1", scope_id="T1"))
    assert slack == {"slack_team_id": "T1"}
    topic = _thread_metadata_for_source(SessionSource("telegram", "1", thread_id="5"), "77")
    assert topic["direct_messages_topic_id"] == "5" and topic["telegram_reply_to_message_id"] == "77"
    kinds = [classify_send_error(None, each) for each in ("Flood control", "chat not found", "Forbidden: bot", "x")]
    assert kinds == ["rate_limited", "not_found", "forbidden", "unknown"]
    assert classify_send_error(ConnectionResetError("gone")) == "transient"


def test_helpers_for_texts(bridge, tmp_path):
    from gateway.platforms.base import _prefix_within_utf16_limit, utf16_len
    from gateway.platforms.helpers import (
        MessageDeduplicator,
        ThreadParticipationTracker,
        convert_table_to_bullets,
        redact_phone,
        strip_markdown,
    )

    assert redact_phone("+15551234567") == "+155****4567" and redact_phone("") == "<none>"
    assert strip_markdown("# A\n**b** _c_ `d` [e](http://x) snake_case_name") == "A\nb c d e snake_case_name"
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    assert convert_table_to_bullets(table) == "**1**\n• b: 2\n\n\nend"
    assert convert_table_to_bullets(f"```\n{table}\n```") == f"```\n{table}\n```"
    assert utf16_len("a😀") == 3 and _prefix_within_utf16_limit("a😀b", 2) == "a"
    seen = MessageDeduplicator(max_size=2)
    assert [seen.is_duplicate(each) for each in ("a", "a", "b", "c", "a", "")] == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    ThreadParticipationTracker("discord").mark("77")
    assert "77" in ThreadParticipationTracker("discord") and (tmp_path / "discord_threads.json").exists()


def test_secrets_are_masked(bridge):
    from agent.redact import redact_sensitive_text
    from agent.secret_scope import UnscopedSecretError

    text = redact_sensitive_text("api_key=abcdef123456 and Bearer abcdefgh12345 and https://u:pass@host/ ok")
    assert "abcdef" not in text and "pass@" not in text and text.endswith("ok")
    assert issubclass(UnscopedSecretError, RuntimeError) and redact_sensitive_text("plain words") == "plain words"


def test_values_of_variables_and_atomic_files(bridge, tmp_path, monkeypatch):
    from utils import atomic_json_write, env_bool, env_float, env_int, is_truthy_value

    for name, value in {"SOME_INT": "5", "SOME_FLOAT": "x", "SOME_FLAG": "yes"}.items():
        monkeypatch.setenv(name, value)
    assert (env_int("SOME_INT"), env_float("SOME_FLOAT", 1.5), env_bool("SOME_FLAG")) == (5, 1.5, True)
    assert env_bool("NOT_SET_AT_ALL", True) and not is_truthy_value("off")
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    atomic_json_write(tmp_path / "link.json", {"a": "é"}, mode=0o600)
    assert json.loads((tmp_path / "real.json").read_text()) == {"a": "é"} and (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_proxies_are_those_of_alipes(bridge, monkeypatch):
    from gateway.platforms.base import is_host_excluded_by_no_proxy, proxy_kwargs_for_aiohttp, resolve_proxy_url

    assert resolve_proxy_url("SOME_PROXY") is None and proxy_kwargs_for_aiohttp(None) == ({}, {})
    monkeypatch.setenv("SOME_PROXY", "socks://127.0.0.1:1080")
    assert resolve_proxy_url("SOME_PROXY") == "socks5://127.0.0.1:1080"
    assert proxy_kwargs_for_aiohttp("http://p:3128") == ({}, {"proxy": "http://p:3128"})
    assert is_host_excluded_by_no_proxy("a.example.org", ".example.org,other") is True
    assert is_host_excluded_by_no_proxy("example.com", ".example.org,other") is False


async def test_menus_of_messengers_show_our_commands_and_those_of_plugins(harness):
    source = """
    from hermes_cli.commands import COMMAND_REGISTRY, is_gateway_known_command, telegram_menu_commands
    def register(ctx):
        ctx.register_command("look-up", lambda raw: raw, description="look something up")
    """
    async with harness.plugin(source):
        listed, hidden = harness.module.telegram_menu_commands(max_commands=100)
        assert ("look_up", "look something up") in listed and "stop" in dict(listed) and hidden == 0
        assert harness.module.is_gateway_known_command("/stop") and harness.module.is_gateway_known_command("look-up")
        assert not harness.module.is_gateway_known_command("nothing")


async def test_a_platform_may_be_registered_at_the_registry(harness):
    source = """
    from gateway.config import _Platform__bundled_plugin_names
    from gateway.platform_registry import PlatformEntry, platform_registry
    def register(ctx):
        entry = PlatformEntry(name="pigeon", label="Pigeon", adapter_factory=dict, check_fn=lambda: True, emoji="x")
        platform_registry.register(entry)
    """
    async with harness.plugin(source):
        found = harness.module.platform_registry.get("pigeon")
        assert (found.label, found.owner.name) == ("Pigeon", "sample")
        assert harness.module.platform_registry.is_registered("pigeon")
        assert [each.name for each in harness.module.platform_registry.plugin_entries()] == ["pigeon"]
        assert harness.module.platform_registry.create_adapter("pigeon", {"a": 1}) == {"a": 1}
        assert "irc" in harness.module._Platform__bundled_plugin_names


async def test_a_plugin_writes_a_field_of_its_platform(harness):
    source = """
    from hermes_cli.config import read_raw_config, write_platform_config_field
    def register(ctx):
        ctx.register_platform("pigeon", "Pigeon", dict, lambda: True)
    """
    async with harness.plugin(source):
        await asyncio.to_thread(harness.module.write_platform_config_field, "pigeon", "loft", "north")
        tables = harness.module.read_raw_config()
        assert tables["plugins"]["entries"]["sample"] == {"loft": "north"}


async def test_modules_of_bundled_plugins_are_found_under_their_old_names(harness):
    files = {"words.py": "greeting = 'coo'"}
    source = """
    from plugins.platforms.pigeon.words import greeting
    def register(ctx): ...
    """
    async with harness.plugin(source, files=files):
        assert harness.module.greeting == "coo"
        assert "plugins.platforms.pigeon" in sys.modules
    assert not [name for name in sys.modules if name == "plugins" or name.startswith("plugins.")]


async def test_a_coroutine_is_handed_to_the_loop_from_a_thread(harness):
    source = """
    from agent.async_utils import safe_schedule_threadsafe
    def register(ctx): ...
    """
    async with harness.plugin(source):

        async def work() -> int:
            return 5

        loop = asyncio.get_running_loop()
        made = await asyncio.to_thread(harness.module.safe_schedule_threadsafe, work(), loop)
        assert await asyncio.wrap_future(made) == 5
        assert harness.module.safe_schedule_threadsafe(work(), None) is None


def test_times_of_jobs_are_read_as_hermes_reads_them(bridge):
    from cron.jobs import compute_next_run, parse_duration, parse_schedule

    assert [parse_duration(text) for text in ("30m", "2 hours", "1d")] == [30, 120, 1440]
    assert parse_schedule("every 2h") == {"kind": "interval", "minutes": 120, "display": "every 2h"}
    assert parse_schedule("0 9 * * *") == {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *"}
    assert parse_schedule("2090-01-01T09:00Z")["run_at"].startswith("2090-01-01T")
    assert compute_next_run(parse_schedule("2090-01-01T09:00Z")) == parse_schedule("2090-01-01T09:00Z")["run_at"]
    assert compute_next_run({"kind": "once", "run_at": "2020-01-01T09:00+00:00"}) is None
    assert compute_next_run(parse_schedule("0 9 * * *")) is not None
    for text in ("soon", "2020-01-01"):
        with pytest.raises(ValueError, match=text):
            parse_schedule(text)
    with pytest.raises(ValueError, match="30m"):
        parse_duration("x")
