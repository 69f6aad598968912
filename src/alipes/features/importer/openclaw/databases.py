"""Sessions of OpenClaw since 2026.6, from the database of an agent."""

from collections import Counter
from collections.abc import Iterator

from alipes.features.importer.databases import DatabaseCopy
from alipes.features.importer.event_tree import ROOT, EventTree
from alipes.features.importer.formats import SourceError, plain_text, read_time
from alipes.features.importer.json_lines import Row, get_count, get_row, get_text, read_row
from alipes.features.importer.openclaw.sessions import OpenClawSession, Window
from alipes.features.importer.source_home import SourceHome
from alipes.features.importer.zstd import decompress_zstd
from alipes.kernel.formatting import format_count

SCHEMA = 23
"""The newest version of the schema that is known."""
_MAX_EVENT_BYTES, _MAX_ARCHIVE_BYTES = 4_194_304, 67_108_864
_NODE = (
    *("session_key", "entry_json", "label", "display_name", "archived_at", "parent_session_key", "created_via"),
    *("fork_source_session_id", "created_at", "updated_at", "last_interaction_at"),
)
_WINDOW = ("session_id", "session_key", "previous_session_id", "reason", "created_at", "primary_conversation_id")


def list_sessions(home: SourceHome, file: str, agent: str) -> Iterator[OpenClawSession]:
    """Raises `SourceError`."""
    with home.open_database(file) as db:
        nodes = list(read_table(db, "session_nodes", _NODE, "created_at"))
        windows: dict[str, list[Row]] = {}
        for row in read_table(db, "session_windows", _WINDOW, "created_at"):
            windows.setdefault(get_text(row, "session_key"), []).append(row)
        chats = {
            get_text(row, "conversation_id"): get_text(row, "native_channel_id")
            for row in read_table(db, "conversations", ("conversation_id", "native_channel_id"))
        }
    known = {get_text(node, "session_key") for node in nodes}
    nodes += [{"session_key": key} for key in windows if key not in known]
    for node in nodes:
        own = _order(windows.get(get_text(node, "session_key"), []))
        yield _make_session(home, file, agent, node, own, chats)


def read_table(db: DatabaseCopy, table: str, columns: tuple[str, ...], order: str = "") -> Iterator[Row]:
    """Rows with these columns; one that the table has not is None. Nothing if there is no such table."""
    present = db.columns(table)
    if not present:
        return
    chosen = ", ".join(name if name in present else f"NULL AS {name}" for name in columns)
    ordered = f" ORDER BY {order}" if order in present else ""
    for row in db.rows(f"SELECT {chosen} FROM {table}{ordered}"):
        yield {name: plain_text(row[name]) if isinstance(row[name], str) else row[name] for name in columns}


def _order(windows: list[Row]) -> list[Row]:
    """Each after the one that it names as its predecessor, else by time."""
    ordered: list[Row] = []
    waiting = list(windows)
    while waiting:
        done = {get_text(row, "session_id") for row in ordered}
        names = {get_text(row, "session_id") for row in waiting}
        ready = [row for row in waiting if get_text(row, "previous_session_id") in {"", *done}] or [
            row for row in waiting if get_text(row, "previous_session_id") not in names
        ]
        chosen = (ready or waiting)[0]
        waiting.remove(chosen)
        ordered.append(chosen)
    return ordered


def _make_session(
    home: SourceHome, file: str, agent: str, node: Row, windows: list[Row], chats: dict[str, str]
) -> OpenClawSession:
    entry = read_row(get_text(node, "entry_json"), file) or {}
    made = [
        Window(
            id=get_text(row, "session_id"),
            file=file,
            reason=get_text(row, "reason"),
            read=WindowReader(home, file, get_text(row, "session_id")),
        )
        for row in windows
    ]
    title = get_text(node, "label", "display_name") or get_text(entry, "label", "displayName")
    chosen = [get_text(entry, "providerOverride"), get_text(entry, "modelOverride")]
    last = windows[-1] if windows else {}
    return OpenClawSession(
        key=get_text(node, "session_key"),
        agent=agent,
        windows=tuple(made),
        title=title,
        archived=bool(node.get("archived_at")),
        model="/".join(filter(None, chosen)) if chosen[1] else "",
        parent=get_text(node, "fork_source_session_id"),
        made_by=get_text(node, "created_via"),
        channel_id=chats.get(get_text(last, "primary_conversation_id"), ""),
        target=get_text(get_row(entry, "delivery", "context"), "to"),
        updated=max(read_time(node.get("last_interaction_at")), read_time(node.get("updated_at"))),
    )


