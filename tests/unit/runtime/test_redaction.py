"""Secrets in a text: masked by value, in the ways they are commonly written, and wherever they stand."""

import base64
import json
import subprocess
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from alipes.runtime.redaction import make_mask

SECRET = "canary-5f1c/77+aa0d~Zz9"


def shell(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], input=f"A=1\nKEY={SECRET}\nB=2\n", capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(
    ("way", "back"),
    [
        ("cat", str),
        ("base64", base64.b64decode),
        ("base64 -w 20", base64.b64decode),
        ("base64 -w 0", base64.b64decode),
        ("xxd -p", bytes.fromhex),
        ("od -An -v -tx1", bytes.fromhex),
        ("rev", lambda text: text[::-1]),
        ("fold -w 3", lambda text: "".join(text.split())),
        ("sed 's/./& /g'", lambda text: "".join(text.split())),
    ],
)
def test_what_programs_make_of_a_secret_is_masked(way, back):
    written = shell(way)
    if not written:
        pytest.skip(f"{way} is not on this machine")
    seen = back(written)
    assert SECRET in (seen if isinstance(seen, str) else seen.decode()), "it was there"
    kept = make_mask([SECRET])(written)
    assert "***" in kept
    try:
        left = back(kept.replace("***", ""))
    except ValueError:
        return
    assert SECRET not in str(left)


@settings(max_examples=300, deadline=None)
@given(
    secret=some.text(some.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60),
    before=some.binary(max_size=9),
    after=some.binary(max_size=9),
)
def test_it_is_found_in_base_64_at_any_offset(secret, before, after):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(before + secret.encode() + after).decode()
        assert "***" in make_mask([secret])(text)


@given(
    secret=some.text(some.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=40),
    around=some.text("ab \n", max_size=10),
)
def test_no_secret_is_left_in_plain_in_quotes_or_in_an_address(secret, around):
    mask = make_mask([secret])
    for text in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], urllib.parse.quote(secret, safe="")):
        assert "***" in mask(around + text + around)


def test_everything_else_is_left_as_it_is():
    mask = make_mask([SECRET, "abc", "tiny"])
    assert mask("abc and\n  more\tof the same") == "abc and\n  more\tof the same"
    assert mask("t i n y") == "t i n y", "short ones are looked for as they are"
    assert mask("a tiny one") == "a *** one"
    assert make_mask([])("tiny") == "tiny"


def test_the_longer_of_two_goes_first():
    assert make_mask(["secret-one", "secret-one-and-more"])("secret-one-and-more") == "***"
