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
    if "\u200d" in text and len(graphemes := list(iter_graphemes(text))) > 1:
        return sum(map(width, graphemes))  # wcswidth drops whatever follows a joiner
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
    """Whether a line may end between two graphemes that no space divides."""
    if before.isascii() and after.isascii():
        return False
    if after[0] in _CLOSERS or before[0] in _OPENERS:
        return False
    return width(before) == 2 or width(after) == 2


def units(word: str) -> Iterator[str]:
    """The parts of a word without spaces between which a line may end; most words are one part."""
    if word.isascii():
        yield word
        return
    unit, last = "", ""
    for grapheme in iter_graphemes(word):
        if last and breakable(last, grapheme):
            yield unit
            unit = ""
        unit, last = unit + grapheme, grapheme
    yield unit
