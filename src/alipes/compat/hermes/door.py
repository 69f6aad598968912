"""The Hermes door: opens plugins, file hooks and shell hooks that were written for Hermes."""

import inspect

from alipes.compat.hermes import names
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.ctx import PluginContext, manifest_of
from alipes.compat.hermes.filehooks import open_file_hook
from alipes.compat.hermes.hooks import take_notes
from alipes.compat.hermes.importing import module_name, register_of
from alipes.compat.hermes.shellhooks import open_shell_hooks
from alipes.config.settings import Settings
from alipes.hooks.context import Context, Host
from alipes.hooks.finding import Found
from alipes.hooks.importing import forget
from alipes.hooks.owners import Owner
from alipes.hooks.tracking import on_behalf_of


def open_door(host: Host, settings: Settings) -> "HermesDoor":
    """One per app."""
    return HermesDoor(Bridge(host, settings))


class HermesDoor:
    """The importable names stand in `sys.modules` as long as something is open that may import them."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    async def open(self, found: Found, context: Context) -> None:
        """Import the code and let it register; raises what is wrong with it. It ends with the context."""
        if found.kind == "shell-hooks":
            await open_shell_hooks(self.bridge, context)
            return
        name = module_name(found)
        names.install(self.bridge)
        self.bridge.enter(context, name)
        context.stack.callback(self._leave, context.owner)
        with on_behalf_of(context.owner):
            if found.kind == "file-hook":
                assert found.path is not None
                await open_file_hook(found.path, context)
            else:
                await self._register(found, context, name)

    async def _register(self, found: Found, context: Context, name: str) -> None:
        if found.path is not None:
            context.stack.callback(forget, name)
        take_notes(self.bridge, context)
        self.bridge.lending.lend(*found.manifest.requires_env, *found.manifest.optional_env)
        register = await self.bridge.off_loop(lambda: register_of(found, name))  # imports may take long
        answer = register(PluginContext(self.bridge, context, manifest_of(found)))
        if inspect.isawaitable(answer):
            await answer

    def _leave(self, owner: Owner) -> None:
        if self.bridge.leave(owner):
            names.uninstall(self.bridge)
