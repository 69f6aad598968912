"""The sources of an answer: the web pages it cites or was made from, as a list below its text."""

import re

import msgspec

from alipes.kernel.messages import Message, ToolResult, WebSource
from alipes.kernel.untrusted import to_label

MAX_LISTED = 20
"""Pages that were read and not cited fill the list up to this length."""
MAX_TITLE_CHARS = 100
_CITATIONS = r"(?<![\w\])])(?:\[\d{1,4}(?:\s*,\s*\d{1,4})*\])+(?![(:\[])"
"""As in [1], [1, 3] or [1][3]; not an index such as a[1], and not a link such as [1](...). Compiled on first use."""


def format_sources(history: tuple[Message, ...], said: tuple[Message, ...], text: str) -> str:
    """What follows the answer `text`: a heading and a line per source; empty if there is nothing to list.

    `history`: all messages of the conversation, whose sources can be cited; `said`: those of the turn.
    """
    known = {source.number: source for source in _sources(history)}
    if not known or _is_json(text):
        return ""
    cited = {number for number in _cited_numbers(text, said) if number in known}
    read = {source.number for source in _sources(_since_last_answer(said)) if source.read}
    added = [number for number in sorted(read - cited) if known[number].url not in text]
    kept = sorted({*cited, *added[: max(0, MAX_LISTED - len(cited))]})
    if not kept or all(known[number].url in text for number in kept):
        return ""  # the model has listed them itself
    lines = [_format_source(known[number]) for number in kept]
    left = len(cited) + len(added) - len(kept)
    more = [f"- and {left} more that were read"] if left else []
    return "\n\nSources:\n" + "\n".join([*lines, *more])


def _sources(messages: tuple[Message, ...]) -> list[WebSource]:
    """In order; one that was read later comes again."""
    results = (part for message in messages for part in message.parts if isinstance(part, ToolResult))
    return [source for result in results for source in result.sources]


def _cited_numbers(text: str, said: tuple[Message, ...]) -> set[int]:
    """The numbers in the answer, and in parts of it that were cut off at the output limit."""
    texts = [text, *(each.text for each in _since_last_answer(said) if each.role == "assistant" and not each.calls)]
    return {
        int(number) for each in texts for group in re.findall(_CITATIONS, each) for number in re.findall(r"\d+", group)
    }


def _since_last_answer(said: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages after the last answer that lists its sources."""
    for place in range(len(said) - 1, -1, -1):
        if said[place].role == "assistant" and not said[place].calls and "\n\nSources:\n- [" in said[place].text:
            return said[place + 1 :]
    return said


def _format_source(source: WebSource) -> str:
    """As in `- [1] Title: <https://example.org/>`; the title is a stranger's text."""
    title = to_label(source.title, MAX_TITLE_CHARS)
    return f"- [{source.number}] {title}: <{source.url}>" if title else f"- [{source.number}] <{source.url}>"


def _is_json(text: str) -> bool:
    """True if a program will read the answer: a list behind it would break it."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        msgspec.json.decode(text.encode(errors="replace"))
    except msgspec.DecodeError:
        return False
    return True
