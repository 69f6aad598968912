"""Who speaks where, as Hermes plugins say it, and the key of that conversation. Pure values."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from alipes.kernel.turns import Address

MAIN = "main"
_OURS = ("", MAIN, "default")
"""Names of the one profile there is."""


@dataclass
class SessionSource:
    """Where a message came from. Plugins make these, change them and copy them."""

    platform: Any
    """A `Platform`, or its name."""
    chat_id: str = ""
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    guild_id: str | None = None
    scope_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    profile: str | None = None

    @property
    def description(self) -> str:
        """For a person: where this is."""
        who = self.user_name or self.user_id or "someone"
        if self.chat_type == "dm":
            return f"DM with {who}"
        thread = f", thread {self.thread_id}" if self.thread_id else ""
        return f"{self.chat_type}: {self.chat_name or self.chat_id}{thread}"

    def to_dict(self) -> dict[str, Any]:
        known = {**asdict(self), "platform": platform_name(self.platform)}
        return {name: value for name, value in known.items() if value not in (None, False)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})


def platform_name(platform: Any) -> str:
    """`telegram`, of a `Platform` or of the name itself."""
    return str(getattr(platform, "value", platform) or "").lower()


def address_of(
    source: SessionSource, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False
) -> Address:
    """The address whose key is the session's.

    In a group each person has a conversation of their own, in a thread all have one together; the two
    flags say otherwise. A direct chat without an id is told apart by its person.
    """
    chat, thread = _text(source.chat_id), _text(source.thread_id)
    person = _text(source.user_id) or _text(source.user_id_alt)
    if source.chat_type == "dm":
        return Address(platform_name(source.platform), chat or person, "dm", thread)
    alone = thread_sessions_per_user if thread else group_sessions_per_user
    kind = _text(source.chat_type) or "group"
    return Address(platform_name(source.platform), chat, kind, thread, person if alone else "")


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """`agent:main:<platform>:<chat_type>:<chat>[:<thread>][:<user>]`: the key under which we keep it.

    There is one profile here; the key of another names a conversation that does not exist.
    """
    key = address_of(source, group_sessions_per_user, thread_sessions_per_user).key
    name = profile or source.profile or MAIN
    return key if name in _OURS else key.replace(f":{MAIN}:", f":{name}:", 1)


def source_of(address: Address, sender: str = "", profile: str | None = None) -> SessionSource:
    """The source that an address was made of, as far as it tells; the platform is its name."""
    return SessionSource(
        platform=address.platform,
        chat_id=address.chat,
        chat_type=address.chat_type,
        user_id=address.user or sender or None,
        thread_id=address.thread or None,
        profile=profile,
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)
