"""From a name to a model that can be asked. Provider modules are loaded here, by name, when first used."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import PurePath
from types import TracebackType
from typing import Self

from msgspec import Struct

from alipes.config.known_providers import KEYED, LOCAL
from alipes.config.settings import Settings
from alipes.config.settings_parts import MIXED
from alipes.kernel.errors import ConfigError, ProviderError
from alipes.kernel.models import Endpoint, ModelFacts
from alipes.kernel.ports import Provider
from alipes.providers.catalog import TOY, catalog, facts, near
from alipes.providers.mixture import Consult, Mixture
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope, Http


class Backend(Struct, frozen=True):
    """A model that can be asked."""

    name: str
    """`provider/model`."""
    model: str
    """Its name at the provider."""
    provider: Provider
    facts: ModelFacts = ModelFacts()


class Models:
    """Opens models by name, each endpoint once. Owns the embedded model; the scope owns the network."""

    def __init__(
        self, settings: Settings, scope: ClientScope, lent: Mapping[str, Provider] | None = None
    ) -> None:
        """`lent`: providers that live in this process already, by the name of their endpoint."""
        self._settings, self._scope = settings, scope
        self._providers: dict[str, Provider] = dict(lent or {})
        self._embedded: dict[str, Backend] = {}
        self._mixtures: dict[str, Backend] = {}
        self.consult: Consult = _nobody
        """How models that answer together are asked, by whoever keeps the bill."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._embedded, self._providers, self._mixtures = {}, {}, {}
        await self._stack.aclose()

    async def open(self, name: str) -> Backend:
        """The model called `name`. Raises ConfigError with near matches, or the variable of a missing key.

        Opening asks nobody: a model that its provider does not have shows at the first question.
        """
        if mixed(self._settings, name):
            return await self._open_mixture(name.strip().removeprefix(f"{MIXED}/"))
        endpoint, model = resolve(self._settings, name)
        if endpoint.api == "embedded":
            return await self._open_embedded(model)
        if endpoint.key_env and not endpoint.key:
            raise ConfigError(
                f"{endpoint.name} needs a key: write {endpoint.key_env}=... into {self._settings.paths.env}, "
                f"or set the variable {endpoint.key_env}."
            )
        if endpoint.name not in self._providers:
            self._providers[endpoint.name] = _load(endpoint, self._scope)
        full = f"{endpoint.name}/{model}"
        return Backend(full, model, self._providers[endpoint.name], facts(full, self._settings.models))

    def names(self) -> tuple[str, ...]:
        """Models that can be asked with what is configured: those we know of providers that need no more."""
        single = (name for name in known(self._settings) if ready(self._settings, name))
        mixed = (f"{MIXED}/{name}" for name in self._settings.mixtures)
        return tuple(dict.fromkeys((*single, *mixed)))

    async def _open_mixture(self, name: str) -> Backend:
        """Several that answer as one: what one of them says last is the answer, so that its facts count."""
        preset = self._settings.mixtures.get(name)
        if preset is None:
            there = ", ".join(f"{MIXED}/{each}" for each in self._settings.mixtures)
            raise ConfigError(f"There is no [{MIXED}.{name}]; {f'there is {there}' if there else 'add it'}.")
        full = f"{MIXED}/{name}"
        if full not in self._mixtures:
            last = await self.open(preset.aggregator)
            provider = Mixture(preset.models, preset.timeout, last.provider, last.model, self.consult)
            self._mixtures[full] = Backend(full, name, provider, last.facts)
        return self._mixtures[full]

    async def _open_embedded(self, model: str) -> Backend:
        from alipes.providers.embedded import Embedded, Engine, find_weights  # noqa: PLC0415
        from alipes.providers.openai_chat import OpenAIChat  # noqa: PLC0415

        if model in self._embedded:
            return self._embedded[model]
        wanted = self._settings.embedded
        weights = find_weights("" if model == TOY else wanted.gguf, wanted.threads, wanted.context)
        if model != weights.model:
            raise ConfigError(
                f"The embedded model is {weights.model}, not {model}; set embedded.gguf to use another."
            )
        engine = await self._stack.enter_async_context(Engine(weights))
        provider = Embedded(engine, lambda at: OpenAIChat(at, http_of(at, self._scope, base_url="")))
        name = f"embedded/{model}"
        told = facts(name, self._settings.models, known=weights.facts)
        self._embedded[model] = Backend(name, model, provider, told)
        return self._embedded[model]


