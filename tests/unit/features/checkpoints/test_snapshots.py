"""What a checkpoint contains, and what it never touches."""

import os
import stat
import subprocess
from contextlib import suppress

import pytest
from msgspec import structs

from alipes.config.settings import CheckpointsConfig
from alipes.features.checkpoints.folder import list_foreign
from alipes.features.checkpoints.git import CheckpointError
from alipes.features.checkpoints.store import CheckpointRecord
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Origin
from tests.world.exchanger import exchanging

pytestmark = pytest.mark.deadline(60)


def stored_paths(world, number=1):
    listed = world.shadow_git("ls-tree", "-r", "--name-only", f"refs/checkpoints/{number:08}")
    return set(listed.split("\n")) - {""}


async def test_a_turn_that_writes_has_a_checkpoint_of_the_state_before_it(world):
    world.write("a.txt", "one\n")
    await world.run_turn(lambda: world.write("a.txt", "two\n"), "change a")
    (listed,) = await world.listed()
    assert listed.files == ("a.txt",)
    assert listed.checkpoint.record.words == "change a"
    assert world.shadow_git("show", "refs/checkpoints/00000001:a.txt") == "one\n"


async def test_several_writes_of_a_turn_make_one_checkpoint(world):
    turn = world.make_turn()
    await world.call(lambda: world.write("a.txt", "1"), turn)
    await world.call(lambda: world.write("a.txt", "2"), turn)
    await world.end(turn)
    assert await world.numbers() == [1]


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "terminal", {"command": "ls -la | head"}),
        ToolCall("c", "terminal", {"command": "git log --oneline && cat a.txt"}),
        ToolCall("c", "todo", {}),
    ],
)
async def test_a_turn_that_only_reads_costs_nothing(world, call):
    await world.run_turn(lambda: None, call=call)
    assert not world.stores.exists()


@pytest.mark.parametrize(
    "command", ["echo x > a.txt", "ls; rm a.txt", "cat $(make x)", "git log --output=x", "lsx", "grep a b\nrm c"]
)
async def test_a_command_that_may_write_is_checkpointed(world, command):
    await world.run_turn(lambda: world.write("a.txt", "x"), call=ToolCall("c", "terminal", {"command": command}))
    assert await world.numbers() == [1]


async def test_a_turn_that_changed_nothing_leaves_no_checkpoint(world):
    world.write("a.txt", "one")
    await world.run_turn(lambda: None)
    assert await world.listed() == []
    assert world.shadow_git("for-each-ref", "refs/checkpoints") == ""


async def test_numbers_of_removed_checkpoints_are_not_used_again(world):
    await world.run_turn(lambda: None)
    await world.run_turn(lambda: world.write("a.txt", "x"))
    assert await world.numbers() == [2]


async def test_ignored_large_and_secret_files_are_not_stored(world):
    world.write(".gitignore", "*.log\n!.env\n")
    world.write("x.log", "log")
    world.write(".env", "KEY=canary")
    world.write("deploy/.env.production", "KEY=canary")
    world.write(".env.example", "KEY=")
    world.write("big.bin", b"x" * (2 << 20))
    world.write("node_modules/m/index.js", "x")
    world.write("a.txt", "one")
    world.use(world.make_engine(CheckpointsConfig(max_file_mb=1)))
    await world.run_turn(lambda: world.write("a.txt", "two"))
    assert stored_paths(world) == {".gitignore", ".env.example", "a.txt"}
    found = subprocess.run(["grep", "-r", "canary", str(world.stores)], capture_output=True, check=False)
    assert found.returncode == 1


async def test_a_file_that_becomes_too_large_is_no_longer_stored(world):
    world.use(world.make_engine(CheckpointsConfig(max_file_mb=1)))
    world.write("data.bin", b"small")
    await world.run_turn(lambda: world.write("a.txt", "1"))
    world.write("data.bin", b"x" * (2 << 20))
    await world.run_turn(lambda: world.write("a.txt", "2"))
    assert "data.bin" in stored_paths(world, 1)
    assert "data.bin" not in stored_paths(world, 2)


async def test_the_repository_of_the_user_is_not_touched(world):
    world.git("init")
    world.write("a.txt", "one")
    world.git("add", "a.txt")
    world.write("staged.txt", "x")
    hook = world.write(".git/hooks/pre-commit", f"#!/bin/sh\ntouch {world.home}/hook-ran\n")
    hook.chmod(0o755)
    (world.home / ".gitconfig").write_text(f"[core]\n\thooksPath = {world.project}/.git/hooks\n")
    before = {path: os.stat(path).st_mtime_ns for path, *_ in os.walk(world.project / ".git")}
    index = (world.project / ".git" / "index").read_bytes()
    await world.run_turn(lambda: world.write("a.txt", "two"))
    await world.restore(1)
    assert {path: os.stat(path).st_mtime_ns for path, *_ in os.walk(world.project / ".git")} == before
    assert (world.project / ".git" / "index").read_bytes() == index
    assert not (world.home / "hook-ran").exists()


