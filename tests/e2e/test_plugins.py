"""The real program with real plugins: install, list, doctor, new, and plugin commands."""

import asyncio
import os
import pty
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from tests.e2e.program import ROOT, Home, read_until, wait_finished
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say
from tests.world.plugin_sources import commit, git, hermes, native, wheel

pytestmark = pytest.mark.deadline(60)

WITH_COMMANDS = """\
import asyncio, sys
from alipes.plugin import Context, user


async def setup(ctx: Context) -> None:
    def prepare(parser):
        parser.add_argument("--times", type=int, default=1)
        parser.add_argument("word")

    def shout(given):
        print(given.word.upper() * given.times)
        return 3 if given.word == "three" else None

    async def whisper(given):
        await asyncio.sleep(0)
        return "psst"

    async def ask(given):
        reply = await ctx.host.ask((user(given.word),), model="scripted")
        print(reply.message.text)

    def by_itself(parser):
        parser.set_defaults(func=lambda given: asyncio.run(report()))

    async def report():
        print("on a loop of its own")

    def wait(given):
        print("waiting", flush=True)
        sys.stdin.readline()

    ctx.cli("shout", "say it loud", prepare, shout)
    ctx.cli("whisper", "say it softly", lambda parser: None, whisper)
    ctx.cli("wonder", "ask the model", prepare, ask)
    ctx.cli("alone", "in its own way", by_itself)
    ctx.cli("wait", "for a key", lambda parser: None, wait)
    ctx.cli("leave", "at once", lambda parser: None, lambda given: sys.exit("no reason"))
    ctx.cli("fail", "for sure", lambda parser: None, lambda given: given.nothing)
    ctx.cli("ask", "never reached", lambda parser: None, lambda given: 9)
"""


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def install(home: Home, source: Path | str, *words: str, **more: str) -> None:
    done = await home.run("plugins", "install", str(source), "--yes", *words, **more)
    assert done.status == 0, done.err


async def with_commands(home: Home, tmp_path: Path) -> None:
    await install(home, native(tmp_path / "noisy", "noisy", code=WITH_COMMANDS))


async def test_plugins_of_every_source_are_installed_and_used(home, tmp_path):
    await install(home, native(tmp_path / "folder", "ways"))
    git_plugin = hermes(tmp_path / "repository")
    commit(git_plugin)
    git(tmp_path, "clone", "--quiet", "--bare", "repository", "hailer.git")
    await install(home, f"file://{tmp_path}/hailer.git", GIT_CONFIG_GLOBAL="/dev/null")
    code = (
        native(tmp_path / "x")
        .joinpath("__init__.py")
        .read_text()
        .replace("look_up", "look_down")
        .replace("way", "down")
    )
    file = wheel(
        tmp_path / "wheels", "downs", entries="[alipes.plugins]\ndowns = downs\n", files={"downs/__init__.py": code}
    )
    await install(home, file, PIP_NO_INDEX="1")
    for call, answer in (
        ('look_up {"place": "Rome"}', "Rome is over there"),
        ("hail {}", "hail"),
        ('look_down {"place": "Rome"}', "Rome is over there"),
    ):
        done = await home.run("ask", "-y", "-m", "scripted", f"!call {call}")
        assert done.status == 0 and answer in done.out, done
    done = await home.run("plugins", "list")
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["downs", "1.0", "enabled"],
        ["hailer", "0.3.0", "enabled"],
        ["ways", "1.0", "enabled"],
    ]
    assert (await home.run("plugins", "doctor")).status == 0


async def test_plugins_lists_those_of_a_running_conversation(home, tmp_path):
    await install(home, native(tmp_path / "folder", "ways"))
    async with home.started("ask", "-m", "scripted", "!say begun\n!wait 100") as process:
        await read_until(process.stdout, "begun")
        (report,) = msgspec.json.decode((await home.run("plugins", "list", "--json")).out)
        assert report["state"] == "on" and report["adds"]["tools"] == ["look_up"]
        process.send_signal(signal.SIGINT)
        await wait_finished(process)
    (report,) = msgspec.json.decode((await home.run("plugins", "list", "--json")).out)
    assert report["state"] == "enabled"


async def test_a_broken_plugin_is_reported_by_list_and_doctor_and_alipes_works(home, tmp_path):
    await install(home, native(tmp_path / "folder", "ways", code="raise RuntimeError('no luck')\n"))
    assert (await home.run("ask", "-m", "scripted", "hi")).out == "You said: hi\n"
    done = await home.run("plugins", "list")
    assert "failed" in done.out and "no luck" in done.out
    done = await home.run("doctor")
    assert done.status == 1 and "no luck" in done.out and "alipes plugins doctor ways" in done.out
    done = await home.run("plugins", "doctor")
    assert done.status == 1 and "no luck" in done.out and "Traceback" not in done.out + done.err