async def _nobody(*_asked: object) -> str:
    raise ConfigError("Models answer together in conversations only.")


def mixed(settings: Settings, name: str) -> bool:
    """Does it name models that answer together? A provider of the operator's with that name goes first."""
    return name.strip().startswith(f"{MIXED}/") and MIXED not in settings.providers


def resolve(settings: Settings, name: str) -> tuple[Endpoint, str]:
    """Whom `name` means, and which of their models. Raises ConfigError with near matches.

    A provider alone means its usual model; a model alone its provider, when only one has it.
    """
    first, slash, model = name.strip().partition("/")
    endpoint = settings.providers.get(first)
    if endpoint is not None and (model or not slash):
        if usual := model or _usual(settings, endpoint):
            return endpoint, usual
        raise ConfigError(f"{first} is a provider: name a model of it, as in {first}/MODEL.")
    candidates = [each for each in known(settings) if each.partition("/")[2] == name]
    if len(candidates) == 1:
        return resolve(settings, candidates[0])
    if candidates:
        raise ConfigError(f"Several providers have {name}; name one of {', '.join(candidates)}.")
    raise ConfigError(unknown(settings, name))


def _usual(settings: Settings, endpoint: Endpoint) -> str:
    match endpoint.api:
        case "scripted":
            return "echo"
        case "embedded":
            return PurePath(settings.embedded.gguf).stem.lower() or TOY
        case _:
            return endpoint.model


def known(settings: Settings) -> tuple[str, ...]:
    """Every `provider/model` we can name: what the operator wrote, then the catalog."""
    written = [settings.model, *settings.fallback, *settings.models]
    usual = [
        f"{endpoint.name}/{endpoint.model}" for endpoint in settings.providers.values() if endpoint.model
    ]
    listed = [name for name in (*written, *catalog(), *usual) if name.partition("/")[0] in settings.providers]
    return tuple(dict.fromkeys(name for name in listed if "/" in name))


def ready(settings: Settings, name: str) -> bool:
    """Whether `name` has all that it needs here; a local server may still be down."""
    endpoint = settings.providers.get(name.partition("/")[0])
    return endpoint is not None and bool(endpoint.key or not endpoint.key_env)


def unknown(settings: Settings, name: str) -> str:
    """The sentence for a name that means nothing: what is near, and what is configured."""
    close = near(name, (*known(settings), *settings.providers))
    keyed = [endpoint.name for endpoint in settings.providers.values() if endpoint.key]
    meant = f" Did you mean {_either(close)}?" if close else ""
    have = f"Keys are set for {', '.join(keyed)}." if keyed else "No provider has a key yet."
    return f"No model or provider is called {name!r}.{meant} {have} `alipes model` lists what there is."


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _load(endpoint: Endpoint, scope: ClientScope) -> Provider:
    """Costs nothing for whom nobody asks: a module is imported by the first model that speaks through it."""
    match endpoint.api:
        case "scripted":
            from alipes.providers.scripted import Scripted  # noqa: PLC0415

            return Scripted()
        case "anthropic":
            from alipes.providers.anthropic import Anthropic  # noqa: PLC0415

            return Anthropic(endpoint, http_of(endpoint, scope))
        case "openai-responses":
            from alipes.providers.openai_responses import OpenAIResponses  # noqa: PLC0415

            return OpenAIResponses(endpoint, http_of(endpoint, scope))
        case _:
            from alipes.providers.openai_chat import OpenAIChat  # noqa: PLC0415

            return OpenAIChat(endpoint, http_of(endpoint, scope))


