"""Names of keys, their labels, and conflicts."""

import pytest

from alipes.config.keys import KeysConfig, find_conflicts, format_key, key_table, parse_key, short_key_table
from alipes.config.loader import load_settings
from alipes.config.urls import InvalidValue
from alipes.kernel.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "key", "label"),
    [
        ("c-o", "c-o", "Ctrl-O"),
        ("Ctrl-X Ctrl-E", "c-x c-e", "Ctrl-X Ctrl-E"),
        ("ctrl+g", "c-g", "Ctrl-G"),
        ("shift-tab", "s-tab", "Shift-Tab"),
        ("meta-enter", "a-enter", "Alt-Enter"),
        ("a-c-x", "a-c-x", "Alt-Ctrl-X"),
        ("esc esc", "escape escape", "Esc Esc"),
        ("c-[", "escape", "Esc"),
        ("c-m", "enter", "Enter"),
        ("F2", "f2", "F2"),
        ("pgup", "pageup", "PageUp"),
        ("?", "?", "?"),
        ("a--", "a--", "Alt--"),
        ("a-X", "a-X", "Alt-X"),
    ],
)
def test_a_key_has_one_form_and_a_label(text, key, label):
    assert parse_key(text) == key and format_key(key) == label


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("entre", "Did you mean enter?"),
        ("c-foo", 'unknown key "c-foo"'),
        ("c-1", "which terminals cannot send"),
        ("s-a", "which terminals cannot send"),
        ("", "must name a key"),
        ("a b c d", "must name a key"),
        ("escape x", "cannot start with Escape"),
        ("x c-e", "cannot start with a character"),
    ],
)
def test_a_wrong_key_is_explained(text, said):
    with pytest.raises(InvalidValue, match=said.replace("?", r"\?")):
        parse_key(text)


def test_the_defaults_have_no_conflict():
    assert list(find_conflicts(KeysConfig())) == []


def test_every_action_is_in_the_tables():
    assert len(short_key_table(KeysConfig())) == len(KeysConfig.__struct_fields__)
    assert len(key_table(KeysConfig())) > len(short_key_table(KeysConfig()))
    assert all(len(text) < 30 for _, text in short_key_table(KeysConfig()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('expand = "c-l"', 'keys.pick_model and keys.expand both use "c-l"'),
        ('expand = "c-x"', '"c-x c-e" starts with "c-x"'),
        ('expand = "q"', 'keys.expand = "q" is a character that you type'),
        ("expand = 3", "must be a key or a list of keys"),
        ('expandd = "c-o"', "unknown setting keys.expandd. Did you mean expand?"),
    ],
)
def test_a_wrong_table_is_reported_with_its_line(tmp_path, text, said):
    (tmp_path / "config.toml").write_text(f"[keys]\n{text}\n")
    with pytest.raises(ConfigError) as raised:
        load_settings(tmp_path, {})
    assert said in str(raised.value) and "config.toml:" in str(raised.value)


def test_a_key_a_list_and_a_variable_are_accepted(tmp_path):
    (tmp_path / "config.toml").write_text('[keys]\nexpand = "F2"\nquit = []\neditor = ["c-g", "a-e"]\n')
    keys = load_settings(tmp_path, {"ALIPES_KEYS_SEARCH": "c-t, f3"}).keys
    assert (keys.expand, keys.quit, keys.editor, keys.search) == (("f2",), (), ("c-g", "a-e"), ("c-t", "f3"))
