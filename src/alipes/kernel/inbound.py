"""What arrives: where a conversation takes place, and what is said to us there. Pure values."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, Text

Telling: TypeAlias = Literal["", "answered", "kept"]
"""Of what the house tells a conversation: the model answers it, or is only to know it."""


class Address(Struct, frozen=True, omit_defaults=True):
    """Where a conversation takes place. Its `key` is the session key, and nothing else is."""

    platform: str
    chat: str
    chat_type: str = "dm"
    thread: str = ""
    user: str = ""

    @property
    def key(self) -> str:
        """`agent:main:<platform>:<chat_type>:<chat>[:<thread>][:<user>]`; a colon in a name is escaped."""
        names = (self.platform, self.chat_type, self.chat, self.thread, self.user)
        return "agent:main:" + ":".join(n.replace("%", "%25").replace(":", "%3A") for n in names if n)


class Offered(Struct, frozen=True, omit_defaults=True):
    """A tool that whoever asked runs themselves: the model may call it, and its call is their answer."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}


class Origin(Struct, frozen=True, omit_defaults=True):
    """For whom a turn works that no person asked for in their own conversation: where they are."""

    address: Address
    session: str = ""
    turn: str = ""
    """The turn of theirs that led to it."""
    goal: str = ""
    """What is to be done, in short."""
    reports: Telling = ""
    """Not empty: it outlives the turn that began it, and its end is told in their conversation."""
    model: str = ""
    """Asked for there on the message alone, like `only`: so is who answers the report, and with what."""
    only: tuple[str, ...] | None = None


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One thing a person said to us, as the platform told it."""

    id: str
    """The platform's own id; the store refuses the second copy of it."""
    address: Address
    sender: str
    text: str
    attachments: tuple[Image, ...] = ()
    model: str = ""
    """The model asked for on this message alone; empty means the session's."""
    workdir: str = ""
    """Where tools work for this message; it travels along, so a resumed turn works in the same place."""
    trusted: bool = False
    """The sender said yes beforehand to whatever would be asked (`--yes`)."""
    reply_to: str = ""
    """The platform's id of the message, where an answer should point at it."""
    instructions: str = ""
    """What whoever asked adds to the system prompt, for this message alone."""
    offered: tuple[Offered, ...] = ()
    """Tools of theirs. An answer that calls one ends the turn: the calls are for them to run."""
    only: tuple[str, ...] | None = None
    """The house's tools that may be used for it, by name; None: all that its platform has."""
    answer_to: Address | None = None
    """A chat that is told the answer, where the message itself came from none."""
    parent: str = ""
    """The turn on whose behalf it is asked; empty: a person's."""
    depth: int = 0
    """How many turns stand above it."""
    origin: Origin | None = None
    """The conversation on whose behalf it is asked, where that is another."""
    notice: Telling = ""
    """Not empty: the house says it, not a person; and what becomes of it."""
    attended: bool = False
    """It is of no use once whoever asked has gone: a front end that sees them leave stops it."""

    @property
    def message(self) -> Message:
        """What was said, as the transcript has it."""
        words = (Text(self.text),) if self.text or not self.attachments else ()
        return Message("notice" if self.notice else "user", (*words, *self.attachments))
