"""`gateway.session_context`, `gateway.run` and `hermes_state`: in whose course, and in which conversation."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from alipes.compat.hermes.bridge import Gateway
from alipes.compat.hermes.hook_arguments import platform_named
from alipes.compat.hermes.modules.current_app import NotHere, bridge, is_bound
from alipes.compat.hermes.platform.values import HEARD, REMEMBERED, MessageEvent
from alipes.compat.hermes.session_keys import build_session_key
from alipes.kernel.turns import Turn
from alipes.store.quick_reads import peek_session

_PREFIX = "HERMES_SESSION_"


def get_session_env(name: str, default: str = "") -> str:
    """What is known of the conversation in whose course we are called: `HERMES_SESSION_PLATFORM`,
    `_CHAT_ID`, `_CHAT_NAME`, `_THREAD_ID`, `_USER_ID`, `_USER_NAME`, `_KEY`, `_ID`, `_MESSAGE_ID`."""
    if not name.startswith(_PREFIX) or not is_bound():
        return default
    turn, heard = bridge().host.living(), HEARD.get()
    if heard is None and turn is not None:
        heard = REMEMBERED.get(turn.inbound.id)
    known = {**_of_turn(turn), **_of_event(heard)}
    return known.get(name.removeprefix(_PREFIX)) or default


def _of_turn(turn: Turn | None) -> dict[str, str]:
    if turn is None:
        return {}
    address = turn.inbound.address
    return {
        "PLATFORM": platform_named(address.platform),
        "SOURCE": platform_named(address.platform),
        "CHAT_ID": address.chat,
        "THREAD_ID": address.thread,
        "USER_ID": address.user or turn.inbound.sender,
        "KEY": turn.key,
        "ID": turn.session,
        "MESSAGE_ID": turn.inbound.id.removeprefix(f"{turn.key}#"),
        "PROFILE": bridge().profile_name,
    }


def _of_event(event: MessageEvent | None) -> dict[str, str]:
    if event is None or event.source is None:
        return {}
    source = event.source
    platform = str(getattr(source.platform, "value", source.platform))
    known = {
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
    return {name: str(value) for name, value in known.items() if value}


class GatewayRef:
    """Call it for whoever serves the platforms (`.adapters` by `Platform`); None while none is served."""

    def __call__(self) -> Gateway | None:
        gateway = bridge().gateway if is_bound() else None
        return gateway if gateway is not None and gateway.adapters else None

    @property
    def adapters(self) -> dict[Any, Any]:
        """For who does not call it first."""
        gateway = self()
        return {} if gateway is None else gateway.adapters


_gateway_runner_ref = GatewayRef()


class SessionDB:
    """What was kept of conversations, to read. Nothing is written through this name."""

    def __init__(self, db_path: Path | str | None = None, **_more: Any) -> None:
        self.db_path = Path(db_path) if db_path else bridge().settings.paths.database

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """`id`, `session_key`, `source` and more; None when there is none. From any thread."""
        facts = peek_session(self.db_path, session_id)
        if facts is None:
            return None
        return {
            "id": facts.id,
            "session_id": facts.id,
            "session_key": facts.key,
            "source": platform_named(facts.platform),
            "title": facts.title or None,
            "started_at": facts.created,
            "updated_at": facts.updated,
        }

    def get_session_title(self, session_id: str) -> str | None:
        found = self.get_session(session_id)
        return None if found is None else found["title"]

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotHere(f"SessionDB.{name}", "the session store is the house's own, and is only read here")
