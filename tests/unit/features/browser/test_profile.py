"""The file in which cookies are kept: private, replaced at once, never shown to a model."""

import stat

import pytest

from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.features.browser.profile import ProfileFile
from alipes.kernel.errors import ConfigError
from alipes.store.backups.backup_archive import _EXCLUDED
from alipes.tools.common import Places


def test_what_is_kept_is_read_again_and_private(tmp_path):
    file = ProfileFile(tmp_path / "browser", "work")
    assert file.read() is None
    file.write({"cookies": [1]})
    file.write({"cookies": [2]})
    assert file.read() == {"cookies": [2]}
    (path,) = (tmp_path / "browser").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_without_a_name_and_with_a_broken_file_nothing_is_read(tmp_path):
    assert ProfileFile(tmp_path, "").read() is None
    (tmp_path / "work.json").write_text("{")
    assert ProfileFile(tmp_path, "work").read() is None


def test_no_tool_reads_a_profile_and_no_backup_contains_it(tmp_path):
    path = str(Paths(tmp_path).browser / "work.json")
    assert Places(home="/home/ann", alipes_home=str(tmp_path)).secrecy(path) == "ours"
    assert _EXCLUDED.fullmatch("browser/work.json")


def test_a_profile_is_a_plain_name(tmp_path):
    (tmp_path / "config.toml").write_text('[browser]\nenabled = true\nprofile = "work"\n')
    assert load_settings(tmp_path, {}).browser.profile == "work"
    for name in ("../x", "a/b", ".hidden"):
        (tmp_path / "config.toml").write_text(f'[browser]\nprofile = "{name}"\n')
        with pytest.raises(ConfigError, match=r"must be a name of letters"):
            load_settings(tmp_path, {})
