"""Restoring a checkpoint: what is written and removed, what is left alone, and what must be confirmed."""

import os
import shutil
import stat

import pytest

from alipes.config.settings import CheckpointsConfig
from alipes.features.checkpoints.restore import open_folder_writer

pytestmark = pytest.mark.deadline(60)


async def test_files_are_restored_and_new_ones_removed_with_their_folders(world):
    world.write("a.txt", "one")
    world.write("gone.txt", "here")

    def change():
        world.write("a.txt", "two")
        world.write("new/deep/b.txt", "b")
        (world.project / "gone.txt").unlink()

    await world.run_turn(change)
    result = await world.restore(1)
    assert (world.read("a.txt"), world.read("gone.txt")) == ("one", "here")
    assert not (world.project / "new").exists()
    assert result.plan.remove == ("new/deep/b.txt",)


async def test_a_rollback_can_be_undone(world):
    world.write("a.txt", "one")
    await world.run_turn(lambda: world.write("a.txt", "two"))
    first = await world.restore(1)
    second = await world.restore(first.undo)
    assert world.read("a.txt") == "two"
    await world.restore(second.undo)
    assert world.read("a.txt") == "one"


async def test_ignored_files_are_never_removed_or_overwritten(world):
    world.write(".gitignore", "*.log\n")
    await world.run_turn(lambda: (world.write("x.log", "log"), world.write("a.txt", "x")))
    await world.restore(1)
    assert world.read("x.log") == "log"
    assert world.read("a.txt") is None


async def test_a_file_that_was_ignored_then_is_not_removed_now(world):
    world.write(".gitignore", "data/\n")
    world.write("data/results.csv", "1,2")
    await world.run_turn(lambda: world.write(".gitignore", "other\n"))
    await world.run_turn(lambda: world.write("data/results.csv", "1,2,3"))
    result = await world.restore(1, force=True)
    assert world.read("data/results.csv") == "1,2,3"
    assert result.plan.kept == ("data/results.csv",)
    assert world.read(".gitignore") == "data/\n"


async def test_a_file_that_is_ignored_from_now_on_is_left_alone(world):
    world.write("app.log", "start")
    world.write("a.txt", "one")
    await world.run_turn(lambda: world.write("a.txt", "two"))
    world.write(".gitignore", "*.log\n")
    await world.run_turn(lambda: (world.write("a.txt", "three"), world.write("app.log", "start, more")))
    world.write("app.log", "start, more, most")
    result = await world.restore(2)
    assert (world.read("a.txt"), world.read("app.log")) == ("two", "start, more, most")
    assert result.plan.conflicts == ()
    result = await world.restore(1, force=True)
    assert world.read("app.log") == "start, more, most"
    assert "app.log" in result.plan.kept


async def test_a_file_that_was_too_large_then_is_not_removed_now(world):
    world.use(world.make_engine(CheckpointsConfig(max_file_mb=1)))
    world.write("data.bin", b"x" * (2 << 20))
    await world.run_turn(lambda: world.write("data.bin", b"small now"))
    result = await world.restore(1)
    assert world.read("data.bin") == "small now"
    assert result.plan.kept == ("data.bin",)


async def test_a_file_that_is_not_part_of_the_current_state_is_not_overwritten(world):
    world.use(world.make_engine(CheckpointsConfig(max_file_mb=1)))
    world.write("data.bin", b"small")
    await world.run_turn(lambda: world.write("data.bin", b"x" * (2 << 20)))
    result = await world.restore(1)
    assert (world.project / "data.bin").stat().st_size == 2 << 20
    assert result.plan.kept == ("data.bin",)
    assert result.undo == 0


async def test_edits_by_hand_since_are_shown_and_need_force(world):
    world.write("a.txt", "one")
    await world.run_turn(lambda: world.write("a.txt", "two"))
    world.write("a.txt", "by hand")
    result = await world.restore(1)
    assert result.plan.conflicts == ("a.txt",)
    assert world.read("a.txt") == "by hand"
    forced = await world.restore(1, force=True)
    assert world.read("a.txt") == "one"
    await world.restore(forced.undo)
    assert world.read("a.txt") == "by hand"


