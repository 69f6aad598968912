"""Models: their facts and prices (`catalog.json`), opening by name, and choosing the default one.

The catalog is read and provider modules are imported when first used.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from alipes.config.known_providers import DEMO_MODEL, KEYED, KNOWN, LOCAL
from alipes.config.settings import AGENT_PREFIX, MIXTURE_PREFIX, Settings
from alipes.kernel.errors import ConfigError, ProviderError
from alipes.kernel.formatting import join_names
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.models import SCRIPT_MODEL, Endpoint, ModelFacts, OnLimit
from alipes.kernel.ports import Provider, Request, Tool
from alipes.kernel.turns import EFFORT_LEVELS, Delta, Effort, Usage
from alipes.providers.mixture import AskModel, MixtureProvider
from alipes.providers.streaming import HttpStreams, models
from alipes.runtime.http.clients import ClientScope, HttpClient
from alipes.runtime.http.lazy_httpx import httpx2

if TYPE_CHECKING:
    from alipes.providers.keys import KeyRecords

_PRICES = ("price_input", "price_output", "price_cached", "price_cache_write")
_LONG = ("long_from", "long_input", "long_output")
_DATED = lazy_pattern(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


LIST_TIMEOUT_S = 2.0
"""Seconds for a server to list its models."""
OFFER_S = 60.0
"""Seconds for which the list of a server is used again."""
_PYTHON_PROVIDERS: dict[str, Callable[[], Provider]] = {}


@cache
def catalog() -> dict[str, ModelFacts]:
    """Facts by `provider/model`, in order of preference within a provider."""
    return msgspec.json.decode(Path(__file__).with_name("catalog.json").read_bytes(), type=dict[str, ModelFacts])


def add_python_provider(name: str, create: Callable[[], Provider], model: str, facts: ModelFacts) -> None:
    """Add a provider that is an object in this process, for test kits."""
    _PYTHON_PROVIDERS[name] = create
    KNOWN[name] = Endpoint(name, "python", model=model)
    catalog()[f"{name}/{model}"] = facts


def find_facts(
    name: str, overrides: Mapping[str, ModelFacts] | None = None, *, known: ModelFacts | None = None
) -> ModelFacts:
    """Facts of `provider/model`, settings first; `known` replaces the catalog's.

    A dated name means its model.
    """
    found = known or catalog().get(name) or catalog().get(_DATED.sub("", name)) or _find_regional(name)
    said = (overrides or {}).get(name)
    if said is None:
        return found
    unsaid = msgspec.structs.asdict(ModelFacts())
    changes = {field: value for field, value in msgspec.structs.asdict(said).items() if value != unsaid[field]}
    if any(price in changes for price in _PRICES):  # our long-context factors belong to our prices
        changes = {field: unsaid[field] for field in _LONG} | changes
    return msgspec.structs.replace(found, **changes)


def _find_regional(name: str) -> ModelFacts:
    """Facts of a model of Bedrock by its name in one region, or in the profile of several, such as `eu.`."""
    provider, _, model = name.partition("/")
    if provider != "bedrock":
        return ModelFacts()
    if found := catalog().get(f"bedrock/global.{model}"):
        return found
    _, _, plain = model.partition(".")
    found = catalog().get(f"bedrock/global.{plain}") or catalog().get(f"bedrock/{plain}", ModelFacts())
    # profiles cost a tenth more for these families; for others it differs
    factor = 1.1 if plain.startswith(("anthropic.", "openai.")) else None
    prices = {each: getattr(found, each) for each in _PRICES}
    changed = {each: round(price * factor, 6) if price and factor else None for each, price in prices.items()}
    return msgspec.structs.replace(found, **changed)


USUAL_EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")
"""What every API knows; used for a model of which nothing else is known."""


def fit_effort(wanted: Effort, facts: ModelFacts) -> Effort:
    """The highest level of the model that is not above `wanted`; its lowest if all are above. Empty: its default, also
    for a model that does not reason."""
    if not wanted or facts.reasoning is False:
        return ""
    known = facts.efforts or USUAL_EFFORTS
    order = EFFORT_LEVELS.index(wanted)
    levels = sorted((each for each in EFFORT_LEVELS if each in known), key=EFFORT_LEVELS.index)
    below = [each for each in levels if EFFORT_LEVELS.index(each) <= order]
    return below[-1] if below else levels[0]


def compute_cost(usage: Usage, facts: ModelFacts) -> float | None:
    """US dollars for one call; None if a needed price is unknown.

    Reasoning tokens are billed as output; tokens read from or written to the cache are part of the
    input, with their own prices.
    """
    fresh = max(0, usage.input - usage.cached - usage.cache_write)
    long = facts.long_from is not None and usage.input > facts.long_from
    reading, writing = (facts.long_input, facts.long_output) if long else (1.0, 1.0)
    total = 0.0
    for tokens, price, factor in (
        (fresh, facts.price_input, reading),
        (usage.cached, facts.price_cached, reading),
        (usage.cache_write, facts.price_cache_write, reading),
        (usage.output, facts.price_output, writing),
    ):
        if tokens and price is None:
            return None
        total += tokens * (price or 0.0) * factor
    return None if facts.price_input is None else total / 1_000_000


def similar_names(name: str, known: Iterable[str], count: int = 5) -> tuple[str, ...]:
    """Names in `known` similar to `name`, most similar first."""
    scored = [(-_similarity(name, each), each) for each in dict.fromkeys(known)]
    return tuple(each for score, each in sorted(scored) if score <= -0.45)[:count]


def _similarity(written: str, known: str) -> float:
    """Similarity by shared letter pairs, 0 to 1; above 1 if one contains the other."""
    one, whole = _letters(written), _letters(known)
    bare, model = _letters(written.rpartition("/")[2]), _letters(known.partition("/")[2])
    if len(bare) > 2 and bare in whole:
        return 1.0 + 1 / (1 + len(model) - len(bare)) if len(model) >= len(bare) else 1.0
    return max(_shared(one, whole), _shared(bare, model))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _shared(one: str, other: str) -> float:
    pairs, others = ({text[i : i + 2] for i in range(len(text) - 1)} for text in (one, other))
    return 2 * len(pairs & others) / (len(pairs) + len(others)) if pairs and others else 0.0


class Backend(Struct, frozen=True):
    """An open model."""

    name: str
    """`provider/model`."""
    model: str
    """Its name at the provider."""
    provider: Provider
    facts: ModelFacts = ModelFacts()
    keeps_history: bool = False
    """It keeps the conversation itself and uses its own tools: another agent. It answers no questions aside."""
    on_limit: OnLimit = "fallback"
    """What a turn does when its provider's limit is reached."""


