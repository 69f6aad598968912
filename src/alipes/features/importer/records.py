"""What a reader finds in the home of another program, in neutral values. Each record says where it came from."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from alipes.kernel.messages import Json, Message
from alipes.kernel.models import Secret
from alipes.kernel.turns import Address, Usage

Kind: TypeAlias = Literal[
    "conversations",
    "memory",
    "persona",
    "notes",
    "skills",
    "schedules",
    "people",
    "settings",
    "mcp",
    "plugins",
    "keys",
    "permissions",
    "other",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The words of `--only` and `--skip`, in the order in which they are imported."""
MessageState: TypeAlias = Literal["shown", "undone", "compacted"]


class RecordSource(Struct, frozen=True):
    """Where a record came from."""

    file: str
    """Relative to the home, with slashes."""
    id: str
    """Identifies the record within its kind, also after it changed: the program's own id, else a name or the text."""
    hash: str
    """Of its content; see `formats.content_hash`. Another hash: it changed there."""


class PastMessage(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. A message of role `user` starts a turn."""

    message: Message
    at: float = 0.0
    """Seconds since the epoch; 0: unknown."""
    id: str = ""
    """The program's own id, unique in the conversation; what is recorded to continue a conversation that grew."""
    state: MessageState = "shown"
    """`undone`: hidden; `compacted`: the summary replaces it for the model. It must precede all `shown` messages."""
    model: str = ""
    sender: str = ""
    """Who wrote it: the id of a person on the platform; empty: the owner."""
    usage: Usage | None = None
    """Of the model call that made it, if the program has usage by message."""


class PastUsage(Struct, frozen=True, omit_defaults=True):
    """Tokens and cost that a program recorded for a conversation as a whole."""

    model: str
    usage: Usage
    at: float
    task: str = ""
    """Such as `titles`; empty: the answers."""
    calls: int = 1


class PastConversation(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A conversation with all its messages, in order."""

    source: RecordSource
    messages: tuple[PastMessage, ...]
    title: str = ""
    started: float = 0.0
    updated: float = 0.0
    model: str = ""
    """As `provider/model` where the program says both; a choice for this conversation, not the default model."""
    workdir: str = ""
    archived: bool = False
    parent: str = ""
    """The `source.id` of the conversation that it was branched from. Parents are yielded first, if they can be."""
    chat: Address | None = None
    """The chat that continues it; None: the owner's alone, also if several people wrote in it."""
    summary: str = ""
    """Replaces the compacted messages for the model."""
    usage: tuple[PastUsage, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out of it, as clauses: "2 pictures with remote addresses were not fetched"."""


class MemoryEntry(Struct, frozen=True, kw_only=True):
    """One entry of a memory file."""

    source: RecordSource
    text: str
    about: Literal["notes", "user"] = "notes"
    """`user`: what is known about the owner."""


class Persona(Struct, frozen=True, kw_only=True):
    """Who the agent is; not yielded if it is the program's own default text."""

    source: RecordSource
    text: str


class DailyNote(Struct, frozen=True, kw_only=True):
    source: RecordSource
    day: str
    """Such as 2026-11-15."""
    text: str


class FoundFile(Struct, frozen=True):
    """A file of a skill, plugin or hook. Its content is read when it is copied: `SourceHome.read_bytes(path)`."""

    name: str
    """Within the skill, with slashes."""
    path: str
    """Within the home."""
    hash: str
    executable: bool = False


class SkillFolder(Struct, frozen=True, kw_only=True):
    source: RecordSource
    name: str
    """As the program has it; the core checks that it can be a folder."""
    files: tuple[FoundFile, ...]
    category: str = ""
    scripts: tuple[str, ...] = ()
    """Files in it that can run; they are listed for a look."""


class FoundSchedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: RecordSource
    name: str
    when: str
    """As `alipes schedule` takes it: a cron expression, `every 6h`, or an ISO time with its offset."""
    zone: str = ""
    prompt: str = ""
    script: str = ""
    """Shell commands instead of a prompt."""
    skills: tuple[str, ...] = ()
    model: str = ""
    workdir: str = ""
    targets: tuple[str, ...] = ("origin",)
    """As in `Job.targets`."""
    tools: tuple[str, ...] | None = None
    runs_left: int = 0
    """So many more runs; 0: no limit."""
    enabled: bool = True
    """False: it stays paused even with --start."""
    notes: tuple[str, ...] = ()
    """What of it has no counterpart here, as clauses."""


class FoundPerson(Struct, frozen=True, kw_only=True):
    """Who may write on a platform."""

    source: RecordSource
    platform: str
    id: str
    name: str = ""
    added: float = 0.0
    how: Literal["paired", "allowed"] = "paired"


class FoundSetting(Struct, frozen=True, kw_only=True):
    source: RecordSource
    key: str
    """Of ours, dotted: `model`, `telegram.require_mention`, `providers.custom.base_url`."""
    value: Json


class FoundMcpServer(Struct, frozen=True, kw_only=True):
    source: RecordSource
    name: str
    config: dict[str, Json]
    """The fields of `[mcp.servers.NAME]`: command, args, env, cwd, url, headers; `${NAME}` where it names a key.
    Values that are keys themselves belong in a `FoundKey`, with `${NAME}` here."""


class FoundPlugin(Struct, frozen=True, kw_only=True):
    """A plugin or hook: it is copied and stays disabled."""

    source: RecordSource
    name: str
    files: tuple[FoundFile, ...]
    what: Literal["plugin", "hook"] = "plugin"


class FoundKey(Struct, frozen=True, kw_only=True):
    source: RecordSource
    name: str
    """The variable in our `.env`."""
    value: Secret
    used_by: str = ""
    """The setting of ours that needs it, such as `providers.openrouter`."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """What is not imported and why: permissions, OAuth logins, logs, rows that cannot be read."""

    source: RecordSource
    kind: Kind
    what: str
    """Such as "recursive delete" or "12 request dumps"; never a value of a key."""
    why: str
    """A sentence for the report."""


Record: TypeAlias = (
    PastConversation
    | MemoryEntry
    | Persona
    | DailyNote
    | SkillFolder
    | FoundSchedule
    | FoundPerson
    | FoundSetting
    | FoundMcpServer
    | FoundPlugin
    | FoundKey
    | LeftOut
)
