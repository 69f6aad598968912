"""Prompt templates over the API: their list, and messages that call one."""

from msgspec import Struct, structs
from starlette.responses import Response

from alipes.core.app import App
from alipes.kernel.errors import MessageRejected
from alipes.kernel.turns import Inbound
from alipes.sessions.commands.registry import expand_message
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response


class Template(Struct, frozen=True):
    name: str
    """Send `/name arguments` as input."""
    hint: str
    """Its arguments."""
    description: str
    project: bool
    """From the working directory, not from the home."""


class TemplateList(Struct, frozen=True):
    templates: tuple[Template, ...]


class TemplateEndpoints:
    def __init__(self, app: App) -> None:
        self._app = app

    @ApiEndpoint("GET", "/v1/templates", "read", answer=TemplateList)
    async def list(self, call: ApiCall) -> Response:
        """List the prompt templates."""
        found = self._app.contributions.templates()
        templates = (Template(each.name, each.hint, each.description, each.project) for each in found)
        return json_response(TemplateList(tuple(templates)))


async def expand_input(app: App, inbound: Inbound) -> Inbound:
    """The message that a template makes of its input. Raises `HttpProblem` for any other command."""
    try:
        filled = await expand_message(app.context(inbound, local_files=False))
    except MessageRejected as error:
        raise HttpProblem(400, str(error), code="command") from error
    return filled if filled is inbound else structs.replace(filled, model=inbound.model or filled.model)