LISTING_S = 1.0
"""Seconds for a server to list its models, where nobody waits for the list."""


class Models(AbstractAsyncContextManager["Models"]):
    """Opens models by name, each endpoint once. Owns the embedded server; the scope owns the network."""

    def __init__(self, settings: Settings, scope: ClientScope, lent: Mapping[str, Provider] | None = None) -> None:
        """`lent`: providers that already exist in this process, by endpoint name."""
        self._settings, self._scope = settings, scope
        self._providers: dict[str, Provider] = dict(lent or {})
        self._embedded: dict[str, Backend] = {}
        self._mixtures: dict[str, Backend] = {}
        self._ask_member: AskModel = _no_mixture_outside_conversations
        self._open_agent: OpenAgent = _no_agent_outside_conversations
        self._agent_tools: Mapping[str, Tool] = {}
        self._open_key_records: Callable[[], KeyRecords] | None = None
        self._stack = AsyncExitStack()
        self._choosing = asyncio.Lock()
        self._default: ModelChoice | None = None
        self._listing = asyncio.Lock()
        self._offered: tuple[float, tuple[str, ...]] | None = None
        """When servers were last asked for their models, and their answers."""
        self._windows: dict[str, int] = {}
        """Context windows that servers named, by `provider/model`."""
        self._asked_windows: set[str] = set()

    async def __aexit__(self, *_error: object) -> None:
        self._embedded, self._providers, self._mixtures = {}, {}, {}
        await self._stack.aclose()

    def add_mixture_access(self, ask: AskModel) -> None:
        """`ask` asks one model of a mixture, within the budget of the turn; without it, mixtures cannot be used."""
        self._ask_member = ask

    def add_agents(self, open_agent: "OpenAgent", tools: Mapping[str, Tool]) -> None:
        """`open_agent(name)`: another agent as a model. `tools`: what its turns have besides the usual ones."""
        self._open_agent, self._agent_tools = open_agent, tools

    def own_tools(self, name: str) -> Mapping[str, Tool]:
        """The tools through which another agent shows its work; none for other models."""
        return self._agent_tools if is_agent_name(self._settings, name) else {}

    async def open(self, name: str) -> Backend:
        """The model called `name`. Raises ConfigError with similar names or a missing key.

        Opening sends nothing: a model that the provider does not have fails at the first request.
        """
        if name == SCRIPT_MODEL:
            return _open_script()
        if is_mixture_name(self._settings, name):
            return await self._open_mixture(name.strip().removeprefix(f"{MIXTURE_PREFIX}/"))
        if is_agent_name(self._settings, name):
            return await self._open_agent(check_agent(self._settings, name))
        endpoint, model = resolve_model(self._settings, name)
        if endpoint.api == "embedded":
            return await self._open_embedded(model)
        if endpoint.key_env and not endpoint.key:
            raise ConfigError(
                f"{endpoint.name} needs a key: add {endpoint.key_env}=... to {self._settings.paths.env} "
                f"or set it in the environment."
            )
        if endpoint.name not in self._providers:
            self._providers[endpoint.name] = self._open_provider(endpoint)
        full = f"{endpoint.name}/{model}"
        facts = find_facts(full, self._settings.models)
        if facts.window is None and full in self._windows:
            facts = msgspec.structs.replace(facts, window=self._windows[full])
        return Backend(full, model, self._providers[endpoint.name], facts, on_limit=endpoint.on_limit)

    def _open_provider(self, endpoint: Endpoint) -> Provider:
        if not endpoint.keys:
            return _load_provider(endpoint, self._scope)
        from alipes.providers.keys import KeyRing, LocalKeyRecords  # noqa: PLC0415

        def price(model: str, usage: Usage) -> float | None:
            return compute_cost(usage, self.facts(f"{endpoint.name}/{model}"))

        records = LocalKeyRecords() if self._open_key_records is None else self._open_key_records()
        return KeyRing(endpoint, lambda one: _load_provider(one, self._scope), records, price)

    def add_key_records(self, open_records: "Callable[[], KeyRecords]") -> None:
        """`open_records` opens what all processes know about the keys of providers that have several."""
        self._open_key_records = open_records

    async def learn_window(self, name: str) -> None:
        """Ask the server of a model for the context windows of its models, once. Raises ConfigError."""
        if is_agent_name(self._settings, name):
            return
        endpoint, _ = resolve_model(self._settings, name)
        if endpoint.name in self._asked_windows or not _offers_own_models(self._settings, endpoint):
            return
        self._asked_windows.add(endpoint.name)
        with suppress(ProviderError):
            offered = await models(endpoint, self._scope.http("list", connect=LISTING_S), within=LISTING_S)
            self._windows |= {f"{endpoint.name}/{each}": each.window for each in offered if each.window}

    async def default(self) -> "ModelChoice":
        """The model to use if neither the message nor the session names one; determined once."""
        async with self._choosing:
            if self._default is None:
                self._default = await choose_model(self._settings, self._scope)
            return self._default

    def names(self) -> tuple[str, ...]:
        """Known models that are usable with the current settings; providers of test kits are left out."""
        single = (name for name in known_models(self._settings) if is_usable(self._settings, name))
        mixed = (f"{MIXTURE_PREFIX}/{name}" for name in self._settings.moa)
        agents = (f"{AGENT_PREFIX}/{name}" for name in self._settings.agents)
        return tuple(name for name in dict.fromkeys((*single, *mixed, *agents)) if not self.is_for_tests(name))

    def key_variables(self, name: str) -> tuple[str, ...]:
        """The variables of the keys of the model's provider, if it has several."""
        endpoint = self._settings.providers.get(name.partition("/")[0])
        return () if endpoint is None else tuple(each.variable for each in endpoint.keys)

    def facts(self, name: str) -> ModelFacts:
        """What is known about a model without opening it."""
        return find_facts(name, self._settings.models)

    async def list_names(self) -> tuple[str, ...]:
        """The same, with the models that custom and local servers offer: those come first."""
        return tuple(dict.fromkeys((*await self.offered(), *self.names())))

    async def offered(self, *, within: float = LIST_TIMEOUT_S) -> tuple[str, ...]:
        """Models that custom and local servers offer now, as `provider/model`. Servers that do not answer in time
        are left out. The answer is used again for a minute."""
        async with self._listing:
            if self._offered is None or time.monotonic() - self._offered[0] > OFFER_S:
                self._offered = (time.monotonic(), await _list_offered(self._settings, self._scope, within))
            return self._offered[1]

    def is_for_tests(self, name: str) -> bool:
        """True for a model that only test kits use; it is never offered."""
        endpoint = self._settings.providers.get(name.partition("/")[0])
        return endpoint is not None and endpoint.api == "python"

    async def _open_mixture(self, name: str) -> Backend:
        """A mixture; it has the facts of its aggregator, which writes the answer."""
        preset = self._settings.moa.get(name)
        if preset is None:
            there = ", ".join(f"{MIXTURE_PREFIX}/{each}" for each in self._settings.moa)
            raise ConfigError(
                f"Unknown mixture {name}: "
                f"{f'use {there}' if there else f'add [{MIXTURE_PREFIX}.{name}] to config.toml'}."
            )
        full = f"{MIXTURE_PREFIX}/{name}"
        if full not in self._mixtures:
            last = await self.open(preset.aggregator)
            provider = MixtureProvider(preset.models, preset.timeout, last.provider, last.model, self._ask_member)
            self._mixtures[full] = Backend(full, name, provider, last.facts)
        return self._mixtures[full]

    async def _open_embedded(self, model: str) -> Backend:
        from alipes.providers.embedded import EmbeddedProvider, EmbeddedServer, find_weights  # noqa: PLC0415
        from alipes.providers.openai_chat import OpenAIChatProvider  # noqa: PLC0415

        if model in self._embedded:
            return self._embedded[model]
        wanted = self._settings.embedded
        weights = find_weights("" if model == DEMO_MODEL else wanted.gguf, wanted.threads, wanted.context)
        if model != weights.model:
            raise ConfigError(f"The embedded model is {weights.model}, not {model}; set embedded.gguf to use another.")
        engine = await self._stack.enter_async_context(EmbeddedServer(weights))
        provider = EmbeddedProvider(
            engine, lambda at: OpenAIChatProvider(at, open_http_client(at, self._scope, base_url=""))
        )
        name = f"embedded/{model}"
        free = ModelFacts(price_input=0.0, price_output=0.0, price_cached=0.0, price_cache_write=0.0)
        known = msgspec.structs.replace(find_facts(name) if weights.toy else free, window=weights.context)
        self._embedded[model] = Backend(name, model, provider, find_facts(name, self._settings.models, known=known))
        return self._embedded[model]


