"""What the first word after `alipes` leads to, and what a person sees when something goes wrong."""

import asyncio
import os
import sys

import pytest

from alipes import __version__
from alipes.cli import help_text
from alipes.cli.main import LATER
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
async def test_the_version(home, word):
    done = await home.run(word)
    assert (done.status, done.out, done.err) == (0, f"alipes {__version__}\n", "")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
async def test_the_help(home, words):
    done = await home.run(*words)
    assert (done.status, done.out, done.err) == (0, help_text.TOP, "")


async def test_help_of_a_command_is_its_own_help(home):
    assert (await home.run("help", "ask")).out == (await home.run("ask", "--help")).out == help_text.ASK


async def test_version_and_help_load_nothing_and_make_no_home(home):
    status, _, told = await python(home, "-X", "importtime", "-m", "alipes", "--version")
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert status == 0
    assert not loaded & {"asyncio", "argparse", "msgspec", "logging", "sqlite3", "httpx2", "prompt_toolkit"}
    assert {name for name in loaded if name.startswith("alipes")} == {
        *(
            "alipes",
            "alipes.cli",
            "alipes.cli.main",
            "alipes.cli.help_text",
            "alipes.kernel",
            "alipes.kernel.errors",
        )
    }
    assert not home.path.exists()


async def test_ask_loads_no_prompt_and_no_other_provider(home):
    words = ("-X", "importtime", "-m", "alipes", "ask", "-m", "scripted", "hi")
    status, out, told = await python(home, *words)
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert (status, out) == (0, "You said: hi\n")
    assert not loaded & {
        "prompt_toolkit",
        "tomlkit",
        "openai",
        "anthropic",
        "pydantic",
        "alipes.providers.anthropic",
    }


async def test_an_unknown_command_is_wrong_usage_and_near_ones_are_named(home):
    done = await home.run("sesions", "list")
    assert done.status == 2 and done.out == ""
    assert "sessions" in done.err and "alipes --help" in done.err


@pytest.mark.parametrize("word", LATER)
async def test_what_comes_later_says_so(home, word):
    done = await home.run(word)
    assert done.status == 2 and f"alipes {word} comes with" in done.err


async def test_a_reader_that_has_enough_is_no_error(home):
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", "--help"),
        env=home.environ(),
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err) == (141, b"")


async def shell(home: Home, words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"{sys.executable} -m alipes {words}"),
        env=home.environ(),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    return process.returncode, err.decode()


@pytest.mark.parametrize("words", ["ask -m scripted hi <&-", "sessions", "doctor", "--version"])
async def test_it_runs_where_standard_output_is_closed(home, words):
    assert await shell(home, f"{words} >&-") == (0, "")


@pytest.mark.parametrize("words", ["ask -m scripted hi </dev/null", "sessions", "--help"])
async def test_output_that_cannot_be_written_is_told(home, words):
    status, err = await shell(home, f"{words} >/dev/full")
    assert status == 1
    assert "cannot be written: No space left" in err and "Traceback" not in err


async def test_a_folder_that_is_gone_is_told(home, tmp_path):
    (tmp_path / "gone").mkdir()
    status, err = await shell(
        home, f"--version; cd {tmp_path}/gone; rmdir ../gone; {sys.executable} -m alipes ask -m scripted hi"
    )
    assert status == 2 and "was removed" in err


async def test_a_home_that_cannot_be_made_is_told_in_a_sentence(home):
    done = await home.run("ask", "hi", ALIPES_HOME="/proc/nowhere")
    assert done.status == 2
    assert "/proc/nowhere" in done.err and "Traceback" not in done.err


BROKEN = "import alipes.cli.main as m; m._obey = lambda words: {}['surprise']; raise SystemExit(m.main([]))"


async def test_an_unforeseen_error_is_a_sentence_and_its_traceback_is_in_the_log(home):
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


async def test_several_errors_at_once_are_told_each_in_a_sentence(home):
    code = (
        "import alipes.cli.main as m; from alipes.kernel.errors import ConfigError, StoreError\n"
        "def fail(words): raise ExceptionGroup('x', [ConfigError('this'), ExceptionGroup('y', [StoreError('that')])])\n"
        "m._obey = fail; raise SystemExit(m.main([]))"
    )
    assert await python(home, "-c", code) == (2, "", "alipes: this\nalipes: that\n")


def test_the_command_is_installed_under_its_name():
    assert 'alipes = "alipes.cli.main:enter"' in (ROOT / "pyproject.toml").read_text()
