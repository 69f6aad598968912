"""Settings that all platforms have in common; what else a messenger has is in `platforms/NAME/settings.py`."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from msgspec import Struct

from alipes.config.value_types import ALLOW, VARIABLE
from alipes.kernel.turns import BusyMode

SettingProblem: TypeAlias = tuple[str, str, str]
"""Name and value of a setting that does not fit the others, and what is wrong: `needs telegram.webhook_url: ...`."""
TOKEN: TypeAlias = Annotated[str, VARIABLE, "Variable with the bot's token."]
MAX_FILE_BYTES = 50_000_000
"""Size limit for received files."""
MAX_IMAGE_BYTES = 5_000_000
"""Pictures up to this size are shown to the model; larger ones are saved as files."""


class CommonPlatformConfig(Struct, frozen=True, kw_only=True):
    """Who may talk to the agent on a platform, and how chats behave there."""

    allow: Annotated[
        tuple[str, ...], ALLOW, "Ids of the people who may talk to the bot; `*` is everyone. Empty: only paired people."
    ] = ()
    owners: Annotated[
        tuple[str, ...], ALLOW, "Ids of the people who may also approve others and restart. Empty: everyone in `allow`."
    ] = ()
    progress: Annotated[
        Literal["off", "short", "full"],
        "What a chat shows of running tools: nothing, one line each, or their output as well.",
    ] = "short"
    group: Annotated[
        Literal["mention", "all"],
        "Which messages are answered in a group: those that mention or reply to the bot, or all.",
    ] = "mention"

    @property
    def heartbeat_s(self) -> float:
        """Expected interval between two signs of life of the connection."""
        return 60.0


class PluginPlatformConfig(CommonPlatformConfig, frozen=True, kw_only=True):
    """A messenger of a plugin."""

    busy: Annotated[
        Literal["auto", "interrupt", "queue", "steer"],
        "What happens to a message that arrives while a turn is running. auto: as the plugin asks for, else `steer`. "
        "`/busy` changes it for one conversation.",
    ] = "auto"


class MessengerConfig(CommonPlatformConfig, frozen=True, kw_only=True):
    """A built-in messenger."""

    data_folder: Path = Path()
    """For received files and state; it and the next two are set when the messenger is opened."""
    proxy: str = ""
    ca_file: str = ""
    busy: Annotated[
        BusyMode,
        "What happens to a message that arrives while a turn is running. `/busy` changes it for one conversation.",
    ] = "steer"

    @property
    def needs(self) -> dict[str, bool]:
        """Settings and variables that are needed to connect, and whether each is set."""
        raise NotImplementedError

    @property
    def public_url(self) -> str:
        """The public URL at which it delivers messages to us; empty if we fetch them."""
        return ""

    @property
    def problem(self) -> SettingProblem | None:
        return None


class ChatConfig(MessengerConfig, frozen=True, kw_only=True):
    """A messenger with groups."""

    per_user: Annotated[bool, "Whether each person in a group has a separate conversation."] = False
