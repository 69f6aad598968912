"""A repository's configuration is restored if a command makes git run other programs."""

import os
import subprocess

import pytest

from alipes.runtime.sandbox.git_config import guard_git_config
from tests.world.environment import require

BEFORE = '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://example.org/x\n'


@pytest.fixture
def git_directory(tmp_path):
    require("git")
    folder = tmp_path / ".git"
    (folder / "info").mkdir(parents=True)
    (folder / "config").write_text(BEFORE)
    return folder


async def change(folder, text, name="config"):
    async with guard_git_config([str(folder)], os.environ["PATH"]) as restored:
        (folder / name).write_text(text)
    return restored


@pytest.mark.parametrize(
    "setting",
    [
        '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main',
        '[remote "other"]\n\turl = git@example.org:x\n\tfetch = +refs/heads/*:refs/remotes/other/*',
        "[user]\n\tname = Ann",
        "[pull]\n\trebase = true",
        "[alias]\n\tst = status",
    ],
)
async def test_everyday_settings_are_kept(git_directory, setting):
    assert await change(git_directory, f"{BEFORE}{setting}\n") == []
    assert setting in (git_directory / "config").read_text()


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\tpager = evil",
        "[core]\n\thooksPath = /tmp/x",
        "[core]\n\tfsmonitor = evil",
        "[core]\n\tsshCommand = evil",
        "[CORE]\n\tEditor = ev\\\nil",
        "[alias]\n\tst = !evil",
        '[filter "x"]\n\tsmudge = evil',
        '[diff "x"]\n\ttextconv = evil',
        "[credential]\n\thelper = !evil",
        '[credential "https://x"]\n\thelper = evil',
        "[include]\n\tpath = /tmp/x",
        '[includeIf "gitdir:/"]\n\tpath = /tmp/x',
        "[gpg]\n\tprogram = evil",
        '[gpg "ssh"]\n\tprogram = evil',
        "[sequence]\n\teditor = evil",
        '[url "ext::evil"]\n\tinsteadOf = x',
        '[merge "x"]\n\tdriver = evil',
        '[submodule "x"]\n\tupdate = !evil',
        "[pager]\n\tlog = evil",
        "[uploadpack]\n\tpackObjectsHook = evil",
        "[core]\n\tworktree = /",
    ],
)
async def test_settings_that_run_programs_are_taken_back(git_directory, setting):
    (note,) = await change(git_directory, f"{BEFORE}{setting}\n")
    assert (git_directory / "config").read_text() == BEFORE
    assert note == f"{git_directory}/config was restored: the command changed which programs git runs"


async def test_settings_that_were_there_before_stay(git_directory):
    (git_directory / "config").write_text(f"{BEFORE}[core]\n\tpager = less\n")
    assert await change(git_directory, f"{BEFORE}[core]\n\tpager = less\n[user]\n\tname = Ann\n") == []


async def test_attributes_and_unreadable_configuration_are_taken_back(git_directory):
    assert len(await change(git_directory, "* filter=x\n", "info/attributes")) == 1
    assert not (git_directory / "info" / "attributes").exists()
    assert len(await change(git_directory, "[broken")) == 1


async def test_a_link_or_pipe_in_its_place_is_replaced_and_its_target_untouched(git_directory, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for make in (lambda path: path.symlink_to(victim), os.mkfifo):
        async with guard_git_config([str(git_directory)], os.environ["PATH"]) as restored:
            (git_directory / "config").unlink()
            make(git_directory / "config")
        assert len(restored) == 1 and (git_directory / "config").read_text() == BEFORE
    assert victim.read_text() == "mine"


async def test_a_directory_that_was_exchanged_is_not_written_to(git_directory, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config").write_text("[core]\n\tpager = theirs\n")
    async with guard_git_config([str(git_directory)], os.environ["PATH"]):
        (git_directory / "config").write_text(f"{BEFORE}[core]\n\tpager = evil\n")
        git_directory.rename(tmp_path / "moved")
        git_directory.symlink_to(other)
    assert (other / "config").read_text() == "[core]\n\tpager = theirs\n"
    assert (tmp_path / "moved" / "config").read_text() == BEFORE


async def test_git_itself_agrees_that_the_restored_file_is_valid(git_directory):
    await change(git_directory, f"{BEFORE}[core]\n\tpager = evil\n")
    listed = subprocess.run(
        ["git", "config", "--file", str(git_directory / "config"), "--list"], capture_output=True, text=True, check=True
    )
    assert listed.stdout == "core.bare=false\nremote.origin.url=https://example.org/x\n"
