"""Sessions of Claude Code: one file each, a tree of rows with side chains and compactions."""

import re
from collections.abc import Iterator

from alipes.features.importer.claude_code.messages import TranscriptMessages
from alipes.features.importer.conversations import build_conversation
from alipes.features.importer.event_tree import ROOT, EventTree
from alipes.features.importer.json_lines import JsonRows, Row, get_row, get_rows, get_text
from alipes.features.importer.records import PastConversation
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count

FOLDER = "projects"
_TREE = ("user", "assistant", "system", "attachment", "progress")
"""Rows that have a parent; others are about the session."""


def list_files(home: SourceHome) -> list[str]:
    """By the time of their first row, so that a session comes before its forks."""
    found = []
    for folder in home.list_names(FOLDER):
        names = home.list_names(f"{FOLDER}/{folder}")
        found += [f"{FOLDER}/{folder}/{name}" for name in names if name.endswith(".jsonl") and name[:6] != "agent-"]
    return sorted(found, key=lambda file: (_find_start(home, file), file))


def _find_start(home: SourceHome, file: str) -> str:
    return next((at for row in JsonRows(home, file) if (at := get_text(row, "timestamp"))), "")


def read_transcript(home: SourceHome, file: str) -> PastConversation | None:
    lines = JsonRows(home, file)
    session = file.rpartition("/")[2].removesuffix(".jsonl")
    rows = list(lines)
    chains = _count_chains(home, file, rows)
    own = [row for row in rows if row.get("type") in _TREE and row.get("isSidechain") is not True]
    messages = TranscriptMessages(session)
    messages.add_all(_select(own))
    if not messages.messages:
        return None
    notes = [f"{format_count(chains, 'side chain')} of subagents left out"] if chains else []
    return build_conversation(
        file,
        session,
        messages.finish(),
        title=_find_title(rows),
        workdir=next((folder for row in own if (folder := get_text(row, "cwd"))), ""),
        parent=messages.parent,
        summary=messages.summary,
        notes=(*notes, *messages.notes(), *lines.notes()),
    )


def _select(rows: list[Row]) -> Iterator[Row]:
    """The rows on the path to the last one, in order, with what belongs to them.

    An answer is several rows, one for each block. Calls that ran at the same time are side by side in the tree, so that
    the path to the last row leads past all but one of them and their results.
    """
    present = {get_text(row, "uuid") for row in rows}
    for number, row in enumerate(rows):
        before = get_text(row, "logicalParentUuid")
        if row.get("parentUuid") is None and before in present:
            rows[number] = row | {"parentUuid": before}  # a compaction
    tree = EventTree(rows, "parentUuid", "uuid")
    leaf = len(rows) - 1
    path = set(tree.trace(leaf)) if leaf != ROOT else set()
    answers = {answer_of(rows[place]) for place in path} - {("", "")}
    calls: set[str] = set()
    for place, row in enumerate(rows):
        if place in path or answer_of(row) in answers:
            calls |= {get_text(block, "id") for block in blocks_of(row) if block.get("type") == "tool_use"}
            yield row
        elif any(get_text(block, "tool_use_id") in calls for block in blocks_of(row)):
            yield row


def answer_of(row: Row) -> tuple[str, str]:
    """The same for all rows of one answer."""
    if row.get("type") != "assistant":
        return ("", "")
    return (get_text(get_row(row, "message"), "id"), get_text(row, "requestRef", "requestId"))


def blocks_of(row: Row) -> list[Row]:
    return get_rows(get_row(row, "message"), "content")


def _count_chains(home: SourceHome, file: str, rows: list[Row]) -> int:
    """Side chains are in files of their own, in older versions among the rows."""
    inner = home.list_names(f"{file.removesuffix('.jsonl')}/subagents")
    starts = [row for row in rows if row.get("isSidechain") is True and row.get("parentUuid") is None]
    return sum(bool(re.fullmatch(r"agent-.*\.jsonl", name)) for name in inner) + len(starts)


def _find_title(rows: list[Row]) -> str:
    """The name that a person gave, else the one that was made."""
    for kind, field in (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary")):
        titles = [get_text(row, field) for row in rows if row.get("type") == kind]
        if titles and titles[-1]:
            return titles[-1]
    return ""
