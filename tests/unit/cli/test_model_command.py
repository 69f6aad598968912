"""`alipes model`, run as a program."""

import asyncio
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from tests.world.model_server import ModelServer

KEY = "k" * 12
RUN = "import sys; from alipes.cli.commands.model import run; sys.exit(run(sys.argv[1:]))"
pytestmark = pytest.mark.deadline(60)


class CommandResult(Struct):
    status: int
    out: str
    err: str


async def alipes_model(home: Path, *words: str, **environ: str) -> CommandResult:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", RUN, *words),
        env={"ALIPES_HOME": str(home), **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return CommandResult(process.returncode, out.decode(), err.decode())


def config(home: Path) -> str:
    file = home / "config.toml"
    return file.read_text() if file.exists() else ""


async def test_without_a_name_it_shows_the_model_and_the_others(tmp_path):
    seen = await alipes_model(tmp_path, ANTHROPIC_API_KEY=KEY)
    first, *rest = seen.out.splitlines()
    assert (seen.status, seen.err) == (0, "")
    assert first == "Model: anthropic/claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)"
    [current] = [line for line in rest if line.startswith("*")]
    assert current.split() == ["*", "anthropic/claude-sonnet-5-5", "1M", "2", "/", "0.1", "/", "10"]
    assert "anthropic/claude-opus-5-5" in seen.out and "embedded/smollm2-135m" in seen.out
    assert "openai/gpt-6.1-sol" not in seen.out and "OPENAI_API_KEY" in seen.out
    assert KEY not in seen.out


async def test_all_also_shows_providers_without_a_key(tmp_path):
    seen = await alipes_model(tmp_path, "--all", XAI_API_KEY=KEY)
    assert seen.status == 0
    for word in ("openai/gpt-6.1-sol", "more above 272k", "unknown", "free", "* xai/"):
        assert word in seen.out


async def test_a_name_is_saved_and_the_rest_of_the_file_is_kept(tmp_path):
    (tmp_path / "config.toml").write_text("# mine\nmax_steps = 7\n")
    seen = await alipes_model(tmp_path, "grok-4.6", XAI_API_KEY=KEY)
    assert (seen.status, seen.err) == (0, "")
    assert seen.out == "Switched to xai/grok-4.6.\n"
    assert "# mine" in config(tmp_path) and 'model = "xai/grok-4.6"' in config(tmp_path)
    again = await alipes_model(tmp_path, XAI_API_KEY=KEY)
    assert again.out.startswith("Model: xai/grok-4.6 (from config.toml)")


async def test_a_model_of_the_environment_is_said_to_come_from_its_variable(tmp_path):
    (tmp_path / "config.toml").write_text('model = "xai/grok-4"\n')
    seen = await alipes_model(tmp_path, XAI_API_KEY=KEY, ALIPES_MODEL="xai/grok-4.6")
    assert seen.out.startswith("Model: xai/grok-4.6 (from ALIPES_MODEL)")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("grok-4.77", "xai/grok-4.7"),
        ("xai/grok-4.77", "xai/grok-4.7"),
        ("anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
        ("zzzz", "Unknown model or provider"),
        ("embedded/gpt", "smollm2-135m"),
    ],
)
async def test_an_unusable_name_changes_nothing_and_shows_similar_ones(tmp_path, name, near):
    (tmp_path / "config.toml").write_text('model = "xai/grok-4.3"\n')
    seen = await alipes_model(tmp_path, name, XAI_API_KEY=KEY)
    assert (seen.status, seen.out) == (2, "")
    assert near in seen.err
    assert config(tmp_path) == 'model = "xai/grok-4.3"\n'


async def test_anyway_accepts_an_unknown_model(tmp_path):
    seen = await alipes_model(tmp_path, "--anyway", "xai/grok-5", XAI_API_KEY=KEY)
    assert seen.status == 0 and 'model = "xai/grok-5"' in config(tmp_path)


async def test_a_dated_name_of_a_known_model_is_known(tmp_path):
    seen = await alipes_model(tmp_path, "openai/gpt-6.1-sol-2026-09-29", OPENAI_API_KEY=KEY)
    assert seen.status == 0


async def test_any_model_of_a_custom_provider_is_accepted(tmp_path):
    (tmp_path / "config.toml").write_text('[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\n')
    seen = await alipes_model(tmp_path, "mine/anything")
    assert seen.status == 0 and 'model = "mine/anything"' in config(tmp_path)


async def test_live_asks_the_provider(tmp_path):
    async with ModelServer(models=("grok-9", "grok-9-mini"), key=KEY) as server:
        (tmp_path / "config.toml").write_text(f'[providers.xai]\nbase_url = "{server.url("openai-chat")}"\n')
        listed = await alipes_model(tmp_path, "--live", XAI_API_KEY=KEY)
        assert listed.status == 0 and "xai/grok-9-mini" in listed.out
        wrong = await alipes_model(tmp_path, "--live", "xai/grok-8", XAI_API_KEY=KEY)
        assert wrong.status == 2 and "xai/grok-9" in wrong.err and "has no model" in wrong.err
        right = await alipes_model(tmp_path, "--live", "xai/grok-9", XAI_API_KEY=KEY)
        assert right.status == 0 and 'model = "xai/grok-9"' in config(tmp_path)


async def test_live_reports_a_provider_that_does_not_answer_and_lists_the_others(tmp_path):
    (tmp_path / "config.toml").write_text('[providers.xai]\nbase_url = "http://127.0.0.1:9/v1"\n')
    seen = await alipes_model(tmp_path, "--live", XAI_API_KEY=KEY)
    assert seen.status == 0
    assert "xai: no list" in seen.out and "xai/grok-4.7" in seen.out and KEY not in seen.out


async def test_a_variable_that_overrides_the_choice_is_named(tmp_path):
    seen = await alipes_model(tmp_path, "grok-4.7", XAI_API_KEY=KEY, ALIPES_MODEL="embedded")
    assert seen.status == 0 and "ALIPES_MODEL is set to embedded" in seen.out


async def test_wrong_usage_and_help(tmp_path):
    assert (await alipes_model(tmp_path, "--nonsense")).status == 2
    assert (await alipes_model(tmp_path, "--all", "xai")).status == 2
    helped = await alipes_model(tmp_path, "--help")
    assert helped.status == 0 and helped.out.startswith("usage: alipes model")


async def test_wrong_settings_exit_with_status_2(tmp_path):
    (tmp_path / "config.toml").write_text("max_steps = -1\n")
    seen = await alipes_model(tmp_path)
    assert seen.status == 2 and "max_steps" in seen.err and "Traceback" not in seen.err