def _open_script() -> Backend:
    from alipes.providers.script import ScriptProvider  # noqa: PLC0415

    free = ModelFacts(price_input=0.0, price_output=0.0, price_cached=0.0, price_cache_write=0.0)
    return Backend(SCRIPT_MODEL, "script", ScriptProvider(), free)


async def _list_offered(settings: Settings, scope: ClientScope, within: float) -> tuple[str, ...]:
    """The models of all servers that are not providers of the catalog."""
    asked = [each for each in settings.providers.values() if _offers_own_models(settings, each)]
    http = scope.http("list", connect=within)
    async with asyncio.TaskGroup() as group:
        tasks = [(each.name, group.create_task(_list_models(each, http, within))) for each in asked]
    return tuple(f"{name}/{model}" for name, task in tasks for model in task.result())


def has_model_list(endpoint: Endpoint) -> bool:
    """False for built-in models and for clouds, which list theirs elsewhere."""
    return bool(endpoint.base_url) and endpoint.api != "bedrock" and endpoint.credentials == "key"


def _offers_own_models(settings: Settings, endpoint: Endpoint) -> bool:
    if not has_model_list(endpoint) or not is_usable(settings, endpoint.name):
        return False
    return settings.local_servers if endpoint.name in LOCAL else not _first_catalog_model(endpoint.name)


