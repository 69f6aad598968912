"""A repository's configuration is restored if a command makes git run other programs."""

import asyncio
import os
import subprocess

import pytest

from alipes.runtime.sandbox.git_config import GitGuard
from tests.world.environment import require
from tests.world.exchanger import exchanging

BEFORE = '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://example.org/x\n'


@pytest.fixture
def git_directory(tmp_path):
    require("git")
    folder = tmp_path / ".git"
    (folder / "info").mkdir(parents=True)
    (folder / "config").write_text(BEFORE)
    return folder


async def change(folder, text, name="config"):
    (folder.parent / ".gitconfig").write_text("[alias]\n\tmine = status\n")
    async with GitGuard(str(folder.parent)).open([str(folder.parent)], os.environ["PATH"]) as restored:
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
        "[http]\n\tpostBuffer = 1000000",
        '[lfs "https://example.org/x"]\n\taccess = basic',
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
        "[interactive]\n\tdiffFilter = evil",
        "[annex]\n\thttp-headers-command = evil",
        '[gpg "ssh"]\n\tdefaultKeyCommand = evil',
        "[gc]\n\trecentObjectsHook = evil",
        "[protocol]\n\tallow = always",
        "[alias]\n\tmine = push https://example.org",
        "[http]\n\tproxy = http://example.org",
        '[http "https://example.org"]\n\tsslVerify = false',
        "[http]\n\tcookieFile = /tmp/x\n\tsaveCookies = true",
        "[http]\n\textraHeader = x: y",
        '[remote "origin"]\n\tpushurl = https://example.org/other',
        "[remote]\n\tpushDefault = other",
        '[url "https://example.org/other"]\n\tinsteadOf = https://example.org/x',
        '[url "https://example.org/other"]\n\tpushInsteadOf = https://example.org/x',
        "[credential]\n\tuseHttpPath = false",
        "[lfs]\n\turl = https://example.org/other",
    ],
)
async def test_settings_that_run_programs_are_taken_back(git_directory, setting):
    (note,) = await change(git_directory, f"{BEFORE}{setting}\n")
    assert (git_directory / "config").read_text() == BEFORE
    assert (
        note
        == f"{git_directory}/config was restored: the command changed which programs git runs, or where it connects to"
    )


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
        async with GitGuard().open([str(git_directory.parent)], os.environ["PATH"]) as restored:
            (git_directory / "config").unlink()
            make(git_directory / "config")
        assert len(restored) == 1 and (git_directory / "config").read_text() == BEFORE
    assert victim.read_text() == "mine"


async def test_a_directory_outside_of_the_project_is_not_written_to(tmp_path):
    require("git")
    project, other = tmp_path / "project", tmp_path / "other"
    (project / ".git" / "info").mkdir(parents=True)
    (project / ".git" / "config").write_text(BEFORE)
    other.mkdir()
    (other / "config").write_text("[core]\n\tpager = theirs\n")
    async with GitGuard().open([str(project)], os.environ["PATH"]):
        (project / ".git").rename(project / "moved")
        (project / ".git").symlink_to(other)
    assert (other / "config").read_text() == "[core]\n\tpager = theirs\n"


async def test_git_itself_agrees_that_the_restored_file_is_valid(git_directory):
    await change(git_directory, f"{BEFORE}[core]\n\tpager = evil\n")
    listed = subprocess.run(
        ["git", "config", "--file", str(git_directory / "config"), "--list"], capture_output=True, text=True, check=True
    )
    assert listed.stdout == "core.bare=false\nremote.origin.url=https://example.org/x\n"


