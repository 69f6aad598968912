"""The program with its default sandbox: a model that obeys a hostile text changes and sees nothing outside."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from alipes.runtime.sandbox.policy import make_private_directory, short_hash
from tests.e2e.program import Home
from tests.e2e.test_terminal_busy import PAUSE
from tests.world.environment import require
from tests.world.model_replies import Call, Calls, Say
from tests.world.model_server import ModelServer
from tests.world.terminal_process import ENTER, TerminalProcess

SANDBOX = {"ALIPES_SANDBOX_BACKEND": "auto"}


@pytest.fixture
def home(tmp_path):
    require("bwrap")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_text("canary")
    (tmp_path / ".bashrc").write_text("# mine\n")
    (tmp_path / "victim").mkdir()
    (tmp_path / "project").mkdir()
    return Home(tmp_path / ".alipes")


def use(name, **args):
    return Calls((Call(name, args),), "")


def results(server):
    return [message["content"] for message in server.bodies[-1]["messages"] if message["role"] == "tool"]


async def ask(home, *calls, **variables):
    async with ModelServer([*calls, Say("done")]) as server:
        home.use(server, workdir=str(home.path.parent / "project"))
        done = await home.run("ask", "go", **SANDBOX | variables)
        assert done.status in (0, 3), done.err
        return results(server)


async def test_the_home_folder_is_named_at_the_start_and_a_project_is_not(home):
    note = "This is your home folder: commands can read it but not change it. cd into a project first."
    async with ModelServer([]) as server:
        for workdir, shown in ((home.path.parent, True), (home.path.parent / "project", False)):
            home.use(server, workdir=str(workdir))
            async with TerminalProcess.of(home, size=(120, 24), **SANDBOX) as terminal:
                await terminal.until("(from config.toml)")
                await terminal.until(lambda: "test/scripted" in terminal.text and "  starting" not in terminal.text)
                assert (note in terminal.text) is shown


async def test_doctor_as_the_first_command_makes_a_private_home(home):
    assert (await home.run("doctor", **SANDBOX)).status == 0
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert all(each.stat().st_mode & 0o077 == 0 for each in home.path.iterdir())


async def test_hostile_commands_run_without_a_question_and_without_effect(home):
    here = home.path.parent
    (one, two, three, four) = await ask(
        home,
        use("terminal", command="rm -rf ~/victim; echo evil >> ~/.bashrc; cat ~/.ssh/id_ed25519; ls -a ~"),
        use(
            "terminal",
            command=f"cat {home.path}/config.toml; ls {home.path}; cat /proc/*/environ | tr '\\0' '\\n' | grep ALIPES_HOME",
        ),
        use("execute_code", code="import pathlib; print(pathlib.Path.home().joinpath('.ssh').exists())"),
        use("terminal", command="echo kept > result; echo tmp > /tmp/note"),
    )
    assert (here / "victim").is_dir() and (here / ".bashrc").read_text() == "# mine\n"
    assert "canary" not in one and "providers" not in two
    assert three == "False\n[exit code 0]" and four == "(no output)\n[exit code 0]"
    assert (here / "project" / "result").read_text() == "kept\n"


async def test_commands_are_refused_and_all_say_why_if_the_temporary_folder_cannot_be_made(home):
    taken = Path(make_private_directory()) / short_hash(os.path.realpath(home.path))
    taken.write_text("in its place")
    try:
        async with ModelServer([use("terminal", command="touch ~/new"), Say("done")]) as server:
            home.use(server, workdir=str(home.path.parent / "project"))
            done, doctor = await home.run("ask", "go", **SANDBOX), await home.run("doctor", **SANDBOX)
        (refused,) = results(server)
    finally:
        taken.unlink()
    assert "Commands are refused, because no sandbox works here" in refused and not (home.path.parent / "new").exists()
    for text in (refused, done.err, doctor.out):
        assert f"{taken} belongs to another user or is open to others; remove it" in " ".join(text.split()), text


async def test_a_git_remote_that_the_sandbox_hides_is_explained(home):
    require("git")
    other = home.path.parent / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", other], check=True)
    *_, unknown, fetched = await ask(
        home,
        use("terminal", command="git init -q && git remote add o ../other.git"),
        use("terminal", command="git fetch nowhere"),
        use("terminal", command="git fetch o"),
    )
    assert (
        "does not appear to be a git repository" in unknown and "[exit code 128]" in unknown and "hides" not in unknown
    )
    assert fetched.endswith(
        f"[{other} is outside of the project: the sandbox hides it. With `outside` git sees it, after a question]"
    )


async def test_a_file_that_the_sandbox_hides_and_file_tools_see_is_explained(home):
    (other := home.path.parent / "other").mkdir()
    (other / "README.md").write_text("theirs\n")
    note = "is in the home, outside of the project: the sandbox hides it. The file tools see it]"
    *commands, missing, read = await ask(
        home,
        use("terminal", command="cat ../other/README.md"),
        use("terminal", command="cd ~/other"),
        use("terminal", command="python3 -c 'open(\"../other/README.md\")'"),
        use("terminal", command="cat missing.txt ~/.netrc /srv/missing"),
        use("read_file", path="../other/README.md"),
    )
    for shown, path in zip(commands, (other / "README.md", other, other / "README.md"), strict=True):
        assert shown.endswith(f"[{path} {note}"), shown
    assert "No such file" in missing and "hides" not in missing
    assert read.startswith("theirs")


async def test_file_tools_and_commands_see_the_same_temporary_files(home):
    _, read, shown = await ask(
        home,
        use("write_file", path="/tmp/from-tool.txt", content="one\n"),
        use("terminal", command="cat /tmp/from-tool.txt; echo two > /tmp/from-command.txt"),
        use("read_file", path="/tmp/from-command.txt"),
    )
    assert read == "one\n[exit code 0]" and "two" in shown


async def test_connections_are_refused_where_nobody_can_be_asked(home):
    command = "python3 -c \"import urllib.request as u; u.urlopen('http://example.org/')\" 2>&1 | tail -1"
    (output,) = await ask(home, use("terminal", command=command))
    assert "403" in output and "[example.org" in output and "egress.allow" in output


async def test_a_command_outside_is_denied_where_nobody_can_be_asked(home):
    (denied,) = await ask(home, use("terminal", command="touch ~/new", outside=True))
    assert "outside the sandbox" in denied and not (home.path.parent / "new").exists()


async def test_an_approved_change_of_a_ci_file_takes_effect_and_a_hook_is_refused_without_a_question(home):
    project = home.path.parent / "project"
    subprocess.run(["git", "init", "-q", project], check=True)
    for name in ("ci.yml", "other.yml"):
        (project / ".github" / "workflows").mkdir(parents=True, exist_ok=True)
        (project / ".github" / "workflows" / name).write_text("a\n")
    plan = [
        use("terminal", command="echo evil > .git/hooks/pre-commit"),
        use("terminal", command="cd .github/workflows; sed -i s/a/b/ ci.yml; for f in o*; do sed -i s/a/b/ $f; done"),
        Say("Done."),
    ]
    async with ModelServer(plan) as server:
        home.use(server, workdir=str(project))
        async with TerminalProcess.of(home, **SANDBOX) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("Run this command?")
            await asyncio.sleep(PAUSE)
            terminal.type("y")
            await terminal.until("Done.")
        refused, opened = results(server)
    assert "never lets commands do this" in refused and not (project / ".git" / "hooks" / "pre-commit").exists()
    assert (project / ".github" / "workflows" / "ci.yml").read_text() == "b\n", opened
    assert (project / ".github" / "workflows" / "other.yml").read_text() == "a\n"
    assert "cannot rename" in opened


async def test_a_person_is_asked_before_a_command_runs_outside(home):
    plan = [use("terminal", command="touch ~/new; echo made", outside=True), Say("Done.")]
    async with ModelServer(plan) as server:
        home.use(server, workdir=str(home.path.parent / "project"))
        async with TerminalProcess.of(home, **SANDBOX) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("Run this command?")
            await terminal.until("outside the sandbox")
            await asyncio.sleep(PAUSE)  # keys typed before a person can have read it do not count
            terminal.type("y")
            await terminal.until("Done.")
    assert (home.path.parent / "new").exists()


async def test_the_model_is_informed_about_the_sandbox(home):
    async with ModelServer([Say("hi")]) as server:
        home.use(server, workdir=str(home.path.parent / "project"))
        await home.run("ask", "hello", **SANDBOX)
    assert "Commands run in a sandbox." in server.bodies[0]["messages"][0]["content"]
