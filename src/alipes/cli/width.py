"""How many columns text takes on a terminal, and where it may be broken. It knows no styles and no blocks."""

from collections.abc import Iterator

from wcwidth import iter_graphemes, wcswidth, wcwidth

LETTERS = "\u3041-\u3096\u30a1-\u9fff\uac00-\ud7a3"
"""Letters that need no space between them and are never a mark upon another one; for a regex class."""

_CLOSERS = frozenset(
    "、。，．：；！？）］｝〉》」』】〕〗’”…ー々ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ,.:;!?)]}%°"
)
_OPENERS = frozenset("（［｛〈《「『【〔〖‘“([{")


def width(text: str) -> int:
    """The columns that `text` takes; control characters, which nobody should show, take none."""
    if text.isascii():
        return len(text)
    columns = wcswidth(text)
    return columns if columns >= 0 else sum(max(0, wcwidth(char)) for char in text)


def cut(text: str, columns: int) -> tuple[str, str]:
    """The most of `text` that fits in `columns`, and the rest; at least one grapheme is taken."""
    if text.isascii():
        columns = max(1, columns)
        return text[:columns], text[columns:]
    end = used = 0
    for grapheme in iter_graphemes(text):
        used += width(grapheme)
        if used > columns and end:
            break
        end += len(grapheme)
    return text[:end], text[end:]


def breakable(before: str, after: str) -> bool:
    """Whether a line may end between two characters that no space divides."""
    if before.isascii() and after.isascii():
        return False
    if after in _CLOSERS or before in _OPENERS:
        return False
    return wcwidth(before) == 2 or wcwidth(after) == 2


def units(word: str) -> Iterator[str]:
    """The parts of a word without spaces between which a line may end; most words are one part."""
    if word.isascii() or wcswidth(word) == len(word):
        yield word
        return
    start = end = 0
    for grapheme in iter_graphemes(word):
        if end and breakable(_base(word, end), grapheme[0]):
            yield word[start:end]
            start = end
        end += len(grapheme)
    yield word[start:]


def _base(word: str, end: int) -> str:
    """The last character before `end` that is not a mark upon another one."""
    last = word[end - 1]
    if last in "\ufe0e\ufe0f\u200d" and end > 1:
        return word[end - 2]
    return last
