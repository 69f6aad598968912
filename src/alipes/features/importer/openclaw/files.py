"""Sessions of OpenClaw before 2026.6: one file per transcript, and `sessions.json` with the keys."""

from collections.abc import Iterator

from alipes.features.importer.event_tree import ROOT, EventTree
from alipes.features.importer.formats import read_json, read_time
from alipes.features.importer.json_lines import JsonRows, Row, get_row, get_text
from alipes.features.importer.openclaw.sessions import OpenClawSession, Window
from alipes.features.importer.source_home import SourceHome

_ENDING = ".jsonl"
_RESET = ".jsonl.reset."
"""Transcripts that `/new` put aside."""


def list_sessions(home: SourceHome, folder: str, agent: str) -> Iterator[OpenClawSession]:
    """`folder`: with `sessions.json` and the transcripts. Raises `SourceError` if `sessions.json` cannot be read."""
    entries = read_entries(home, f"{folder}/sessions.json")
    names = [name for name in home.list_names(folder) if name.endswith(_ENDING) or _RESET in name]
    used: set[str] = set()
    for key, entry in entries.items():
        name = _find_transcript(entry, names)
        if name:
            used.add(name)
            yield _make_session(home, f"{folder}/{name}", key, agent, entry)
    for name in names:
        if name not in used:
            yield _make_session(home, f"{folder}/{name}", "", agent, {})


def read_entries(home: SourceHome, file: str) -> dict[str, Row]:
    """OpenClawSession entries by key."""
    found = read_json(home.read_text(file) or "{}", file)
    return {key: entry for key, entry in found.items() if isinstance(entry, dict)} if isinstance(found, dict) else {}


def count_deleted(home: SourceHome, folder: str) -> int:
    return sum(".jsonl.deleted." in name for name in home.list_names(folder))


def _find_transcript(entry: Row, names: list[str]) -> str:
    named = get_text(entry, "sessionFile").replace("\\", "/").rpartition("/")[2]
    session = get_text(entry, "sessionId")
    wanted = (named, f"{session}{_ENDING}")
    return next((name for name in wanted if name in names), "")


def _make_session(home: SourceHome, file: str, key: str, agent: str, entry: Row) -> OpenClawSession:
    name = file.rpartition("/")[2].partition(_ENDING)[0]
    chosen = [get_text(entry, "providerOverride"), get_text(entry, "modelOverride")]
    return OpenClawSession(
        key=key or f"file:{name}",
        agent=agent,
        windows=(Window(id=name, file=file, reason="", read=FileReader(home, file)),),
        title=get_text(entry, "label", "displayName"),
        archived=bool(entry.get("archivedAt")),
        model="/".join(filter(None, chosen)) if chosen[1] else "",
        made_by="spawn" if get_text(entry, "spawnedBy") else "",
        target=get_text(get_row(entry, "deliveryContext"), "to"),
        updated=read_time(entry.get("updatedAt")),
    )


class FileReader:
    """Reads the active path of one transcript."""

    def __init__(self, home: SourceHome, file: str) -> None:
        self._home, self._file = home, file

    def __call__(self) -> tuple[list[Row], tuple[str, ...]]:
        lines = JsonRows(self._home, self._file)
        rows = list(lines)
        header = [row for row in rows if row.get("type") == "session"][:1]
        tree = EventTree(row for row in rows if row.get("type") != "session")
        leaf = tree.last_leaf()
        path = tree.select(tree.trace(leaf)) if leaf != ROOT else tree.events
        return [*header, *path], lines.notes()
