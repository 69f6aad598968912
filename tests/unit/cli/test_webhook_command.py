"""`alipes webhook` and `alipes serve key` by their words: what is made, what is refused, and what is shown."""

import io
import json

import pytest

from alipes.cli.main import main


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
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


def test_a_webhook_is_made_shown_and_removed(told):
    assert "There are no webhooks" in told("webhook")[1]
    status, secret, where = told("webhook", "add", "ci", "--prompt", "Sum up {body.text}", "--tools", "")
    assert status == 0 and secret.startswith("whsec_") and "/hooks/ci, signed" in where
    (listed,) = json.loads(told("webhook", "list", "--json")[1])
    assert listed["webhook"] == {"name": "ci", "prompt": "Sum up {body.text}", "tools": []}
    assert listed["taken"] == 0 and "secret" not in json.dumps(listed)
    shown = told("webhook", "list")[1]
    assert "Sum up {body.text}" in shown and "never" in shown and secret.strip() not in shown
    assert told("webhook", "remove", "ci")[0] == 0
    assert "There are no webhooks" in told("webhook")[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "ci"), "--prompt"),
        (("add",), "one NAME"),
        (("add", "No Name", "-p", "x"), "small letters"),
        (("add", "ci", "-p", "x", "--to", "nowhere"), "no platform"),
        (("add", "ci", "-p", "x", "--to", "telegram"), "no home yet"),
        (("add", "ci", "-p", "x", "--style", "other"), "style"),
        (("remove", "ci"), "no webhook 'ci'"),
        (("test", "ci"), "nobody serves"),
        (("test", "ci", "--body", "@/nowhere"), "cannot be read"),
        (("do",), "no such action"),
    ],
)
def test_what_cannot_be_is_told(told, words, why):
    status, out, err = told("webhook", *words)
    assert (status, out) == (2, "") and why in err


def test_a_name_is_taken_once_and_near_ones_are_proposed(told):
    assert told("webhook", "add", "alarms", "-p", "x")[0] == 0
    assert "already" in told("webhook", "add", "alarms", "-p", "x")[2]
    assert "Did you mean alarms?" in told("webhook", "remove", "alarm")[2]


def test_a_secret_of_the_senders_own_is_taken_if_it_is_long_enough(told):
    add = ("webhook", "add", "gh", "-p", "x", "--style", "github", "--secret")
    status, _, err = told(*add, stdin="short\n")
    assert status == 2 and "16 characters" in err
    assert told(*add, stdin="a-secret-of-the-sender\n")[1] == "a-secret-of-the-sender\n"
    assert told("webhook", "add", "x", "-p", "x", "--secret", stdin="no base64 at all\n")[0] == 2


def test_keys_are_named_once_and_only_named_ones_are_revoked(told):
    status, key, err = told("serve", "key", "add", "ci", "--scope", "admin", "--days", "1", "--rate", "0")
    assert status == 0 and key.startswith("alipes_") and "not shown again" in err
    (listed,) = json.loads(told("serve", "key", "list", "--json")[1])
    assert (listed["name"], listed["scope"], listed["rate"]) == ("ci", "admin", 0)
    shown = told("serve", "key", "list")[1]
    assert (
        "any number" in shown and "in 23 h" in shown and "not made yet" in shown and key.strip() not in shown
    )
    for words, why in (
        (("add", "ci"), "already"),
        (("add", "operator"), "ALIPES_API_KEY"),
        (("add", "Ci"), "small letters"),
        (("add",), "one NAME"),
        (("add", "x", "--scope", "all"), "scope"),
        (("add", "x", "--days", "0"), "number of days"),
        (("add", "x", "--days", "soon"), "number of days"),
        (("add", "x", "--rate", "-1"), "rate"),
        (("revoke", "c"), "no key"),
        (("revoke", "operator"), "--new"),
        (("do",), "no such action"),
    ):
        status, _, err = told("serve", "key", *words)
        assert status == 2 and why in err, words
    assert told("serve", "key", "revoke", "ci")[0] == 0
