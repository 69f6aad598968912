"""`gateway.platforms.helpers`: duplicate detection, plain text from Markdown, tables, phone numbers."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from alipes.compat.hermes.modules.current_app import bridge
from alipes.compat.hermes.modules.utils import atomic_json_write

MAX_THREADS = 500
TABLE_SEPARATOR_RE = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*$")
_FENCE_LINE = re.compile(r"^```[\w+-]*[ \t]*\n?", re.MULTILINE)
_MARKS = (
    (re.compile(r"\*\*(.+?)\*\*", re.DOTALL), r"\1"),
    (re.compile(r"(?<!\w)__(?!\s)(.+?)(?<!\s)__(?!\w)", re.DOTALL), r"\1"),
    (re.compile(r"(?<![\w*])\*(?![\s*])(.+?)(?<!\s)\*(?!\w)", re.DOTALL), r"\1"),
    (re.compile(r"(?<!\w)_(?![\s_])(.+?)(?<![\s_])_(?!\w)", re.DOTALL), r"\1"),
    (re.compile(r"`([^`\n]+)`"), r"\1"),
    (re.compile(r"^#{1,6}[ \t]+", re.MULTILINE), ""),
    (re.compile(r"\[([^\]]+)\]\([^)]+\)"), r"\1"),
    (re.compile(r"\n{3,}"), "\n\n"),
)


class MessageDeduplicator:
    """Recognises messages that a platform delivers twice within a time."""

    def __init__(self, max_size: int = 2000, ttl_seconds: float = 300) -> None:
        self._max_size, self._ttl = max_size, ttl_seconds
        self._seen: dict[str, float] = {}

    def is_duplicate(self, msg_id: str) -> bool:
        """True if it was seen; otherwise it counts as seen from now on."""
        if not msg_id:
            return False
        if self.contains(msg_id):
            return True
        self._seen.pop(msg_id, None)
        self._seen[msg_id] = time.time()
        while len(self._seen) > self._max_size:
            del self._seen[next(iter(self._seen))]
        return False

    def contains(self, msg_id: str) -> bool:
        seen = self._seen.get(msg_id)
        return seen is not None and (self._ttl <= 0 or time.time() - seen < self._ttl)

    def discard(self, msg_id: str) -> None:
        """Forget a message that could not be handled."""
        self._seen.pop(msg_id, None)

    def clear(self) -> None:
        self._seen.clear()


class ThreadParticipationTracker:
    """The threads in which the bot has taken part, kept in the home."""

    def __init__(self, platform_name: str, max_tracked: int = MAX_THREADS) -> None:
        self._platform, self._max = platform_name, max_tracked
        self._threads: dict[str, None] = dict.fromkeys(self._load())

    def _state_path(self) -> Path:
        return bridge().home / f"{self._platform}_threads.json"

    def _load(self) -> list[str]:
        with suppress(OSError, ValueError, TypeError):
            return [str(each) for each in json.loads(self._state_path().read_text(encoding="utf-8"))]
        return []

    def mark(self, thread_id: str) -> None:
        if str(thread_id) in self._threads:
            return
        self._threads[str(thread_id)] = None
        while len(self._threads) > self._max:
            del self._threads[next(iter(self._threads))]
        with suppress(OSError):
            atomic_json_write(self._state_path(), [*self._threads])

    def __contains__(self, thread_id: object) -> bool:
        return str(thread_id) in self._threads

    def clear(self) -> None:
        self._threads.clear()


def redact_phone(phone: str) -> str:
    """A phone number for the log: its start and end."""
    text = str(phone or "")
    if len(text) < 7:
        return "****" if text else "<none>"
    return f"{text[:3]}****{text[-2:]}" if len(text) < 10 else f"{text[:4]}****{text[-4:]}"


def strip_markdown(text: str) -> str:
    """Plain text for platforms without formatting."""
    text = _FENCE_LINE.sub("", text or "")
    for pattern, plain in _MARKS:
        text = pattern.sub(plain, text)
    return text.strip()


def is_table_row(line: str) -> bool:
    return "|" in line.strip().strip("|") or (line.strip().startswith("|") and line.strip().endswith("|"))


def split_markdown_table_row(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [cell.strip().replace("\\|", "|") for cell in cells]


def convert_table_to_bullets(text: str) -> str:
    """Tables as a bold line and bullets for each row; code blocks stay."""
    if "|" not in (text or ""):
        return text
    return "\n".join(_convert_lines(text.split("\n")))


def _convert_lines(lines: list[str]) -> Iterator[str]:
    fenced, at = False, 0
    while at < len(lines):
        line = lines[at]
        fenced = fenced != line.lstrip().startswith("```")
        starts = not fenced and is_table_row(line) and at + 1 < len(lines)
        if starts and TABLE_SEPARATOR_RE.match(lines[at + 1]):
            end = at + 2
            while end < len(lines) and is_table_row(lines[end]):
                end += 1
            yield from _table_as_bullets(split_markdown_table_row(line), lines[at + 2 : end])
            at = end
        else:
            yield line
            at += 1


def _table_as_bullets(heads: list[str], rows: list[str]) -> Iterator[str]:
    for row in rows:
        first, *others = split_markdown_table_row(row)
        yield f"**{first or heads[0]}**"
        for head, cell in zip(heads[1:], others, strict=False):
            if cell:
                yield f"• {head}: {cell}" if head else f"• {cell}"
        yield ""
