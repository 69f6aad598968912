"""`alipes install`, and the offer to install what a command lacks."""

import asyncio
import json
import sys

import pytest

from tests.e2e.program import Home
from tests.world.terminal_process import ENTER, TerminalProcess

START = "import sys; sys.modules['acp'] = None; from alipes.cli.main import main; sys.exit(main())"
"""`alipes` as if the extra for editors were not installed."""


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_the_list_has_all_extras_with_their_state(home):
    done = await home.run("install", "--json")
    found = {each["name"]: each for each in json.loads(done.out)}
    assert {"web", "discord", "embedded", "acp"} <= {*found}
    assert found["acp"]["installed"] and found["acp"]["missing"] == []
    table = (await home.run("install")).out
    assert "reading web pages" in table and "Install with `alipes install NAME`." in table


async def test_an_unknown_extra_gets_a_proposal(home):
    done = await home.run("install", "discrod")
    assert done.status == 2 and "there is no extra discrod. Did you mean discord?" in done.err


async def test_what_is_there_is_not_installed_again(home):
    done = await home.run("install", "email")
    assert (done.status, done.out) == (0, "email: already installed.\n")


async def test_a_command_that_lacks_packages_names_the_command_that_installs_them(home):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START, "acp"),
        env=home.environ(),
        cwd=home.path.parent,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"Serving an editor needs " in said and b"run `alipes install acp`." in said


async def test_at_a_terminal_one_yes_installs_the_pinned_packages(home, tmp_path):
    """The installer is a stand-in, so that the environment of the tests stays as it is."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uv").write_text(f'#!/bin/sh\nfor last; do :; done\ncp "$last" {tmp_path}/asked-for\n')
    (programs / "uv").chmod(0o755)
    start = (sys.executable, "-c", START)
    env = home.environ()
    env["PATH"] = f"{programs}:{env['PATH']}"
    async with TerminalProcess.running(("acp",), env, home.path.parent, start=start, size=(120, 24)) as terminal:
        await terminal.until("Install them now? [Y/n]")
        terminal.type("n" + ENTER)
        await terminal.until("run `alipes install acp`.")
        assert await terminal.ended() == 2 and not (tmp_path / "asked-for").exists()
    async with TerminalProcess.running(("acp",), env, home.path.parent, start=start, size=(120, 24)) as terminal:
        await terminal.until("Install them now? [Y/n]")
        terminal.type(ENTER)
        await terminal.until("start alipes again")  # the stand-in has installed nothing
    assert "agent-client-protocol==" in (tmp_path / "asked-for").read_text()


async def test_a_command_that_fails_for_want_of_packages_offers_them_and_is_tried_again(home, tmp_path):
    """With the keyring, which is needed to read the settings. The installer is a stand-in here, too."""
    (programs := tmp_path / "programs").mkdir()
    (site := tmp_path / "site").mkdir()
    (made := tmp_path / "packages" / "keyring").mkdir(parents=True)
    (made / "__init__.py").write_text("def get_password(service, name): return 'sk-kept'\n")
    (made / "errors.py").write_text("class KeyringError(Exception): pass\n")
    (programs / "uv").write_text(f"#!/bin/sh\ncp -r {made} {site}\n")
    (programs / "uv").chmod(0o755)
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text('secret_store = "keyring"\nmodel = "openai/gpt-6"\n')
    env = home.environ(PYTHONPATH=str(site))
    env["PATH"] = f"{programs}:{env['PATH']}"
    words = ("secrets", "list")
    async with TerminalProcess.running(words, env, home.path.parent, size=(120, 24)) as terminal:
        await terminal.until("The system keyring needs ")
        await terminal.until("Install them now? [Y/n]")
        terminal.type("n" + ENTER)
        await terminal.until("run `alipes install keyring`.")
        assert await terminal.ended() == 2 and not (site / "keyring").exists()
    async with TerminalProcess.running(words, env, home.path.parent, size=(120, 24)) as terminal:
        await terminal.until("Install them now? [Y/n]")
        terminal.type(ENTER)
        assert await terminal.ended() == 0
        assert "run `alipes install" not in terminal.text
    assert json.loads((home.path / "extras.json").read_text()) == ["keyring"]
    assert (await home.run(*words, PYTHONPATH=str(site))).status == 0


async def test_where_nobody_can_be_asked_the_command_is_named(home):
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text('secret_store = "keyring"\n')
    done = await home.run("secrets", "list")
    assert (done.status, done.out) == (2, "") and "run `alipes install keyring`." in done.err
