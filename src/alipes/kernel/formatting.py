"""Formats numbers, times, money and excerpts for people. Pure functions."""

import hashlib
import time
from collections.abc import Iterable

from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.turns import Usage

ID = 6
"""Characters of an id that are shown; any unique prefix is accepted."""


_OBJECT_ADDRESS = lazy_pattern(r" at 0x[0-9a-fA-F]+")


def strip_object_addresses(text: str) -> str:
    """Without the memory addresses in `<... object at 0x7f...>`, which say nothing to people."""
    return _OBJECT_ADDRESS.sub("", text)


def closest_matches(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` of `known`, closest first; empty if nothing is close.

    Not `difflib`: importing it costs as much as reading a small configuration.
    """
    wanted = word.lower()
    scored = sorted((_distance(wanted, each.lower()), each) for each in set(known) if each)
    return [each for distance, each in scored if distance <= max(1, min(len(wanted), len(each)) // 3)][:count]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean a, b or c?`, or an empty string."""
    found = closest_matches(word, known)
    return f" Did you mean {join_names(found, 'or')}?" if found else ""


def join_names(names: Iterable[str], conjunction: str = "and") -> str:
    """`a, b and c`. There must be at least one name."""
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _distance(one: str, other: str) -> int:
    """Edit distance: insertions, deletions, changes and swaps of neighbours."""
    one, other = one[:64], other[:64]
    before: list[int] = []
    above = list(range(len(other) + 1))
    for i, a in enumerate(one):
        row = [i + 1]
        for j, b in enumerate(other):
            cost = min(above[j] + (a != b), above[j + 1] + 1, row[j] + 1)
            if i and j and a == other[j - 1] and one[i - 1] == b:
                cost = min(cost, before[j - 1] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]


def hash_text(text: str) -> str:
    """Identifies the text of a file that a person edits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def format_excerpt(text: str, width: int = 60) -> str:
    """One quoted line of the text, cut to `width`."""
    words = " ".join(text.split())
    return f"“{words if len(words) <= width else words[: width - 1].rstrip() + '…'}”"


def format_duration(seconds: float) -> str:
    """A duration such as `2 h 5 min`."""
    whole = int(max(seconds, 0))
    for size, name, smaller, rest in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            more = whole % size // smaller
            return f"{whole // size} {name}" + (f" {more} {rest}" if more else "")
    return f"{whole} s"


def format_clock(moment: float, now: float | None = None) -> str:
    """`14:20`, or `Fri 20 Nov, 14:20` on another day; in the time zone of this process."""
    then, today = time.localtime(moment), time.localtime(now)
    same_day = then[:3] == today[:3]
    return time.strftime("%H:%M" if same_day else "%a %d %b, %H:%M", then)


def format_ago(then: float, now: float | None = None) -> str:
    """How long ago, such as `5 min ago`; a date if it is more than a week."""
    past = (time.time() if now is None else now) - then
    if past < 5:
        return "just now"
    if past < 7 * 86_400:
        return f"{format_duration(past).split(' ')[0]} {format_duration(past).split(' ')[1]} ago"
    return time.strftime("%Y-%m-%d", time.localtime(then))


def format_size(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_money(dollars: float) -> str:
    return f"${dollars:.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def format_usage(usage: Usage) -> str:
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    thought = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
    return f"{usage.input:,} tokens in{cached} · {usage.output:,} out{thought}"


def format_cost(usage: Usage, calls: int, unpriced: int) -> str:
    """The cost of model calls, of which `unpriced` have no known price: that is never shown as zero. Empty if no
    price is known."""
    if unpriced == calls:
        return ""
    known = format_money(usage.cost or 0.0)
    return known if not unpriced else f"{known} and {format_count(unpriced, 'call')} of unknown price"


def format_columns(rows: list[tuple[str, str]], *, width: int = 0) -> str:
    """Two columns; rows with an empty second column are left out. `width`: of the first column; a longer name gets a
    line of its own."""
    rows = [row for row in rows if row[1]]
    width = width or max((len(name) for name, _ in rows), default=0)
    alone = "\n" + " " * width
    lines = (f"{name:{width}}{alone if len(name) > width else ''}  {text}" for name, text in rows)
    return "\n".join(line.rstrip() for line in lines)


def escape_markdown(text: str) -> str:
    """Markdown that shows `text` literally."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>#|~" else char for char in text)
