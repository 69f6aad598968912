"""Commands in the sandbox and file tools see the same files outside of the project."""

import os

import pytest

from alipes.agent.approval.approval import ApprovalGate
from alipes.config.settings import SandboxConfig
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.sandbox import ProjectSandboxes, SandboxExtras
from tests.world.sandboxes import SANDBOXES, open_backend


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_file_that_a_person_allowed_is_seen_by_commands_too(name, tmp_path):
    home, work, other = tmp_path / "home", tmp_path / "home" / "p1", tmp_path / "home" / "p2"
    for folder in (work, other / ".git"):
        folder.mkdir(parents=True)
    (other / "README.md").write_text("welcome\n")
    (other / ".env").write_text("KEY=canary\n")
    extras = SandboxExtras()
    more = {"home": str(home), "alipes_home": home / ".alipes", "environ": {}, "extras": extras}
    projects = ProjectSandboxes(SandboxConfig(), **more)
    places = Places(home=str(home), alipes_home=str(home / ".alipes"), scratch=())
    boundary = FileBoundary(places, lambda scope: (projects.make_policy(scope), True))
    extras.add_grants(boundary.granted)
    turn = Turn("t", "s1", Inbound("1", Address("terminal", "x"), "x", "go", workdir=str(work)))
    asked = list[str]()

    async def ask(call, risk, turn, *more):
        asked.append(risk.reason)
        return "session"

    async with open_backend(name, home=home, extras=extras) as backend:

        async def run(script):
            scope, output = CommandScope("s1", str(work)), b""
            environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
            async with backend.open(script, scope, cwd=str(work), env=environ) as child:
                while piece := await child.read():
                    output += piece
                await child.wait()
            return output.decode()

        assert "welcome" not in await run("cat ../p2/README.md")
        read = ToolCall("c", "read_file", {"path": "../p2/README.md"})
        assert await ApprovalGate(boundary, ask).before_tool(read, turn) is None
        boundary.release("s1")
        assert len(asked) == 1
        assert await run("cat ../p2/README.md") == "welcome\n"
        assert "canary" not in await run("cat ../p2/.env; echo x > ../p2/new")
    assert not (other / "new").exists()


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_tilde_is_the_home_of_the_user_unless_a_command_made_the_file(name, tmp_path):
    home, work = tmp_path / "home", tmp_path / "home" / "p1"
    work.mkdir(parents=True)
    extras = SandboxExtras()
    more = {"home": str(home), "alipes_home": home / ".alipes", "environ": {}, "extras": extras}
    turn = Turn("t", "s1", Inbound("1", Address("terminal", "x"), "x", "go", workdir=str(work)))
    scope, asked = CommandScope("s1", str(work)), list[str]()

    async def ask(call, risk, turn, *more):
        asked.append(str(risk.question.args["path"]))
        return "once"

    async with open_backend(name, home=home, extras=extras) as backend:
        projects = ProjectSandboxes(SandboxConfig(), **more)

        def map_path(path, workdir):
            return backend.host_path(path, scope)

        places = Places(home=str(home), alipes_home=str(home / ".alipes"), scratch=(), map_path=map_path)
        boundary = FileBoundary(places, lambda scope: (projects.make_policy(scope), True))
        gate = ApprovalGate(boundary, ask)
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        script = "mkdir ~/out && echo made > ~/made.txt && echo $HOME"
        async with backend.open(script, scope, cwd=str(work), env=environ) as child:
            seen = (await child.read()).decode().strip()
            await child.wait()

        async def open_with(tool, path):
            call = ToolCall(f"{tool} {path}", tool, {"path": path, "content": "x"})
            assert await gate.before_tool(call, turn) is None
            opened = boundary.hold(("s1", call.id), path, str(work)).real
            boundary.release("s1")
            return opened

        assert await open_with("write_file", "~/notes.txt") == str(home / "notes.txt")
        assert asked == ["~/notes.txt"]
        if seen == str(home):  # with Landlock alone, commands see their home where it is
            assert (await open_with("read_file", "~/made.txt")).startswith(str(home / ".alipes"))
            assert (await open_with("write_file", "~/out/more.txt")).endswith("/out/more.txt")
            assert asked == ["~/notes.txt"]
