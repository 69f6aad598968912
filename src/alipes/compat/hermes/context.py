"""The `ctx` object that Hermes plugins receive. Its methods map to the plugin's native context."""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from alipes.compat.hermes import hooks, middleware, providers, tools
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.llm import PluginLlm
from alipes.compat.hermes.memory import AttachedMemory
from alipes.compat.hermes.platform.runner import PlatformRegistration
from alipes.compat.hermes.platform.values import CURRENT_EVENT, RECENT_EVENTS
from alipes.compat.hermes.prompt_section import PromptSection
from alipes.compat.hermes.session_keys import MAIN, own_key
from alipes.compat.hermes.state import PlatformEntry, ToolEntry
from alipes.kernel.errors import AlipesError, PluginError
from alipes.kernel.formatting import closest_matches
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Address, Inbound
from alipes.plugins.context import Context
from alipes.plugins.discovery import DiscoveredPlugin


def inject(bridge: Bridge, context: Context, text: str, session_key: str | None = None) -> bool:
    """Send `text` to a conversation: the one with this key, the current one, or the latest one.

    Callable from any thread. Returns False if there is no such conversation; does not wait for the answer.
    """
    last = _latest_inbound(bridge, session_key)
    if last is None:
        context.log.warning("%s: no conversation to send the message to", context.name)
        return False
    inbound = Inbound(
        id=f"plugin:{context.name}:{os.urandom(8).hex()}",
        address=last.address,
        sender=last.sender,
        text=text,
        workdir=last.workdir,
        owner=last.owner,
    )
    bridge.soon(lambda: context.run(_submit(bridge, context, inbound), "sending a message"))
    return True


def _latest_inbound(bridge: Bridge, session_key: str | None) -> Inbound | None:
    inbounds = bridge.state.inbounds
    if session_key:
        session_key = own_key(session_key)
        return inbounds.get(session_key) or _inbound_from_key(session_key)
    turn = bridge.host.current_turn()
    return turn.inbound if turn is not None else inbounds.latest()


async def _submit(bridge: Bridge, context: Context, inbound: Inbound) -> None:
    try:
        await bridge.host.submit(inbound)
    except AlipesError as error:
        context.log.warning("%s could not send a message: %s", context.name, error)


def _inbound_from_key(session_key: str) -> Inbound | None:
    """An address from a key without messages: `agent:main:<platform>:<type>:<chat>[:<thread>]`."""
    parts = [unquote(part) for part in session_key.split(":")]
    if len(parts) < 5 or parts[:2] != ["agent", MAIN]:
        return None
    address = Address(parts[2], parts[4], parts[3], *parts[5:7])
    return Inbound(id="", address=address, sender=address.user or address.chat, text="")


PROVIDER_KINDS = ("tts", "transcription", "image_gen", "video_gen", "web_search", "browser")
"""Each has a method `ctx.register_<kind>_provider(provider)`."""
PLATFORM, MEMORY, CONTEXT_ENGINE, AUXILIARY_TASK = "platform", "memory", "context_engine", "auxiliary_task"
_PLATFORM_FIELDS = set(PlatformEntry.__struct_fields__) - {"more", "owner"}
NOT_SERVED = ("dashboard_auth_provider", "secret_source", "slack_action_handler", "terminal_environment_provider")
"""`ctx.register_<name>(...)` is accepted and listed as not served."""


def provide(bridge: Bridge, context: Context, kind: str, thing: Any, name: str = "") -> bool:
    """Provide a value, from any thread. Returns False and logs why if another plugin has that name."""
    name = name or str(getattr(thing, "name", "") or context.name)
    try:
        bridge.call(lambda: context.provide(kind, name, thing))
    except PluginError as error:
        context.log.warning("%s", error)
        return False
    return True


def provider_method(bridge: Bridge, context: Context, kind: str) -> Callable[..., bool | None]:
    """The method of `ctx` that registers a provider of this kind."""

    def register(provider: Any, *_: Any, **__: Any) -> bool | None:
        name = str(getattr(provider, "name", "") or context.name)
        if not provide(bridge, context, kind, providers.wrap_provider(kind, provider), name):
            return None
        providers.register_tools(bridge, context, kind, provider)
        return True

    return register


def unserved_method(context: Context, what: str) -> Callable[..., None]:
    """The method of `ctx` for a part that alipes does not have."""

    def register(*_: Any, **__: Any) -> None:
        context.log.warning("%s: its %s is not served by alipes", context.name, what.replace("_", " "))

    return register


def provide_platform(bridge: Bridge, context: Context, **fields: Any) -> bool:
    """Register a platform with all its fields."""
    known = {name: value for name, value in fields.items() if name in _PLATFORM_FIELDS and value is not None}
    known["required_env"] = tuple(known.get("required_env") or ())
    more = {name: value for name, value in fields.items() if name not in _PLATFORM_FIELDS}
    if more:
        context.log.warning("platform %s: unknown fields %s are ignored", fields["name"], sorted(more))
    entry = PlatformEntry(owner=context.owner, more=more, **known)
    registration = PlatformRegistration(bridge, context, entry)
    provided = provide(bridge, context, PLATFORM, registration, entry.name)
    if provided:
        bridge.platforms[entry.name] = entry
        bridge.call(registration.attach)
    return provided


