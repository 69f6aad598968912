"""Incoming values: the address of a conversation and the message that was received there."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, Text

NoticeMode: TypeAlias = Literal["", "answered", "kept"]
"""For a message from alipes itself: `answered` if the model replies to it, `kept` if it is only recorded."""


class Address(Struct, frozen=True, omit_defaults=True):
    """Where a conversation takes place. Its `key` is the session key."""

    platform: str
    chat: str
    chat_type: str = "dm"
    thread: str = ""
    user: str = ""

    @property
    def key(self) -> str:
        """`agent:main:<platform>:<chat_type>:<chat>[:<thread>][:<user>]`; colons in names are escaped."""
        names = (self.platform, self.chat_type, self.chat, self.thread, self.user)
        return "agent:main:" + ":".join(n.replace("%", "%25").replace(":", "%3A") for n in names if n)


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the client runs itself: a call of it ends the turn and is returned to the client."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}


class Origin(Struct, frozen=True, omit_defaults=True):
    """The conversation that a subagent or background turn works for."""

    address: Address
    session: str = ""
    turn: str = ""
    """The turn there that started it."""
    goal: str = ""
    """The task, in short."""
    reports: NoticeMode = ""
    """Not empty: it runs in the background, and its result is reported to that conversation."""
    model: str = ""
    """The model chosen for the original message alone; with `only`, it also applies to the report."""
    only: tuple[str, ...] | None = None


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One message from a person, as received from the platform."""

    id: str
    """The platform's own id; a second copy is ignored."""
    address: Address
    sender: str
    text: str
    attachments: tuple[Image, ...] = ()
    model: str = ""
    """The model for this message alone; empty: the session's."""
    workdir: str = ""
    """Working directory of tools; stored with the message, so a resumed turn uses the same one."""
    trusted: bool = False
    """The sender approved everything in advance (`--yes`)."""
    reply_to: str = ""
    """The platform's id of the message, if the answer should be a reply to it."""
    instructions: str = ""
    """Added to the system prompt for this message alone."""
    offered: tuple[ClientTool, ...] = ()
    """Tools of the client. An answer that calls one ends the turn: the client runs the calls."""
    only: tuple[str, ...] | None = None
    """The built-in tools that may be used, by name; None: all that the platform allows."""
    answer_to: Address | None = None
    """A chat that receives the answer, if the message did not come from a chat."""
    parent: str = ""
    """The turn it works for; empty: a person's message."""
    depth: int = 0
    """How many turns are above it."""
    origin: Origin | None = None
    """The conversation it works for, if that is another one."""
    notice: NoticeMode = ""
    """Not empty: alipes wrote it, not a person; the value says how it is handled."""
    attended: bool = False
    """Of no use once the client has disconnected: the front end stops it then."""

    @property
    def message(self) -> Message:
        """The message as it appears in the transcript."""
        words = (Text(self.text),) if self.text or not self.attachments else ()
        return Message("notice" if self.notice else "user", (*words, *self.attachments))
