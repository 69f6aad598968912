"""What is sent about conversations and told of them: the bodies of requests and answers. Pure values."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from alipes.kernel.messages import Message
from alipes.store.facts import Hit
from alipes.store.runs import SessionRow
from alipes.web.runs_words import Name

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=500)]
Title: TypeAlias = Annotated[str, Meta(max_length=200)]
NewName: TypeAlias = Annotated[
    str,
    Meta(
        max_length=200,
        pattern=r"^(?![0-9a-f]{12}$)[^\x00-\x1f\x7f/]*$",
        description="Not twelve of 0-9 and a-f: that is how an id looks.",
    ),
]


class ListQuery(Struct, frozen=True):
    limit: Limit = 50
    q: str = ""
    """Words that occur in the title or the first message."""
    before: Annotated[float, Meta(ge=0)] = 0.0
    """Those that were changed before; for the next page, `updated` of the last one."""


class MessagesQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """The last so many; zero: all."""


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 20


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName = ""
    """How you will call it; empty: we find a name."""
    title: Title = ""
    model: Name = ""
    """The model that answers in it; empty: the house's."""


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName = ""
    title: Title = ""


class Session(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    platform: str
    """Where it is held: `api`, or a chat's."""
    title: str
    created: float
    updated: float
    turns: int
    unfinished: int
    """Runs that live or wait in it."""
    messages: int
    model: str = ""
    parent: str = ""
    """The session it was forked from."""
    user: str = ""
    """Whose it is."""


class Sessions(Struct, frozen=True):
    sessions: tuple[Session, ...]
    more: bool
    """There are older ones."""


class Messages(Struct, frozen=True):
    messages: tuple[Message, ...]
    first: int
    """How many came before these."""


class Found(Struct, frozen=True):
    hits: tuple[Hit, ...]


class Export(Struct, frozen=True):
    format: str
    session: dict[str, Any]
    turns: tuple[dict[str, Any], ...]


def told(row: SessionRow) -> Session:
    return Session(
        id=row.id,
        name=row.address.chat,
        platform=row.address.platform,
        title=row.title,
        created=row.created,
        updated=row.updated,
        turns=row.turns,
        unfinished=row.unfinished,
        messages=row.messages,
        model=row.model,
        parent=row.parent,
        user=row.address.user,
    )