async def test_filters_and_line_endings_of_the_repository_do_not_apply(world):
    world.git("init")
    ran = world.home / "filter-ran"
    world.git("config", "filter.evil.clean", f"touch {ran}; cat")
    world.git("config", "filter.evil.smudge", f"touch {ran}; cat")
    (world.home / ".gitconfig").write_text(
        f'[filter "evil"]\n\tclean = touch {ran}\n[core]\n\tfsmonitor = touch {ran}\n'
    )
    world.write(".gitattributes", "* filter=evil text eol=lf ident working-tree-encoding=UTF-16\n*.txt diff=evil\n")
    world.write("a.txt", "one\r\n$Id$\r\n")
    await world.run_turn(lambda: world.write("a.txt", "two\n"))
    await world.restore(1)
    assert (world.project / "a.txt").read_bytes() == b"one\r\n$Id$\r\n"
    assert not ran.exists()


async def test_repositories_inside_the_folder_are_part_of_it(world):
    for name in ("one", "one/deep", "two"):
        (world.project / name).mkdir()
        world.git("init", cwd=world.project / name)
    world.write("one/.gitignore", "skipped\n")
    world.write("one/skipped", "x")
    world.write("one/src/a.py", "a")
    world.write("one/deep/b.py", "b")
    world.write("two/c.py", "c")
    await world.run_turn(lambda: world.write("one/src/a.py", "changed"))
    assert stored_paths(world) == {"one/.gitignore", "one/src/a.py", "one/deep/b.py", "two/c.py"}


async def test_a_folder_inside_a_repository_uses_the_ignore_files_above_it(world):
    world.git("init")
    world.write(".gitignore", "/sub/build/\n")
    world.write("outside.txt", "x")
    world.write("sub/build/out.o", "x")
    world.write("sub/a.txt", "one")
    await world.run_turn(lambda: world.write("sub/a.txt", "two"), workdir=world.project / "sub")
    assert stored_paths(world) == {"sub/a.txt"}
    await world.engine.restore(str(world.project / "sub"), 1)
    assert world.read("sub/a.txt") == "one"


async def test_odd_names_links_and_rights_are_kept(world):
    odd = 'ö "x"\nnew line'
    world.write(odd, "1")
    (world.project / os.fsdecode(b"caf\xe9")).write_text("latin")
    world.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    os.symlink("run.sh", world.project / "link")

    def destroy():
        for path in list(world.project.iterdir()):
            path.unlink()

    await world.run_turn(destroy)
    await world.restore(1)
    assert world.read(odd) == "1"
    assert (world.project / os.fsdecode(b"caf\xe9")).read_text() == "latin"
    assert stat.S_IMODE((world.project / "run.sh").stat().st_mode) & 0o100
    assert os.readlink(world.project / "link") == "run.sh"


@pytest.mark.parametrize(
    ("folder", "reason"), [("home", "your home"), ("above", "contains your home"), ("root", "whole")]
)
async def test_the_home_and_the_root_have_no_checkpoints(world, folder, reason):
    workdir = {"home": world.home, "above": world.home.parent, "root": "/"}[folder]
    assert reason in world.engine.why_off(str(workdir))
    await world.run_turn(lambda: None, workdir=workdir)
    assert not world.stores.exists()
    assert world.notices == []


async def test_without_git_the_reason_is_given(world, monkeypatch):
    monkeypatch.setenv("PATH", str(world.home))
    assert "git is not installed" in world.engine.why_off(str(world.project))
    await world.run_turn(lambda: world.write("a.txt", "x"))
    assert world.read("a.txt") == "x"


async def test_checkpoints_can_be_switched_off(world):
    world.use(world.make_engine(CheckpointsConfig(enabled=False)))
    await world.run_turn(lambda: world.write("a.txt", "x"))
    assert not world.stores.exists()


async def test_a_folder_that_is_too_large_is_reported_and_the_turn_continues(world):
    world.use(world.make_engine(CheckpointsConfig(max_mb=1, max_file_mb=10)))
    world.write("big.bin", b"x" * (2 << 20))
    await world.run_turn(lambda: world.write("a.txt", "x"))
    assert world.read("a.txt") == "x"
    assert "checkpoints.max_mb" in world.notices[0]