class WindowReader:
    """Reads the active path of one window."""

    def __init__(self, home: SourceHome, file: str, session: str) -> None:
        self._home, self._file, self._session = home, file, session
        self._lost: Counter[str] = Counter()
        self._problems: set[str] = set()

    def __call__(self) -> tuple[list[Row], tuple[str, ...]]:
        self._lost.clear()
        self._problems.clear()
        with self._home.open_database(self._file) as db:
            events = dict(self._read_events(db)) or dict(self._read_archive(db))
            active = self._read_path(db, events)
        if active is None:
            tree = EventTree(events.values())
            leaf = tree.last_leaf()
            active = tree.select(tree.trace(leaf)) if leaf != ROOT else list(events.values())
            header = [event for event in events.values() if event.get("type") == "session"]
            active = header[:1] + [event for event in active if event.get("type") != "session"]
        return active, (*(format_count(count, what) for what, count in self._lost.items()), *sorted(self._problems))

    def _read_events(self, db: DatabaseCopy) -> Iterator[tuple[int, Row]]:
        columns = ("seq", "event_json", "event_zstd")
        present = db.columns("transcript_events")
        chosen = ", ".join(name if name in present else f"NULL AS {name}" for name in columns)
        sql = f"SELECT {chosen} FROM transcript_events WHERE session_id = ? ORDER BY seq"
        for row in db.rows(sql, self._session) if present else ():
            if (event := self._decode(row["event_json"], row["event_zstd"])) is not None:
                yield row["seq"], event

    def _decode(self, text: object, packed: object) -> Row | None:
        try:
            if not isinstance(text, str) and isinstance(packed, bytes):
                text = plain_text(decompress_zstd(packed, "a compressed message", _MAX_EVENT_BYTES))
        except SourceError as error:
            self._problems.add(str(error))
            return None
        event = read_row(text, self._file) if isinstance(text, str) else None
        if event is None:
            self._lost["unreadable event"] += 1
        return event

    def _read_path(self, db: DatabaseCopy, events: dict[int, Row]) -> list[Row] | None:
        """The path as the database has it; None if it is not there or does not reach the last event."""
        states = ("session_id", "indexed_seq", "needs_rebuild")
        table = read_table(db, "session_transcript_index_state", states)
        state = next((row for row in table if row["session_id"] == self._session), {})
        if not events or state.get("needs_rebuild") or state.get("indexed_seq") != max(events):
            return None
        sql = """SELECT event_seq FROM session_transcript_active_events WHERE session_id = ?
            ORDER BY active_position"""
        order = [row["event_seq"] for row in db.rows(sql, self._session)]
        header = [event for event in events.values() if event.get("type") == "session"]
        return header[:1] + [events[seq] for seq in order if seq in events] if order else None

    def _read_archive(self, db: DatabaseCopy) -> Iterator[tuple[int, Row]]:
        """The events of an old window, which OpenClaw moves out of the table."""
        columns = ("session_id", "archive_name", "archive_blob")
        for row in read_table(db, "session_transcript_cold_archives", columns):
            if row["session_id"] == self._session:
                yield from self._unpack(row["archive_blob"] or self._find_archive(get_text(row, "archive_name")))

    def _find_archive(self, name: str) -> bytes:
        folder = self._file.rpartition("/")[0]
        places = (f"{folder}/cold/{name}", f"{folder.rpartition('/')[0]}/sessions/cold/{name}")
        return next((self._home.read_bytes(place) for place in places if self._home.has(place)), b"")

    def _unpack(self, packed: object) -> Iterator[tuple[int, Row]]:
        if not isinstance(packed, bytes) or not packed:
            self._lost["missing transcript"] += 1
            return
        try:
            lines = decompress_zstd(packed, "an old transcript", _MAX_ARCHIVE_BYTES).splitlines()
        except SourceError as error:
            self._problems.add(str(error))
            return
        for line in lines:
            record = read_row(line, self._file) or {}
            row = get_row(record, "row")
            event = read_row(get_text(row, "event_json"), self._file)
            if record.get("kind") == "event" and event is not None:
                yield get_count(row, "seq"), event
