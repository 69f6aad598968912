"""The first five minutes: installation, the first screen, the demo model, keys and errors of new users."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from alipes.config.known_providers import LOCAL
from tests.e2e.program import ROOT, Home
from tests.world.model_server import Fail, ModelServer, Say
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_the_first_screen_says_how_to_start_and_what_it_says_works_here(home):
    """B26: the hint is a command of the conversation, which needs no installed program."""
    async with TerminalProcess.of(home, new=True) as terminal:
        await terminal.until("  embedded/")
        text = " ".join(terminal.text.split())
        assert "Try: what can you do?" in text and "what is in this folder?" in text and "? for keys" in text
        assert "Run /setup to connect a real one" in text and "alipes setup" not in text
        assert terminal.screen.display[-1].strip() == ""  # it fits on 24 lines


async def test_the_welcome_is_shown_until_something_was_typed(home):
    async with ModelServer([Say("Hello.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, new=True) as terminal:
            await terminal.until("Try:")
            terminal.type("hi" + ENTER)
            await terminal.until("Hello.")
            terminal.type(CTRL_D)
            await terminal.ended()
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            assert "Try:" not in terminal.text and "/help for commands" in terminal.text


@pytest.mark.parametrize("columns", [30, 40, 59])
async def test_the_first_screen_is_readable_on_a_narrow_screen(home, columns):
    async with TerminalProcess.of(home, new=True, size=(columns, 40)) as terminal:
        await terminal.until("  embedded/")
        text = " ".join(terminal.text.split())
        assert "It asks before anything dangerous." in text and "to connect a real one (1 minute)." in text
        assert "find out why the tests fail, and fix it" in text


async def test_the_demo_model_says_what_it_is_and_does_not_pretend_to_act(home):
    async with TerminalProcess.of(home) as terminal:
        terminal.type("what can you do for me?" + ENTER)
        await terminal.until("Type /setup to connect one.")
        assert "cannot read files" in " ".join(terminal.text.split())
        terminal.type("list the files" + ENTER)
        await terminal.until("I did not do that.")


async def test_what_is_shown_names_the_program_by_the_path_it_was_started_with(home, tmp_path):
    """After `make run` there is no `alipes` on the PATH."""
    program = tmp_path / "venv" / "alipes"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom alipes.cli.main import main\nsys.exit(main())\n")
    program.chmod(0o755)
    env = home.environ()
    async with TerminalProcess.running((), env, home.path.parent, start=(str(program),)) as terminal:
        await terminal.until("  embedded/")
        terminal.type("/doctor" + ENTER)
        await terminal.until("`venv/alipes doctor` checks this machine; `!venv/alipes doctor` runs it here.")
        terminal.type("/logout" + ENTER)
        await terminal.until("`venv/alipes config unset NAME`")


async def test_a_key_is_saved_by_enter_alone(home):
    """B30: `config set NAME -` ends with Enter, and the shell does not receive a Ctrl-D."""
    async with TerminalProcess.running(
        ("config", "set", "XAI_API_KEY", "-"), home.environ(), home.path.parent
    ) as shell:
        await shell.until(lambda: bool(shell.text.strip()))
        shell.type("xai-0123456789" + ENTER)
        assert await shell.ended() == 0
        assert "0123456789" not in shell.text
    assert "XAI_API_KEY=xai-0123456789" in (home.path / ".env").read_text()


def test_no_page_says_that_ctrl_d_is_needed_after_a_key():
    """B30: no page asks for a Ctrl-D, which would close the shell."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if "Enter, Ctrl-D" in page.read_text()] == []


async def test_a_model_without_a_provider_is_completed_with_the_right_one(home):
    """B25: the suggestion names the provider of this model."""
    home.path.mkdir()
    (home.path / "config.toml").write_text('model = "claude-opus-4-5"\n')
    async with TerminalProcess.running((), home.environ(), home.path.parent) as terminal:
        assert await terminal.ended() != 0
        assert "anthropic/claude-opus-4-5" in "".join(terminal.text.split("\n"))
        assert "openai/" not in terminal.text


async def test_doctor_counts_correctly_and_shows_no_client_counters(home):
    """B27: one conversation is not "conversations", and there are no rows about clients."""
    async with ModelServer([Say("Hello.")] * 3) as server:
        home.use(server)
        done = await home.run("ask", "hi")
        assert done.status == 0
        async with TerminalProcess.running(("doctor",), home.environ(), home.path.parent, size=(160, 40)) as terminal:
            await terminal.ended()
            assert "1 conversation, 1 turn, " in terminal.text
            assert "client" not in terminal.text
            row = next(y for y, text in enumerate(terminal.screen.display) if text.startswith("ok"))
            assert terminal.screen.buffer[row][0].fg == "green"


