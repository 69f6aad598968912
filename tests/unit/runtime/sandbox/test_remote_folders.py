"""Folders that commands on another machine name are copied there once, read-only, and removed with the connection."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from alipes.runtime.sandbox import remote_folders
from alipes.runtime.sandbox.remote_folders import RemoteFolders, pack_folder
from alipes.runtime.sandbox.ssh import SshBackend
from tests.unit.runtime.sandbox.test_ssh import run, server, settings

__all__ = ["server", "settings"]


@pytest.fixture
def skill(tmp_path):
    folder = tmp_path / "skills" / "tea time"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("Boil water.")
    (folder / "scripts" / "go").write_text("#!/bin/sh\necho went from $(pwd)\n")
    (folder / "scripts" / "go").chmod(0o755)
    return folder


class Sent:
    """Records what is sent to the other machine."""

    def __init__(self) -> None:
        self.names = list[str]()

    async def __call__(self, argv, data: bytes) -> None:
        self.names.append(argv[-1])


def list_packed(folder: Path) -> dict[str, tuple[int, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(pack_folder(str(folder)))) as archive:
        return {each.name: (each.mode, archive.extractfile(each).read()) for each in archive}  # type: ignore[union-attr]


async def test_a_script_of_a_skill_runs_on_the_other_machine_and_its_copy_is_removed_at_the_end(settings, skill):
    async with SshBackend(settings, folders=lambda _workdir: (str(skill),)) as backend:
        output, code = await run(backend, f"'{skill}/scripts/go'; cat '{skill}/SKILL.md'; echo '{skill}'")
        assert code == 0 and "went from" in output and "Boil water." in output
        copy = Path(output.splitlines()[-1].removeprefix("Boil water."))
        assert copy.is_dir() and copy != skill and not copy.stat().st_mode & 0o222
        again, _ = await run(backend, ["echo", str(skill)])
        assert again.strip() == str(copy)
        inside, _ = await run(backend, "pwd", cwd=str(skill / "scripts"))
        assert inside.strip() == str(copy / "scripts")
    assert not copy.parent.exists()


async def test_a_changed_skill_is_copied_again(settings, skill):
    async with SshBackend(settings, folders=lambda _workdir: (str(skill),)) as backend:
        await run(backend, f"cat '{skill}/SKILL.md'")
        (skill / "SKILL.md").write_text("Boil fresh water.")
        assert (await run(backend, f"cat '{skill}/SKILL.md'"))[0] == "Boil fresh water."


async def test_nothing_is_copied_for_a_command_that_names_no_skill(settings, skill):
    async with SshBackend(settings, folders=lambda _workdir: (str(skill),)) as backend:
        assert await run(backend, f"echo '{skill}s' '{skill}.old'; ls -d /tmp/alipes-* 2>/dev/null | wc -l") == (
            f"{skill}s {skill}.old\n{len(list(Path('/tmp').glob('alipes-*')))}\n",
            0,
        )


async def test_of_nested_folders_the_inner_one_is_copied():
    sent = Sent()
    folders = RemoteFolders(lambda _workdir: ("/nowhere/office", "/nowhere/office/report"), sent)
    command, there = await folders.translate("sh /nowhere/office/report/go", "/project", "/project")
    assert len(sent.names) == 1 and sent.names[0].startswith("report-") and there == ""
    assert command == f"sh {folders.root}/{sent.names[0]}/go"


def test_the_same_content_is_the_same_archive_and_links_that_lead_out_are_left_out(skill, tmp_path):
    (tmp_path / "secret").write_text("canary")
    (skill / "out").symlink_to(tmp_path / "secret")
    (skill / "inner").symlink_to("SKILL.md")
    packed = list_packed(skill)
    assert packed["scripts/go"][0] == 0o500 and packed["SKILL.md"] == (0o400, b"Boil water.")
    assert packed["inner"][1] == b"Boil water." and "out" not in packed
    before = pack_folder(str(skill))
    os.utime(skill / "SKILL.md", (1, 1))
    assert pack_folder(str(skill)) == before


def test_a_folder_that_is_too_large_is_refused_with_its_name(skill, monkeypatch):
    monkeypatch.setattr(remote_folders, "MAX_BYTES", 10)
    with pytest.raises(OSError, match="tea time is larger"):
        pack_folder(str(skill))


async def test_a_failed_copy_says_why_and_the_command_does_not_run(settings, skill, monkeypatch):
    monkeypatch.setattr(remote_folders, "COPY", "echo no space left >&2; exit 1")
    async with SshBackend(settings, folders=lambda _workdir: (str(skill),)) as backend:
        with pytest.raises(OSError, match="could not be copied to sandbox: no space left"):
            await run(backend, f"cat '{skill}/SKILL.md'")
