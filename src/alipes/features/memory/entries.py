"""The text of a memory file: its entries, and edits that leave everything else in the file as it is.

An entry is a list item with its continuation lines, or a line of its own. Headings are not entries.
"""

from itertools import combinations

from msgspec import Struct

from alipes.features.memory.change import MemoryEdit
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.lazy import lazy_pattern

_ITEM = lazy_pattern(r"[-*+] +(?=\S)")
_WORD = lazy_pattern(r"\w{3,}")
MAX_LISTED = 5
MIN_OVERLAP = 0.25
"""Share of common words from which on two entries may be merged."""


class Entry(Struct, frozen=True):
    """The lines `start` to `end`, exclusive, of a file."""

    start: int
    end: int
    text: str


def parse_entries(text: str) -> list[Entry]:
    """The entries in order."""
    entries: list[Entry] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        item = _ITEM.match(stripped)
        last = entries[-1] if entries else None
        continues = last is not None and last.end == number and not item and line[:1] in (" ", "\t")
        if last is not None and continues:
            entries[-1] = Entry(last.start, number + 1, f"{last.text}\n{stripped}")
        else:
            entries.append(Entry(number, number + 1, stripped[item.end() :] if item else stripped))
    return entries


def format_entry(content: str) -> str:
    """The entry as it is written to the file."""
    return "- " + "\n  ".join(line.strip() for line in content.strip().splitlines() if line.strip())


def apply_edit(text: str, edit: MemoryEdit) -> str:
    """The file after the edit. Raises `ToolError` if it cannot be made."""
    entries, lines = parse_entries(text), text.splitlines()
    if edit.action != "remove" and not edit.content.strip():
        raise ToolError("content is empty")
    if edit.action == "add":
        if any(_same(entry.text, edit.content) for entry in entries):
            raise ToolError("not saved: this entry exists already")
        return _join([*lines, format_entry(edit.content)])
    found = find_entry(entries, edit.old_text)
    new = [format_entry(edit.content)] if edit.action == "replace" else []
    return _join([*lines[: found.start], *new, *lines[found.end :]])


def find_entry(entries: list[Entry], part: str) -> Entry:
    """The only entry that contains `part`. Raises `ToolError`."""
    wanted = " ".join(part.split())
    if not wanted:
        raise ToolError("old_text is empty: give a part of the entry")
    exact = [entry for entry in entries if _same(entry.text, wanted)]
    found = exact[:1] or [entry for entry in entries if wanted in " ".join(entry.text.split())]
    found = found or [entry for entry in entries if wanted.lower() in " ".join(entry.text.split()).lower()]
    if len(found) == 1:
        return found[0]
    if found:
        listed = "\n".join(f"- {format_excerpt(entry.text, 120)[1:-1]}" for entry in found[:MAX_LISTED])
        raise ToolError(f"old_text matches {len(found)} entries; give more of one:\n{listed}")
    raise ToolError(f"no entry contains {format_excerpt(wanted)}; `read` shows all entries")


def undo_change(current: str, before: str, after: str) -> str:
    """`current` without the change from `before` to `after`. Raises `ToolError` if it was changed again since."""
    if current == after:
        return before
    old, new = ([format_entry(entry.text) for entry in parse_entries(text)] for text in (before, after))
    added, removed = ([each for each in one if each not in other] for one, other in ((new, old), (old, new)))
    entries, lines = parse_entries(current), current.splitlines()
    places = {format_entry(entry.text): entry for entry in entries}
    if not (added or removed) or any(each not in places for each in added):
        raise ToolError("this entry was changed again since then; edit it instead")
    back = [each for each in removed if each not in places]
    start = min((places[each].start for each in added), default=len(lines))
    gone = {number for each in added for number in range(places[each].start, places[each].end)}
    kept = [line if number not in gone else None for number, line in enumerate(lines)]
    return _join([line for line in (*kept[:start], *back, *kept[start:]) if line is not None])


def suggest_merges(text: str) -> list[tuple[str, str]]:
    """Pairs of entries that have many words in common, most similar first."""
    entries = [entry.text for entry in parse_entries(text)]
    words = [{word.lower() for word in _WORD.findall(entry)} for entry in entries]
    scored = [
        (len(words[one] & words[two]) / max(1, min(len(words[one]), len(words[two]))), one, two)
        for one, two in combinations(range(len(entries)), 2)
    ]
    best = sorted((each for each in scored if each[0] >= MIN_OVERLAP), key=lambda each: (-each[0], each[1], each[2]))
    return [(entries[one], entries[two]) for _, one, two in best[:3]]


def format_diff(before: str, after: str, name: str) -> str:
    """A unified diff."""
    import difflib  # noqa: PLC0415

    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=1)
    return "\n".join(lines)


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()) == " ".join(other.split())


def _join(lines: list[str]) -> str:
    text = "\n".join(lines).strip("\n")
    return f"{text}\n" if text else ""
