"""The `.env` file: small, strict, and never quoted back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.config.environment import Variables, parse_env, read_variables, readable_by_others
from alipes.kernel.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  A=b  ", "b"),
        ("A=", ""),
        ("A=b # comment", "b"),
        ("A=b#c", "b#c"),
        ("A=a=b", "a=b"),
        ("A='b # c'", "b # c"),
        ("A='b' # c", "b"),
        ('A="b c"', "b c"),
        ('A="a\\nb\\"c\\\\d\\$e"', 'a\nb"c\\d$e'),
        ("A='a\\nb'", "a\\nb"),
        ("A=${B}", "${B}"),
        ("# c\n\nA=b\r\n", "b"),
    ],
)
def test_a_line_says_a_value(tmp_path, text, value):
    assert parse_env(text, tmp_path)["A"].value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A canary", "not NAME=value"),
        ("A = canary", "without spaces around"),
        ("A= canary", "without spaces around"),
        ("1A=canary", "a name has"),
        ("A-B=canary", "a name has"),
        ("A=canary canary", "'single quotes'"),
        ("A=can'ary", "'single quotes'"),
        ("A=#canary", "'single quotes'"),
        ('A="canary', "has an opening quote"),
        ("A='canary", "has an opening quote"),
        ("A='canary' more", "has an opening quote"),
        ('A="can\\ary"', "backslash"),
        ("A=can\x00ary", "control characters"),
    ],
)
def test_a_wrong_line_is_named_and_its_value_is_not(tmp_path, text, said):
    with pytest.raises(ConfigError) as caught:
        parse_env(f"# first\n{text}\n", tmp_path / ".env")
    assert f"{tmp_path}/.env:2: " in str(caught.value)
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_variable_set_twice_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="A is already set on line 1"):
        parse_env("A=b\nA=c\n", tmp_path)


def test_all_wrong_lines_are_reported_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        parse_env("one\nA=b\ntwo\n", tmp_path)
    assert len(str(caught.value).splitlines()) == 2


@settings(deadline=None)
@given(st.text() | st.text(alphabet="AB=\"'\\ #\n$\t"))
def test_any_text_is_variables_or_an_error(tmp_path_factory, text):
    try:
        parse_env(text, tmp_path_factory.getbasetemp())
    except ConfigError as error:
        assert str(error)


def test_the_environment_goes_over_the_file_and_an_empty_variable_counts_as_not_set(tmp_path):
    (tmp_path / ".env").write_text("A=file\nB=file\nE=\n")
    variables = read_variables(tmp_path / ".env", {"A": "shell", "B": "", "C": "shell"})
    assert [variables.get(name) for name in "ABCDE"] == ["shell", "file", "shell", "", ""]
    assert [variables.where(name) for name in "ABDE"] == ["environment", f"{tmp_path}/.env:2", "", ""]
    assert set(variables.names()) == set("ABCE")
    assert Variables({}, tmp_path).get("A") == ""


def test_others_who_may_read_it_are_warned_of(tmp_path):
    file = tmp_path / ".env"
    assert readable_by_others(file) == ""
    file.write_text("")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        file.chmod(mode)
        assert bool(readable_by_others(file)) is warned
