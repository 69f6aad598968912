"""Keys in the home's `.env` reach plugins that look for them in the environment alone, while one is open."""

import os

from tests.unit.compat.agent_harness import open_harness

PLUGIN = """
import os
SEEN = {}

def register(ctx):
    SEEN.update(needed=os.environ.get("SKY_KEY"), other=os.environ.get("SEA_KEY"))
    ctx.register_tool("sky", "sky", {"type": "object", "properties": {}}, lambda args: str(SEEN))
"""


async def test_the_variables_it_names_are_lent_and_taken_back(tmp_path):
    home = tmp_path / "house"
    folder = home / "plugins" / "sky"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    (folder / "plugin.yaml").write_text("name: sky\nrequires_env: [SKY_KEY]\n")
    (home / ".env").write_text("SKY_KEY=blue-blue-blue\nSEA_KEY=green-green-green\n")
    (home / ".env").chmod(0o600)
    async with open_harness(tmp_path, config={"plugins": {"enabled": ["sky"]}}) as agent:
        seen = (await agent.app.host.run_tool("sky", {})).text
        assert "'needed': 'blue-blue-blue'" in seen
        assert "'other': None" in seen, "what it does not name is not shown to it"
    assert "SKY_KEY" not in os.environ
