"""Secrets are found in notes; ordinary notes are not taken for one."""

import pytest

from alipes.features.memory.secrets import contains_secret
from alipes.runtime.redaction import make_mask

KNOWN = "hunter2-and-more"


@pytest.mark.parametrize(
    "text",
    [
        f"the database uses {KNOWN}",
        "aHVudGVyMi1hbmQtbW9yZQ is the value",  # the same in base64
        "use sk-ant-REDACTED for tests",
        "the wifi password is correcthorse",
        "API_KEY=abcdef123456",
        "token: 8f3b9c2d1e",
        "connect to postgres://ann:s3cret@db/main",
        "-----BEGIN RSA PRIVATE KEY-----",
        "the bot is 1234567:AAE4tq5bQexample_token_of_a_bot",
        "PIN: 4711",
    ],
)
def test_a_secret_is_found(text):
    assert contains_secret(text, make_mask([KNOWN]))


@pytest.mark.parametrize(
    "text",
    [
        "The password is stored in 1Password",
        "token: $GITHUB_TOKEN",
        "Secrets are read from .env",
        "Prefers tabs, not spaces",
        "The key idea: write the test first",
        "Repository: github.com/example/project at commit 4a5b6c7",
        "Meetings are at 10:30 in room 204",
        "API key is in the keyring under alipes",
    ],
)
def test_an_ordinary_note_is_not_taken_for_a_secret(text):
    assert not contains_secret(text, make_mask([KNOWN]))