async def _list_models(endpoint: Endpoint, http: HttpClient, within: float) -> list[str]:
    """The models of a server for conversations; empty if it does not answer."""
    try:
        offered = await models(endpoint, http, within=within)
    except ProviderError:
        return []
    return sorted(name for name in offered if "embed" not in name.lower())


OpenAgent: TypeAlias = Callable[[str], Awaitable[Backend]]


async def _no_agent_outside_conversations(name: str) -> Backend:
    return Backend(f"{AGENT_PREFIX}/{name}", name, _NoProvider(), keeps_history=True)


class _NoProvider:
    """Of another agent, where there is no conversation."""

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        raise ConfigError("Other agents work only inside a conversation.")


async def _no_mixture_outside_conversations(*_asked: object) -> str:
    raise ConfigError("Model mixtures work only inside a conversation.")


def is_mixture_name(settings: Settings, name: str) -> bool:
    """True if `name` is a mixture. A configured provider with that name takes precedence."""
    return name.strip().startswith(f"{MIXTURE_PREFIX}/") and MIXTURE_PREFIX not in settings.providers


def is_agent_name(settings: Settings, name: str) -> bool:
    """True if `name` is another agent. A configured provider with that name takes precedence."""
    return name.strip().startswith(f"{AGENT_PREFIX}/") and AGENT_PREFIX not in settings.providers


