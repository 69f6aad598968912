"""Secrets in a text: masked by value, in the ways they are commonly written, and wherever they stand."""

import base64
import codecs
import json
import subprocess
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from alipes.runtime.redaction import SecretRegistry, make_mask, mask_cut, split_ready

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


LONG = "sk-Abc/def+0123456789-ghijklmnopqrstuvwxyzABCDEF"


@pytest.mark.parametrize(
    "written",
    [
        urllib.parse.quote(LONG, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
        urllib.parse.quote(LONG, safe="/"),
        "".join(f"%{byte:02X}" for byte in LONG.encode()),
        "".join(f"\\x{byte:02x}" for byte in LONG.encode()),
        ", ".join(f"0x{byte:02x}" for byte in LONG.encode()),
        ":".join(f"{byte:02x}" for byte in LONG.encode()),
        '"' + LONG[:20] + '"\n    "' + LONG[20:] + '"',
        LONG[:30] + "\\\n" + LONG[30:],
        json.dumps({"key": LONG}).replace("/", "\\/"),
        LONG[: len(LONG) // 2],
        LONG[len(LONG) // 2 :],
    ],
)
def test_more_ways_to_write_a_secret_are_masked(written):
    masked = make_mask([LONG])(f"before é {written} after")
    assert "***" in masked and masked.startswith("before é ") and masked.endswith("after")
    assert not any(LONG[start : start + 12] in masked for start in range(len(LONG) - 12))


def test_a_secret_added_later_is_masked_from_then_on():
    mask = SecretRegistry(["first-secret-1"])
    assert mask("second-secret-2") == "second-secret-2"
    mask.add("second-secret-2")
    assert mask("first-secret-1 second-secret-2") == "*** ***"


@pytest.mark.parametrize("filler", ["x", "é", " ", "0x", "a0:", "%61", "'\\n"])
def test_a_secret_is_found_anywhere_in_a_long_text(filler):
    mask, around = make_mask([LONG, *(f"other-secret-{n:08}" for n in range(30))]), filler * 50_000
    for shift in range(0, 16, 5):
        text = mask(around + "|" * shift + LONG + "|" + around)
        assert text.count("***") == 1 and LONG not in text


@given(cut=some.integers(min_value=1, max_value=len(LONG) - 1))
def test_a_secret_that_arrives_in_two_pieces_is_masked_as_one(cut):
    mask = make_mask([LONG])
    first, rest = split_ready(mask, f"key={LONG[:cut]}")
    assert first == "key=" and mask(first) + mask(rest + LONG[cut:] + "!") == "key=***!"


@given(cut=some.integers(min_value=6, max_value=len(LONG) - 6))
def test_parts_of_a_secret_at_the_ends_of_a_cut_text_are_masked(cut):
    mask = make_mask([LONG])
    assert mask_cut(mask, f"a {LONG[:cut]}").strip("*") == "a "
    assert mask_cut(mask, f"{LONG[cut:]} z").strip("*") == " z"


def test_other_masks_hold_nothing_back():
    assert split_ready(str.upper, "abc") == ("abc", "") and mask_cut(str.upper, "abc") == "ABC"


@pytest.mark.parametrize(
    "written",
    [
        f'"{SECRET[:9]}" + "{SECRET[9:]}"',
        json.dumps(list(SECRET)),
        base64.b32encode(SECRET.encode()).decode(),
        base64.b64encode(base64.b64encode(SECRET.encode())).decode(),
        urllib.parse.quote(urllib.parse.quote(SECRET, safe=""), safe=""),
        codecs.encode(SECRET, "rot13"),
    ],
)
def test_a_secret_in_parts_or_encoded_twice_is_masked(written):
    masked = make_mask([SECRET])(f"it is {written} indeed")
    assert "***" in masked and written[4:-4] not in masked
