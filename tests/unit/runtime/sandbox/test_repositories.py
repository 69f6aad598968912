"""Git directories are found in all the ways in which git finds them."""

import os

from alipes.runtime.sandbox.repositories import FolderCache, find_repositories


def make_git_directory(path):
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    return str(path)


def find(root, submodules=(), cache=None):
    return {*find_repositories([str(root)], submodules, cache).directories}


def test_a_directory_a_file_a_bare_repository_and_a_link_are_found(tmp_path):
    plain, bare = make_git_directory(tmp_path / "a" / ".git"), make_git_directory(tmp_path / "deep" / "bare")
    elsewhere, linked = make_git_directory(tmp_path / "data"), make_git_directory(tmp_path / "target")
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / ".git").write_text("gitdir: ../data\n")
    (tmp_path / "c" / ".git").symlink_to(tmp_path / "target")
    assert find(tmp_path) == {plain, bare, elsewhere, linked}


def test_submodules_work_trees_and_shared_directories_are_found(tmp_path):
    top = tmp_path / ".git"
    found = {make_git_directory(top), make_git_directory(top / "modules" / "x" / "y")}
    found |= {make_git_directory(top / "worktrees" / "w"), make_git_directory(tmp_path / "common" / "g")}
    (top / "commondir").write_text("../common/g\n")
    (top / "worktrees" / "w" / "commondir").write_text("../..\n")
    assert find(tmp_path) == found


def test_directories_that_name_each_other_come_to_an_end(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        make_git_directory(tmp_path / name / ".git")
        (tmp_path / name / ".git" / "commondir").write_text(f"../../{other}/.git\n")
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / ".git")
    assert len(find(tmp_path)) == 2


def test_nothing_outside_the_root_is_found(tmp_path):
    make_git_directory(tmp_path / "other")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".git").write_text(f"gitdir: {tmp_path}/other\n")
    assert find(tmp_path / "root") == set()
    found = find_repositories([str(tmp_path / "root")])
    assert found.outward == {f"{tmp_path}/root/.git": (f"{tmp_path}/root", f"{tmp_path}/other")}
    assert find_repositories([str(tmp_path / "root"), str(tmp_path / "other")]).outward == {}


def test_a_folder_that_is_skipped_is_looked_at_if_it_is_a_submodule(tmp_path):
    inside = make_git_directory(tmp_path / "node_modules" / "x" / ".git")
    assert find(tmp_path) == set()
    assert find(tmp_path, (str(tmp_path / "node_modules" / "x"),)) == {inside}


def test_a_new_repository_is_found_although_the_folders_are_known(tmp_path):
    cache = FolderCache()
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find(tmp_path, cache=cache) == set()
    new = make_git_directory(tmp_path / "a" / "b" / ".git")
    assert find(tmp_path, cache=cache) == {new}