def attach_memory(bridge: Bridge, context: Context, provider: Any) -> bool:
    """Attach a memory provider if it is available and the only one."""
    if bridge.memory is not None and bridge.memory.owner.name != context.owner.name:
        context.log.warning("%s is already the memory provider; disable one of the two", bridge.memory.name)
        return False
    if not provider.is_available():
        why = getattr(provider, "unavailable_reason", str)()
        context.log.warning("memory provider %s is not available. %s", provider.name, why)
        return False
    attached = AttachedMemory(bridge, context, provider)
    provided = provide(bridge, context, MEMORY, attached)
    bridge.memory = attached
    bridge.call(attached.attach)
    return provided


@dataclass
class PluginManifest:
    """The value of `ctx.manifest`."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    label: str = ""
    kind: str = "standalone"
    requires_env: list[str] = field(default_factory=list)
    optional_env: list[str] = field(default_factory=list)
    provides_tools: list[str] = field(default_factory=list)
    provides_hooks: list[str] = field(default_factory=list)
    source: str = ""
    path: str | None = None
    key: str = ""


def manifest_of(found: DiscoveredPlugin) -> PluginManifest:
    info = found.manifest
    return PluginManifest(
        name=found.name,
        version=info.version,
        description=info.description,
        author=info.author,
        label=info.label or found.name,
        kind=info.kind or "standalone",
        requires_env=list(info.requires_env),
        optional_env=list(info.optional_env),
        provides_tools=list(info.provides_tools),
        provides_hooks=list(info.provides_hooks),
        source=found.source,
        path=str(found.path) if found.path else None,
        key=found.name,
    )


class PluginContext:
    """Methods may be called from any thread while the plugin is open.

    A refused registration is logged and returns None, as in Hermes, so that plugins continue.
    """

    def __init__(self, bridge: Bridge, context: Context, manifest: PluginManifest) -> None:
        self.manifest = manifest
        self.plugin_id = self.name = manifest.name
        self.profile_name = bridge.profile_name
        self.llm = PluginLlm(bridge, context)
        self.uncalled: dict[str, list[Callable[..., Any]]] = {}
        """Callbacks of unknown hooks and middleware kinds, by name."""
        self._bridge, self._context = bridge, context
        for kind in PROVIDER_KINDS:
            setattr(self, f"register_{kind}_provider", provider_method(bridge, context, kind))
        self.register_context_engine = provider_method(bridge, context, CONTEXT_ENGINE)
        for what in NOT_SERVED:
            setattr(self, f"register_{what}", unserved_method(context, what))

    def register_tool(  # noqa: PLR0913
        self,
        name: str,
        toolset: str,
        schema: Mapping[str, Any],
        handler: Callable[..., Any],
        check_fn: Callable[[], Any] | None = None,
        requires_env: list[str] | None = None,
        is_async: bool = False,
        description: str = "",
        emoji: str = "",
        override: bool = False,
        **_more: Any,
    ) -> bool | None:
        """Register a tool; the next turn sees it."""
        self._bridge.environment.expose(*(requires_env or ()))
        entry = ToolEntry(
            owner=self._context.owner,
            name=name,
            toolset=toolset,
            schema=dict(schema),
            handler=handler,
            check_fn=check_fn,
            requires_env=tuple(requires_env or ()),
            is_async=is_async,
            description=description,
            emoji=emoji,
            override=override,
            effect="read" if tools.is_read_only(schema) else "write",
        )
        return tools.register_tool(self._bridge, self._context, entry) or None

    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> None:
        """Register a hook callback. Unknown names are logged and kept."""
        mapping = hooks.HOOKS.get(hook_name)
        if mapping is None:
            self.uncalled.setdefault(hook_name, []).append(callback)
            meant = closest_matches(hook_name, hooks.VALID_HOOKS, 1)
            hint = f" Did you mean {meant[0]}?" if meant else ""
            self._context.log.warning("%s: unknown hook %s.%s", self.name, hook_name, hint)
            return
        self._bridge.call(lambda: hooks.register(self._bridge, self._context, mapping, callback))

    def register_middleware(self, kind: str, callback: Callable[..., Any]) -> bool | None:
        """Register middleware that changes a request or wraps a call."""
        if self._bridge.call(lambda: middleware.register(self._bridge, self._context, kind, callback)):
            return True
        self.uncalled.setdefault(kind, []).append(callback)
        self._context.log.warning("%s: unknown middleware kind %s", self.name, kind)
        return None

    def register_command(
        self, name: str, handler: Callable[..., Any], description: str = "", args_hint: str = "", **_: Any
    ) -> bool | None:
        """Register `/name`; built-in names are refused."""
        callback = PluginCallback(handler)

        async def act(raw: str, inbound: Inbound) -> str | None:
            self._bridge.state.inbounds[inbound.address.key] = inbound
            CURRENT_EVENT.set(CURRENT_EVENT.get() or RECENT_EVENTS.get(inbound.id))
            answer = await self._bridge.run(callback, raw)
            return None if answer is None else str(answer)

        try:
            self._bridge.call(
                lambda: self._context.command(name.lower().lstrip("/"), act, help=description, hint=args_hint)
            )
        except PluginError as error:
            self._context.log.warning("%s", error)
            return None
        return True

    def register_cli_command(
        self,
        name: str,
        help: str,
        setup_fn: Callable[[Any], None],
        handler_fn: Callable[[Any], Any] | None = None,
        description: str = "",
    ) -> bool | None:
        """Register `alipes NAME`; without `handler_fn`, the `func` default set by `setup_fn` is called."""

        def run(args: Any) -> int | None:
            act = handler_fn or getattr(args, "func", None)
            status = act(args) if act is not None else None
            return status if isinstance(status, int) else None

        try:
            self._bridge.call(lambda: self._context.cli(name, help or description, setup_fn, run))
        except PluginError as error:
            self._context.log.warning("%s", error)
            return None
        return True

    def register_platform(  # noqa: PLR0913
        self,
        name: str,
        label: str,
        adapter_factory: Callable[..., Any],
        check_fn: Callable[[], Any],
        validate_config: Callable[..., Any] | None = None,
        required_env: list[str] | None = None,
        install_hint: str = "",
        **fields: Any,
    ) -> bool | None:
        """Register a messenger for the gateway."""
        declared = (fields.get(name) for name in ("allowed_users_env", "allow_all_env", "cron_deliver_env_var"))
        self._bridge.environment.expose(*(required_env or ()), *filter(None, declared))
        fields_given = fields | {
            "name": name.lower(),
            "label": label,
            "adapter_factory": adapter_factory,
            "check_fn": check_fn,
            "validate_config": validate_config,
            "required_env": required_env,
            "install_hint": install_hint,
        }
        return provide_platform(self._bridge, self._context, **fields_given) or None

    def register_skill(self, name: str, path: str | os.PathLike[str], description: str = "") -> bool | None:
        """Register a skill as `plugin:name`; for a folder, its SKILL.md."""
        if ":" in name or not name:
            raise ValueError(f"a skill name must not be empty or contain a colon: {name!r}")
        file = Path(path)
        file = file / "SKILL.md" if file.is_dir() else file
        if not file.is_file():
            raise FileNotFoundError(f"no skill at {file}")
        self._bridge.call(lambda: self._context.skill(f"{self.name}:{name}", file, description))
        return True

    def register_memory_provider(self, provider: Any) -> bool | None:
        """Register the memory provider; there can be only one."""
        return attach_memory(self._bridge, self._context, provider) or None

    def register_auxiliary_task(self, key: str, **info: Any) -> bool | None:
        """Register a task that can have its own model."""
        return provide(self._bridge, self._context, AUXILIARY_TASK, info, key) or None

    def dispatch_tool(self, name: str, args: Mapping[str, Any] | None = None, **_: Any) -> str:
        """Run a tool from a worker thread; on the loop, await `adispatch_tool`."""
        return self._bridge.wait(self._context, self.adispatch_tool(name, args))

    async def adispatch_tool(self, name: str, args: Mapping[str, Any] | None = None, **_: Any) -> str:
        """Run a tool and return its text; errors are JSON with the key `error`."""
        host = self._bridge.host
        result: ToolResult = await host.run_tool(name, dict(args or {}), turn=host.current_turn())
        if result.outcome == "ok" or result.text.startswith("{"):
            return result.text
        return json.dumps({"error": result.text}, ensure_ascii=False)

    def inject_message(self, content: str, role: str = "user", *, session_key: str | None = None, **_: Any) -> bool:
        """Send a message to the given, current or latest conversation; False if there is none."""
        text = content if role == "user" else f"[{role}] {content}"
        return inject(self._bridge, self._context, text, session_key)

    def register_system_prompt_section(
        self, id: str, content: str | Callable[..., str], *, position: str = "after_memory", max_chars: int = 4000
    ) -> bool | None:
        """Add a text to the system prompt. A function is called once per conversation with facts about it."""
        section = PromptSection(self._bridge, self._context, id, content, max_chars=max_chars)
        return self._bridge.call(section.attach) or True

    def get_config(self, key: str | None = None, default: Any = None) -> Any:
        """A value of `[plugins.entries.NAME]` or of its table `config`; dots separate nested keys. Without a key,
        a copy of both tables."""
        config = self._context.config
        if not key:
            inner = config.get("config") if isinstance(config, Mapping) else None
            return {**(inner if isinstance(inner, Mapping) else {}), **(config or {})}
        for table in (config, config.get("config") if isinstance(config, Mapping) else None):
            value = table
            for part in key.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return value
        return default

    def on_unload(self, callback: Callable[[], Any]) -> Callable[[], Any]:
        """Call it when the plugin is closed."""

        async def unload() -> None:
            answer = callback()
            if inspect.isawaitable(answer):
                await answer

        self._bridge.call(lambda: self._context.stack.push_async_callback(unload))
        return callback
