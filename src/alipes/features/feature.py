"""What a feature is: a folder, and the class in its `feature.py` that joins it to the rest of alipes."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from alipes.config.settings import Settings
    from alipes.core.app import App
    from alipes.features.server import Server
    from alipes.kernel.checks import CheckResult
    from alipes.sessions.commands.registry import Command
    from alipes.store.sql.store import Store
    from alipes.web.endpoint import ApiEndpoint
    from alipes.web.router import ApiRouter

Part: TypeAlias = Literal["tool", "hooks", "commands", "endpoints", "serve", "doctor"]
"""A file of the folder that others call. It is imported when it is first needed."""


class CliCommand(Struct, frozen=True):
    """`alipes NAME`: `function(argv)` of `module`, imported when it is given."""

    name: str
    """Two words for an action that a feature adds to the command of another one."""
    module: str
    function: str = "run"
    agent_actions: tuple[str, ...] | Literal["any words"] | None = None
    """First words with which a process of the agent may run it, besides none at all; None: only people may."""
    every_word: bool = False
    """All its words must be among `agent_actions`: another one would be a value to set."""
    names_action: bool = False
    """A refusal names the first word too."""
    extra: str = ""
    """The extra that it needs; see `config/extras.py`."""

    def is_for_people(self, argv: list[str]) -> bool:
        """True if a process of the agent may not run it with these words; it may always read the help."""
        if self.agent_actions == "any words" or argv[:1] in (["-h"], ["--help"]):
            return False
        words = argv if self.every_word else argv[:1]
        return not self.agent_actions or not {*words} <= {*self.agent_actions}

    def describe(self, argv: list[str]) -> str:
        """The command and perhaps its action, for a refusal."""
        action = argv[0] if self.names_action and argv and argv[0].isalpha() else ""
        return f"{self.name} {action}".strip()


class Feature:
    """One feature of an open app. Others may use the public attributes of a subclass."""

    name: ClassVar[str]
    parts: ClassVar[tuple[Part, ...]] = ()
    cli_commands: ClassVar[tuple[CliCommand, ...]] = ()
    tool_names: ClassVar[tuple[str, ...]] = ()
    """Plugins may not use these names, even in a process that does not open the feature."""

    def __init__(self, app: "App") -> None:
        self.app = app

    @classmethod
    def extend_settings(cls, settings: "Settings", _workdir: str) -> "Settings":
        """The settings with what the project adds."""
        return settings

    async def open(self, stack: AsyncExitStack) -> None:
        """Add tools and hooks. What is entered in the stack is left when the app closes, the last first."""
        tools = self._call("tool", "tools", self)
        self.app.contributions.add_builtin(*tools, why_unavailable=self.why_unavailable)
        if "hooks" in self.parts:
            await self._part("hooks").add_hooks(self, stack)

    def why_unavailable(self) -> str:
        """Why its tools cannot be used now and what to do, as a sentence; empty if they can. It must be fast."""
        return ""

    @classmethod
    def commands(cls) -> "Iterable[Command]":
        return cls._part("commands").COMMANDS if "commands" in cls.parts else ()

    def endpoints(self, server: "Server") -> "Iterable[ApiEndpoint]":
        return self._call("endpoints", "endpoints", self, server)

    def routes(self, server: "Server", api: "ApiRouter") -> "Iterable[BaseRoute]":
        """Routes beside the API; background work is added to the server. Called once, after `endpoints`."""
        return self._call("serve", "routes", self, server, api)

    @classmethod
    async def check(cls, settings: "Settings", store: "Store | None") -> "Iterable[CheckResult]":
        """What `alipes doctor` reports. `store`: None if it cannot be opened."""
        return await cls._part("doctor").check(settings, store) if "doctor" in cls.parts else ()

    @classmethod
    def _part(cls, part: Part) -> Any:
        return import_module(f"{cls.__module__.removesuffix('.feature')}.{part}")

    def _call(self, part: Part, function: str, *given: Any) -> Iterable[Any]:
        found = getattr(self._part(part), function) if part in self.parts else None
        added: Iterable[Any] = () if found is None else found(*given)
        return added
