"""Colours of code by Pygments, one line at a time. Loaded with the first fence that names a language."""

import time
from copy import copy
from typing import Any

from pygments.lexer import ExtendedRegexLexer, RegexLexer  # type: ignore[import-untyped,unused-ignore]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped,unused-ignore]
from pygments.token import Comment, String, _TokenType  # type: ignore[import-untyped,unused-ignore]
from pygments.util import ClassNotFound  # type: ignore[import-untyped,unused-ignore]

from alipes.cli.markdown.wrap import Row

SLOW = 0.05
"""Seconds of CPU time; a language whose rules take longer for one line is given up."""
DEEPEST = 200
_COMMENTS = (("/*", "*/"), ("<!--", "-->"))
_Tokens = list[tuple[Any, str]]


def open_lexing(language: str, styles: dict[str, str]) -> "Lexing | None":
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    return Lexing(lexer, _Palette(styles))


class Lexing:
    """A lexer that is stopped at the end of every line and goes on with the next.

    Pygments itself wants the whole text. Its states carry over lines as they are; a comment that
    is one pattern over many lines is followed here.
    """

    def __init__(self, lexer: Any, palette: "_Palette") -> None:
        self._lexer, self._palette = lexer, palette
        self._stack = ["root"]
        resumable = isinstance(lexer, RegexLexer) and not isinstance(lexer, ExtendedRegexLexer)
        self._rules: dict[str, list[Any]] | None = lexer._tokens if resumable else None
        self._comments = [pair for pair in _COMMENTS if _is_comment(lexer, " x ".join(pair))]
        self._until = ""
        """The end of the comment that is open."""

    def read(self, line: str) -> Row | None:
        """The line in its colours; None where it took too long or the lexer failed at it."""
        begun = time.thread_time()
        try:
            tokens = self._read(line)
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
            return None  # a lexer is somebody's data: its faults cost us no more than the colours
        if time.thread_time() - begun > SLOW:
            return None
        row: Row = []
        for kind, text in tokens:
            if text := text.rstrip("\n"):
                style = self._palette.style(kind)
                if row and row[-1][1] == style:
                    row[-1] = (row[-1][0] + text, style, "")
                else:
                    row.append((text, style, ""))
        return row

    def fork(self) -> "Lexing":
        other = copy(self)
        other._stack = self._stack[:]
        return other

    def _read(self, line: str) -> _Tokens:
        if self._until:
            end = line.find(self._until)
            if end < 0:
                return [(Comment.Multiline, line)]
            end += len(self._until)
            self._until = ""
            return [(Comment.Multiline, line[:end]), *self._read(line[end:])]
        before = self._stack[:]
        tokens = self._lex(line + "\n")
        for begin, end_mark in self._comments:
            if (place := _opened(tokens, begin, end_mark)) >= 0:
                self._stack, self._until = before, end_mark
                return [*self._lex(line[:place] + "\n"), (Comment.Multiline, line[place:])]
        return tokens

    def _lex(self, text: str) -> _Tokens:
        if self._rules is None:
            return [(kind, value) for _, kind, value in self._lexer.get_tokens_unprocessed(text)]
        out: _Tokens = []
        pos, steps = 0, 0
        while pos < len(text):
            steps += 1
            if steps > 10 * len(text) + 100:
                raise ValueError("the lexer does not move")
            pos = self._step(text, pos, out)
        return out

    def _step(self, text: str, pos: int, out: _Tokens) -> int:
        assert self._rules is not None
        for matches, action, state in self._rules[self._stack[-1]]:
            if found := matches(text, pos):
                if type(action) is _TokenType:
                    out.append((action, found.group()))
                elif action is not None:
                    out += [(kind, value) for _, kind, value in action(self._lexer, found)]
                if state is not None:
                    self._turn(state)
                return int(found.end())
        if text[pos] == "\n":
            self._stack = ["root"]
        out.append((_TokenType(), text[pos]))
        return pos + 1

    def _turn(self, state: Any) -> None:
        """Enter or leave states, in the ways a lexer may put it."""
        stack = self._stack
        if isinstance(state, int):
            del stack[max(1, len(stack) + state) if state < 0 else 1 :]
            return
        for name in state if isinstance(state, tuple) else (state,):
            if name == "#pop":
                if len(stack) > 1:
                    stack.pop()
            else:
                stack.append(stack[-1] if name == "#push" else name)
        del stack[1 : max(1, len(stack) - DEEPEST)]


class _Palette:
    """Styles by kind of token, each looked up once."""

    def __init__(self, styles: dict[str, str]) -> None:
        self._styles = styles
        self._known: dict[Any, str] = {}

    def style(self, kind: Any) -> str:
        if kind not in self._known:
            names = ".".join(kind)
            while names and names not in self._styles:
                names = names.rpartition(".")[0]
            self._known[kind] = self._styles.get(names, "")
        return self._known[kind]


def _is_comment(lexer: Any, text: str) -> bool:
    said = (token for token in lexer.get_tokens_unprocessed(text + "\n") if token[2])
    _, kind, value = next(said, (0, (), ""))
    return kind in Comment and value.startswith(text)


def _opened(tokens: _Tokens, begin: str, end: str) -> int:
    """Where a comment begins that this line does not end; -1 if none does."""
    hidden = [(kind in Comment and not text.startswith(begin)) or kind in String for kind, text in tokens]
    line = "".join("\0" * len(text) if hide else text for hide, (_, text) in zip(hidden, tokens, strict=True))
    place = line.find(begin)
    while place >= 0 and (over := line.find(end, place + len(begin))) >= 0:
        place = line.find(begin, over)
    return place