SETS_FSMONITOR = "config core.fsmonitor 'touch {mark};false'"
NEW_REPOSITORY = "git init -q {path}; touch {path}/f; git -C {path} add f; git -C {path} commit -qm x"
WAYS = {
    "a shared git directory": "cp -r .git g2; git --git-dir=g2 {sets}; echo ../g2 > .git/commondir",
    "a new repository": "rm -rf .git; git init -q .; git {sets}",
    "a submodule": f"{NEW_REPOSITORY.format(path='lib/x')}; git add lib/x; git -C lib/x {{sets}}",
    "a submodule in a folder that is skipped": (
        f"mkdir -p node_modules/a; {NEW_REPOSITORY.format(path='node_modules/a/b')}; git add -f node_modules/a/b; "
        "git -C node_modules/a/b {sets}"
    ),
    "a git directory elsewhere": (
        f"{NEW_REPOSITORY.format(path='lib/x')}; mv lib/x/.git data; git --git-dir=data {{sets}}; "
        "echo 'gitdir: ../../data' > lib/x/.git; git add lib/x"
    ),
    "a known submodule": "git -C known {sets}",
    "a link": "cp -r .git g2; git --git-dir=g2 {sets}; rm -rf .git; ln -s g2 .git",
    "a folder that is skipped": "git init -q target; git -C target {sets}",
    "a folder of compiled modules": "git init -q __pycache__; git -C __pycache__ {sets}",
    "a link to a folder that is skipped": (
        "git init -q node_modules/y/z; git -C node_modules/y/z {sets}; ln -s node_modules/y x"
    ),
    "a git directory whose name ends with a space": (
        "mkdir src node_modules; git init -q n; mv n/.git 'node_modules/g '; "
        "git --git-dir='node_modules/g ' {sets}; echo 'gitdir: ../node_modules/g ' > src/.git"
    ),
    "a git directory with a very long path": (
        "mkdir src node_modules; git init -q n; mv n/.git node_modules/g; git --git-dir=node_modules/g {sets}; "
        "printf 'gitdir: %s../node_modules/g' $(printf './%.0s' $(seq 1990)) > src/.git"
    ),
    "a git directory of which a part is elsewhere": (
        "mkdir src store; git init -q n; mv n/.git/objects n/.git/refs n/.git/config store; mv n/.git/HEAD src; "
        "rm -r n; echo ../store > src/commondir; git config -f store/config alias.o '!touch {mark}'"
    ),
    "an index with the time and the size of the one before": (
        "mkdir -p node_modules; cp -r known node_modules/a; git add -f node_modules/a; cp -r node_modules/a node_modules/b;"
        " sleep 0.1; cp -p .git/index i; git rm -q --cached node_modules/a; git add -f node_modules/b; "
        "touch -r i .git/index; git -C node_modules/b {sets}"
    ),
}
LOOKS = "git status; git diff; for d in src target __pycache__ x/z; do git -C $d status; git -C $d o; done"


