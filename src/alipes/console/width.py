"""Display width of text and possible line breaks. Separate because wcwidth is slow to import."""

from collections.abc import Iterator

from wcwidth import iter_graphemes, wcswidth, wcwidth

LETTERS = "\u3041-\u3096\u30a1-\u9fff\uac00-\ud7a3"
"""East Asian letters that may be split anywhere; for a regex character class."""

_CLOSERS = frozenset(
    "、。，．：；！？）］｝〉》」』】〕〗’”…ー々ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ,.:;!?)]}%°"
)
_OPENERS = frozenset("（［｛〈《「『【〔〖‘“([{")


def display_width(text: str) -> int:
    """The columns that `text` takes; control characters count as none."""
    if text.isascii():
        return len(text)
    if "\u200d" in text and len(graphemes := list(iter_graphemes(text))) > 1:
        return sum(map(display_width, graphemes))  # wcswidth ignores the text after a joiner
    columns = wcswidth(text)
    return columns if columns >= 0 else sum(max(0, wcwidth(char)) for char in text)


def split_at_width(text: str, columns: int) -> tuple[str, str]:
    """`text` split where `columns` are full; the first part has at least one grapheme."""
    if text.isascii():
        columns = max(1, columns)
        return text[:columns], text[columns:]
    end = used = 0
    for grapheme in iter_graphemes(text):
        used += display_width(grapheme)
        if used > columns and end:
            break
        end += len(grapheme)
    return text[:end], text[end:]


def can_break(before: str, after: str) -> bool:
    """Whether a line may break between two graphemes without a space between them."""
    if before.isascii() and after.isascii():
        return False
    if after[0] in _CLOSERS or before[0] in _OPENERS:
        return False
    return display_width(before) == 2 or display_width(after) == 2


def split_units(word: str) -> Iterator[str]:
    """The parts of a word between which a line may break; most words are one part."""
    if word.isascii():
        yield word
        return
    unit, last = "", ""
    for grapheme in iter_graphemes(word):
        if last and can_break(last, grapheme):
            yield unit
            unit = ""
        unit, last = unit + grapheme, grapheme
    yield unit
