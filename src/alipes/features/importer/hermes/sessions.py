"""Conversations of Hermes, from `state.db`."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from alipes.config.messengers import MESSENGERS
from alipes.features.importer.databases import DatabaseCopy
from alipes.features.importer.formats import SourceError, plain_text, read_time
from alipes.features.importer.hermes.messages import drop_repeats, read_message
from alipes.features.importer.records import LeftOut, PastConversation, PastMessage, PastUsage, RecordSource
from alipes.kernel.formatting import format_count
from alipes.kernel.turns import Address, Usage

STATE = "state.db"
NOT_SAID = {
    "cron": "the run of a scheduled job",
    "subagent": "the work of a subagent",
    "background_review": "a review in the background",
    "background-review": "a review in the background",
    "tool": "the work of a tool",
}
"""Conversations that no person had, by `source`."""
_SESSION = (
    *("id", "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "model", "parent_session_id"),
    *("started_at", "ended_at", "end_reason", "title", "cwd", "archived", "billing_provider", "profile_name"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("estimated_cost_usd", "actual_cost_usd", "api_call_count"),
)
_MESSAGE = (
    *("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "timestamp", "reasoning"),
    *("reasoning_content", "active", "compacted"),
)
_IGNORED = (
    *("origin_json", "display_name", "expiry_finalized", "model_config", "system_prompt", "message_count"),
    *("tool_call_count", "git_branch", "git_repo_root", "billing_base_url", "billing_mode", "cost_status"),
    *("cost_source", "pricing_version", "handoff_state", "handoff_platform", "handoff_error", "rewind_count"),
    *("compression_failure_cooldown_until", "compression_failure_error", "compression_fallback_streak"),
    *("tool_name", "effect_disposition", "token_count", "finish_reason", "reasoning_details", "observed"),
    *("codex_reasoning_items", "codex_message_items", "platform_message_id", "api_content"),
)
"""Columns that are known and not needed."""
TASKS = {"title_generation": "titles", "compression": "compaction"}


class SessionReader:
    def __init__(self, db: DatabaseCopy, default_model: str) -> None:
        """`default_model`: conversations with another one keep it as their choice."""
        self._db, self._default = db, default_model
        self._has_usage = bool(db.columns("session_model_usage"))
        self._current = self._read_routing()

    def records(self) -> Iterator[PastConversation | LeftOut]:
        yield from self._unknown_columns()
        columns = self._select("sessions", _SESSION)
        messages = self._select("messages", _MESSAGE)
        if not columns or not messages:
            raise SourceError(f"{STATE} has no tables of conversations that are known here")
        parents = {
            plain_text(row["id"]): plain_text(row["parent_session_id"])
            for row in self._db.rows(
                f"SELECT id, {'parent_session_id' if 'parent_session_id' in columns else 'NULL AS parent_session_id'} "
                f"FROM sessions ORDER BY {'started_at, ' if 'started_at' in columns else ''}id"
            )
        }
        for id in parents_first(parents):
            yield self._read(id, columns, messages, parents)

    def _select(self, table: str, known: Iterable[str]) -> tuple[str, ...]:
        present = self._db.columns(table)
        return tuple(name for name in known if name in present)

    def _unknown_columns(self) -> Iterator[LeftOut]:
        known = {*_SESSION, *_MESSAGE, *_IGNORED}
        new = [f"{table}.{name}" for table in ("sessions", "messages") for name in self._db.columns(table)]
        if names := [each for each in new if each.partition(".")[2] not in known]:
            listed = ", ".join(names[:20])
            why = "it was written by another version; what is in these columns was not read"
            yield LeftOut(
                source=RecordSource(STATE, f"columns:{listed}", ""), kind="conversations", what=listed, why=why
            )

    def _read_routing(self) -> dict[str, str]:
        """The current conversation of each chat, by its key."""
        found = {}
        if not self._db.columns("gateway_routing"):
            return {}
        for row in self._db.rows("SELECT session_key, entry_json FROM gateway_routing ORDER BY updated_at"):
            try:
                entry = json.loads(row["entry_json"])
            except (ValueError, TypeError, RecursionError):
                continue
            if isinstance(entry, dict):
                found[plain_text(row["session_key"])] = plain_text(entry.get("session_id"))
        return found

    def _read(
        self, id: str, columns: tuple[str, ...], names: tuple[str, ...], parents: Mapping[str, str]
    ) -> PastConversation | LeftOut:
        row = next(self._db.rows(f"SELECT {', '.join(columns)} FROM sessions WHERE id = ?", id), None)
        if row is None:
            return LeftOut(
                source=RecordSource(STATE, id, ""), kind="conversations", what=id, why="its row cannot be read"
            )
        session = dict(row)
        kind = plain_text(session.get("source")) or "cli"
        if kind in NOT_SAID:
            return LeftOut(source=RecordSource(STATE, id, ""), kind="conversations", what=id, why=NOT_SAID[kind])
        digest, notes = hashlib.sha256(_to_bytes(session)), list[str]()
        found, damaged = [], 0
        sender = "" if kind not in MESSENGERS else plain_text(session.get("user_id"))
        model = self._name_model(session)
        sql = f"SELECT {', '.join(names)} FROM messages WHERE session_id = ? ORDER BY id"
        for each in self._db.rows(sql, id):
            values = dict(each)
            digest.update(_to_bytes(values))
            try:
                message = read_message(values, model, sender)
            except (ValueError, TypeError, RecursionError, SourceError):
                damaged += 1
                continue
            if message is not None:
                found.append(message)
        if damaged:
            notes.append(f"{format_count(damaged, 'unreadable message')} left out")
        messages, summary = drop_repeats(found)
        source = RecordSource(STATE, id, digest.hexdigest()[:32])
        return self._make(session, source, messages, summary=summary, notes=notes, parent=parents[id], kind=kind)

    def _make(
        self, session: dict[str, Any], source: RecordSource, messages: tuple[PastMessage, ...], **facts: Any
    ) -> PastConversation:
        times = [each.at for each in messages if each.at]
        started = read_time(session.get("started_at"))
        usage = tuple(self._read_usage(session))
        model = self._name_model(session)
        default = self._default
        return PastConversation(
            source=source,
            messages=messages,
            title=plain_text(session.get("title")),
            started=min([started, *times]) if started else min(times, default=0.0),
            updated=max([*times, read_time(session.get("ended_at"))], default=started) or started,
            model="" if model in ("", default) or default.endswith(f"/{model}") else model,
            workdir=plain_text(session.get("cwd")),
            archived=bool(session.get("archived")),
            parent=facts["parent"],
            chat=self._read_chat(session, source.id, facts["kind"]),
            summary=facts["summary"],
            usage=usage,
            notes=tuple(facts["notes"]),
        )

    def _read_chat(self, session: dict[str, Any], id: str, platform: str) -> Address | None:
        key, chat = plain_text(session.get("session_key")), plain_text(session.get("chat_id"))
        if platform not in MESSENGERS or not chat or self._current.get(key, "") != id:
            return None
        kind = "dm" if plain_text(session.get("chat_type")) in ("dm", "private", "") else "group"
        thread = plain_text(session.get("thread_id"))
        return Address(platform, chat, kind, thread)

    def _name_model(self, session: dict[str, Any]) -> str:
        model, provider = plain_text(session.get("model")), plain_text(session.get("billing_provider"))
        return f"{provider}/{model}" if provider and provider != "auto" and model else model

    def _read_usage(self, session: dict[str, Any]) -> Iterator[PastUsage]:
        rows: Iterable[dict[str, Any]] = [session]
        if self._has_usage:
            id = session["id"]
            rows = [dict(row) for row in self._db.rows("SELECT * FROM session_model_usage WHERE session_id = ?", id)]
        started = read_time(session.get("started_at"))
        for row in rows:
            usage = read_usage(row)
            if usage.input or usage.output:
                at = read_time(row.get("last_seen")) or started
                task = plain_text(row.get("task"))
                calls = _count(row.get("api_call_count"))
                yield PastUsage(plain_text(row.get("model")), usage, at, TASKS.get(task, task), calls)


def read_usage(row: dict[str, Any]) -> Usage:
    """Tokens read from a cache, and written to it, are part of the input here."""
    cached, written = _count(row.get("cache_read_tokens")), _count(row.get("cache_write_tokens"))
    cost = next((each for name in ("actual_cost_usd", "estimated_cost_usd") if (each := row.get(name))), None)
    return Usage(
        input=_count(row.get("input_tokens")) + cached + written,
        output=_count(row.get("output_tokens")),
        cached=cached,
        cache_write=written,
        reasoning=_count(row.get("reasoning_tokens")),
        cost=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else None,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


def _to_bytes(row: Mapping[str, Any]) -> bytes:
    """What the hash of a row is made of."""
    return repr(row).encode("utf-8", "replace")


def parents_first(parents: Mapping[str, str]) -> Iterator[str]:
    """All ids, each after its parent; a circle is entered where it is met first."""
    done: set[str] = set()
    for id in parents:
        way = []
        while id in parents and id not in done and id not in way:
            way.append(id)
            id = parents[id]
        done.update(way)
        yield from reversed(way)