def check_agent(settings: Settings, name: str) -> str:
    """The NAME of `agent/NAME`. Raises ConfigError if it is not configured."""
    agent = name.strip().partition("/")[2]
    if agent not in settings.agents:
        known = join_names([f"{AGENT_PREFIX}/{each}" for each in settings.agents], "or")
        use = f"use {known}, or add" if known else "add"
        raise ConfigError(f"Unknown agent {agent}: {use} it with `alipes agents add {agent}`.")
    return agent


def resolve_model(settings: Settings, name: str) -> tuple[Endpoint, str]:
    """The endpoint and model that `name` means. Raises ConfigError with similar names.

    A provider alone means its default model; a model alone means its provider, if only one has it.
    """
    first, slash, model = name.strip().partition("/")
    endpoint = settings.providers.get(first)
    if endpoint is not None and (model or not slash):
        if usual := model or _default_model(settings, endpoint):
            return endpoint, usual
        raise ConfigError(f"{first} is a provider: add a model, as in {first}/MODEL.")
    candidates = [each for each in known_models(settings) if each.partition("/")[2] == name]
    if len(candidates) == 1:
        return resolve_model(settings, candidates[0])
    if candidates:
        raise ConfigError(f"Several providers have {name}: use one of {', '.join(candidates)}.")
    raise ConfigError(unknown_model_message(settings, name))


def _default_model(settings: Settings, endpoint: Endpoint) -> str:
    match endpoint.api:
        case "embedded":
            return PurePath(settings.embedded.gguf).stem.lower() or DEMO_MODEL
        case _:
            return endpoint.model


def known_models(settings: Settings) -> tuple[str, ...]:
    """Every known `provider/model`: from the settings, then from the catalog."""
    written = [settings.model, *settings.fallback, *settings.models]
    usual = [f"{endpoint.name}/{endpoint.model}" for endpoint in settings.providers.values() if endpoint.model]
    listed = [name for name in (*written, *catalog(), *usual) if name.partition("/")[0] in settings.providers]
    return tuple(dict.fromkeys(name for name in listed if "/" in name))


