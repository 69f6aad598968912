"""Sessions of pi: one file each, with a tree whose branches become conversations of their own."""

from collections.abc import Iterator

from msgspec import structs

from alipes.features.importer.conversations import build_conversation
from alipes.features.importer.event_messages import EventMessages
from alipes.features.importer.event_tree import ROOT, EventTree
from alipes.features.importer.formats import read_time
from alipes.features.importer.json_lines import JsonRows, Row, get_row, get_text
from alipes.features.importer.records import PastConversation
from alipes.features.importer.source_home import SourceHome

FOLDER = "sessions"
VERSION = 3
"""The newest version of the format that is known."""


def list_files(home: SourceHome) -> list[str]:
    """By time, so that a session comes before its forks."""
    files = [f"{FOLDER}/{name}" for name in home.list_names(FOLDER) if name.endswith(".jsonl")]
    for folder in home.list_names(FOLDER):
        files += [f"{FOLDER}/{folder}/{name}" for name in home.list_names(f"{FOLDER}/{folder}") if ".jsonl" in name]
    return sorted(files, key=lambda file: (file.rpartition("/")[2], file))


def read_session(home: SourceHome, file: str) -> Iterator[PastConversation]:
    """The session, and each branch that was left with an answer in it."""
    lines = JsonRows(home, file)
    rows = list(lines)
    header = next((row for row in rows if row.get("type") == "session"), {})
    tree = EventTree(row for row in rows if row.get("type") != "session")
    name = get_text(header, "id") or _session_of(file)
    titles = [get_text(row, "name") for row in rows if row.get("type") == "session_info"]
    title, started = titles[-1] if titles else "", read_time(header.get("timestamp"))
    main = tree.last_leaf()
    seen: set[int] = set()
    for leaf in (main, *(each for each in tree.list_leaves() if each != main)):
        path = tree.trace(leaf) if leaf != ROOT else []
        own = [position for position in path if position not in seen]
        seen.update(path)
        if leaf != main and not any(_is_answer(tree.events[position]) for position in own):
            continue
        messages = EventMessages()
        messages.add_all(tree.select(path))
        if not messages.messages:
            continue
        # What a branch or a fork copied was paid for once.
        own_ids = {get_text(each, "id") for each in tree.select(own) if read_time(each.get("timestamp")) >= started}
        start = get_text(tree.events[own[0]], "id") if leaf != main and own else ""
        yield build_conversation(
            file,
            f"{name}#{start}" if start else name,
            [each if each.id in own_ids else structs.replace(each, usage=None) for each in messages.finish()],
            messages.usage,
            title=title + (" (branch)" if start and title else ""),
            workdir=get_text(header, "cwd"),
            parent=name if start else _session_of(get_text(header, "parentSession")),
            summary=messages.summary,
            notes=(*messages.notes(), *(lines.notes() if leaf == main else ())),
        )


def _is_answer(event: Row) -> bool:
    return get_row(event, "message").get("role") == "assistant"


def _session_of(file: str) -> str:
    """The id in the name of a file: `TIME_ID.jsonl`."""
    return file.replace("\\", "/").rpartition("/")[2].partition(".jsonl")[0].rpartition("_")[2]
