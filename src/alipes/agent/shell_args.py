"""The words after a command's name: options and operands. It knows no command."""

from collections.abc import Sequence

from alipes.agent.shell_words import Word


class Args:
    """Sorted arguments. An option counts also when it is abbreviated, as most programs allow."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.operands: list[Word] = []
        self.options: list[Word] = []
        self._letters = ""
        self._names: list[str] = []
        for at, word in enumerate(self.words):
            text = word.text
            if text == "--":
                self.operands += self.words[at + 1 :]
                break
            if len(text) < 2 or not text.startswith("-"):
                self.operands.append(word)
                continue
            self.options.append(word)
            if text.startswith("--"):
                self._names.append(text[2:].partition("=")[0])
            else:
                self._letters += text[1:]
                self._names += [text[1:].partition("=")[0]] if len(text) > 2 else []

    def has(self, letters: str, *names: str) -> bool:
        """Is one of the letters, or the beginning of one of the names, among the options?"""
        if any(letter in self._letters for letter in letters):
            return True
        return any(name.startswith(given) for given in self._names if given for name in names)

    def values(self, letters: str, *names: str) -> list[Word]:
        """The values of options: what stands after each of them, or in it."""
        found: list[Word] = []
        for at, word in enumerate(self.words):
            following = self.words[at + 1] if at + 1 < len(self.words) else Word("")
            text, sign, value = word.text.partition("=")
            if text.startswith("--"):
                if len(text) > 2 and any(name.startswith(text[2:]) for name in names):
                    found.append(Word(value) if sign else following)
            elif text.startswith("-") and any(letter in text[1:] for letter in letters):
                found.append(following)
                if text[1:2] in letters and len(word.text) > 2:  # as in -ofile
                    found.append(Word(word.text[2:]))
        return found

    @property
    def uncertain(self) -> bool:
        """Could an argument be an option we cannot see?"""
        return any(word.text.startswith("\0") for word in self.operands)