def is_usable(settings: Settings, name: str) -> bool:
    """True if everything `name` needs is configured; a local server may still be down."""
    endpoint = settings.providers.get(name.partition("/")[0])
    return endpoint is not None and bool(endpoint.key or not endpoint.key_env)


def unknown_model_message(settings: Settings, name: str) -> str:
    """Error message for an unknown name: similar names and configured providers."""
    close = similar_names(name, (*known_models(settings), *settings.providers))
    keyed = [endpoint.name for endpoint in settings.providers.values() if endpoint.key]
    meant = f" Did you mean {join_names(close, 'or')}?" if close else ""
    have = f"Keys are set for: {', '.join(keyed)}." if keyed else "No API key is set."
    return f"Unknown model or provider {name!r}.{meant} {have} Run `alipes model` for a list."


def _load_provider(endpoint: Endpoint, scope: ClientScope) -> Provider:
    """Import the provider module of the endpoint and create the provider."""
    if endpoint.api == "python":
        return _PYTHON_PROVIDERS[endpoint.name]()
    http: HttpStreams = open_http_client(endpoint, scope)
    if endpoint.credentials != "key":
        from alipes.providers.cloud.open import open_signed  # noqa: PLC0415

        http = open_signed(endpoint, http, scope)
    if endpoint.api == "anthropic":
        from alipes.providers.anthropic import AnthropicProvider  # noqa: PLC0415

        return AnthropicProvider(endpoint, http)
    if endpoint.api == "openai-responses":
        from alipes.providers.openai_responses import OpenAIResponsesProvider  # noqa: PLC0415

        return OpenAIResponsesProvider(endpoint, http)
    if endpoint.api == "bedrock":
        from alipes.providers.bedrock import BedrockProvider  # noqa: PLC0415

        return BedrockProvider(endpoint, http)
    if endpoint.api == "gemini":
        from alipes.providers.gemini import GeminiProvider  # noqa: PLC0415

        return GeminiProvider(endpoint, http)
    from alipes.providers.openai_chat import OpenAIChatProvider  # noqa: PLC0415

    return OpenAIChatProvider(endpoint, http)


def open_http_client(endpoint: Endpoint, scope: ClientScope, base_url: str | None = None) -> HttpClient:
    base_url = endpoint.base_url if base_url is None else base_url
    return scope.http(endpoint.name, base_url=base_url, stall=endpoint.stall, connect=endpoint.connect)


@asynccontextmanager
async def open_models(settings: Settings) -> AsyncIterator[tuple[ClientScope, Models]]:
    """The models and their clients, for a command without a conversation."""
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as models,
    ):
        yield scope, models


PROBE_TIMEOUT_S = 1.0
"""Seconds for a local server to answer; a closed port fails at once."""
_TITLES = {"ollama": "Ollama", "lmstudio": "LM Studio", "llamacpp": "llama.cpp", "vllm": "vLLM"}
_OWN_PORTS = ("ollama", "lmstudio")
"""Servers whose usual port hardly any other program uses, so that an odd answer there is worth a hint."""


class ModelChoice(Struct, frozen=True):
    model: str
    """`provider/model`."""
    why: str
    """Where the choice comes from, as a phrase; for the demo model a sentence."""
    toy: bool = False
    """The tiny demo model, with which the user should know how to connect another."""
    hint: str = ""
    """A sentence about a local server that was passed over."""
    last_resort: str = ""
    """For a model that was only found, not configured: the model to use if it never answers."""