@pytest.mark.parametrize("words", [["ask", "--safe"], ["--safe", "ask"]])
async def test_in_safe_mode_no_plugin_is_loaded(home, tmp_path, words):
    await install(home, native(tmp_path / "folder", "ways", code=f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n"))
    done = await home.run(*words, "-m", "scripted", "hi")
    assert (done.status, done.out) == (0, "You said: hi\n") and not (tmp_path / "ran").exists()
    done = await home.run("--safe", "-m", "scripted", stdin=b"hello\n")
    assert (done.status, done.out) == (0, "You said: hello\n") and not (tmp_path / "ran").exists()
    await home.run("ask", "-m", "scripted", "hi")
    assert (tmp_path / "ran").exists()


async def test_without_plugins_no_plugin_code_is_imported(home):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", "-m", "alipes", "ask", "-m", "scripted", "hi"),
        env=home.environ(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, report = await process.communicate()
    loaded = {line.rpartition("|")[2].strip() for line in report.decode().splitlines()}
    assert not {name for name in loaded if name.startswith(("alipes.compat", "alipes.cli.plugins"))}
    assert not loaded & {"yaml", "tomlkit"}


# --- commands of plugins


async def test_a_plugin_command_gets_its_arguments_and_sets_the_exit_status(home, tmp_path):
    await with_commands(home, tmp_path)
    done = await home.run("shout", "--times", "2", "hey")
    assert (done.status, done.out) == (0, "HEYHEY\n")
    assert (await home.run("shout", "three")).status == 3
    assert (await home.run("whisper")).out == "psst\n"
    assert (await home.run("alone")).out == "on a loop of its own\n"
    assert (await home.run("wonder", "why?")).out == "You said: why?\n"
    assert "alipes shout" in (await home.run("plugins", "list")).out


async def test_usage_errors_help_and_sys_exit_of_a_plugin_command(home, tmp_path):
    await with_commands(home, tmp_path)
    done = await home.run("shout", "--help")
    assert done.status == 0 and "usage: alipes shout" in done.out and "say it loud" in done.out
    done = await home.run("help", "shout")
    assert done.status == 0 and "usage: alipes shout" in done.out
    done = await home.run("shout")
    assert done.status == 2 and "word" in done.err
    done = await home.run("leave")
    assert done.status == 1 and done.err == "no reason\n"


async def test_a_failing_plugin_command_is_reported_with_the_plugins_name(home, tmp_path):
    await with_commands(home, tmp_path)
    done = await home.run("fail")
    assert done.status == 1 and "plugin noisy" in done.err and "Traceback" not in done.err
    assert "AttributeError" in (home.path / "logs" / "alipes.log").read_text()


async def test_builtin_commands_take_precedence_and_unknown_ones_get_suggestions(home, tmp_path):
    await with_commands(home, tmp_path)
    assert (await home.run("ask", "-m", "scripted", "hi")).out == "You said: hi\n"
    done = await home.run("shuot", "x")
    assert done.status == 2 and "Did you mean shout?" in done.err
    done = await home.run("plugins", "disable", "noisy")
    done = await home.run("shout")
    assert done.status == 2 and "unknown command 'shout'" in done.err


async def test_a_command_that_waits_for_a_key_ends_with_ctrl_c(home, tmp_path):
    await with_commands(home, tmp_path)
    async with home.started("wait", stdin=asyncio.subprocess.PIPE) as process:
        await read_until(process.stdout, "waiting")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(LIMIT_S):
            assert await process.wait() == 130


# --- creating one


@pytest.mark.deadline(120)
@pytest.mark.parametrize("words", [[], ["--hermes"]])
async def test_the_tests_of_a_new_plugin_pass(home, tmp_path, words):
    done = await home.run("plugins", "new", "my-notes", *words)
    assert done.status == 0, done.err
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"),
        cwd=tmp_path / "my-notes",
        env=home.environ(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0 and b"3 passed" in out, out.decode()


# --- consent


async def at_a_terminal(home: Home, answer: str, *words: str) -> tuple[int, str]:
    """Run the program with a terminal as its standard input, and type `answer` when it asks."""
    ours, theirs = pty.openpty()
    try:
        async with home.started(*words, stdin=theirs) as process:
            await read_until(process.stderr, "[y/N]")
            os.write(ours, f"{answer}\n".encode())
            done = await wait_finished(process)
            return done.status, done.out
    finally:
        os.close(ours)
        os.close(theirs)


async def test_at_a_terminal_install_and_remove_ask_for_confirmation(home, tmp_path):
    source = str(native(tmp_path / "folder", "ways"))
    status, said = await at_a_terminal(home, "", "plugins", "install", source)
    assert status == 1 and "look_up" in said
    assert (await home.run("plugins", "list", "--json")).out == "[]\n"
    status, said = await at_a_terminal(home, "y", "plugins", "install", source)
    assert status == 0 and "installed and enabled" in said
    status, said = await at_a_terminal(home, "yes", "plugins", "remove", "ways")
    assert status == 0 and "removed" in said


async def test_an_interrupt_at_the_confirmation_leaves_nothing_behind(home, tmp_path):
    ours, theirs = pty.openpty()
    async with home.started("plugins", "install", str(native(tmp_path / "folder")), stdin=theirs) as process:
        await read_until(process.stderr, "[y/N]")
        process.send_signal(signal.SIGINT)
        assert (await wait_finished(process)).status == 130
    os.close(ours)
    os.close(theirs)
    assert [path.name for path in (home.path / "plugins").iterdir()] == []


async def test_a_folder_without_a_plugin_is_rejected(home):
    done = await home.run("plugins", "install", str(ROOT / "docs"), "--yes")
    assert done.status == 2 and "no plugin" in done.err and "Traceback" not in done.err


NOISY = """
import os, subprocess, threading
print("printed at import")

async def setup(ctx):
    print("printed in setup")
    os.write(1, b"written to descriptor 1\\\\n")
    subprocess.run(["echo", "printed by a child"], check=True)
    thread = threading.Thread(target=print, args=("printed by a thread",))
    thread.start()
    thread.join()

async def turn_ended(turn):
    print("printed in a hook")
"""


@pytest.mark.parametrize("command", [("ask", "hi"), ("ask", "--json", "hi"), ("plugins", "doctor", "--json")])
async def test_what_a_plugin_prints_is_not_part_of_the_output(tmp_path, command):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("the answer")]) as server:
        home.use(server)
        folder = home.path / "plugins" / "noisy"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(NOISY.replace("\\\\", "\\"))
        with (home.path / "config.toml").open("a") as file:
            file.write('[plugins]\nenabled = ["noisy"]\n')
        done = await home.run(*command)
    assert done.status == 0
    if "--json" in command:
        lines = done.out.splitlines() if command[0] == "ask" else [done.out]
        assert all(msgspec.json.decode(line) for line in lines)
    else:
        assert done.out == "the answer\n"
    for each in ("at import", "in setup", "by a child", "by a thread"):
        assert f"printed {each}\n" in done.err
    assert "written to descriptor 1\n" in done.err
    if command[0] == "ask":
        assert "printed by a plugin: printed in a hook" in (home.path / "logs" / "alipes.log").read_text()


async def test_ask_says_that_a_plugin_was_not_loaded(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("the answer")]) as server:
        home.use(server)
        with (home.path / "config.toml").open("a") as file:
            file.write('[plugins]\nenabled = ["nowhere"]\n')
        done = await home.run("ask", "hi")
    assert (done.status, done.out) == (0, "the answer\n")
    assert "alipes: plugin nowhere is not loaded: there is no plugin nowhere." in done.err


async def test_a_changed_plugin_is_not_loaded_until_it_is_accepted(tmp_path):
    home = Home(tmp_path / "home")
    folder = home.path / "plugins" / "mine"
    folder.mkdir(parents=True)
    (folder / "plugin.toml").write_text('name = "mine"\n')
    (folder / "__init__.py").write_text("async def answer_text(text): return text + ' one'\n")
    assert (await home.run("plugins", "enable", "mine")).status == 0
    assert "hi one" in (await home.run("ask", "-m", "scripted", "hi")).out

    (folder / "__init__.py").write_text("async def answer_text(text): return text + ' two'\n")
    done = await home.run("ask", "-m", "scripted", "hi")
    assert done.out == "You said: hi\n"
    assert "plugin mine is not loaded: its files changed since you accepted them (changed: __init__.py)." in done.err
    assert "`alipes plugins accept mine`" in done.err

    done = await home.run("plugins", "accept", "mine", "--yes")
    assert done.status == 0 and "changed: __init__.py" in done.out
    assert "hi two" in (await home.run("ask", "-m", "scripted", "hi")).out
    assert (await home.run("plugins", "accept", "mine")).out == "mine has not changed.\n"
