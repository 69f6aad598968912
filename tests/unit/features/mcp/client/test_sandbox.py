"""Started servers run in the sandbox: their project is writable, the home is hidden, nothing outlives them."""

import asyncio
import os
import shutil

import pytest
from msgspec import structs

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.client.definitions import McpError
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from tests.world.mcp_harness import SCRIPT, events, open_host, world_server
from tests.world.sandboxes import open_backend
from tests.world.wait import until

pytestmark = pytest.mark.deadline(60)


def text_of(result) -> str:
    return "".join(part.text for part in result.content)


@pytest.fixture
def places(tmp_path):
    """The user's home, a project and the folder of the server's notes, which it may write to."""
    for name in ("home/.alipes", "home/project", "home/other", "notes"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/.alipes/config.toml").write_text("x")
    shutil.copy(SCRIPT, tmp_path / "notes" / "server.py")  # Landlock shows the system, not this repository
    return tmp_path


def sandboxed_server(places):
    notes = places / "notes"
    args = ("-S", "-I", str(notes / "server.py"), "normal", str(notes))
    return structs.replace(world_server(notes), args=args, write=(str(notes),))


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_a_server_may_change_its_project_and_listed_paths_only(places, kind):
    home, project, notes = places / "home", places / "home/project", places / "notes"
    config = sandboxed_server(places)
    async with open_backend(kind, home=home) as backend, open_host(places, backend) as host:
        async with open_connection("world", config, host, workdir=str(project)) as connection:

            async def try_files(path) -> str:
                return text_of(await connection.call_tool("files", {"path": str(path)}))

            assert await try_files(project) == "listed 0, written"
            assert (project / "made-by-server").read_text() == "x"
            assert "written" in (await try_files(notes)).split(", ")
            assert "written" not in (await try_files(home / "other")).split(", ")
            hidden = await try_files(home / ".alipes")
            assert "written" not in hidden.split(", ")
            assert not hidden.startswith("listed 1")
            assert "written" not in (await try_files("/usr")).split(", ")
        assert events(notes, "started")


async def test_children_of_a_sandboxed_server_end_with_it(places):
    home, project = places / "home", places / "home/project"
    config = sandboxed_server(places)
    name = str(os.getpid())
    async with open_backend("bubblewrap", home=home) as backend, open_host(places, backend) as host:
        async with open_connection("world", config, host, workdir=str(project)) as connection:
            await connection.call_tool("children", {"name": name})
            await until(lambda: sleepers(name))
        await until(lambda: not sleepers(name))


def sleepers(name: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
        except OSError:
            continue
        if f"300.{name}".encode() in line and line.startswith((b"sleep", b"/bin/sh")):
            found.append(pid)
    return found


async def test_the_network_of_a_server_is_closed_with_it(places):
    closed = []

    class Network(NetworkNamespaces):
        async def close(self, session: str) -> None:
            closed.append(session)

    async with open_host(places, network=Network()) as host:
        async with open_connection("world", world_server(places / "notes"), host, workdir=str(places)):
            await asyncio.sleep(0)
    assert len(closed) == 1
    assert closed[0].startswith("mcp:world:")


async def test_a_script_that_the_sandbox_hides_is_named(places):
    script = places / "hidden.py"
    shutil.copy(SCRIPT, script)
    config = structs.replace(sandboxed_server(places), args=("-S", "-I", str(script), "normal", "."), write=())
    async with open_backend("bubblewrap", home=places / "home") as backend, open_host(places, backend) as host:
        with pytest.raises(McpError) as error:
            async with open_connection("world", config, host, workdir=str(places / "home/project")):
                pass
    assert f"The sandbox hides {script}: install it outside of /tmp, or add its folder to `write`" in str(error.value)
