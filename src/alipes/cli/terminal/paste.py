"""Long pastes as one character each: typed over, moved and deleted at once, shown as a label, sent whole."""

import re

FIRST = 0xF0000
"""Where the private characters begin that stand for pastes; nobody types these."""
SHORT_LINES, SHORT_TEXT = 5, 1000
"""What is not longer than either is simply put into the input."""
_MARK = re.compile("[\U000f0000-\U000fffff]")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Pastes:
    """The pastes of this process, by the characters that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def take(self, data: str) -> str:
        """What goes into the input for pasted `data`."""
        text = _UNSAFE.sub("", data.replace("\r\n", "\n").replace("\r", "\n"))
        text = self.expand(_MARK.sub("", text))
        if text.count("\n") < SHORT_LINES and len(text) <= SHORT_TEXT:
            return text
        mark = chr(FIRST + len(self._texts))
        self._texts[mark] = text
        return mark

    def label(self, mark: str) -> str:
        """How the paste behind `mark` is shown; empty for any other character."""
        text = self._texts.get(mark)
        if text is None:
            return ""
        lines = text.count("\n") + (not text.endswith("\n"))
        return f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"

    def labelled(self, text: str) -> str:
        """The text with labels in place of marks."""
        return _MARK.sub(lambda found: self.label(found[0]), text)

    def expand(self, text: str) -> str:
        """The text as it is meant, pastes and all."""
        return _MARK.sub(lambda found: self._texts.get(found[0], ""), text)
