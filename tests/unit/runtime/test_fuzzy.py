"""Fuzzy matching."""

import pytest

from alipes.runtime.fuzzy import best_matches, score_match, score_path


def best(query: str, *texts: str) -> list[str]:
    return best_matches(query, texts, str, limit=10)


@pytest.mark.parametrize(
    ("query", "better", "worse"),
    [
        ("stop", "stop", "stopped"),
        ("st", "status", "resist"),
        ("main", "src/main.py", "src/domains.py"),
        ("fp", "file_picker", "flip"),
        ("fP", "filePicker", "flip"),
        ("son5", "claude-sonnet-5", "s-o-n-and-more-5"),
    ],
)
def test_whole_words_and_starts_of_words_come_first(query, better, worse):
    assert best(query, worse, better) == [better, worse]


def test_every_word_of_the_query_must_match():
    assert best("parser fix", "Fix the parser", "Fix the lexer") == ["Fix the parser"]
    assert score_match("x", "abc") is None and score_match("ba", "abc") is None


def test_an_empty_query_keeps_the_order_and_equal_scores_too():
    assert best(" ", "b", "a") == ["b", "a"]
    assert best("a", "xa1", "ya2") == ["xa1", "ya2"]


def test_the_name_of_a_file_counts_more_than_its_folder():
    paths = ["app/deep/folder/readme.md", "src/deep/app.py"]
    assert best_matches("app", paths, str, limit=9, score=score_path) == [
        "src/deep/app.py",
        "app/deep/folder/readme.md",
    ]
    assert score_path("deep/app", "src/deep/app.py") is not None
