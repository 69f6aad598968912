import subprocess

import pytest

from alipes.features.update.release import SUMS, FolderSource, GitSource, choose, find_source
from alipes.kernel.errors import ConfigError
from tests.world.alipes_versions import build_wheel
from tests.world.environment import require


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("0.2.0", "0.10.0", "0.11.0rc1"):
        build_wheel(folder, version)
    return folder


async def test_the_newest_release_of_a_folder_is_fetched_with_its_hash(wheels, tmp_path):
    release = await FolderSource(wheels).fetch("", "stable", tmp_path)
    assert (release.name, release.wheel.name) == ("0.10.0", "alipes-0.10.0-py3-none-any.whl")
    assert release.sha256 in (wheels / SUMS).read_text()


async def test_the_channel_next_has_versions_before_a_release(wheels, tmp_path):
    source = FolderSource(wheels)
    assert await source.list("stable") == ["0.2.0", "0.10.0"]
    assert (await source.fetch("", "next", tmp_path)).name == "0.11.0rc1"


async def test_a_wheel_that_differs_from_its_hash_is_refused(wheels, tmp_path):
    with (wheels / "alipes-0.10.0-py3-none-any.whl").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ConfigError, match="is not the file that SHA256SUMS lists"):
        await FolderSource(wheels).fetch("0.10.0", "stable", tmp_path)


async def test_a_wheel_that_is_gone_is_named(wheels, tmp_path):
    (wheels / "alipes-0.2.0-py3-none-any.whl").unlink()
    with pytest.raises(ConfigError, match=r"cannot copy .*alipes-0\.2\.0"):
        await FolderSource(wheels).fetch("0.2.0", "stable", tmp_path)


def test_an_unknown_version_names_the_newest():
    with pytest.raises(ConfigError, match=r"here has no version 3\.0\. The newest are 1\.0, 2\.0\."):
        choose(["2.0", "1.0"], "3.0", "stable", "here")


def test_without_a_release_the_other_channel_is_named():
    with pytest.raises(ConfigError, match="--channel next"):
        choose(["2.0rc1"], "", "stable", "here")


def test_a_folder_that_is_no_source_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="neither a Git repository nor a folder with wheels"):
        find_source(str(tmp_path))


async def test_the_releases_of_a_repository_are_its_tags(tmp_path):
    program = require("git")

    def git(*words: str) -> None:
        subprocess.run([program, "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "first")
    for tag in ("v0.1.0", "v0.2.0", "v0.3.0rc1", "other"):
        git("tag", tag)
    source = find_source(str(tmp_path))
    assert isinstance(source, GitSource)
    assert await source.list("stable") == ["0.1.0", "0.2.0"]
    assert await source.list("next") == ["0.1.0", "0.2.0", "0.3.0rc1"]
