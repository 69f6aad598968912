"""The command line: subcommands, help, version, and errors."""

import asyncio
import os
import sys

import pytest

from alipes import __version__
from alipes.console import help_text
from tests.e2e.program import ROOT, Home

pytestmark = pytest.mark.deadline(30)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def python(home: Home, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        env=home.environ(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("word", ["--version", "-V"])
async def test_version(home, word):
    done = await home.run(word)
    assert (done.status, done.out, done.err) == (0, f"alipes {__version__}\n", "")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
async def test_help(home, words):
    done = await home.run(*words)
    assert (done.status, done.out, done.err) == (0, help_text.TOP, "")


async def test_help_command_shows_the_help_of_a_subcommand(home):
    assert (await home.run("help", "ask")).out == (await home.run("ask", "--help")).out == help_text.ASK


async def test_version_and_help_import_little_and_create_no_home(home):
    status, _, report = await python(home, "-X", "importtime", "-m", "alipes", "--version")
    loaded = {line.rpartition("|")[2].strip() for line in report.splitlines()}
    assert status == 0
    assert not loaded & {"asyncio", "argparse", "msgspec", "logging", "sqlite3", "httpx2", "prompt_toolkit"}
    assert {name for name in loaded if name.startswith("alipes")} == {
        *(
            "alipes",
            "alipes.cli",
            "alipes.cli.main",
            "alipes.console",
            "alipes.console.help_text",
            "alipes.kernel",
            "alipes.kernel.errors",
        )
    }
    assert not home.path.exists()


async def test_ask_loads_no_prompt_and_no_other_provider(home):
    words = ("-X", "importtime", "-m", "alipes", "ask", "-m", "scripted", "hi")
    status, out, report = await python(home, *words)
    loaded = {line.rpartition("|")[2].strip() for line in report.splitlines()}
    assert (status, out) == (0, "You said: hi\n")
    assert not loaded & {"prompt_toolkit", "tomlkit", "openai", "anthropic", "pydantic", "alipes.providers.anthropic"}


async def test_an_unknown_command_is_a_usage_error_with_suggestions(home):
    done = await home.run("sesions", "list")
    assert done.status == 2 and done.out == ""
    assert "sessions" in done.err and "alipes --help" in done.err


async def test_a_closed_pipe_is_not_an_error(home):
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", "--help"), env=home.environ(), stdout=writing, stderr=asyncio.subprocess.PIPE
    )
    os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err) == (141, b"")


async def shell(home: Home, words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"{sys.executable} -m alipes {words}"), env=home.environ(), stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    return process.returncode, err.decode()


@pytest.mark.parametrize("words", ["ask -m scripted hi <&-", "sessions", "doctor", "--version"])
async def test_it_runs_where_standard_output_is_closed(home, words):
    assert await shell(home, f"{words} >&-") == (0, "")


@pytest.mark.parametrize("words", ["ask -m scripted hi </dev/null", "sessions", "--help"])
async def test_a_write_error_on_standard_output_is_reported(home, words):
    status, err = await shell(home, f"{words} >/dev/full")
    assert status == 1
    assert "No space left" in err and "Traceback" not in err


async def test_a_removed_working_folder_is_reported(home, tmp_path):
    (tmp_path / "gone").mkdir()
    status, err = await shell(
        home, f"--version; cd {tmp_path}/gone; rmdir ../gone; {sys.executable} -m alipes ask -m scripted hi"
    )
    assert status == 2 and "was deleted" in err


async def test_a_home_that_cannot_be_created_is_reported(home):
    done = await home.run("ask", "hi", ALIPES_HOME="/proc/nowhere")
    assert done.status == 2
    assert "/proc/nowhere" in done.err and "Traceback" not in done.err


BROKEN = "import alipes.cli.main as m; m._dispatch = lambda words: {}['surprise']; raise SystemExit(m.main([]))"


async def test_an_internal_error_is_one_sentence_and_its_traceback_is_logged(home):
    home.path.mkdir()
    (home.path / ".env").write_text("OPENAI_API_KEY=sk-very-secret-1234\n")
    (home.path / ".env").chmod(0o600)
    status, _, err = await python(home, "-c", BROKEN.replace("surprise", "sk-very-secret-1234"))
    log = home.path / "logs" / "alipes.log"
    assert status == 1
    assert "Traceback" not in err and str(log) in err
    assert "KeyError" in log.read_text() and "Traceback" in log.read_text()
    assert "sk-very-secret" not in log.read_text() + err


async def test_at_level_debug_the_traceback_is_shown(home):
    home.path.mkdir()
    (home.path / "config.toml").write_text('log_level = "debug"\n')
    status, _, err = await python(home, "-c", BROKEN)
    assert status == 1 and "Traceback" in err and "KeyError: 'surprise'" in err


async def test_each_error_of_a_group_is_reported(home):
    code = (
        "import alipes.cli.main as m; from alipes.kernel.errors import ConfigError, StoreError\n"
        "def fail(words): raise ExceptionGroup('x', [ConfigError('this'), ExceptionGroup('y', [StoreError('that')])])\n"
        "m._dispatch = fail; raise SystemExit(m.main([]))"
    )
    assert await python(home, "-c", code) == (2, "", "alipes: this\nalipes: that\n")


def test_the_command_is_installed_under_its_name():
    assert 'alipes = "alipes.cli.main:run_and_exit"' in (ROOT / "pyproject.toml").read_text()
