"""Completion scripts and the manual page, checked with the real shells and programs."""

import asyncio
import os
import re
import shutil
import sys

import pytest

from alipes.cli.commands.help_index import read_help
from alipes.cli.main import list_commands
from tests.e2e.program import Home
from tests.world.environment import require

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def run(home: Home, *words: str, text: str = "") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *words,
        env={**home.environ(), "TERM": "dumb", "PATH": os.environ["PATH"]},
        cwd=home.path.parent,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(text.encode())
    return process.returncode, out.decode(), err.decode()


async def complete(home: Home, line: str) -> list[str]:
    """What bash offers for the line, with `alipes` as the command that is on the path."""
    script = (await home.run("completion", "bash")).out
    code = f"""
alipes() {{ {sys.executable} -m alipes "$@"; }}
{script}
COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=($COMP_LINE); COMP_CWORD=1
_alipes
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    status, out, err = await run(home, "bash", "-c", code)
    assert (status, err) == (0, "")
    return out.split()


async def test_bash_completes_commands_actions_and_options(home):
    assert await complete(home, "alipes se") == ["setup", "sessions", "secrets", "serve", "send"]
    assert "export" in await complete(home, "alipes -m x/y sessions ")
    assert await complete(home, "alipes sessions e") == ["export"]
    assert await complete(home, "alipes sessions export x --format h") == ["html"]
    assert await complete(home, "alipes ask --ver") == ["--verbose"]
    assert await complete(home, "alipes completion z") == ["zsh"]


async def test_bash_completes_models_and_conversations(home):
    home.path.mkdir(mode=0o700)
    (home.path / ".env").write_text("ANTHROPIC_API_KEY=abc\n")
    (home.path / ".env").chmod(0o600)
    models = await complete(home, "alipes ask -m anthropic/")
    assert models and all(name.startswith("anthropic/") for name in models)
    assert (await home.run("ask", "-m", "scripted", "hello")).status == 0
    (id,) = (await home.run("completion", "sessions")).out.split()
    assert await complete(home, "alipes -r ") == [id]
    assert await complete(home, "alipes sessions show ") == [id]
    assert await complete(home, "alipes webhook add x -p ") == []


async def test_bash_completes_files_where_a_file_is_expected(home):
    (home.path.parent / "picture.png").touch()
    assert await complete(home, "alipes ask -i pict") == ["picture.png"]
    assert await complete(home, "alipes restore pict") == ["picture.png"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_a_script_names_every_command_and_option_and_its_shell_can_read_it(home, shell):
    done = await home.run("completion", shell)
    assert done.status == 0
    for command in list_commands():
        assert re.search(rf"\b{command.name}\b", done.out)
        for option in re.findall(r"^  (?:-\w, )?--([\w-]+)", read_help(command), re.M):
            assert option in done.out
    (home.path.parent / "script").write_text(done.out)
    assert await run(home, require(shell), "-n", str(home.path.parent / "script")) == (0, "", "")


async def test_fish_completes_commands_actions_and_options(home):
    (home.path.parent / "script").write_text((await home.run("completion", "fish")).out)
    for line, offered in (
        ("alipes sess", ["sessions"]),
        ("alipes sessions ex", ["export"]),
        ("alipes ask --verb", ["--verbose"]),
        ("alipes ask --mode pl", ["plan"]),
    ):
        status, out, err = await run(home, require("fish"), "-c", f"source script; complete -C '{line}'")
        assert (status, err) == (0, "") and [row.split("\t")[0] for row in out.splitlines()] == offered, line


async def test_an_unknown_shell_is_a_usage_error(home):
    done = await home.run("completion", "tcsh")
    assert done.status == 2 and "bash, zsh or fish" in done.err


async def test_the_manual_page_is_valid_and_names_every_command_and_option(home):
    done = await home.run("man")
    assert done.status == 0 and done.out.startswith(".TH ALIPES 1")
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    status, shown, problems = await run(home, "groff", "-man", "-Tascii", "-ww", "-P-c", text=done.out)
    assert (status, problems) == (0, "")
    shown = re.sub(r".\x08", "", shown)
    for command in list_commands():
        assert f"alipes {command.name}" in shown
        for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)", read_help(command), re.M):
            assert option in shown
    assert "`alipes ask`" in shown and "~/.alipes/config.toml" in shown
