"""Working directories of a shell text, and paths with wildcards."""

import os

from alipes.agent.approval.directories import MAX_GLOB_MATCHES, MAX_LINKS, WorkingDirectories, match_glob
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellWord


def test_wildcards_match_like_those_of_a_shell(tmp_path):
    for name in ("a.py", "b.py", ".hidden.py", "sub/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = {os.path.basename(path) for path in match_glob(f"{tmp_path}/*.py")}
    assert found == {"a.py", "b.py"}
    assert match_glob(f"{tmp_path}/s*/?.py") == [f"{tmp_path}/sub/c.py"]
    assert match_glob(f"{tmp_path}/.h*") == [f"{tmp_path}/.hidden.py"]


def test_folders_that_cannot_be_read_are_passed_over(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert match_glob(f"{tmp_path}/*/x*") == []
    assert match_glob(f"{tmp_path}/{'a' * 300}/*") == []
    assert match_glob("/proc/1/task/*/fd/*x*") == []


def test_the_number_of_matches_is_bounded(tmp_path):
    for number in range(MAX_GLOB_MATCHES + 20):
        (tmp_path / str(number)).touch()
    assert len(match_glob(f"{tmp_path}/*")) == MAX_GLOB_MATCHES


def test_after_a_cd_that_may_have_failed_both_directories_are_possible(tmp_path):
    folders = WorkingDirectories(str(tmp_path), "/home/u")
    folders.change(ShellWord("/usr"))
    folders.end_command(";")
    assert folders.possible == {str(tmp_path), "/usr"}


def test_after_a_cd_and_a_double_ampersand_the_directory_is_certain(tmp_path):
    folders = WorkingDirectories(str(tmp_path), "/home/u")
    folders.change(ShellWord("/usr"))
    folders.end_command("&&")
    assert folders.possible == {"/usr"}


def test_a_cd_to_an_unknown_place_makes_the_directory_unknown(tmp_path):
    folders = WorkingDirectories(str(tmp_path), "/home/u")
    folders.change(ShellWord(f"/usr/{UNKNOWN}"))
    assert folders.possible == {None}


def test_a_link_that_the_text_made_is_followed(tmp_path):
    folders = WorkingDirectories(str(tmp_path), "/home/u")
    folders.note_link(f"{tmp_path}/link", "/etc")
    folders.note_link(f"{tmp_path}/second", f"{tmp_path}/link")
    assert set(folders.resolve(ShellWord("second/hosts"))) >= {f"{tmp_path}/second/hosts", "/etc/hosts"}


def test_with_too_many_links_the_working_directory_is_unknown(tmp_path):
    folders = WorkingDirectories(str(tmp_path), "/home/u")
    for number in range(MAX_LINKS + 1):
        folders.note_link(f"{tmp_path}/{number}", "/etc")
    assert folders.possible == {None}
