"""Fuzzy matching: the letters of a query appear in the text in the same order."""

import heapq
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
EXACT, PREFIX, WORD_PREFIX, INSIDE = 4000, 3000, 2000, 1000
"""Scores of a whole word; a subsequence of letters scores less."""
IN_NAME = 500
"""Bonus of a path whose last part matches."""
MAX_PENALTY = 200
"""Long texts score less, up to this much."""
WORD_START, CONSECUTIVE = 20, 12
_SEPARATORS = " /_-.:,()[]\\"


def score_match(query: str, text: str) -> int | None:
    """How well `text` matches; None if it does not. Every word of the query must match."""
    total = 0
    for word in query.lower().split():
        score = _score_word(word, text)
        if score is None:
            return None
        total += score
    return total - min(len(text), MAX_PENALTY)


def score_path(query: str, path: str) -> int | None:
    """The same for a path: its last part counts most."""
    whole = score_match(query, path)
    if whole is None or "/" in query:
        return whole
    name = score_match(query, path.rstrip("/").rpartition("/")[2])
    return whole if name is None else max(whole, name + IN_NAME - min(len(path), MAX_PENALTY))


def best_matches(
    query: str,
    items: Iterable[T],
    text: Callable[[T], str],
    *,
    limit: int,
    score: Callable[[str, str], int | None] = score_match,
) -> list[T]:
    """The best matching items, best first; equal ones in their order. All of them for an empty query."""
    if not query.strip():
        return list(items)[:limit]
    may_match = _subsequence(query.lower())
    scored: list[tuple[int, int, T]] = []
    for number, item in enumerate(items):
        shown = text(item)
        if may_match(shown.lower()) and (points := score(query, shown)) is not None:
            scored.append((points, -number, item))
    return [item for _, _, item in heapq.nlargest(limit, scored, key=lambda each: each[:2])]


@lru_cache(maxsize=8)
def _subsequence(query: str) -> Callable[[str], object]:
    """A fast test that rules out most texts."""
    words = [re.compile("[^\n]*?".join(map(re.escape, word)), re.DOTALL).search for word in query.split()]
    return lambda text: all(search(text) for search in words)


def _score_word(word: str, text: str) -> int | None:
    low = text.lower()
    if low == word:
        return EXACT
    if low.startswith(word):
        return PREFIX
    at = low.find(word)
    while at >= 0:
        if _starts_word(text, at):
            return WORD_PREFIX
        at = low.find(word, at + 1)
    return INSIDE if word in low else _score_letters(word, text, low)


def _score_letters(word: str, text: str, low: str) -> int | None:
    """Match to the earliest end, then from there backwards, which finds the shortest match."""
    at = -1
    for letter in word:
        at = low.find(letter, at + 1)
        if at < 0:
            return None
    places = [at]
    for letter in reversed(word[:-1]):
        places.append(low.rfind(letter, 0, places[-1]))
    places.reverse()
    score = sum(WORD_START for place in places if _starts_word(text, place))
    score += sum(CONSECUTIVE for one, other in pairwise(places) if other == one + 1)
    return score - (places[-1] - places[0])


def _starts_word(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] in _SEPARATORS or (text[at].isupper() and text[at - 1].islower())
