"""Two alipes: one offers its conversations at `/mcp`, the other uses them as tools of an MCP server."""

from pathlib import Path

import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve
from tests.world.model_server import Call, Calls, ModelServer, Say

pytestmark = pytest.mark.deadline(120)
KEY = "key-of-a-0123456789abcdef"


def make_home(path: Path, model: ModelServer, secrets: str, tables: str = "") -> Home:
    path.mkdir(mode=0o700)
    home = Home(path / "home")
    home.use(model)
    with open(home.path / "config.toml", "a") as file:
        file.write(tables)
    (home.path / ".env").write_text(f"{secrets}\n")
    (home.path / ".env").chmod(0o600)
    return home


def server_table(address: str) -> str:
    return (
        f'[mcp]\nwait = 60\n[mcp.servers.a]\nurl = "{address}/mcp"\napprove = "never"\n'
        '[mcp.servers.a.headers]\nAuthorization = "Bearer ${KEY_OF_A}"\n'
    )


async def test_another_alipes_is_asked_and_its_answer_reaches_the_model_as_untrusted_text(tmp_path: Path):
    asks = Calls((Call("mcp__a__ask", {"prompt": "What is the word?"}),))
    async with ModelServer((Say("The word is larch."),)) as model_a, ModelServer((asks, Say("Larch."))) as model_b:
        a = make_home(tmp_path / "a", model_a, f"ALIPES_API_KEY={KEY}")
        async with open_serve(a) as served:
            b = make_home(tmp_path / "b", model_b, f"KEY_OF_A={KEY}", server_table(served.address))
            done = await b.run("ask", "ask the other one")
    assert done.status == 0 and done.out == "Larch.\n", done.err
    assert "What is the word?" in str(model_a.bodies[0]["messages"][-1])
    offered = {tool["function"]["name"] for tool in model_b.bodies[0]["tools"]}
    assert {"mcp__a__ask", "mcp__a__follow"} <= offered
    result = model_b.bodies[1]["messages"][-1]
    assert result["content"] == '<untrusted source="mcp__a__ask">\nThe word is larch.\n</untrusted>'
    assert KEY not in str(model_b.bodies)
