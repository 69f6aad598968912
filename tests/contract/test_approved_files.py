"""A yes to a change of a protected file takes effect in every sandbox, for this file and this command only."""

import os

import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.world.sandboxes import SANDBOXES, open_backend

CHANGE = "cd .github/workflows; for file in ci.yml other.yml; do echo b > $file; done; sed -i s/b/c/ ci.yml; true"
RUN_LATER = (
    *(".hg/hgrc", ".jj/repo/config.toml", ".zed/tasks.json", ".vscode/mcp.json", ".cargo/config.toml", ".bazelrc"),
    *(".mvn/extensions.xml", ".yarn/releases/y.cjs", ".pylintrc", "x.sublime-project", ".lfsconfig", ".vim/vimrc"),
)


@pytest.mark.parametrize("name", SANDBOXES)
async def test_an_approved_change_of_a_ci_file_takes_effect_once(name, tmp_path):
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    folder = project / ".github" / "workflows"
    folder.mkdir(parents=True)
    for file in ("ci.yml", "other.yml"):
        (folder / file).write_text("a\n")
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def contents():
        return [(folder / file).read_text() for file in ("ci.yml", "other.yml")]

    async with open_backend(name, home=home) as backend:

        async def run(*write):
            scope = CommandScope("s1", str(project), write=write)
            async with backend.open(CHANGE, scope, cwd=str(project), env=environ) as child:
                while await child.read():
                    pass
                await child.wait()

        protects = name != "landlock alone"  # which cannot protect files in the project; `doctor` says so
        if protects:
            await run()
            assert contents() == ["a\n", "a\n"]
        await run(str(folder / "ci.yml"))
        assert contents() == ["c\n", "a\n" if protects else "b\n"]
        (folder / "ci.yml").write_text("a\n")
        if protects:
            await run()
            assert contents() == ["a\n", "a\n"]


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_files_that_other_programs_run_later_stay_as_they_are(name, tmp_path):
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    for path in RUN_LATER:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("mine\n")
    script = "for file in $FILES; do echo evil >> $file; cp $0 $file; rm -f $file; done; mv .zed .other; echo end"
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "FILES": " ".join(RUN_LATER)}
    async with open_backend(name, home=home) as backend:
        async with backend.open(script, CommandScope("s1", str(project)), cwd=str(project), env=environ) as child:
            output = b""
            while piece := await child.read():
                output += piece
    assert output.endswith(b"end\n")
    assert {path: (project / path).read_text() for path in RUN_LATER} == dict.fromkeys(RUN_LATER, "mine\n")
