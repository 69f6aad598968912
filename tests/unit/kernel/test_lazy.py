"""Patterns and objects that are made at their first use."""

import re

import pytest

from alipes.kernel.lazy import lazy_object, lazy_pattern


def test_a_pattern_is_compiled_at_its_first_use():
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.match("x")
    words = lazy_pattern(r"[a-z]+", re.IGNORECASE)
    assert words.findall("Two words") == ["Two", "words"] and words.sub("-", "a b") == "- -"
    assert words.match is words.match


def test_an_object_is_made_once():
    made = []
    later = lazy_object(lambda: made.append(1) or "text")
    assert made == []
    assert (later.upper(), later.lower(), made) == ("TEXT", "text", [1])
