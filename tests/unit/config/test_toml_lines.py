"""Places in a TOML text: every key is found on the line a person would look at."""

import tomllib

import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.config.toml_lines import lines_of, nearest_line, split_key

TEXT = '''\
# a comment with = and [brackets]
model = "a/b"  # not [this]

fallback = [
  "a/x",   # first
  "b/y",
]
[providers.mine]   # a table
base_url = """
multi = "line"
[not.a.table]
"""
'quoted key'.inner = 1
headers = { "X-A" = 'one', X-B = { c = [1, {d = 2}] } }
[models."open.ai/\\u00e4"]
window = 1
price = 0x10
[[hooks]]
name = "one"
[hooks.deep]
x = 1
[[hooks]]
name = \'\'\'
two\'\'\'
when = 2026-01-01T00:00:00Z
'''


def test_every_kind_of_place_is_found():
    tomllib.loads(TEXT)
    lines = lines_of(TEXT)
    expected = {
        ("model",): 2,
        ("fallback",): 4,
        ("fallback", 0): 5,
        ("fallback", 1): 6,
        ("providers", "mine"): 8,
        ("providers", "mine", "base_url"): 9,
        ("providers", "mine", "quoted key", "inner"): 13,
        ("providers", "mine", "headers", "X-A"): 14,
        ("providers", "mine", "headers", "X-B", "c", 1, "d"): 14,
        ("models", "open.ai/ä"): 15,
        ("models", "open.ai/ä", "price"): 17,
        ("hooks", 0): 18,
        ("hooks", 0, "deep", "x"): 21,
        ("hooks", 1): 22,
        ("hooks", 1, "name"): 23,
        ("hooks", 1, "when"): 25,
    }
    assert {place: lines.get(place) for place in expected} == expected
    assert ("not",) not in {place[:1] for place in lines}


def test_a_missing_place_is_looked_for_where_it_would_be():
    lines = lines_of("[a.b]\nc = 1\n")
    assert nearest_line(lines, ("a", "b", "x", "y")) == 1
    assert nearest_line(lines, ("z",)) is None


def test_keys_are_split_as_toml_splits_them():
    assert split_key("serve.port") == ("serve", "port")
    assert split_key('models."openai/gpt-5.5".window') == ("models", "openai/gpt-5.5", "window")
    assert split_key(" a . 'b.c' ") == ("a", "b.c")
    for bad in ("", ".", "a.", "a..b", "a b", 'a."b', "a=1"):
        assert split_key(bad) is None


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
LEAVES = st.integers(-9, 9) | st.booleans() | st.text(st.characters(codec="utf-8"), max_size=8) | st.floats(0, 1)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


def places(value, way=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*way, name)
        yield from places(inner, (*way, name))


@settings(deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_every_key_of_a_valid_text_has_a_line(tables):
    text = tomlkit.dumps(tables)
    lines = lines_of(text)
    total = text.count("\n") + 1
    for place in places(tomllib.loads(text)):
        assert 1 <= lines[place] <= total


@settings(deadline=None)
@given(st.integers(0, 20), st.sampled_from(['"""\n{}\n"""', "'''\n{}'''", "[1,\n{}2]", "'{}'"]))
def test_a_key_after_a_long_value_is_on_its_own_line(count, shape):
    value = shape.replace("{}", "\n" * count if "\n" in shape else "")
    text = f"first = {value}\nlast = 1\n"
    tomllib.loads(text)
    assert lines_of(text)[("last",)] == text.split("\n").index("last = 1") + 1


@settings(deadline=None, max_examples=30)
@given(st.text() | st.text(alphabet="[]{}=.,\"'\\\n# ab1"))
def test_no_text_makes_it_stumble(text):
    lines_of(text)
    split_key(text)
    lines_of("a=" + "[" * 3000)
