"""Choosing the backend of commands."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.sandbox.backend import CommandScope, HostBackend
from alipes.runtime.sandbox.running_commands import RunningCommands
from alipes.tools import backends
from alipes.tools.backends import ChosenBackend


class FakeSandbox(HostBackend):
    contains = True

    def __init__(self, name, problem=""):
        super().__init__()
        self.name, self.problem, self.checks = name, problem, 0

    async def check(self):
        self.checks += 1
        return self.problem


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    monkeypatch.setattr(backends, "SANDBOXES", ("bubblewrap", "landlock"))


def choose(setting="auto", saved=None, **sandboxes):
    made = {name: FakeSandbox("sandbox", problem) for name, problem in sandboxes.items()}
    makers = {"host": HostBackend, **{name: (lambda each=each: each) for name, each in made.items()}}
    return ChosenBackend(setting, makers, saved=saved), made


async def test_the_best_sandbox_that_works_is_chosen():
    chosen, made = choose(bubblewrap="", landlock="")
    assert await chosen.choose() is made["bubblewrap"]
    assert chosen.contains and chosen.warning == ""


async def test_the_weaker_sandbox_is_taken_with_a_word():
    chosen, made = choose(bubblewrap="bwrap is not installed", landlock="")
    made["landlock"].describe_gaps = lambda: ["Commands can see the names of other processes."]
    assert await chosen.choose() is made["landlock"]
    assert chosen.warning == (
        "Commands run in Landlock instead of bubblewrap, which protects less (see `alipes doctor`). "
        "Fix: install bubblewrap (apt install bubblewrap)."
    )
    assert "protects less than bubblewrap" in chosen.description


async def test_bubblewrap_that_is_installed_but_fails_is_not_to_be_installed():
    chosen, made = choose(bubblewrap="bwrap: No permissions to create new namespace", landlock="")
    made["landlock"].describe_gaps = lambda: ["Commands can see the names of other processes."]
    await chosen.choose()
    assert "Fix: let bubblewrap make namespaces (docs/sandbox.md). Reason: bubblewrap: bwrap: No perm" in chosen.warning


async def test_folders_are_listed_in_which_commands_of_a_model_run_in_the_sandbox(tmp_path):
    running, work = RunningCommands(), str(tmp_path)
    turn = Turn("t", "s1", Inbound("1", Address("terminal", "x"), "x", "go", workdir=work))
    async with ChosenBackend("auto", {"host": HostBackend, "bubblewrap": lambda: FakeSandbox("sandbox")}) as chosen:
        chosen.report_to(running)
        await chosen.choose()
        scopes = (
            (CommandScope("s1", work, turn), {work}),
            (CommandScope("s1", work, turn, outside=True), set()),
            (CommandScope("mcp", work, turn), set()),  # a server that the user set up
        )
        for scope, expected in scopes:
            async with chosen.open("true", scope, cwd=work, env={}):
                assert running.list_folders() == expected
            assert running.list_folders() == set()


async def test_a_sandbox_that_is_installed_and_does_not_work_says_why():
    chosen, _ = choose(bubblewrap="it may make no namespaces", landlock="")
    await chosen.choose()
    assert chosen.warning.endswith("Reason: bubblewrap: it may make no namespaces")


class SlowSandbox(FakeSandbox):
    """Its preparation waits until it is released, and counts."""

    def __init__(self):
        super().__init__("sandbox")
        self.may_end, self.begun, self.ended = asyncio.Event(), 0, 0

    async def prepare(self, scope):
        self.begun += 1
        try:
            await self.may_end.wait()
            raise OSError("it cannot be made")
        finally:
            self.ended += 1


@asynccontextmanager
async def expecting():
    sandbox = SlowSandbox()
    async with ChosenBackend("auto", {"host": HostBackend, "bubblewrap": lambda: sandbox}) as chosen:
        await chosen.choose()
        for _ in range(2):
            chosen.expect(CommandScope("s1"))
        await asyncio.sleep(0)
        yield chosen, sandbox
    assert sandbox.begun == sandbox.ended


async def test_a_command_waits_for_its_preparation_and_says_itself_what_is_wrong(tmp_path):
    async with expecting() as (chosen, sandbox):
        assert sandbox.begun == 1, "prepared twice"

        async def run(**scope):
            async with chosen.open("echo out", CommandScope(**scope), cwd=str(tmp_path), env={}) as child:
                return await child.read(), sandbox.ended

        assert await run(session="s2") == (b"out\n", 0)
        assert await run(session="s1", outside=True) == (b"out\n", 0)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(run(session="s1"))
            await asyncio.sleep(0)
            sandbox.may_end.set()
        assert waiting.result() == (b"out\n", 1)


async def test_the_end_of_a_conversation_and_of_the_program_end_a_preparation():
    async with expecting() as (chosen, sandbox):
        await chosen.session_left("s1")
        assert sandbox.ended == 1
        chosen.expect(CommandScope("s1"))
        await asyncio.sleep(0)
        assert sandbox.begun == 2


async def test_without_a_sandbox_commands_are_refused_with_the_reason(tmp_path):
    chosen, _ = choose(bubblewrap="/var/tmp/alipes-0 belongs to another user", landlock="this kernel has no Landlock")
    await chosen.choose()
    assert chosen.name == "none"
    for why in ("belongs to another user", "no Landlock", "install bubblewrap", 'sandbox.backend = "host"'):
        assert why in chosen.warning
    with pytest.raises(OSError, match="Commands are refused, because no sandbox works here"):
        async with chosen.open("echo out", CommandScope(), cwd=str(tmp_path), env={}):
            pass
    assert "refused" in chosen.description


async def test_commands_run_as_soon_as_a_sandbox_works(tmp_path):
    chosen, made = choose(bubblewrap="bwrap is not installed")
    await chosen.choose()
    made["bubblewrap"].problem = ""
    async with chosen.open("echo in", CommandScope(), cwd=str(tmp_path), env={"PATH": "/usr/bin:/bin"}) as child:
        assert await child.read() == b"in\n"
    assert chosen.warning == ""


async def test_where_there_is_no_sandbox_at_all_commands_run_on_the_host_and_the_person_is_warned(monkeypatch):
    monkeypatch.setattr(backends, "has_sandboxes", lambda: False)
    chosen, _ = choose(bubblewrap="bwrap is not installed")
    await chosen.choose()
    assert chosen.name == "host" and not chosen.contains
    assert chosen.warning.startswith("No sandbox: commands run with all your rights.")
    assert "without a sandbox" in chosen.description


async def test_a_host_that_was_chosen_needs_no_warning():
    chosen, _ = choose("host")
    await chosen.choose()
    assert (chosen.name, chosen.warning, chosen.description) == ("host", "", "")


@pytest.mark.parametrize("setting", ["sandbox", "docker"])
async def test_a_configured_backend_that_does_not_work_is_an_error(setting):
    chosen, _ = choose(setting, bubblewrap="no", landlock="no", docker="docker is not running")
    with pytest.raises(ConfigError, match=f"sandbox.backend = {setting} does not work here: "):
        await chosen.choose()


async def test_the_result_is_remembered_until_the_system_changes(tmp_path, monkeypatch):
    saved = tmp_path / "check.json"
    first, _ = choose(saved=saved, bubblewrap="", landlock="")
    await first.choose()
    second, made = choose(saved=saved, bubblewrap="", landlock="")
    await second.choose()
    assert made["bubblewrap"].checks == 0
    monkeypatch.setattr(backends, "_describe_system", lambda: "another boot")
    third, made = choose(saved=saved, bubblewrap="", landlock="")
    await third.choose()
    assert made["bubblewrap"].checks == 1


async def test_a_damaged_result_is_ignored(tmp_path):
    (tmp_path / "check.json").write_text("{")
    chosen, made = choose(saved=tmp_path / "check.json", bubblewrap="", landlock="")
    assert await chosen.choose() is made["bubblewrap"]


async def test_an_approved_command_runs_outside(tmp_path):
    chosen, made = choose(bubblewrap="", landlock="")
    made["bubblewrap"].open = None  # it would fail there
    scope = CommandScope(workdir=str(tmp_path), outside=True)
    async with chosen.open("echo out", scope, cwd=str(tmp_path), env={"PATH": "/usr/bin:/bin"}) as child:
        assert await child.read() == b"out\n"


async def test_paths_are_opened_for_the_command_that_was_approved_and_no_other(tmp_path):
    chosen, made = choose(bubblewrap="", landlock="")
    scopes = list[CommandScope]()
    opened_by = made["bubblewrap"].open

    def remember(command, scope, **more):
        scopes.append(scope)
        return opened_by(command, scope, **more)

    made["bubblewrap"].open = remember
    inbound = Inbound("i", Address("cli", "c"), "me", "hi")
    chosen.open_paths(ToolCall("c1", "terminal", {}), Turn("t", "s1", inbound), ("/p/ci.yml",))
    for session, call in (("s1", "c0"), ("s2", "c1"), ("s1", ""), ("s1", "c1"), ("s1", "c1")):
        async with chosen.open("true", CommandScope(session, call=call), cwd="/", env={}) as child:
            await child.wait()
    assert [scope.write for scope in scopes] == [(), (), (), ("/p/ci.yml",), ()]
