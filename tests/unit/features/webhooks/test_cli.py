"""`alipes webhook` and `alipes serve key`: output and errors."""

import io
import json
import sqlite3
from contextlib import closing

import pytest

from alipes.cli.main import main


@pytest.fixture
def seen(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))

    def run(*words, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            status = main(list(words))
        except SystemExit as left:
            status = left.code
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_a_webhook_is_added_listed_and_removed(seen):
    assert "No webhooks" in seen("webhook")[1]
    status, secret, where = seen("webhook", "add", "ci", "--prompt", "Sum up {body.text}", "--tools", "")
    assert status == 0 and secret.startswith("whsec_") and "/hooks/ci, signed" in where
    (listed,) = json.loads(seen("webhook", "list", "--json")[1])
    assert listed["webhook"] == {"name": "ci", "prompt": "Sum up {body.text}", "tools": []}
    assert listed["taken"] == 0 and "secret" not in json.dumps(listed)
    shown = seen("webhook", "list")[1]
    assert "Sum up {body.text}" in shown and "never" in shown and secret.strip() not in shown
    assert seen("webhook", "remove", "ci")[0] == 0
    assert "No webhooks" in seen("webhook")[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "ci", "--to", "home"), "--to needs --prompt"),
        (("add",), "one NAME"),
        (("add", "No Name", "-p", "x"), "lowercase letters"),
        (("add", "ci", "-p", "x", "--to", "nowhere"), "unknown platform"),
        (("add", "ci", "-p", "x", "--to", "telegram"), "no default chat"),
        (("add", "ci", "-p", "x", "--style", "other"), "style"),
        (("remove", "ci"), "unknown webhook 'ci'"),
        (("add", "ci", "-p", "x", "--schema", '{"type": "x"}'), "The schema is not valid at $.type"),
        (("add", "ci", "--schema", '{"type": "object"}'), "--schema needs --prompt"),
        (("test", "ci"), "no server is running"),
        (("test", "ci", "--body", "@/nowhere"), "cannot be read"),
        (("do",), "unknown action"),
    ],
)
def test_invalid_options_are_reported(seen, words, why):
    status, out, err = seen("webhook", *words)
    assert (status, out) == (2, "") and why in err


def test_a_name_is_unique_and_similar_ones_are_suggested(seen):
    assert seen("webhook", "add", "alarms", "-p", "x")[0] == 0
    assert "already" in seen("webhook", "add", "alarms", "-p", "x")[2]
    assert "Did you mean alarms?" in seen("webhook", "remove", "alarm")[2]


def test_a_secret_of_the_sender_is_accepted_if_it_is_long_enough(seen):
    add = ("webhook", "add", "gh", "-p", "x", "--style", "github", "--secret")
    status, _, err = seen(*add, stdin="short\n")
    assert status == 2 and "16 characters" in err
    assert seen(*add, stdin="a-secret-of-the-sender\n")[1] == "a-secret-of-the-sender\n"
    assert seen("webhook", "add", "x", "-p", "x", "--secret", stdin="no base64 at all\n")[0] == 2


def test_key_names_are_unique_and_only_named_keys_can_be_revoked(seen):
    status, key, err = seen("serve", "key", "add", "ci", "--scope", "admin", "--days", "1", "--rate", "0")
    assert status == 0 and key.startswith("alipes_") and "not shown again" in err
    (listed,) = json.loads(seen("serve", "key", "list", "--json")[1])
    assert (listed["name"], listed["scope"], listed["rate"]) == ("ci", "admin", 0)
    shown = seen("serve", "key", "list")[1]
    assert "unlimited" in shown and "in 23 h" in shown and "not created yet" in shown and key.strip() not in shown
    for words, why in (
        (("add", "ci"), "already"),
        (("add", "operator"), "ALIPES_API_KEY"),
        (("add", "Ci"), "lowercase letters"),
        (("add",), "one NAME"),
        (("add", "x", "--scope", "all"), "scope"),
        (("add", "x", "--days", "0"), "number of days"),
        (("add", "x", "--days", "soon"), "number of days"),
        (("add", "x", "--rate", "-1"), "rate"),
        (("revoke", "c"), "unknown key"),
        (("revoke", "operator"), "--new"),
        (("do",), "unknown action"),
    ):
        status, _, err = seen("serve", "key", *words)
        assert status == 2 and why in err, words
    assert seen("serve", "key", "revoke", "ci")[0] == 0


def test_a_webhook_has_no_tools_unless_they_are_given(seen):
    seen("webhook", "add", "ci", "-p", "look")
    assert json.loads(seen("webhook", "list", "--json")[1])[0]["webhook"]["tools"] == []
    assert "Tools of webhook ci: read_file, todo." in seen("webhook", "tools", "ci", "--tools", "read_file, todo")[1]
    assert "read_file,todo" in seen("webhook", "list")[1]
    assert seen("webhook", "tools", "nope")[0] == 2


def test_a_webhook_of_an_earlier_version_is_named_in_the_list(seen, tmp_path):
    seen("webhook", "add", "ci", "-p", "look")
    with closing(sqlite3.connect(tmp_path / "home" / "alipes.db", isolation_level=None)) as db:
        db.execute("UPDATE webhooks SET settings = json_remove(settings, '$.tools')")
    shown = seen("webhook", "list")[1]
    assert "webhook ci has no tools: allow them with `alipes webhook tools ci --tools NAMES`" in shown


def test_the_secret_of_a_webhook_is_replaced(seen):
    first = seen("webhook", "add", "ci", "-p", "look", "--style", "github")[1]
    status, second, _ = seen("webhook", "secret", "ci")
    assert status == 0 and first != second and len(second.strip()) == 64
    assert seen("webhook", "secret", "ci", "--secret", stdin="x" * 20 + "\n")[1].strip() == "x" * 20
