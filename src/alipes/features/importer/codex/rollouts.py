"""Sessions of Codex: one file each, of items that were sent to the model and events that were shown."""

from collections.abc import Iterator, Mapping

from msgspec import structs

from alipes.features.importer.codex.items import RolloutMessages
from alipes.features.importer.conversations import build_conversation
from alipes.features.importer.json_lines import JsonRows, Row, get_count, get_row, get_text
from alipes.features.importer.records import PastConversation
from alipes.features.importer.source_home import SourceHome

_FOLDERS = ("sessions", "archived_sessions")
_MAX_DEPTH = 4
_MAX_FORKS = 20
_ID_CHARS = 36


def list_files(home: SourceHome) -> list[str]:
    """By time, so that a session comes before its forks."""
    files = [file for folder in _FOLDERS for file in _walk(home, folder, _MAX_DEPTH)]
    return sorted(files, key=lambda file: (file.rpartition("/")[2], file))


def _walk(home: SourceHome, folder: str, depth: int) -> Iterator[str]:
    for name in home.list_names(folder):
        if name.endswith(".jsonl"):
            yield f"{folder}/{name}"
        elif depth:
            yield from _walk(home, f"{folder}/{name}", depth - 1)


def read_names(home: SourceHome) -> dict[str, str]:
    """Names that a person gave to sessions, by id; the last one counts."""
    file = "session_index.jsonl"
    rows = JsonRows(home, file) if home.has(file) else ()
    return {get_text(row, "id"): get_text(row, "thread_name") for row in rows}


def session_of(file: str) -> str:
    """The id in the name of a file: `rollout-TIME-ID.jsonl`."""
    return file.rpartition("/")[2].removesuffix(".jsonl")[-_ID_CHARS:]


def read_header(home: SourceHome, file: str) -> Row:
    first = next(iter(JsonRows(home, file)), {})
    return get_row(first, "payload") if first.get("type") == "session_meta" else first


def is_of_the_system(header: Row) -> bool:
    """True for subagents and reviews: no person wrote there."""
    source = header.get("source")
    return isinstance(source, dict) or get_text(header, "thread_source") not in ("", "user")


def read_rollout(
    home: SourceHome, file: str, files: Mapping[str, str], names: Mapping[str, str]
) -> PastConversation | None:
    """`files`: the file of each session."""
    lines = JsonRows(home, file)
    header: Row = {}
    messages = RolloutMessages()
    for row in lines:
        if row.get("type") == "session_meta" and not header:
            header = get_row(row, "payload")
            messages.provider = get_text(header, "model_provider")
            for copied in _read_prefix(home, header, files, {file}):
                messages.add(copied)
            messages.forget_usage()
        messages.add(row)
    found = messages.finish()
    if not found:
        return None
    name = get_text(header, "id") or session_of(file)
    return build_conversation(
        file,
        name,
        [structs.replace(each, id=f"{number}") for number, each in enumerate(found)],
        messages.usage,
        title=names.get(name, ""),
        workdir=get_text(header, "cwd"),
        archived=file.startswith("archived"),
        parent=get_text(header, "forked_from_id"),
        summary=messages.summary,
        notes=(*messages.notes(), *lines.notes()),
    )


def _read_prefix(home: SourceHome, header: Row, files: Mapping[str, str], seen: set[str]) -> Iterator[Row]:
    """What a fork shares with its parent: newer versions write only what comes after it."""
    end = get_count(header, "forked_from_ordinal_exclusive")
    parent = files.get(get_text(header, "forked_from_id"), "")
    if not end or not parent or parent in seen or len(seen) > _MAX_FORKS:
        return
    for row in JsonRows(home, parent):
        if row.get("type") == "session_meta":
            yield from _read_prefix(home, get_row(row, "payload"), files, {*seen, parent})
        if get_count(row, "ordinal") < end:
            yield row
