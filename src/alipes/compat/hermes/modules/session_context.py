"""`gateway.session_context`, `gateway.run` and `hermes_state`: the current turn and stored sessions."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from alipes.compat.hermes.bridge import GatewayRunner
from alipes.compat.hermes.hook_arguments import hermes_platform
from alipes.compat.hermes.modules.current_app import NotAvailable, bridge, is_bound
from alipes.compat.hermes.platform.values import CURRENT_EVENT, RECENT_EVENTS, MessageEvent
from alipes.compat.hermes.session_keys import build_session_key
from alipes.kernel.turns import Turn
from alipes.store.quick_reads import peek_session, store_files

_PREFIX = "HERMES_SESSION_"


def get_session_env(name: str, default: str = "") -> str:
    """A variable of the current conversation: `HERMES_SESSION_PLATFORM`, `_CHAT_ID`, `_CHAT_NAME`,
    `_THREAD_ID`, `_USER_ID`, `_USER_NAME`, `_KEY`, `_ID`, `_MESSAGE_ID`."""
    if not name.startswith(_PREFIX) or not is_bound():
        return default
    turn, event = bridge().host.current_turn(), CURRENT_EVENT.get()
    if event is None and turn is not None:
        event = RECENT_EVENTS.get(turn.inbound.id)
    variables = {**_turn_variables(turn), **_event_variables(event)}
    return variables.get(name.removeprefix(_PREFIX)) or default


def _turn_variables(turn: Turn | None) -> dict[str, str]:
    if turn is None:
        return {}
    address = turn.inbound.address
    return {
        "PLATFORM": hermes_platform(address.platform),
        "SOURCE": hermes_platform(address.platform),
        "CHAT_ID": address.chat,
        "THREAD_ID": address.thread,
        "USER_ID": address.user or turn.inbound.sender,
        "KEY": turn.key,
        "ID": turn.session,
        "MESSAGE_ID": turn.inbound.id.removeprefix(f"{turn.key}#"),
        "PROFILE": bridge().profile_name,
    }


def _event_variables(event: MessageEvent | None) -> dict[str, str]:
    if event is None or event.source is None:
        return {}
    source = event.source
    platform = str(getattr(source.platform, "value", source.platform))
    variables = {
        "PLATFORM": platform,
        "SOURCE": platform,
        "CHAT_ID": source.chat_id,
        "CHAT_NAME": source.chat_name,
        "THREAD_ID": source.thread_id,
        "USER_ID": source.user_id,
        "USER_NAME": source.user_name,
        "SCOPE_ID": source.scope_id or source.guild_id,
        "KEY": event.metadata.get("session_key") or build_session_key(source),
        "MESSAGE_ID": event.message_id,
    }
    return {name: str(value) for name, value in variables.items() if value}


class GatewayRef:
    """Call it for the gateway runner with its `.adapters`; None if no platform is connected."""

    def __call__(self) -> GatewayRunner | None:
        gateway = bridge().gateway if is_bound() else None
        return gateway if gateway is not None and gateway.adapters else None

    @property
    def adapters(self) -> dict[Any, Any]:
        """For callers that skip the call."""
        gateway = self()
        return {} if gateway is None else gateway.adapters


_gateway_runner_ref = GatewayRef()


def apply_wal_with_fallback(conn: Any, *_given: Any, **_more: Any) -> str:
    """Use a write-ahead log for a plugin's own database; on file systems without locks, a rollback journal."""
    try:
        return str(conn.execute("PRAGMA journal_mode=WAL").fetchone()[0])
    except conn.OperationalError:
        return str(conn.execute("PRAGMA journal_mode=DELETE").fetchone()[0])


class SessionDB:
    """Read-only view of stored sessions."""

    def __init__(self, db_path: Path | str | None = None, **_more: Any) -> None:
        self.db_path = Path(db_path) if db_path else store_files(bridge().settings.home)[0]

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """`id`, `session_key`, `source` and more; None if it does not exist. Callable from any thread."""
        facts = peek_session(self.db_path, session_id)
        if facts is None:
            return None
        return {
            "id": facts.id,
            "session_id": facts.id,
            "session_key": facts.key,
            "source": hermes_platform(facts.platform),
            "title": facts.title or None,
            "started_at": facts.created,
            "updated_at": facts.updated,
        }

    def get_session_title(self, session_id: str) -> str | None:
        found = self.get_session(session_id)
        return None if found is None else found["title"]

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotAvailable(f"SessionDB.{name}", "sessions are read-only here")