def make_project(tmp_path, name="project"):
    """A repository with a submodule, and a function that runs a script in it."""
    require("git")
    folder = tmp_path / name
    folder.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = a\n\temail = a@example.org\n")

    def run(script):
        return subprocess.run(["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True)

    run(f"git init -q; touch f; git add f; git commit -qm x; {NEW_REPOSITORY.format(path='known')}; git add known")
    return folder, run


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path)


@pytest.mark.parametrize("way", WAYS)
async def test_git_runs_no_program_of_a_command_afterwards(tmp_path, way):
    mark = tmp_path / "was-run"
    script = WAYS[way].format(sets=SETS_FSMONITOR.format(mark=mark), mark=mark)
    _, run = make_project(tmp_path, "unguarded")
    run(f"{script}; rm -f {mark}")  # git of the command itself may have run it
    run(LOOKS)
    assert mark.exists()
    mark.unlink()
    folder, run = make_project(tmp_path)
    async with GitGuard().open([str(folder)], os.environ["PATH"]) as restored:
        run(f"{script}; rm -f {mark}")
    run(LOOKS)
    assert restored and not mark.exists()


async def test_hooks_of_new_repositories_are_switched_off(project):
    folder, run = project
    async with GitGuard().open([str(folder)], os.environ["PATH"]) as restored:
        run("git init -q new; printf '#!/bin/sh\\ntouch ran\\n' > new/.git/hooks/pre-commit; chmod +x new/.git/hooks/*")
    run("cd new; touch f; git add f; git commit -qm x")
    assert restored == [
        f"{folder}/new/.git/hooks/pre-commit was switched off: the command changed which programs git runs"
    ]
    assert not (folder / "new" / "ran").exists()


async def test_other_settings_of_a_new_repository_stay(project):
    folder, run = project
    async with GitGuard().open([str(folder)], os.environ["PATH"]):
        run("git init -q new; git -C new remote add o 'https://example.org/\"x\"'; git -C new config core.pager evil")
    assert run("git -C new config --get remote.o.url").stdout == 'https://example.org/"x"\n'
    assert run("git -C new config --get core.pager").stdout == ""


async def test_settings_are_taken_back_while_a_command_runs(project):
    folder, run = project
    async with GitGuard().open([str(folder)], os.environ["PATH"]) as restored:
        run("git config core.pager evil")
        async with asyncio.timeout(30):
            while not restored:
                await asyncio.sleep(0.05)
        assert run("git config --get core.pager").stdout == ""


async def test_repositories_that_were_there_keep_their_programs(project):
    folder, run = project
    run("git -C known config core.pager less; git config core.editor vi")
    async with GitGuard().open([str(folder)], os.environ["PATH"]) as restored:
        run("git -C known config user.name b; git remote add o https://example.org/x")
    assert restored == []
    assert run("git -C known config core.pager; git config core.editor").stdout == "less\nvi\n"


OUTWARD = {
    "a separate git directory": "git init -q --separate-git-dir={outside} new; git --git-dir={outside} {sets}",
    "a link": "git init -q new; mv new/.git {outside}; git --git-dir={outside} {sets}; ln -s {outside} new/.git",
    "a link instead of the own directory": "mv .git {outside}; git --git-dir={outside} {sets}; ln -s {outside} .git",
    "a shared git directory": "cp -r .git {outside}; git --git-dir={outside} {sets}; echo {outside} > .git/commondir",
    "a submodule": "cp -r known/.git {outside}; git --git-dir={outside} {sets}; rm -rf known/.git; "
    "echo gitdir: {outside} > known/.git",
    "a name that ends with a zero byte": "cp -r .git {outside}; git --git-dir={outside} {sets}; mkdir new; "
    "git --git-dir={outside} config core.worktree $PWD/new; printf 'gitdir: {outside}\\0x' > new/.git",
    "a shared git directory before a zero byte": "cp -r .git {outside}; git --git-dir={outside} {sets}; "
    "printf '{outside}\\0x' > .git/commondir",
    "a link to a repository": "git init -q {outside}/r; git -C {outside}/r {sets}; mkdir {outside}/r/s; "
    "ln -s {outside}/r/s new",
    "a link to a folder with a repository": "git init -q {outside}/r; git -C {outside}/r {sets}; ln -s {outside} x",
}


@pytest.mark.parametrize("way", OUTWARD)
async def test_a_git_directory_outside_of_the_project_is_not_followed(tmp_path, way):
    mark, looks = tmp_path / "was-run", "git status; git -C new status; git -C known status; git -C x/r status"
    for name, is_guarded in (("unguarded", False), ("guarded", True)):
        folder, run = make_project(tmp_path, name)
        script = OUTWARD[way].format(outside=tmp_path / f"outside-{name}", sets=SETS_FSMONITOR.format(mark=mark))
        if is_guarded:
            elsewhere = [str(tmp_path / f"outside-{name}")]
            async with GitGuard(str(tmp_path)).open([str(folder)], os.environ["PATH"], elsewhere) as restored:
                run(f"{script}; rm -f {mark}")
            assert any("outside of the project" in note for note in restored)
        else:
            run(f"{script}; rm -f {mark}")
        run(looks)
        assert mark.exists() is not is_guarded
        mark.unlink(missing_ok=True)


async def test_a_git_directory_outside_that_was_named_before_is_still_named(project, tmp_path):
    folder, run = project
    run(f"git init -q --separate-git-dir={tmp_path}/mine new; git init -q --separate-git-dir={tmp_path}/other other")
    before = (folder / "new" / ".git").read_text()
    async with GitGuard(str(tmp_path)).open([str(folder)], os.environ["PATH"]) as restored:
        run("touch new/f")
    assert restored == [] and (folder / "new" / ".git").read_text() == before
    async with GitGuard(str(tmp_path)).open([str(folder)], os.environ["PATH"]) as restored:
        run("cp other/.git new/.git")
    assert len(restored) == 1 and (folder / "new" / ".git").read_text() == before


@pytest.mark.parametrize("name", ["info/attributes", "config.worktree", "hooks/pre-commit"])
async def test_a_folder_in_the_place_of_a_file_hides_nothing(project, tmp_path, name):
    folder, run = project
    async with GitGuard(str(tmp_path)).open([str(folder)], os.environ["PATH"]) as restored:
        run(f"git config core.fsmonitor evil; rm -rf .git/{name}; mkdir -p .git/{name}")
    assert restored and "evil" not in (folder / ".git" / "config").read_text()


@pytest.mark.parametrize("name", ["index", "HEAD", "commondir"])
async def test_a_pipe_in_the_place_of_a_file_does_not_stop_the_comparison(project, tmp_path, name):
    folder, run = project
    async with GitGuard(str(tmp_path)).open([str(folder)], os.environ["PATH"]) as restored:
        run(f"touch g; git add g; git config core.fsmonitor evil; rm -f .git/{name}; mkfifo .git/{name}")
    assert restored and "evil" not in (folder / ".git" / "config").read_text()


async def test_a_command_that_begins_while_another_one_runs_is_compared_with_what_that_one_found(project, tmp_path):
    folder, run = project
    guard = GitGuard(str(tmp_path))
    first, second = guard.open([str(folder)], os.environ["PATH"]), guard.open([str(folder)], os.environ["PATH"])
    await first.__aenter__()
    run("git -C known config core.fsmonitor evil")
    restored = await second.__aenter__()
    (folder / "known").rename(tmp_path / "away")
    await first.__aexit__(None, None, None)
    (tmp_path / "away").rename(folder / "known")
    await second.__aexit__(None, None, None)
    assert len(restored) == 1 and "evil" not in (folder / "known" / ".git" / "config").read_text()


async def test_settings_of_a_repository_that_is_exchanged_with_a_link_are_taken_back_in_the_end(project, tmp_path):
    folder, run = project
    (folder / "link").symlink_to(tmp_path)
    guard = GitGuard(str(tmp_path))
    for _ in range(10):
        with exchanging(folder / "known", folder / "link", 0):
            async with guard.open([str(folder)], os.environ["PATH"]):
                run("git -C known config core.fsmonitor evil; git -C link config core.fsmonitor evil")
        async with guard.open([str(folder)], os.environ["PATH"]):
            pass
        configs = [each / ".git" / "config" for each in (folder / "known", folder / "link") if not each.is_symlink()]
        assert [text for text in (path.read_text() for path in configs) if "evil" in text] == []
