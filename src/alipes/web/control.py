"""What the administration endpoints use: the parts of the app, what the server itself does, and shared errors."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import ConfigError, MessageRejected, ToolError
from alipes.web.endpoint import HttpProblem

if TYPE_CHECKING:
    pass

CheckStatus: TypeAlias = Literal["ok", "warn", "error"]


class PlatformStatus(Struct, frozen=True, omit_defaults=True):
    """A configured messenger, or one that a plugin adds."""

    name: str
    label: str
    configured: bool = True
    ready: bool = False
    why: str = ""
    """Why it is not ready, and how to set it up."""
    since: float = 0.0
    """When it became ready, or broke."""
    restarts: int = 0
    sent: int = 0
    received: int = 0


class DoctorCheck(Struct, frozen=True):
    """What one check found."""

    group: str
    """What was checked: `database`, `model`, `sandbox` and so on."""
    status: CheckStatus
    text: str
    fix: str = ""


class PluginFacts(Struct, frozen=True):
    """What is known about a plugin without loading it."""

    version: str = ""
    description: str = ""
    source: str = ""
    """Where it was installed from, or found."""
    adds: dict[str, tuple[str, ...]] = {}
    asks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


class PluginOffer(Struct, frozen=True):
    """A plugin that can be installed."""

    name: str
    version: str
    description: str
    sha256: str
    """Of its files: installing needs it, so that nothing else is installed than what was shown."""
    details: tuple[tuple[str, str], ...]
    """Labels and texts for people: its source, what it adds, and what its code uses."""
    problem: str = ""
    """Why it cannot be installed."""


class ServerControl(Protocol):
    """What only the process that serves can do and knows."""

    started: float
    """When the server was started, in seconds since the epoch."""
    address: str
    """Where the server listens, such as `http://127.0.0.1:8742`."""
    environ: dict[str, str]
    """The environment of the server, which may override settings."""

    def platforms(self) -> Sequence[PlatformStatus]:
        """All messengers, those that are not set up too."""
        ...

    def notify_outbox(self, platform: str, lane: str) -> None:
        """A message of this lane can be sent."""
        ...

    def check_settings(self) -> None:
        """Raises `ConfigError` if the server could not start again with the settings as they are now. It blocks."""
        ...

    def restart(self) -> None:
        """Restart once running turns have reached a safe point."""
        ...

    async def describe_plugins(self) -> Mapping[str, PluginFacts]:
        """All plugins by name, from their files."""
        ...

    async def check_plugin(self, name: str) -> Sequence[DoctorCheck]:
        """The checks of `alipes plugins doctor`. Raises `ConfigError`."""
        ...

    async def look_at_plugin(self, source: str) -> PluginOffer:
        """Fetch the plugin of a source, and describe it. Raises `ConfigError`."""
        ...

    async def install_plugin(self, source: str, sha256: str) -> str:
        """Install the plugin that was looked at; its name. Raises `ConfigError`."""
        ...

    async def check_plugin_removable(self, name: str) -> None:
        """Raises `ConfigError` if `delete_plugin` could not delete it."""
        ...

    async def delete_plugin(self, name: str) -> None:
        """Delete the folder of a plugin that is not enabled. Raises `ConfigError`."""
        ...

    async def check(self, *, live: bool) -> Sequence[DoctorCheck]:
        """The checks of `alipes doctor`; `live`: also ask the model. Raises `ConfigError`."""
        ...


@contextmanager
def refuse_invalid(status: int = 422, code: str = "invalid") -> Iterator[None]:
    """Answer with `status` and the sentence of the error if the request cannot be carried out as it is."""
    try:
        yield
    except (ConfigError, ToolError, MessageRejected) as error:
        raise HttpProblem(status, str(error), code=code) from error