async def choose_model(settings: Settings, scope: ClientScope, *, within: float = PROBE_TIMEOUT_S) -> ModelChoice:
    """The configured model; else by an API key; else by a local server; else the embedded model.

    Local servers are probed, all at once, only if neither a model nor a key is set. `within`: seconds
    for them to answer.
    """
    if settings.model:
        if is_mixture_name(settings, settings.model):
            return ModelChoice(settings.model, f"from {settings.model_source}")
        if is_agent_name(settings, settings.model):
            return ModelChoice(settings.model, f"from {settings.model_source}")
        endpoint, model = resolve_model(settings, settings.model)
        toy = endpoint.api == "embedded" and model == DEMO_MODEL
        return ModelChoice(f"{endpoint.name}/{model}", f"from {settings.model_source}", toy)
    order = dict.fromkeys((*KEYED, *settings.providers))  # well-known ones first
    for endpoint in [settings.providers[name] for name in order if name in settings.providers]:
        if endpoint.key and (model := endpoint.model or _first_catalog_model(endpoint.name)):
            return ModelChoice(f"{endpoint.name}/{model}", f"{endpoint.key_env} is set")
    answers = await _probe_local_servers(settings, scope, within)
    embedded = f"embedded/{resolve_model(settings, 'embedded')[1]}"
    for endpoint, answer in answers:
        if answer.model:
            why = f"{_TITLES.get(endpoint.name, endpoint.name)} found at {endpoint.base_url}"
            return ModelChoice(f"{endpoint.name}/{answer.model}", why, last_resort=embedded)
    used = embedded if settings.embedded.gguf else "the demo model"
    problems = [_describe_problem(*each, used) for each in answers if each[1].problem and each[0].name in _OWN_PORTS]
    hint = next(iter(problems), "")
    if settings.embedded.gguf:
        return ModelChoice(embedded, "embedded.gguf is set", hint=hint)
    return ModelChoice(
        embedded,
        "No API key found, so you're on a tiny demo model. It can chat, not work. "
        "Run `alipes setup` to connect a real one (1 minute).",
        toy=True,
        hint=hint,
    )


def _first_catalog_model(provider: str) -> str:
    return next((name.partition("/")[2] for name in catalog() if name.startswith(f"{provider}/")), "")


class _ProbeAnswer(Struct, frozen=True):
    """What a local server answered; both are empty if nothing listens at its port."""

    model: str = ""
    problem: str = ""


async def _probe_local_servers(
    settings: Settings, scope: ClientScope, within: float
) -> list[tuple[Endpoint, _ProbeAnswer]]:
    """The answers of all local servers, in order of preference."""
    endpoints = [settings.providers[name] for name in LOCAL if name in settings.providers]
    if not endpoints or not settings.local_servers:
        return []
    http = scope.http("probe")
    async with asyncio.TaskGroup() as group:
        asked = [(endpoint, group.create_task(_probe_model(endpoint, http, within))) for endpoint in endpoints]
    return [(endpoint, task.result()) for endpoint, task in asked]


async def _probe_model(endpoint: Endpoint, http: HttpClient, within: float) -> _ProbeAnswer:
    """A model of a server, preferably the configured one."""
    try:
        offered = await models(endpoint, http, within=within)
    except ProviderError as error:
        return _ProbeAnswer(problem=_explain_probe_error(error, within))
    talking = [name for name in offered if "embed" not in name.lower() and name.isprintable()]
    model = endpoint.model if endpoint.model in talking else next(iter(talking), "")
    return _ProbeAnswer(model, "" if model else "it has no models")


def _explain_probe_error(error: ProviderError, within: float) -> str:
    """Why a server cannot be used, in a few words; empty if there is none."""
    match error.__cause__:
        case httpx2.ConnectError():
            return ""
        case httpx2.TimeoutException():
            return f"no answer within {within:g} s"
        case httpx2.NetworkError() | httpx2.RemoteProtocolError():
            return "it closed the connection or does not speak HTTP"
        case _:
            return str(error.status) if error.status else "unexpected answer"


def _describe_problem(endpoint: Endpoint, answer: _ProbeAnswer, used: str) -> str:
    place = endpoint.base_url.removesuffix("/v1")
    return f"{_TITLES[endpoint.name]} at {place} does not answer properly ({answer.problem}); using {used}."
