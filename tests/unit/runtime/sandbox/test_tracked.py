"""Which version of a file git tracks, read from indexes that git wrote."""

import subprocess

import pytest

from alipes.runtime.sandbox.tracked import TrackedFiles, find_in_index
from tests.world.environment import require


@pytest.fixture
def git(tmp_path):
    program, top = require("git"), tmp_path / "p"
    top.mkdir()

    def run(*words):
        done = subprocess.run([program, *words], cwd=top, env={"HOME": str(tmp_path)}, capture_output=True, check=True)
        return done.stdout.decode().strip()

    run("init", "-q")
    run("config", "user.name", "Ann")
    run("config", "user.email", "ann@example.org")
    return run


def write(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / "p" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_the_hash_is_that_of_exactly_this_path(tmp_path, git, version):
    names = [".env", "a/.env", "b.env", "d" * 90 + "/x.env", "zz/a/.env"]
    for number, name in enumerate(names):
        path = tmp_path / "p" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(f"A={number}\n")
    git("add", "-f", ".")
    if version == "3":  # only with flags of this version
        write(tmp_path, later="x")
        git("add", "-N", "later")
    git("update-index", "--index-version", version)
    index = (tmp_path / "p" / ".git" / "index").read_bytes()
    expected = [git("hash-object", name) if version != "4" else "" for name in names]
    assert [find_in_index(index, name) for name in names] == expected
    assert find_in_index(index, "env") == find_in_index(index, "a/b/.env") == find_in_index(b"", ".env") == ""


def test_the_copy_has_the_tracked_text_and_never_a_later_one(tmp_path, git):
    (state := tmp_path / "state").mkdir()

    def find():
        return TrackedFiles(lambda: str(state)).find_copy(str(tmp_path / "p" / ".env"), str(tmp_path / "p"))

    write(tmp_path, **{".env": "KEY=secret\n"})
    assert find() == ""
    write(tmp_path, **{".env": "PORT=1\n"})
    git("add", "-f", ".env")
    write(tmp_path, **{".env": "KEY=secret\n"})
    with open(find()) as file:
        assert file.read() == "PORT=1\n"
    assert [path.read_text() for path in state.iterdir()] == ["PORT=1\n"]


def test_outside_of_a_work_tree_there_is_no_copy(tmp_path):
    (tmp_path / "p").mkdir()
    write(tmp_path, **{".env": "PORT=1\n"})
    assert TrackedFiles(lambda: str(tmp_path)).find_copy(str(tmp_path / "p" / ".env"), str(tmp_path / "p")) == ""