async def test_a_snapshot_that_takes_too_long_is_stopped_and_reported(world):
    world.use(world.make_engine(timeout_s=0.001))
    await world.run_turn(lambda: world.write("a.txt", "x"))
    assert world.read("a.txt") == "x"
    assert "takes longer" in world.notices[0]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
async def test_unreadable_files_are_left_out(world):
    world.write("locked.txt", "x").chmod(0)
    world.write("a.txt", "1")
    await world.run_turn(lambda: world.write("a.txt", "2"))
    assert stored_paths(world) == {"a.txt"}


async def test_a_damaged_store_is_made_again(world):
    world.write("a.txt", "1")
    await world.run_turn(lambda: world.write("a.txt", "2"))
    for pack in (world.store_folder() / "git" / "objects" / "pack").iterdir():
        pack.chmod(0o600)
        pack.write_bytes(b"broken")
    (world.store_folder() / "git" / "index").write_bytes(b"broken")
    await world.run_turn(lambda: world.write("a.txt", "3"))
    assert await world.numbers() == [2]
    assert world.notices == []


async def test_the_turns_of_a_subagent_belong_to_the_turn_of_the_person(world):
    parent = world.make_turn("the task")
    await world.call(lambda: world.write("a.txt", "1"), parent)
    child = world.make_turn("part of it")
    origin = Origin(parent.inbound.address, "s1", parent.id, "goal")
    child = structs.replace(child, inbound=structs.replace(child.inbound, origin=origin, parent=parent.id))
    await world.call(lambda: world.write("a.txt", "2"), child)
    await world.end(child)
    await world.end(parent)
    (listed,) = await world.listed()
    assert listed.checkpoint.record.turn == parent.id


async def test_an_unknown_number_is_refused(world):
    world.write("a.txt", "1")
    with pytest.raises(CheckpointError, match="There is no checkpoint 7"):
        await world.restore(7)


async def test_nothing_from_outside_is_stored_while_a_folder_and_a_link_are_exchanged(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.project / "d").mkdir()
    (world.project / "link").symlink_to(outside)
    with exchanging(world.project / "d", world.project / "link", 0):
        for number in range(12):
            for name in ("a", "b", "c"):
                (outside / name).write_text(f"canary {number}\n" * 50_000)
                for folder in ("d", "link"):
                    if not (world.project / folder).is_symlink():
                        (world.project / folder / name).write_text(f"inside {number}\n")
            with suppress(CheckpointError):  # git gives up if a folder becomes a link while it is at work
                await world.engine.make(str(world.project), CheckpointRecord(turn=f"t{number}"))
    refs = world.shadow_git("for-each-ref", "--format=%(refname)").split()
    for ref in refs:
        stored = world.shadow_git("ls-tree", "-r", ref).splitlines()
        files = [line.split("\t")[1] for line in stored if line.startswith("100")]
        assert not [path for path in files if "canary" in world.shadow_git("show", f"{ref}:{path}")]
    assert refs


async def test_nothing_outside_is_changed_by_restoring_while_a_folder_and_a_link_are_exchanged(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.project / "d").mkdir()
    (world.project / "link").symlink_to(outside)
    for number, names in enumerate((("a", "b", "c/x"), ("b", "new", "c/y")), 1):
        for name in names:
            world.write(f"d/{name}", f"{number}\n")
        await world.engine.make(str(world.project), CheckpointRecord(turn=f"t{number}"))
        for name in names:
            (world.project / "d" / name).unlink()
    before = dict.fromkeys(("a", "b", "new"), "canary\n")
    for name, text in before.items():
        (outside / name).write_text(text)
    restored = 0
    with exchanging(world.project / "d", world.project / "link", 0.003):
        for number in range(16):
            with suppress(CheckpointError):
                await world.restore(1 + number % 2, force=True)
                restored += 1
    assert restored and {path.name: path.read_text() for path in outside.iterdir()} == before


def test_contents_that_are_not_those_of_the_files_in_the_folder_are_found(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "outside").write_text("x\n")
    (tmp_path / "d" / "file").write_text("x\n")
    (tmp_path / "d" / "link").symlink_to("../outside")
    blob, other = "587be6b4c3f93f93c489c0111bba5596147a26cb", "0" * 40
    given = {"file": blob, "link": blob, "none": blob}
    assert list_foreign(str(tmp_path / "d"), given) == ["link", "none"]
    assert list_foreign(str(tmp_path / "d"), {"file": other}) == ["file"]
