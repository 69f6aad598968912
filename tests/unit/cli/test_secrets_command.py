"""`alipes secrets`: names and sources, never a value."""

import io
import json
import stat
import sys
from types import ModuleType

import pytest

from alipes.cli.main import main
from alipes.config.loader import load_settings

VALUE = "canary-value-5f1c77aa0d"


@pytest.fixture
def seen(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY", "TELEGRAM_BOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def run(*words, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            status = main(["secrets", *words])
        except SystemExit as left:
            status = left.code
        shown = capsys.readouterr()
        assert VALUE not in shown.out + shown.err and str(len(VALUE)) not in shown.out.replace(str(tmp_path), "")
        return status, shown.out, shown.err

    return run


class StandInKeyring(ModuleType):
    """Speaks the functions of the package `keyring`, which is not installed for the tests."""

    def __init__(self):
        super().__init__("keyring")
        self.kept, self.locked = {}, False
        self.errors = ModuleType("keyring.errors")
        self.errors.KeyringError = type("KeyringError", (Exception,), {})

    def _check(self):
        if self.locked:
            raise self.errors.KeyringError("it is locked")

    def get_password(self, service, name):
        self._check()
        return self.kept.get((service, name))

    def set_password(self, service, name, value):
        self._check()
        self.kept[service, name] = value

    def delete_password(self, service, name):
        self._check()
        del self.kept[service, name]


@pytest.fixture
def keyring(monkeypatch, tmp_path):
    made = StandInKeyring()
    monkeypatch.setitem(sys.modules, "keyring", made)
    monkeypatch.setitem(sys.modules, "keyring.errors", made.errors)
    (tmp_path / "config.toml").write_text('secret_store = "keyring"\n')
    return made


def test_a_secret_is_saved_listed_by_name_and_removed(seen, tmp_path):
    assert "No secrets" in seen()[1]
    status, out, _ = seen("set", "OPENAI_API_KEY", stdin=f"{VALUE}\n")
    assert status == 0 and f"saved in {tmp_path}/.env" in out
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert load_settings(tmp_path, {}).providers["openai"].key.reveal() == VALUE
    (listed,) = json.loads(seen("list", "--json")[1])
    assert listed == {"name": "OPENAI_API_KEY", "source": f"{tmp_path}/.env:1", "used": True}
    assert seen("remove", "OPENAI_API_KEY")[0] == 0
    assert "No secrets" in seen()[1] and seen("remove", "OPENAI_API_KEY")[0] == 2


def test_each_source_is_named(seen, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", VALUE)
    (tmp_path / "config.toml").write_text("[providers.groq]\n[telegram]\nallow = [7]\n")
    (tmp_path / ".env").write_text(f"TELEGRAM_BOT_TOKEN={VALUE}\nMY_OWN={VALUE}\n")
    found = {each["name"]: (each["source"], each["used"]) for each in json.loads(seen("--json")[1])}
    assert found["ANTHROPIC_API_KEY"] == ("environment", True)
    assert found["TELEGRAM_BOT_TOKEN"] == (f"{tmp_path}/.env:1", True)
    assert found["GROQ_API_KEY"] == ("missing", True)
    assert found["MY_OWN"] == (f"{tmp_path}/.env:2", False)


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        (("set",), "", "one NAME"),
        (("set", "A B"), "x", "is not a name"),
        (("set", "A"), "", "no value"),
        (("remove", "A"), "", "is not in"),
        (("do",), "", "unknown action"),
    ],
)
def test_invalid_uses_are_reported(seen, words, stdin, why):
    status, _, err = seen(*words, stdin=stdin)
    assert status == 2 and why in err


def test_a_secret_can_be_kept_in_the_keyring(seen, keyring, tmp_path):
    assert "saved in the keyring" in seen("set", "OPENAI_API_KEY", stdin=f"{VALUE}\n")[1]
    assert keyring.kept == {("alipes", "OPENAI_API_KEY"): VALUE} and not (tmp_path / ".env").exists()
    settings = load_settings(tmp_path, {})
    assert settings.providers["openai"].key.reveal() == VALUE and VALUE in settings.secrets(), "and is masked"
    assert json.loads(seen("--json")[1])[0]["source"] == "keyring"
    assert "removed from the keyring" in seen("remove", "OPENAI_API_KEY")[1] and keyring.kept == {}


def test_a_locked_keyring_is_reported_once_with_the_place_of_the_setting(seen, keyring):
    keyring.locked = True
    status, _, err = seen()
    assert status == 2 and err.count("it is locked") == 1 and "config.toml:1" in err


def test_without_the_package_the_error_says_how_to_install_it(seen, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    (tmp_path / "config.toml").write_text('secret_store = "keyring"\n')
    status, _, err = seen()
    assert status == 2 and "alipes install keyring" in err


def test_without_the_setting_no_keyring_is_used(seen, keyring, tmp_path):
    keyring.locked = True
    (tmp_path / "config.toml").write_text("")
    assert seen()[0] == 0