def http_of(endpoint: Endpoint, scope: ClientScope, base_url: str | None = None) -> Http:
    base_url = endpoint.base_url if base_url is None else base_url
    return scope.http(endpoint.name, base_url=base_url, stall=endpoint.stall, connect=endpoint.connect)


PROBING = 0.3
"""Seconds that a local server has to answer in; a closed port answers at once."""
_TITLES = {"ollama": "Ollama", "lmstudio": "LM Studio", "llamacpp": "llama.cpp", "vllm": "vLLM"}


class Choice(Struct, frozen=True):
    model: str
    """`provider/model`."""
    why: str
    """A sentence for the first screen."""
    toy: bool = False
    """It can talk, and little more; the person should know, and be told how to choose another."""


async def choose(settings: Settings, scope: ClientScope, *, within: float = PROBING) -> Choice:
    """The configured model; else by a key; else by a local server; else the embedded one.

    Nobody is asked on the network unless neither a model nor a key is there; then local servers,
    all at once, and whoever has not answered `within` so many seconds is not there.
    """
    if settings.model:
        return _configured(settings)
    for endpoint in _keyed(settings):
        if model := endpoint.model or _listed(endpoint.name):
            return Choice(f"{endpoint.name}/{model}", f"{endpoint.key_env} is set.")
    if found := await _local(settings, scope, within):
        endpoint, model = found
        title = _TITLES.get(endpoint.name, endpoint.name)
        return Choice(f"{endpoint.name}/{model}", f"{title} answers at {endpoint.base_url}.")
    _, model = resolve(settings, "embedded")
    if settings.embedded.gguf:
        return Choice(f"embedded/{model}", "embedded.gguf is set, and no other model is at hand.")
    return Choice(
        f"embedded/{model}",
        "No model is configured, no key is set and no local server answers, so a very small model runs on "
        f"this computer. It is a toy that shows how things work. {how(settings)}",
        toy=True,
    )


def how(settings: Settings) -> str:
    """The way to a real model, in a sentence."""
    return (
        "For a real one run `alipes setup`, which takes a minute; or write a key, such as "
        f"ANTHROPIC_API_KEY=..., into {settings.paths.env}, or start Ollama."
    )


def _configured(settings: Settings) -> Choice:
    if mixed(settings, settings.model):
        return Choice(settings.model, "It is the configured one.")
    endpoint, model = resolve(settings, settings.model)
    toy = endpoint.api == "embedded" and model == TOY
    return Choice(f"{endpoint.name}/{model}", "It is the configured one.", toy)


def _keyed(settings: Settings) -> list[Endpoint]:
    """Endpoints with a key: the well-known ones in their order, then the operator's own."""
    order = dict.fromkeys((*KEYED, *settings.providers))
    return [
        settings.providers[name]
        for name in order
        if name in settings.providers and settings.providers[name].key
    ]


def _listed(provider: str) -> str:
    return next((name.partition("/")[2] for name in catalog() if name.startswith(f"{provider}/")), "")


async def _local(settings: Settings, scope: ClientScope, within: float) -> tuple[Endpoint, str] | None:
    """The first local server, in their order, that answers with a model in time."""
    endpoints = [settings.providers[name] for name in LOCAL if name in settings.providers]
    if not endpoints:
        return None
    http = scope.http("probe")
    async with asyncio.TaskGroup() as group:
        asked = [(endpoint, group.create_task(_offer(endpoint, http, within))) for endpoint in endpoints]
    return next(((endpoint, task.result()) for endpoint, task in asked if task.result()), None)


async def _offer(endpoint: Endpoint, http: Http, within: float) -> str:
    """The model a server has, its operator's favourite if that is among them; empty when nobody is there."""
    try:
        offered = await models(endpoint, http, within=within)
    except ProviderError:
        return ""
    talking = [name for name in offered if "embed" not in name.lower()]
    return endpoint.model if endpoint.model in talking else next(iter(talking), "")
