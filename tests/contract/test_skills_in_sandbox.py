"""A sandboxed command reads and runs the files of a skill, sees nothing else of the alipes home, and changes nothing."""

import os
from pathlib import Path

import pytest

from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.sandbox import SandboxExtras
from tests.world.sandboxes import open_backend, open_machine

SCRIPT = "cat {skill}/SKILL.md; sh {skill}/go.sh; cat {home}/.alipes/skills/other/SKILL.md {home}/.alipes/.env; echo x > {skill}/new"


@pytest.fixture
def machine(tmp_path, name):
    with open_machine(name, tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "podman", "ssh"])
@pytest.mark.deadline(60)
async def test_only_the_folders_of_usable_skills_are_visible_and_they_are_read_only(tmp_path, name, machine):
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    skill = _put(home / ".alipes" / "skills" / "tea", "Boil water.")
    _put(home / ".alipes" / "skills" / "other", "canary-other")
    (home / ".alipes" / ".env").write_text("canary-env")
    project.mkdir()
    extras = SandboxExtras(folders=[lambda _workdir: (str(skill),)])
    async with open_backend(name, home=home, extras=extras, machine=machine) as backend:
        said = b""
        command, env = SCRIPT.format(skill=skill, home=home), {"PATH": os.environ["PATH"], "HOME": str(home)}
        async with backend.open(command, CommandScope("s1", str(project)), cwd=str(project), env=env) as child:
            while piece := await child.read():
                said += piece
            await child.wait()
    assert b"Boil water." in said and b"went" in said and b"canary" not in said
    assert not (skill / "new").exists()


def _put(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    (folder / "go.sh").write_text("echo went")
    return folder
