import sys
from pathlib import Path

import pytest

from alipes.features.update.installation import IMAGE_MARK, find_installation, parse_origin


@pytest.mark.parametrize(
    ("mark", "kind"), [("uv-receipt.toml", "uv"), ("pipx_metadata.json", "pipx"), (IMAGE_MARK, "image")]
)
def test_an_environment_is_known_by_what_its_maker_left_in_it(tmp_path, mark, kind):
    (tmp_path / mark).touch()
    assert find_installation(tmp_path / "versions", tmp_path).kind == kind


def test_an_environment_in_the_folder_of_versions_is_a_version(tmp_path):
    found = find_installation(tmp_path, tmp_path / "0.2.0")
    assert (found.kind, found.command) == ("version", tmp_path / "0.2.0" / "bin" / "alipes")


@pytest.mark.parametrize(
    ("noted", "origin", "editable"),
    [
        (None, "index", False),
        ('{"url": "file:///srv/dist/alipes-0.2.0-py3-none-any.whl", "archive_info": {}}', "/srv/dist", False),
        ('{"url": "file:///srv/my%20tree", "dir_info": {"editable": true}}', "/srv/my tree", True),
        ('{"url": "https://a.example/b.git", "vcs_info": {"vcs": "git"}}', "git+https://a.example/b.git", False),
    ],
)
def test_the_origin_is_where_the_installer_took_it_from(noted, origin, editable):
    assert parse_origin(noted) == (origin, editable)


def test_the_tests_run_in_a_checkout_or_in_an_environment():
    found = find_installation(Path("/nowhere"))
    assert found.kind in ("checkout", "environment") and found.prefix == Path(sys.prefix)
