"""What one conversation leaves in the sandbox is not there for another one, except for downloads."""

import os

import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.world.sandboxes import SANDBOXES, open_backend

PLANT = """
mkdir -p ~/.config/git ~/.local/lib; echo '[core] pager = planted-here' > ~/.config/git/config
echo 'print("planted-here")' > ~/.local/lib/usercustomize.py; echo planted-here > ~/.bashrc; echo planted-here > "$TMPDIR/agent.sock"
echo package > ~/.cache/pip/package; echo crate > ~/.cargo/registry/crate; echo mine
"""
LOOK = 'cat ~/.cache/pip/package ~/.cargo/registry/crate 2> /dev/null; cd; grep -rsl --exclude-dir=tests --exclude-dir=__pycache__ planted-here ~ "$TMPDIR" /var/tmp; true'


@pytest.mark.parametrize("name", SANDBOXES)
async def test_nothing_that_one_conversation_plants_is_read_by_another(name, tmp_path):
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    async with open_backend(name, home=home) as backend:

        async def run(script, session):
            output = b""
            scope = CommandScope(session, str(project))
            async with backend.open(script, scope, cwd=str(project), env=environ) as child:
                while piece := await child.read():
                    output += piece
                await child.wait()
            return output.decode()

        assert await run(PLANT, "one") == "mine\n"
        assert "usercustomize.py" in await run(LOOK, "one")
        downloads = "" if name == "landlock alone" else "package\ncrate\n"  # without mounts nothing is shared
        assert await run(LOOK, "two") == downloads
