"""Which model to begin with when nobody says: a key, else a server on this machine, else the embedded one."""

import asyncio

from msgspec import Struct

from alipes.config.known import KEYED, LOCAL
from alipes.config.settings import Settings
from alipes.kernel.endpoints import Endpoint
from alipes.kernel.errors import ProviderError
from alipes.providers.catalog import TOY, catalog
from alipes.providers.opening import mixed, resolve
from alipes.providers.wire import models
from alipes.runtime.clients import ClientScope, Http

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
