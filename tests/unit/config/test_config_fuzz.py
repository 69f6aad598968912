"""Whatever is in the files and the variables, the answer is settings or one ConfigError that says where."""

import random
import string
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alipes.config.loader import load_settings
from alipes.config.schema import KEYS, RESERVED
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import closest_matches, did_you_mean

LAX = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = sorted({word for key in KEYS for word in key.path.split(".")} | set(RESERVED) | {"mine", "groq", '"a/b"'})
VALUES = [
    *('"groq/x"', '"http://h:1/v1"', '"http://u:p@h"', '""', "1", "-1", "0x10", "1e9", "nan", "true", "[]", "{}"),
    *('["groq/x", 1]', "{ a = 1 }", '"""x\ny"""', "2026-01-01", "07:00:00", "'low'", '"sk-canary-canary"', "[[1]]"),
]
REAL = st.builds(
    lambda key, name, cut: ".".join(key.path.replace("*", name).split(".")[: cut or None]),
    st.sampled_from(KEYS),
    st.sampled_from(["mine", "groq", '"groq/x"', '"a b"']),
    st.sampled_from([0, 0, 0, 1, 2]),
)
PATHS = REAL | st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(".".join)
LINES = st.one_of(
    st.builds("{} = {}".format, PATHS, st.sampled_from(VALUES)),
    st.builds("[{}]".format, PATHS),
    st.builds("[[{}]]".format, PATHS),
    st.sampled_from(["# comment", "", "=", "[", '"""', "\t", "x"]),
)
TOMLISH = st.lists(LINES, max_size=12).map("\n".join)
ENVISH = st.lists(
    st.builds(
        "{}={}".format,
        st.sampled_from(["GROQ_API_KEY", "HTTP_PROXY", "ALIPES_MODEL", "ALIPES_SERVE_PORT", "X", "1"]),
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8),
    ),
    max_size=4,
).map("\n".join)
NAMES = ["GROQ_API_KEY", "http_proxy", "NO_PROXY", "ALIPES_MODEL", "ALIPES_FALLBACK", "ALIPES_EMBEDDED_GGUF"]
ENVIRONS = st.dictionaries(st.sampled_from(NAMES), st.text(max_size=10), max_size=4)


def outcome(home: Path, environ: dict[str, str]) -> str:
    """Settings or ConfigError; anything else fails the test by itself."""
    try:
        loaded = load_settings(home, environ)
    except ConfigError as error:
        for line in str(error).splitlines():
            assert line.startswith((f"{home}/", "environment: ")), line
            assert line.endswith((".", "?")), line
            assert line.isprintable(), line
        return str(error)
    assert isinstance(loaded, Settings)
    return repr(loaded)


@LAX
@given(TOMLISH, ENVISH, ENVIRONS)
@example("[models.'a/b'.window]", "", {})
@example("[[providers]]\n[[providers]]", "", {})
@example("[providers.groq.headers]\n'' = 'x'", "", {})
@example("providers.groq.key = [1]", "", {})
@example("providers.mine = 3", "", {})
def test_any_file_is_settings_or_an_error_that_says_where(tmp_path, text, env, environ):
    (tmp_path / "config.toml").write_text(text)
    (tmp_path / ".env").write_text(env)
    assert "canary" not in outcome(tmp_path, environ)


@LAX
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_settings_or_an_error(tmp_path, text):
    (tmp_path / "config.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    outcome(tmp_path, {})


@LAX
@given(st.binary(), st.binary())
def test_any_bytes_are_settings_or_an_error(tmp_path, text, env):
    (tmp_path / "config.toml").write_bytes(text)
    (tmp_path / ".env").write_bytes(env)
    outcome(tmp_path, {})


def test_a_good_file_with_one_byte_changed_is_settings_or_an_error(tmp_path):
    good = (
        'model = "groq/x"\nfallback = ["xai/y"]\n[providers.groq]\nbase_url = "http://h:1/v1"\n'
        'headers = { X-A = "b" }\n[serve]\nport = 8742\n[models."groq/x"]\nwindow = 10\n'
    )
    dice = random.Random(7)
    for _ in range(400):
        at = dice.randrange(len(good))
        (tmp_path / "config.toml").write_text(good[:at] + dice.choice(string.printable) + good[at + 1 :])
        outcome(tmp_path, {})


def test_near_words_are_found_and_far_ones_are_not():
    known = ["model", "fallback", "max_steps", "max_tokens", "serve"]
    assert closest_matches("modle", known) == ["model"]
    assert closest_matches("MODEL", known) == ["model"]
    assert closest_matches("maxsteps", known) == ["max_steps"]
    assert closest_matches("zzz", known) == []
    assert did_you_mean("max_stokens", known) == " Did you mean max_tokens or max_steps?"
    assert did_you_mean("zzz", known) == ""


@LAX
@given(st.text(), st.lists(st.text(), max_size=5))
def test_near_words_are_known_words(word, known):
    assert set(closest_matches(word, known)) <= set(known)
    if word:
        assert word in closest_matches(word, [word, *known])