async def test_edits_by_hand_between_turns_are_found_later(world):
    world.write("a.txt", "one")
    await world.run_turn(lambda: world.write("a.txt", "two"))
    world.write("mine.txt", "by hand")
    await world.run_turn(lambda: world.write("a.txt", "three"))
    assert (await world.restore(1)).plan.conflicts == ("mine.txt",)
    assert (await world.restore(2)).plan.conflicts == ()
    assert (world.read("a.txt"), world.read("mine.txt")) == ("two", "by hand")


async def test_changes_of_another_conversation_need_force(world):
    world.write("a.txt", "one")
    await world.run_turn(lambda: world.write("a.txt", "two"), session="s1")
    await world.run_turn(lambda: world.write("b.txt", "theirs"), session="s2")
    assert (await world.restore(1, session="s1")).plan.conflicts == ("b.txt",)
    assert (await world.restore(2, session="s2")).plan.conflicts == ()


async def test_a_folder_in_place_of_a_file_and_back(world):
    world.write("thing", "file")

    def change():
        (world.project / "thing").unlink()
        world.write("thing/inner.txt", "x")

    await world.run_turn(change)
    result = await world.restore(1)
    assert world.read("thing") == "file"
    await world.restore(result.undo)
    assert world.read("thing/inner.txt") == "x"


async def test_a_link_in_place_of_a_folder_leads_nowhere(world):
    outside = world.home / "outside"
    outside.mkdir()
    world.write("sub/a.txt", "one")

    def change():
        shutil.rmtree(world.project / "sub")
        os.symlink(outside, world.project / "sub")

    await world.run_turn(change)
    await world.restore(1)
    assert list(outside.iterdir()) == []
    assert world.read("sub/a.txt") == "one"
    assert not (world.project / "sub").is_symlink()


async def test_an_ignored_link_in_the_way_is_left_alone(world):
    outside = world.home / "outside"
    outside.mkdir()
    world.write("sub/a.txt", "one")

    def change():
        shutil.rmtree(world.project / "sub")
        os.symlink(outside, world.project / "sub")
        world.write(".gitignore", "sub\n")

    await world.run_turn(change)
    result = await world.restore(1)
    assert result.plan.kept == ("sub/a.txt",)
    assert list(outside.iterdir()) == []


async def test_private_files_stay_private(world):
    world.write("a.txt", "one").chmod(0o600)
    await world.run_turn(lambda: world.write("a.txt", "two"))
    await world.restore(1)
    assert stat.S_IMODE((world.project / "a.txt").stat().st_mode) == 0o600


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
async def test_a_file_that_cannot_be_written_is_reported_and_the_others_are_restored(world):
    world.write("a.txt", "one")
    world.write("locked/b.txt", "one")
    await world.run_turn(lambda: (world.write("a.txt", "two"), world.write("locked/b.txt", "two")))
    (world.project / "locked").chmod(0o500)
    result = await world.restore(1)
    (world.project / "locked").chmod(0o700)
    assert world.read("a.txt") == "one"
    assert result.failed == ("locked/b.txt: Permission denied",)


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config", "a/../../x", "sub/.git/hooks/post-checkout", ""])
def test_a_path_outside_the_folder_or_in_a_repository_is_refused(tmp_path, path):
    with open_folder_writer(str(tmp_path)) as writer, pytest.raises(ValueError, match="not inside"):
        writer.write(path, b"x", "100644")


async def test_many_files_are_restored_in_portions(world):
    for number in range(30):
        world.write(f"f{number}.bin", bytes([number]) * (1 << 20))

    def change():
        for number in range(30):
            world.write(f"f{number}.bin", b"x")

    await world.run_turn(change)
    async with world.engine._open(world.engine._find_folder(str(world.project))) as store:
        first = (await store.list_all())[0]
        changes = await store.compare(first.after, first.tree)
        portions = [len(each) async for each in store.read_blobs([each.blob for each in changes], 4 << 20)]
    assert sum(portions) == 30
    assert max(portions) == 4
    await world.restore(1)
    assert all((world.project / f"f{number}.bin").stat().st_size == 1 << 20 for number in range(30))


async def test_the_diff_shows_what_has_changed_since(world):
    world.write("a.txt", "one\n")
    await world.run_turn(lambda: world.write("a.txt", "two\n"))
    text = await world.engine.diff(str(world.project), 1)
    assert "-one\n+two\n" in text
