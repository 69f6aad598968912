"""Highlights code with Pygments, line by line. Imported with the first block that has a language."""

import time
from copy import copy
from typing import Any

from pygments.lexer import ExtendedRegexLexer, RegexLexer  # type: ignore[import-untyped,unused-ignore]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped,unused-ignore]
from pygments.token import Comment, String, _TokenType  # type: ignore[import-untyped,unused-ignore]
from pygments.util import ClassNotFound  # type: ignore[import-untyped,unused-ignore]

from alipes.console.markdown.wrap import Row

MAX_LINE_CPU_S = 0.05
"""Highlighting of a block stops after a line that takes more CPU time."""
MAX_STATES = 200
_COMMENTS = (("/*", "*/"), ("<!--", "-->"))
_Tokens = list[tuple[Any, str]]


def open_highlighter(language: str, styles: dict[str, str]) -> "PygmentsHighlighter | None":
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    return PygmentsHighlighter(lexer, styles)


class PygmentsHighlighter:
    """Runs a Pygments lexer line by line.

    Pygments needs the whole text. Lexer states are kept between lines; comments that one pattern
    matches over several lines are tracked here.
    """

    def __init__(self, lexer: Any, styles: dict[str, str]) -> None:
        self._lexer, self._styles = lexer, styles
        self._known_styles: dict[Any, str] = {}
        self._stack = ["root"]
        resumable = isinstance(lexer, RegexLexer) and not isinstance(lexer, ExtendedRegexLexer)
        self._rules: dict[str, list[Any]] | None = lexer._tokens if resumable else None
        self._comments = [pair for pair in _COMMENTS if _is_comment(lexer, " x ".join(pair))]
        self._comment_end = ""

    def highlight(self, line: str) -> Row | None:
        """The styled line; None if it took too long or the lexer failed."""
        begun = time.thread_time()
        try:
            tokens = self._tokenize(line)
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
            return None  # a faulty lexer costs only the colours
        if time.thread_time() - begun > MAX_LINE_CPU_S:
            return None
        row: Row = []
        for kind, text in tokens:
            if text := text.rstrip("\n"):
                style = self._style(kind)
                if row and row[-1][1] == style:
                    row[-1] = (row[-1][0] + text, style, "")
                else:
                    row.append((text, style, ""))
        return row

    def _style(self, kind: Any) -> str:
        if kind not in self._known_styles:
            names = ".".join(kind)
            while names and names not in self._styles:
                names = names.rpartition(".")[0]
            self._known_styles[kind] = self._styles.get(names, "")
        return self._known_styles[kind]

    def fork(self) -> "PygmentsHighlighter":
        other = copy(self)
        other._stack = self._stack[:]
        return other

    def _tokenize(self, line: str) -> _Tokens:
        if self._comment_end:
            end = line.find(self._comment_end)
            if end < 0:
                return [(Comment.Multiline, line)]
            end += len(self._comment_end)
            self._comment_end = ""
            return [(Comment.Multiline, line[:end]), *self._tokenize(line[end:])]
        before = self._stack[:]
        tokens = self._lex(line + "\n")
        for begin, end_mark in self._comments:
            if (place := _find_open_comment(tokens, begin, end_mark)) >= 0:
                self._stack, self._comment_end = before, end_mark
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
                raise ValueError("the lexer makes no progress")
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
                    self._change_state(state)
                return int(found.end())
        if text[pos] == "\n":
            self._stack = ["root"]
        out.append((_TokenType(), text[pos]))
        return pos + 1

    def _change_state(self, state: Any) -> None:
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
        del stack[1 : max(1, len(stack) - MAX_STATES)]


def _is_comment(lexer: Any, text: str) -> bool:
    said = (token for token in lexer.get_tokens_unprocessed(text + "\n") if token[2])
    _, kind, value = next(said, (0, (), ""))
    return kind in Comment and value.startswith(text)


def _find_open_comment(tokens: _Tokens, begin: str, end: str) -> int:
    """Index of a comment that does not end in this line; -1 if there is none."""
    hidden = [(kind in Comment and not text.startswith(begin)) or kind in String for kind, text in tokens]
    line = "".join("\0" * len(text) if hide else text for hide, (_, text) in zip(hidden, tokens, strict=True))
    place = line.find(begin)
    while place >= 0 and (over := line.find(end, place + len(begin))) >= 0:
        place = line.find(begin, over)
    return place
