"""`alipes store` and `alipes store move`."""

import pytest

from alipes.cli.main import main
from alipes.config.paths import Paths
from alipes.store.sqlite.files import DATABASE_FILE
from tests.unit.store.test_move import source, url

__all__ = ["source", "url"]


@pytest.fixture
def home(source, monkeypatch):
    monkeypatch.setenv("ALIPES_HOME", str(source.parent))
    return source.parent


def test_the_store_of_a_new_home_is_sqlite(home, capsys):
    assert main(["store"]) == 0
    assert "sqlite" in capsys.readouterr().out


def test_a_move_prints_the_line_to_change(home, url, capsys):
    assert main(["store", "move", url]) == 0
    assert f'store = "{url}"' in capsys.readouterr().out
    assert not Paths(home).config.exists()


def test_a_switched_home_moves_back(home, url, capsys):
    assert main(["store", "move", url, "--switch"]) == 0
    assert f'store = "{url}"' in Paths(home).config.read_text()
    (home / DATABASE_FILE).rename(home / "old.db")
    assert main(["store", "move", "sqlite", "--switch"]) == 0
    assert 'store = ""' in Paths(home).config.read_text()
    assert (home / DATABASE_FILE).exists()


def test_a_target_that_is_no_database_is_explained(home, capsys):
    assert main(["store", "move", "mysql://db/x"]) == 2
    assert "must be the URL of a PostgreSQL database" in capsys.readouterr().err


def test_a_backup_of_a_postgresql_store_names_pg_dump(home, monkeypatch, capsys):
    monkeypatch.setenv("ALIPES_STORE", "postgresql://db.invalid/agent")
    assert main(["backup", str(home / "all.tgz")]) == 2
    assert "pg_dump" in capsys.readouterr().err
