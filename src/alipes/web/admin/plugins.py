"""Endpoints for plugins: what each adds and asks for, its state, installing, switching and removing it."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.kernel.errors import ConfigError, PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins.discovery import PluginStatus, State
from alipes.web.control import DoctorCheck, PluginFacts, PluginOffer, ServerControl, refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response, no_content


class PluginDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    state: State
    """`off`: it failed too often."""
    enabled: bool
    why: str = ""
    """What is wrong and how to fix it."""
    version: str = ""
    kind: str = ""
    description: str = ""
    source: str = ""
    path: str = ""
    adds: dict[str, tuple[str, ...]] = {}
    """Names by kind: tools, hooks, commands, programs, skills, provides."""
    asks: tuple[str, ...] = ()
    """What its code uses: network, processes and so on; read from the code, which may do more."""
    needs: tuple[str, ...] = ()
    """What is missing, with the fix."""
    strikes: int = 0
    """Failures that still count."""
    silenced: dict[str, str] = {}
    """Callbacks that are off after failures, and why."""


class PluginList(Struct, frozen=True):
    plugins: tuple[PluginDocument, ...]
    safe: bool
    """Plugins are off: the server was started with --safe."""


class PluginAnswer(Struct, frozen=True):
    done: str
    """What was done, in words."""
    plugin: PluginDocument


class PluginChecks(Struct, frozen=True):
    checks: tuple[DoctorCheck, ...]


class PluginSource(Struct, frozen=True, forbid_unknown_fields=True):
    source: Annotated[str, Meta(min_length=1, max_length=2_000)]
    """A folder of the server, the address of a Git repository or archive, `owner/name` on GitHub, or a package."""


class NewPlugin(PluginSource, frozen=True, forbid_unknown_fields=True):
    sha256: Annotated[str, Meta(min_length=1, max_length=64)]
    """Of the plugin as it was shown."""


class PluginEndpoints:
    def __init__(self, app: App, control: ServerControl) -> None:
        self._app, self._control, self._plugins = app, control, app.plugins

    @ApiEndpoint("GET", "/v1/plugins", "admin", readable=True, answer=PluginList, errors=(409,))
    async def list(self, _call: ApiCall) -> Response:
        """List all plugins, enabled or not."""
        return json_response(PluginList(await self._list(), self._app.settings.plugins.safe))

    @ApiEndpoint("POST", "/v1/plugins/look", "admin", body=PluginSource, answer=PluginOffer, errors=(409,))
    async def look(self, call: ApiCall) -> Response:
        """Fetch the plugin of a source, and describe it. Nothing is installed, and its code does not run."""
        body: PluginSource = call.body
        with refuse_invalid(409, "source"):
            return json_response(await self._control.look_at_plugin(body.source))

    @ApiEndpoint("POST", "/v1/plugins", "admin", body=NewPlugin, answer=PluginAnswer, status=201, errors=(409,))
    async def install(self, call: ApiCall) -> Response:
        """Install a plugin exactly as it was looked at, with the packages it needs. It is not enabled yet."""
        body: NewPlugin = call.body
        with refuse_invalid(409, "plugin"):
            name = await self._control.install_plugin(body.source, body.sha256)
        self._app.store.changes.announce("plugin", name)
        return json_response(PluginAnswer(f"{name} is installed.", await self._find(name)), 201)

    @ApiEndpoint("DELETE", "/v1/plugins/{name}", "admin", status=204, errors=(409,))
    async def delete(self, call: ApiCall) -> Response:
        """Disable a plugin and delete its folder; its data stays."""
        found = await self._find(call.path["name"])
        try:
            await self._control.check_plugin_removable(found.name)
            if found.enabled:
                await self._plugins.disable(found.name)
            await self._control.delete_plugin(found.name)
        except (PluginError, ConfigError) as error:
            raise HttpProblem(409, self._app.secrets(str(error)), code="plugin") from error
        self._app.store.changes.announce("plugin", found.name)
        return no_content()

    @ApiEndpoint("POST", "/v1/plugins/{name}/enable", "admin", answer=PluginAnswer, errors=(409,))
    async def enable(self, call: ApiCall) -> Response:
        """Load a plugin now and at every start."""
        return await self._change(call, self._plugins.enable)

    @ApiEndpoint("POST", "/v1/plugins/{name}/disable", "admin", answer=PluginAnswer, errors=(409,))
    async def disable(self, call: ApiCall) -> Response:
        """Stop loading a plugin; running turns keep it until they end."""
        return await self._change(call, self._plugins.disable)

    @ApiEndpoint("POST", "/v1/plugins/{name}/reload", "admin", answer=PluginAnswer, errors=(409,))
    async def reload(self, call: ApiCall) -> Response:
        """Replace a plugin by its current code and settings."""
        return await self._change(call, self._plugins.reload)

    @ApiEndpoint("POST", "/v1/plugins/{name}/forgive", "admin", answer=PluginAnswer, errors=(409,))
    async def forgive(self, call: ApiCall) -> Response:
        """Forget the failures of a plugin, and call all its callbacks again."""
        return await self._change(call, self._plugins.forgive)

    @ApiEndpoint("POST", "/v1/plugins/{name}/doctor", "admin", answer=PluginChecks, errors=(409,))
    async def doctor(self, call: ApiCall) -> Response:
        """Check a plugin: load it in a process of its own and try what it registers."""
        found = await self._find(call.path["name"])
        with refuse_invalid(409, "doctor"):
            return json_response(PluginChecks(tuple(await self._control.check_plugin(found.name))))

    async def _change(self, call: ApiCall, act: Callable[[str], Awaitable[str]]) -> Response:
        found = await self._find(call.path["name"])
        try:
            done = await act(found.name)
        except (PluginError, ConfigError) as error:
            raise HttpProblem(409, self._app.secrets(str(error)), code="plugin") from error
        self._app.store.changes.announce("plugin", found.name)
        return json_response(PluginAnswer(self._app.secrets(done), await self._find(found.name)))

    async def _find(self, name: str) -> PluginDocument:
        listed = await self._list()
        found = next((each for each in listed if each.name == name), None)
        if found is None:
            near = did_you_mean(name, [each.name for each in listed])
            raise HttpProblem(404, f"there is no plugin {name}.{near}", code="no_plugin")
        return found

    async def _list(self) -> tuple[PluginDocument, ...]:
        with refuse_invalid(409, "config"):
            statuses = await self._plugins.list_all()
            facts = await self._control.describe_plugins()
        mask = self._app.secrets
        return tuple(_plugin_document(each, facts.get(each.name, PluginFacts()), mask(each.why)) for each in statuses)


def _plugin_document(status: PluginStatus, facts: PluginFacts, why: str) -> PluginDocument:
    return PluginDocument(
        status.name,
        status.state,
        status.state != "disabled",
        why=why,
        version=status.version or facts.version,
        kind=status.kind,
        description=status.description or facts.description,
        source=facts.source or status.source,
        path=status.path,
        adds=facts.adds,
        asks=facts.asks,
        needs=facts.needs,
        strikes=status.strikes,
        silenced=status.silenced,
    )
