"""What `register(ctx)` of a Hermes plugin is given. Each method translates to the plugin's native context."""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from alipes.compat.hermes import hooks, middleware, tools
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import Fit
from alipes.compat.hermes.llm import PluginLlm
from alipes.compat.hermes.memory import Memory
from alipes.compat.hermes.platform.runner import Registration
from alipes.compat.hermes.platform.values import HEARD, REMEMBERED
from alipes.compat.hermes.state import PlatformEntry, ToolEntry
from alipes.kernel.errors import AlipesError, PluginError
from alipes.kernel.formatting import near
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Address, Inbound
from alipes.plugins.context import Context
from alipes.plugins.discovery import Found


def inject(bridge: Bridge, context: Context, text: str, session_key: str | None = None) -> bool:
    """Say `text`, from any thread: under the key, else in whose course we are, else where someone spoke last.

    False where there is no such conversation. What becomes of it is not waited for.
    """
    last = _last_words(bridge, session_key)
    if last is None:
        context.log.warning("%s: there is no conversation to say something in", context.name)
        return False
    inbound = Inbound(
        id=f"plugin:{context.name}:{os.urandom(8).hex()}",
        address=last.address,
        sender=last.sender,
        text=text,
        workdir=last.workdir,
    )
    bridge.soon(lambda: context.run(_submit(bridge, context, inbound), "saying something"))
    return True


def _last_words(bridge: Bridge, session_key: str | None) -> Inbound | None:
    heard = bridge.notes.heard
    if session_key:
        return heard.get(session_key) or _named(session_key)
    turn = bridge.host.living()
    return turn.inbound if turn is not None else heard.latest()


async def _submit(bridge: Bridge, context: Context, inbound: Inbound) -> None:
    try:
        await bridge.host.submit(inbound)
    except AlipesError as error:
        context.log.warning("%s could not say something: %s", context.name, error)


def _named(session_key: str) -> Inbound | None:
    """Where a key leads that nobody spoke under yet: `agent:main:<platform>:<type>:<chat>[:<thread>]`."""
    parts = [unquote(part) for part in session_key.split(":")]
    if len(parts) < 5 or parts[0] != "agent":
        return None
    address = Address(parts[2], parts[4], parts[3], *parts[5:7])
    return Inbound(id="", address=address, sender=address.user or address.chat, text="")


FAMILIES = ("tts", "transcription", "image_gen", "video_gen", "web_search", "browser")
"""`ctx.register_<family>_provider(provider)`."""
PLATFORM, MEMORY, CONTEXT_ENGINE, AUXILIARY_TASK = "platform", "memory", "context_engine", "auxiliary_task"
_FIELDS = set(PlatformEntry.__struct_fields__) - {"more"}


def keep(bridge: Bridge, context: Context, kind: str, thing: Any, name: str = "") -> bool:
    """Offer it, from any thread. False, and a word in the log, if another plugin has that name."""
    name = name or str(getattr(thing, "name", "") or context.name)
    try:
        bridge.call(lambda: context.provide(kind, name, thing))
    except PluginError as error:
        context.log.warning("%s", error)
        return False
    return True


def family(bridge: Bridge, context: Context, kind: str) -> Callable[..., bool | None]:
    """The method of `ctx` that registers something of this kind."""

    def register(provider: Any, *_: Any, **__: Any) -> bool | None:
        return keep(bridge, context, kind, provider) or None

    return register


def platform(bridge: Bridge, context: Context, **told: Any) -> bool:
    """Keep a platform with all that was said of it."""
    known = {name: value for name, value in told.items() if name in _FIELDS and value is not None}
    known["required_env"] = tuple(known.get("required_env") or ())
    more = {name: value for name, value in told.items() if name not in _FIELDS}
    if more:
        context.log.warning(
            "platform %s: unknown fields %s are kept, and mean nothing", told["name"], sorted(more)
        )
    entry = PlatformEntry(owner=context.owner, more=more, **known)
    registration = Registration(bridge, context, entry)
    kept = keep(bridge, context, PLATFORM, registration, entry.name)
    if kept:
        bridge.platforms[entry.name] = entry
        bridge.call(registration.attach)
    return kept


def memory(bridge: Bridge, context: Context, provider: Any) -> bool:
    """Attach a memory provider, if it is available and the only one."""
    if bridge.memory is not None and bridge.memory.owner.name != context.owner.name:
        context.log.warning("memory is kept by %s already; disable one of the two", bridge.memory.name)
        return False
    kept = keep(bridge, context, MEMORY, provider)
    if not provider.is_available():
        why = getattr(provider, "unavailable_reason", str)()
        context.log.warning("memory provider %s is not available. %s", provider.name, why)
        return False
    attached = Memory(bridge, context, provider)
    bridge.memory = attached
    bridge.call(attached.attach)
    return kept


@dataclass
class PluginManifest:
    """As plugins read it off `ctx.manifest`."""

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


def manifest_of(found: Found) -> PluginManifest:
    said = found.manifest
    return PluginManifest(
        name=found.name,
        version=said.version,
        description=said.description,
        author=said.author,
        label=said.label or found.name,
        kind=said.kind or "standalone",
        requires_env=list(said.requires_env),
        optional_env=list(said.optional_env),
        provides_tools=list(said.provides_tools),
        provides_hooks=list(said.provides_hooks),
        source=found.source,
        path=str(found.path) if found.path else None,
        key=found.name,
    )


