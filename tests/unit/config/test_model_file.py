"""A catalog that a person named: read, kept with its source, and overridden by the settings."""

import json

import pytest

from alipes.cli.commands import model
from alipes.config.loader import load_settings
from alipes.config.model_file import parse_models
from alipes.config.paths import MODEL_FILE
from alipes.kernel.errors import ConfigError
from alipes.providers.registry import find_facts


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("ALIPES_HOME", str(folder))
    return folder


def refresh(tmp_path, catalog) -> int:
    file = tmp_path / "catalog.json"
    file.write_text(catalog if isinstance(catalog, str) else json.dumps(catalog))
    return model.run(["--refresh", str(file)])


def test_a_catalog_is_kept_and_used_and_the_settings_override_it(home, tmp_path, capsys):
    facts = {"window": 5000, "price_input": 3, "price_output": 9, "efforts": ["low", "max"]}
    assert refresh(tmp_path, {"source": "me", "date": "2026-11-01", "models": {"anthropic/new": facts}}) == 0
    assert f"1 model from me, 2026-11-01, kept in {home / MODEL_FILE}." in capsys.readouterr().out
    (home / "config.toml").write_text('[models."anthropic/new"]\nprice_input = 1\n')
    settings = load_settings(home, {})
    found = find_facts("anthropic/new", settings.models)
    assert (found.window, found.price_input, found.price_output, found.efforts) == (5000, 1.0, 9.0, ("low", "max"))
    assert find_facts("openai/gpt-5.5", settings.models).window == 1_050_000


def test_what_is_no_catalog_changes_nothing(home, tmp_path, capsys):
    assert refresh(tmp_path, {"a/b": {"window": 1}}) == 0
    before = (home / MODEL_FILE).read_bytes()
    for wrong in ("<html>", "[1]", {"a/b": {"window": "big"}}, {"nothing": {}}, {"/x": {}}):
        assert refresh(tmp_path, wrong) == 2
        assert "is no catalog of models" in capsys.readouterr().err
    assert model.run(["--refresh", str(tmp_path / "missing")]) == 2
    assert (home / MODEL_FILE).read_bytes() == before


def test_a_broken_file_in_the_home_is_noted_and_not_used(home):
    (home / MODEL_FILE).write_text("{")
    assert load_settings(home, {}).models == {}


def test_the_day_and_the_place_are_noted_if_the_catalog_names_none():
    file = parse_models(b'{"a/b": {}}', "https://x.example/c.json", "2026-11-19")
    assert (file.source, file.date) == ("https://x.example/c.json", "2026-11-19")
    with pytest.raises(ConfigError):
        parse_models(b'{"a/b": {"window": -}}', "x", "y")
