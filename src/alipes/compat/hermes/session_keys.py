"""Sources of messages and session keys as Hermes plugins know them."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from alipes.config.paths import find_home, profile_name
from alipes.kernel.turns import Address

MAIN = "main"
_MAIN_PROFILES = ("", MAIN, "default")
"""Names of the profile that calls; it may use its own name too."""


@dataclass
class SessionSource:
    """Where a message came from. Plugins create, change and copy these."""

    platform: Any
    """A `Platform` or its name."""
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
        """A short description for people."""
        who = self.user_name or self.user_id or "someone"
        if self.chat_type == "dm":
            return f"DM with {who}"
        thread = f", thread {self.thread_id}" if self.thread_id else ""
        return f"{self.chat_type}: {self.chat_name or self.chat_id}{thread}"

    def to_dict(self) -> dict[str, Any]:
        values = {**asdict(self), "platform": platform_name(self.platform)}
        return {name: value for name, value in values.items() if value not in (None, False)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})


def platform_name(platform: Any) -> str:
    """The name of a `Platform`, which may be given as a string."""
    return str(getattr(platform, "value", platform) or "").lower()


def address_of(
    source: SessionSource, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False
) -> Address:
    """The address with the session's key.

    By default each person has an own session in a group, and all share one in a thread; the flags change
    that. Direct chats without an id use the person's id.
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
    """The session key: `agent:main:<platform>:<chat_type>:<chat>[:<thread>][:<user>]`.

    Each profile has its own store, in which keys start with `agent:main:`; keys of another profile name sessions that
    do not exist there.
    """
    key = address_of(source, group_sessions_per_user, thread_sessions_per_user).key
    name = profile or source.profile or MAIN
    return key if is_own_profile(name) else key.replace(f":{MAIN}:", f":{name}:", 1)


def is_own_profile(name: str) -> bool:
    return name in _MAIN_PROFILES or name == profile_name(find_home())


def own_key(key: str) -> str:
    """The key as it is stored. A plugin may write the name of its own profile into it: `agent:work:telegram:...`"""
    first, _, rest = key.partition(":")
    name, _, address = rest.partition(":")
    return f"{first}:{MAIN}:{address}" if first == "agent" and name != MAIN and is_own_profile(name) else key


def source_of(address: Address, sender: str = "", profile: str | None = None) -> SessionSource:
    """The source for an address; the platform is its name."""
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