async def test_without_alipes_on_the_path_the_messages_name_a_command_that_works(home, tmp_path):
    """B26: after `make run` only `.venv/bin/alipes` exists."""
    program = home.path.parent / "venv" / "bin" / "alipes"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom alipes.cli.main import main\nsys.exit(main())\n")
    program.chmod(0o755)
    env = {**home.environ(), "PATH": "/usr/bin:/bin"}
    start, folder = (str(program),), home.path.parent
    async with TerminalProcess.running((), env, folder, size=(120, 30), start=start) as terminal:
        await terminal.until("demo model")
        terminal.type("what can you do?" + ENTER)
        await terminal.until("run venv/bin/alipes setup.")
        terminal.type(CTRL_D)
        assert await terminal.ended() == 0
        assert "Continue with: venv/bin/alipes -c" in terminal.text
    shown = subprocess.run(["venv/bin/alipes", "--version"], cwd=folder, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("alipes ")


def test_make_install_puts_the_program_on_the_path(tmp_path):
    """B26: after `make install` the command that every page names exists."""
    program = ROOT / ".venv" / "bin" / "alipes"
    if not program.exists() or not shutil.which("make"):
        pytest.skip("not installed by make")
    command = ["make", "-s", "-o", ".venv/bytecode.stamp", "install", f"PREFIX={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "is not on your PATH" in done.stdout
    assert os.readlink(tmp_path / "bin" / "alipes") == str(program)
    shown = subprocess.run([tmp_path / "bin" / "alipes", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("alipes ")
    shared = {path.relative_to(tmp_path / "share") for path in (tmp_path / "share").rglob("*") if path.is_file()}
    assert {path.name for path in shared} == {"alipes.1", "alipes", "_alipes", "alipes.fish"}
    subprocess.run([*command[:-2], "uninstall", command[-1]], cwd=ROOT, capture_output=True, check=True)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


@contextmanager
def only_ollama_at(home, url):
    """Settings that look for Ollama at `url`, and for the other local servers where nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nothing = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        places = dict.fromkeys(LOCAL, nothing) | {"ollama": url}
        home.path.mkdir(mode=0o700, exist_ok=True)
        tables = (f'[providers.{name}]\nbase_url = "{place}"\n' for name, place in places.items())
        (home.path / "config.toml").write_text("".join(tables))
        yield


async def test_a_broken_local_server_is_skipped_and_a_hint_says_so(home):
    async def fail(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(fail, "127.0.0.1", 0) as server:
        place = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with only_ollama_at(home, f"{place}/v1"):
            hint = f"Ollama at {place} does not answer properly (500); using the demo model."
            done = await home.run("ask", "hi", ALIPES_LOCAL_SERVERS="true")
            assert done.status == 0 and done.out.strip() and hint in done.err
            async with TerminalProcess.of(home, new=True, ALIPES_LOCAL_SERVERS="true") as terminal:
                await terminal.until(lambda: hint in " ".join(terminal.text.split()))


async def test_the_demo_model_answers_if_a_local_server_that_was_found_fails_each_request(home):
    async with ModelServer(
        lambda _request: Fail(500, "out of order", retry_after=0.01), models=("llama:8b",)
    ) as server:
        with only_ollama_at(home, server.url("openai-chat")):
            done = await home.run("ask", "hi", ALIPES_LOCAL_SERVERS="true")
            assert done.status == 0 and done.out.strip()
            assert "switching to embedded/" in done.err and "`alipes setup`" in done.err
            async with TerminalProcess.of(home, new=True, ALIPES_LOCAL_SERVERS="true") as terminal:
                await terminal.until("ollama/llama:8b")
                terminal.type("hi" + ENTER)
                await terminal.until("switching to embedded/")
                terminal.type("/model" + ENTER)
                await terminal.until("Models")


async def test_an_error_at_the_start_is_wrapped_between_words(home):
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text('model = "claude"\nmodell = "x"\n')
    async with TerminalProcess.of(home, size=(110, 24)) as terminal:
        assert await terminal.ended() == 2
        rows = [row.strip() for row in terminal.rows if row.strip()]
    done = await home.run("-m", "x", "ask", "hi")
    words = done.err.split()
    assert [word for row in rows for word in row.split()] == words and len(rows) > 2
