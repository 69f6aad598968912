"""Commands that only a person may run are refused to processes of the agent, however these are started."""

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from alipes.cli.main import list_commands
from tests.e2e.program import Finished, Home, wait_finished
from tests.world.environment import require

AGENT = """
import asyncio, os, sys
from contextlib import ExitStack
from pathlib import Path
from alipes.runtime.processes.ancestors import name_agent_process
from alipes.runtime.processes.child import open_child
from alipes.store.sqlite.peers import open_processes

async def main(signs, command):
    with ExitStack() as stack:
        if "name" in signs:
            name_agent_process()
        if "lock" in signs:
            stack.enter_context(open_processes(Path(os.environ["ALIPES_HOME"]), timeout_s=1).register())
        async with open_child(["/bin/sh", "-c", command], cwd=os.getcwd(), env=dict(os.environ)) as child:
            while piece := await child.read():
                os.write(1, piece)
            return await child.wait()

sys.exit(asyncio.run(main(*sys.argv[1:])))
"""
"""An agent process that runs one shell command. `signs`: how it can be recognised, besides the mark."""
ALIPES = f"{shlex.quote(sys.executable)} -m alipes"
UNMARK = (
    "import os, resource; resource.setrlimit(resource.RLIMIT_RTTIME, (-1, -1)); os.execvp('sh', ['sh', '-c', '{}'])"
)
SET = "config set model ollama/other"


async def run_as_agent(home: Home, command: str, *, signs: str = "name", **more: str) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AGENT, signs, command),
        env=home.environ(**more),
        cwd=home.path.parent,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return await wait_finished(process)


def unmarked(command: str) -> str:
    """The shell command without the mark that children of the agent inherit."""
    assert "'" not in command
    return f'{shlex.quote(sys.executable)} -c "{UNMARK.format(command)}"'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.mark.parametrize(
    "words",
    [
        "ask -y hi",
        "ask --mode all hi",
        "ask --mode edits hi",
        "ask -qy hi",
        "ask --session mine hi",
        "ask --continue hi",
        "-y",
        "serve",
        "serve key",
        "serve --replace",
        "page",
        "page revoke --all",
        "config set model ollama/other",
        "config unset model",
        "plugins install x",
        "plugins --ref list install x",
        "plugins enable x",
        "pair",
        "webhook list",
        "backup",
        "restore x",
        "sessions",
        "setup",
        "send telegram hi",
        "model ollama/other",
        "config set spend.day --help",
    ],
)
async def test_command_for_people_is_refused_to_the_agent(home, words):
    done = await run_as_agent(home, f"{ALIPES} {words}")
    assert done.status == 2 and "refused, because this was started by alipes itself (process " in done.out
    assert "Run it in your own terminal." in done.out


async def test_every_command_for_people_is_refused_without_words_too(home):
    refused = [command.name for command in list_commands() if command.is_for_people([])]
    run_all = f"from alipes.cli.main import main; print([main([name]) for name in {refused}])"
    done = await run_as_agent(home, shlex.join([sys.executable, "-c", run_all]))
    said = [line for line in done.out.splitlines() if ": refused, because this was started by alipes itself" in line]
    assert [line.split()[1].rstrip(":") for line in said] == refused and str([2] * len(refused)) in done.out


async def test_the_message_names_the_command_and_the_process(home):
    done = await run_as_agent(home, f"echo $PPID; {ALIPES} {SET}")
    pid = done.out.split()[0]
    said = f"alipes config set: refused, because this was started by alipes itself (process {pid}). "
    assert done.out.partition("\n")[2] == f"{said}Run it in your own terminal.\n"


@pytest.mark.parametrize(
    "words",
    ["--version", "config set --help", "config path", "config show", "model", "plugins list", "skills", "sessions -h"],
)
async def test_the_agent_may_run_commands_that_only_read(home, words):
    done = await run_as_agent(home, f"{ALIPES} {words.replace('set --help', '--help')}")
    assert done.status == 0 and "refused" not in done.out


async def test_the_agent_may_ask_without_trust(home):
    done = await run_as_agent(home, f"{ALIPES} ask -q -m scripted hello")
    assert (done.status, done.out) == (0, "You said: hello\n")


async def test_a_person_may_run_the_same_commands(home):
    assert (await home.run(*SET.split())).status == 0
    assert (await home.run("ask", "-y", "-q", "-m", "scripted", "hello")).out == "You said: hello\n"


TRICKS = {
    "cleared environment": "env -i HOME=$HOME ALIPES_HOME=$ALIPES_HOME PYTHONPATH=$PYTHONPATH {}",
    "new session": "setsid -w {}",
    "nohup": "nohup {}",
    "other name": "exec -a bash sh -c '{}; exit $?'",
    "python": "python3 -c \"import subprocess, sys; sys.exit(subprocess.call('{}'.split()))\"",
    "other home": "ALIPES_HOME=$PWD/other {}",
    "cleared mark": unmarked("{}"),
    "cleared mark and environment": "env -i PATH=$PATH HOME=$HOME PYTHONPATH=$PYTHONPATH " + unmarked("{}"),
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_trick_does_not_hide_the_agent(home, trick):
    command = TRICKS[trick].replace("{}", f"{ALIPES} {SET}")
    shell = "bash -c " + shlex.quote(command) if "exec -a" in command else command
    done = await run_as_agent(home, shell)
    assert done.status == 2 and "refused, because this was started by alipes itself" in done.out


async def test_a_double_fork_does_not_hide_the_agent(home):
    again = unmarked(f"{ALIPES} {SET} > said 2>&1; echo end >> said")
    done = await run_as_agent(
        home, f"(setsid {again} >/dev/null 2>&1 &); until grep -qs end said; do sleep 0.05; done; cat said"
    )
    assert "refused, because this was started by alipes itself" in done.out


async def test_an_agent_without_the_name_is_found_by_its_lock(home):
    done = await run_as_agent(home, unmarked(f"{ALIPES} {SET}"), signs="lock")
    assert done.status == 2 and "refused" in done.out


async def test_an_agent_that_is_not_visible_is_found_by_its_mark(home):
    done = await run_as_agent(home, f"{ALIPES} {SET}", signs="")
    assert done.status == 2 and "refused" in done.out


async def test_a_lock_of_another_process_refuses_nothing(home):
    async with home.started("ask", "-m", "scripted", "!say begun\n!wait 100") as asking:
        assert asking.stdout is not None
        await asking.stdout.read(5)
        assert (await home.run(*SET.split())).status == 0


async def test_a_terminal_of_the_agent_is_not_a_person(home):
    """In a pseudo terminal the agent could type the answer to a question; so nobody is asked there."""
    call = '!call terminal {"command": "echo x >> $HOME/.bashrc"}'
    (home.path.parent / "input").write_text(f"{call}\ny\n")
    done = await run_as_agent(home, f"script -qec '{ALIPES} -m scripted' /dev/null < input")
    assert "terminal (denied)" in done.out and "/help for commands" not in done.out
    assert not (home.path.parent / ".bashrc").exists()


async def test_a_pid_namespace_does_not_hide_the_agent(home):
    unshare = [require("unshare", "util-linux"), "-rpf", "--mount-proc"]
    probe = await asyncio.create_subprocess_exec(*unshare, "true", stderr=asyncio.subprocess.DEVNULL)
    if await probe.wait() != 0:
        pytest.skip("this machine has no namespaces for users")
    done = await run_as_agent(home, f"{' '.join(unshare)} {unmarked(f'{ALIPES} {SET}')}", signs="name lock")
    assert done.status == 2 and "refused" in done.out
