"""Endpoint for other agents: which are configured, and which are running."""

from collections.abc import Iterator

from msgspec import Struct
from starlette.responses import Response

from alipes.config.settings import AGENT_PREFIX
from alipes.features.agents.feature import AgentsFeature
from alipes.features.agents.launch import find_command
from alipes.features.agents.presets import CHECKED, PRESETS
from alipes.features.server import Server
from alipes.web.endpoint import ApiCall, ApiEndpoint, endpoints_of, json_response


class AgentDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    model: str
    """What to choose as the model of a conversation."""
    title: str = ""
    command: str = ""
    installed: bool = False
    install: str = ""
    """The command that installs it."""
    mode: str = ""
    running: int = 0
    """Conversations whose program is running."""


class KnownAgentDocument(Struct, frozen=True):
    name: str
    title: str
    package: str
    install: str


class AgentList(Struct, frozen=True):
    agents: tuple[AgentDocument, ...]
    known: tuple[KnownAgentDocument, ...]
    """Presets that are not configured."""
    checked: str
    """When the presets were last compared with what the vendors publish."""


class AgentEndpoints:
    def __init__(self, feature: AgentsFeature) -> None:
        self._feature = feature

    @ApiEndpoint("GET", "/v1/agents", "admin", readable=True, answer=AgentList)
    async def list(self, _call: ApiCall) -> Response:
        """List other agents. None is started for it."""
        configured = self._feature.app.settings.agents
        known = tuple(
            KnownAgentDocument(name, each.title, each.package, each.install)
            for name, each in PRESETS.items()
            if name not in configured
        )
        return json_response(AgentList(tuple(map(self._describe, configured)), known, CHECKED))

    def _describe(self, name: str) -> AgentDocument:
        config = self._feature.app.settings.agents[name]
        command, service = find_command(name, config), self._feature.service
        return AgentDocument(
            name,
            f"{AGENT_PREFIX}/{name}",
            title=command.preset.title,
            command=command.line,
            installed=bool(command.path),
            install=command.preset.install,
            mode=config.mode,
            running=service.agents.count_running(name) if service is not None and service.agents is not None else 0,
        )


def endpoints(feature: AgentsFeature, _server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(AgentEndpoints(feature))