class PluginContext:
    """Every method may be called from any thread, at any time while the plugin is open.

    What is refused is told in the log and as None: the original goes on then, and so do plugins.
    """

    def __init__(self, bridge: Bridge, context: Context, manifest: PluginManifest) -> None:
        self.manifest = manifest
        self.plugin_id = self.name = manifest.name
        self.profile_name = bridge.profile_name
        self.llm = PluginLlm(bridge, context)
        self.unheard: dict[str, list[Callable[..., Any]]] = {}
        """Callbacks of hooks and middleware that nobody calls, by name."""
        self._bridge, self._context = bridge, context
        for kind in FAMILIES:
            setattr(self, f"register_{kind}_provider", family(bridge, context, kind))
        self.register_context_engine = family(bridge, context, CONTEXT_ENGINE)

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
        """Offer a tool; the next turn sees it."""
        self._bridge.lending.lend(*(requires_env or ()))
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
            effect="read" if tools.reads_only(schema) else "write",
        )
        return tools.offer(self._bridge, self._context, entry) or None

    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> None:
        """Have `callback` called. A name we do not know is told in the log, and kept."""
        row = hooks.HOOKS.get(hook_name)
        if row is None:
            self.unheard.setdefault(hook_name, []).append(callback)
            meant = near(hook_name, hooks.VALID_HOOKS, 1)
            hint = f" Did you mean {meant[0]}?" if meant else ""
            self._context.log.warning("%s: nobody calls the hook %s.%s", self.name, hook_name, hint)
            return
        self._bridge.call(lambda: hooks.register(self._bridge, self._context, row, callback))

    def register_middleware(self, kind: str, callback: Callable[..., Any]) -> bool | None:
        """Change a request, or stand around an act."""
        if self._bridge.call(lambda: middleware.register(self._bridge, self._context, kind, callback)):
            return True
        self.unheard.setdefault(kind, []).append(callback)
        self._context.log.warning("%s: there is no middleware of the kind %s", self.name, kind)
        return None

    def register_command(
        self, name: str, handler: Callable[..., Any], description: str = "", args_hint: str = "", **_: Any
    ) -> bool | None:
        """Offer `/name`; a name of the house's is refused."""
        fit = Fit(handler)

        async def act(raw: str, inbound: Inbound) -> str | None:
            self._bridge.notes.heard[inbound.address.key] = inbound
            HEARD.set(HEARD.get() or REMEMBERED.get(inbound.id))
            answer = await self._bridge.run(fit, raw)
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
        """Offer `alipes NAME`; without `handler_fn` what `setup_fn` set as `func` is run."""

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
        """Offer a messenger; the gateway serves it."""
        told_of = (
            fields.get(name) for name in ("allowed_users_env", "allow_all_env", "cron_deliver_env_var")
        )
        self._bridge.lending.lend(*(required_env or ()), *filter(None, told_of))
        told = fields | {
            "name": name.lower(),
            "label": label,
            "adapter_factory": adapter_factory,
            "check_fn": check_fn,
            "validate_config": validate_config,
            "required_env": required_env,
            "install_hint": install_hint,
        }
        return platform(self._bridge, self._context, **told) or None

    def register_skill(self, name: str, path: str | os.PathLike[str], description: str = "") -> bool | None:
        """Offer a text, as `plugin:name`; of a folder its SKILL.md."""
        if ":" in name or not name:
            raise ValueError(f"a skill's name has no colon in it, and is not empty: {name!r}")
        file = Path(path)
        file = file / "SKILL.md" if file.is_dir() else file
        if not file.is_file():
            raise FileNotFoundError(f"there is no skill at {file}")
        self._bridge.call(lambda: self._context.skill(f"{self.name}:{name}", file, description))
        return True

    def register_memory_provider(self, provider: Any) -> bool | None:
        """Let it recall and remember; there is one at a time."""
        return memory(self._bridge, self._context, provider) or None

    def register_auxiliary_task(self, key: str, **said: Any) -> bool | None:
        """Keep what was said of a task that a model of its own may be chosen for."""
        return keep(self._bridge, self._context, AUXILIARY_TASK, said, key) or None

    def dispatch_tool(self, name: str, args: Mapping[str, Any] | None = None, **_: Any) -> str:
        """Run a tool as the model would, from a worker thread; on the loop, await `adispatch_tool`."""
        return self._bridge.wait(self._context, self.adispatch_tool(name, args))

    async def adispatch_tool(self, name: str, args: Mapping[str, Any] | None = None, **_: Any) -> str:
        """What it gave; an error as JSON with the key `error`."""
        host = self._bridge.host
        result: ToolResult = await host.use(name, dict(args or {}), turn=host.living())
        if result.outcome == "ok" or result.text.startswith("{"):
            return result.text
        return json.dumps({"error": result.text}, ensure_ascii=False)

    def inject_message(
        self, content: str, role: str = "user", *, session_key: str | None = None, **_: Any
    ) -> bool:
        """Say something: in the named conversation, or that of the moment, or the last; False without one."""
        text = content if role == "user" else f"[{role}] {content}"
        return inject(self._bridge, self._context, text, session_key)

    def get_config(self, key: str, default: Any = None) -> Any:
        """A value of `[plugins.entries.NAME]`, or of the table `config` in it; dots lead into tables."""
        config = self._context.config
        for table in (config, config.get("config") if isinstance(config, Mapping) else None):
            value = table
            for part in key.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return value
        return default

    def on_unload(self, callback: Callable[[], Any]) -> Callable[[], Any]:
        """Have it called when the plugin is closed."""

        async def unload() -> None:
            answer = callback()
            if inspect.isawaitable(answer):
                await answer

        self._bridge.call(lambda: self._context.stack.push_async_callback(unload))
        return callback
