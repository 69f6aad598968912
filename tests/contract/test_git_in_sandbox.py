"""Git in the sandbox sees the whole work tree, wherever in it alipes was started."""

import os
import re
import subprocess

import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.world.environment import require
from tests.world.sandboxes import SANDBOXES, open_backend

WITH_MOUNTS = [name for name in SANDBOXES if name != "landlock alone"]
"""Those that show git something else than what is there. Landlock alone takes changes back afterwards."""
COMMIT = "git add -A && git commit -qm x"


class Repository:
    """A repository in the home of a user, and commands in its sandbox."""

    def __init__(self, home, name="repo"):
        require("git")
        self.home, self.top = home, home / name
        (self.top / "src" / "deep").mkdir(parents=True)
        (home / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.org\n")
        for path in ("README.md", "tests/one.py", "src/app.py"):
            (self.top / path).parent.mkdir(exist_ok=True)
            (self.top / path).write_text("one\n")
        self.git(f"git init -q -b main && {COMMIT}")

    def git(self, script, folder=None):
        """Run it as the person would."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder or self.top, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def command(self, name, script, folder, *, alipes_home=None):
        """The output of a command in the sandbox `name`, in a conversation that was started in `folder`."""
        output = b""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        async with open_backend(name, home=self.home, alipes_home=alipes_home) as backend:
            async with backend.open(script, CommandScope("s1", str(folder)), cwd=str(folder), env=environ) as child:
                while piece := await child.read():
                    output += piece
                await child.wait()
            return "".join(f"{line}\n" for line in (output.decode().rstrip(), *child.notes) if line)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "home")


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_commit_in_a_subfolder_deletes_nothing(name, repository):
    inside = repository.top / "src"
    output = await repository.command(name, f"git status --short; echo two > new.py; {COMMIT}", inside)
    assert output == ""
    assert repository.git("git show --numstat --format= HEAD") == "1\t0\tsrc/new.py\n"
    assert repository.git("git status --short") == ""


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_checkout_in_a_subfolder_changes_the_whole_work_tree(name, repository):
    repository.git(f"git switch -qc other; echo two > README.md; {COMMIT}; git switch -q main")
    assert await repository.command(name, "git checkout -q other", repository.top / "src" / "deep") == ""
    assert (repository.top / "README.md").read_text() == "two\n"
    assert repository.git("git status --short") == ""


@pytest.mark.parametrize("name", WITH_MOUNTS)
@pytest.mark.parametrize("packed", ["loose", "packed"])
async def test_a_tracked_file_with_secrets_is_shown_as_git_tracks_it_and_no_commit_empties_it(name, packed, repository):
    (repository.top / "src" / ".env.test").write_text("PORT=1\n")
    (repository.top / ".env").write_text("PORT=2\n")
    repository.git(f"git add -f src/.env.test && {COMMIT}" + ("; git gc -q" if packed == "packed" else ""))
    script = f"cat src/.env.test .env; git status --short; echo two > new.py; {COMMIT}"
    assert await repository.command(name, script, repository.top) == "PORT=1\nPORT=2\n"
    (repository.top / "src" / ".env.test").write_text("PORT=1\nKEY=secret\n")
    script = f"cat src/.env.test; git status --short; echo three > new.py; {COMMIT}"
    if packed == "loose":
        assert await repository.command(name, script, repository.top) == "PORT=1\n"
        assert repository.git("git show --numstat --format= HEAD") == "1\t1\tnew.py\n"
    else:
        assert "secret" not in await repository.command(name, script, repository.top)
    assert repository.git("git diff") == "" or "+KEY=secret" in repository.git("git diff")


@pytest.mark.parametrize("name", WITH_MOUNTS)
async def test_a_file_with_secrets_that_git_does_not_track_stays_empty(name, repository):
    (repository.top / ".env").write_text("KEY=secret\n")
    script = "cat .env; git add -f .env; cat .env; git show :.env"
    assert await repository.command(name, script, repository.top) == ""


@pytest.mark.parametrize("name", WITH_MOUNTS)
async def test_a_linked_work_tree_can_commit_and_not_change_what_git_runs(name, repository):
    other = repository.home / "other"
    repository.git(f"git worktree add -q {other}")
    before = (repository.top / ".git" / "config").read_text()
    script = f"echo two > new.py; {COMMIT}; git status --short; git config core.pager evil 2>/dev/null && echo changed"
    assert await repository.command(name, script, other / "src") == ""
    assert repository.git("git log --format=%s -1", other) == "x\n" and (other / "src" / "new.py").exists()
    assert (repository.top / ".git" / "config").read_text() == before
    shared = f"{repository.top}/.git"
    output = await repository.command(
        name, f"echo x > {shared}/hooks/pre-commit; cat {repository.top}/README.md", other
    )
    assert "Read-only" in output and "one" not in output


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_submodule_can_commit(name, repository):
    Repository(repository.home, "lib")
    repository.git(f"git -c protocol.file.allow=always submodule --quiet add {repository.home}/lib lib; {COMMIT}")
    inside = repository.top / "lib"
    assert await repository.command(name, f"echo two > new.py; {COMMIT}; git status --short", inside / "src") == ""
    assert repository.git("git show --stat --format= HEAD", inside).startswith(" src/new.py")


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_file_that_names_the_git_directory_of_another_repository_opens_nothing(name, repository):
    project = repository.home / "project"
    project.mkdir()
    (project / ".git").write_text(f"gitdir: {repository.top}/.git\n")
    output = await repository.command(name, f"git log; echo x > {repository.top}/.git/new", project)
    assert "core.worktree" in output or name == "landlock alone"
    assert not (repository.top / ".git" / "new").exists()


@pytest.mark.parametrize("name", SANDBOXES)
async def test_git_is_refused_with_the_reason_if_the_work_tree_is_the_home(name, tmp_path):
    home = Repository(tmp_path, "home")
    home.home = home.top
    (tmp_path / ".gitconfig").rename(home.top / ".gitconfig")
    output = await home.command(name, COMMIT, home.top / "src")
    assert f"its work tree {home.top} is your home" in output
    assert re.search(r"is.your.home", await home.command(name, COMMIT, home.top))
    assert await home.command(name, f"git init -q new && cd new && touch f && {COMMIT}", home.top / "src") == ""


@pytest.mark.parametrize("name", SANDBOXES)
async def test_git_is_refused_with_the_reason_if_the_work_tree_contains_the_home_of_alipes(name, repository):
    alipes_home = repository.top / "config" / "alipes"
    alipes_home.mkdir(parents=True)
    for folder in (repository.top, repository.top / "src"):
        output = await repository.command(name, "git add -A", folder, alipes_home=alipes_home)
        assert re.search(r"contains.the.home.of.alipes", output)
    assert repository.git("git diff --cached --name-only") == ""


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_git_directory_in_the_temporary_folder_is_not_followed_outside(name, repository):
    script = "git init -q --separate-git-dir=/tmp/evil new && ln -s /tmp/evil src/.git && git -C new status --short"
    output = await repository.command(name, script, repository.top)
    assert f"{repository.top}/new/.git was removed: it led git to /tmp/evil, outside of the project" in output
    assert not os.path.lexists(repository.top / "new" / ".git") and not os.path.lexists(repository.top / "src" / ".git")
