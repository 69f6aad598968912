"""`alipes model`: shows the model in use and the other models, and switches."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from alipes.config.editor import change
from alipes.config.known_providers import CLOUDS, KEYED, LOCAL
from alipes.config.loader import load_settings
from alipes.config.model_file import parse_models, write_models
from alipes.config.paths import MODEL_FILE
from alipes.config.settings import MIXTURE_PREFIX, Settings
from alipes.console import help_text
from alipes.console.options import OptionParser, print_config_errors
from alipes.console.render import format_choice
from alipes.kernel.errors import ConfigError, ProviderError
from alipes.kernel.formatting import format_count
from alipes.kernel.models import Endpoint, ModelFacts
from alipes.providers import registry
from alipes.providers.errors import explain_connection
from alipes.providers.registry import catalog, find_facts, similar_names
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope, HttpClient
from alipes.runtime.http.lazy_httpx import httpx2

ProviderModels: TypeAlias = dict[str, tuple[tuple[str, ...], str]]
FETCH_TIMEOUT_S = 30.0
OPEN_ENDED = ("openrouter",)
"""Providers with too many models to list."""


@print_config_errors
def run(argv: list[str]) -> int:
    """Show the models, or switch to one. Output goes to standard output, errors to standard error."""
    parser = OptionParser("alipes model", help_text.MODEL)
    parser.add_argument("name", nargs="?", default="")
    args = parser.parse_args(argv)
    if args.name and args.all:
        parser.error("--all only works without NAME")
    settings = load_settings()
    if args.refresh:
        print(asyncio.run(_refresh(settings, args.refresh)))
        return 0
    answer = (
        _switch(settings, args.name, live=args.live, anyway=args.anyway)
        if args.name
        else _show(settings, live=args.live, all=args.all)
    )
    for line in asyncio.run(answer):
        print(line)
    return 0


async def _refresh(settings: Settings, where: str) -> str:
    """Keep the catalog at `where`, a file or an address. Raises ConfigError and changes nothing if it is none."""
    data = await _fetch(settings, where) if "://" in where else _read(where)
    file = parse_models(data, where, time.strftime("%Y-%m-%d"))
    write_models(settings.home, file)
    count = format_count(len(file.models), "model")
    return f"{count} from {file.source}, {file.date}, kept in {settings.home / MODEL_FILE}."


def _read(where: str) -> bytes:
    try:
        return Path(where).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error


async def _fetch(settings: Settings, where: str) -> bytes:
    async with ClientScope(settings.proxies, trust=settings.ca_file or None) as scope:
        try:
            response = await scope.http("catalog").request("GET", where, timeout=FETCH_TIMEOUT_S)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ConfigError(f"{where} cannot be read: {explain_connection(str(error))}") from error
    if response.status_code != 200:
        raise ConfigError(f"{where} answered {response.status_code}")
    return response.content


async def _show(settings: Settings, *, live: bool, all: bool) -> list[str]:
    async with registry.open_models(settings) as (scope, _):
        choice = await registry.choose_model(settings, scope)
        offers = await _list_all_models(settings, scope) if live else {}
    return [
        format_choice(choice),
        *filter(None, [choice.hint]),
        "",
        *_format_table(settings, choice, offers, all),
        "",
        *_hints(settings, all),
    ]


def _format_table(settings: Settings, choice: registry.ModelChoice, offers: ProviderModels, all: bool) -> Iterator[str]:
    ours = [name for name in registry.known_models(settings) if all or registry.is_usable(settings, name)]
    ours += [f"{MIXTURE_PREFIX}/{name}" for name in settings.moa]
    theirs = [f"{provider}/{model}" for provider, (offered, _) in offers.items() for model in offered]
    listed = list(dict.fromkeys((choice.model, *ours, *theirs)))
    width = max(len(name) for name in listed)
    yield f"  {'model':<{width}}  {'context':>6}  $ per 1M tokens: input / cached / output"
    for name in listed:
        yield f"{'*' if name == choice.model else ' '} {name:<{width}}  {format_facts(settings, name)}"
    for provider, (_, trouble) in offers.items():
        if trouble:
            yield f"  {provider}: no list: {trouble}"


def format_facts(settings: Settings, name: str, window: int | None = None) -> str:
    """Context window and prices of a model, padded to the same width for all. `window`: if none is known."""
    found = find_facts(name, settings.models)
    prices = (found.price_input, found.price_cached, found.price_output)
    if found.price_input is None:
        money = "price unknown"
    elif not any(prices):
        money = "free"
    else:
        money = " / ".join("?" if price is None else f"{price:g}" for price in prices)
        money += f"; more above {_format_window(found.long_from)}" if found.long_from else ""
    return f"{_format_window(found.window or window):>6}  {money}"


def _format_window(tokens: int | None) -> str:
    if tokens is None:
        return "?"
    return f"{tokens / 1e6:.3g}M" if tokens >= 1_000_000 else f"{round(tokens / 1000)}k"


def _hints(settings: Settings, all: bool) -> Iterator[str]:
    keyless = [settings.providers[name] for name in KEYED if not settings.providers[name].key]
    if keyless:
        yield f"No key set: {', '.join(f'{each.name} ({each.key_env})' for each in keyless)}."
        first = keyless[0].key_env
        yield f"Add a key with `alipes config set {first} -`; it is saved in {settings.paths.env}."
    more = "" if all else "; `alipes model --all` lists more"
    yield f"Switch with `alipes model NAME`{more}."


async def _switch(settings: Settings, name: str, *, live: bool, anyway: bool) -> list[str]:
    """Save `name` as the model. Raises ConfigError and changes nothing if it is not usable."""
    async with registry.open_models(settings) as (scope, opened):
        backend = await opened.open(name)
        is_table = registry.is_mixture_name(settings, name) or registry.is_agent_name(settings, name)
        trouble = "" if is_table else await _check_model(settings, name, scope, live, anyway)
    left = change({("model",): backend.name})
    said = [f"Switched to {backend.name}.", *([trouble] if trouble else [])]
    if (winning := load_settings().model) != backend.name:
        said.append(f"But ALIPES_MODEL is set to {winning} and overrides it.")
    if backend.facts.tools is False:
        said.append("This model cannot call tools; it can only chat.")
    return [*said, *(f"Remaining problem in the file: {problem}" for problem in left)]


async def _check_model(settings: Settings, name: str, scope: ClientScope, live: bool, anyway: bool) -> str:
    """A warning about the model, or an empty string. Raises ConfigError if the model is unknown."""
    endpoint, model = registry.resolve_model(settings, name)
    asks = live and registry.has_model_list(endpoint)
    offered, trouble = await _list_models(endpoint, scope.http("list")) if asks else ((), "")
    if not anyway and not _is_known(settings, endpoint, model, offered):
        raise ConfigError(_unknown_model_message(settings, endpoint, model, offered))
    return f"Could not check with {endpoint.name}: {trouble}" if trouble else ""


def _is_known(settings: Settings, endpoint: Endpoint, model: str, offered: tuple[str, ...]) -> bool:
    full = f"{endpoint.name}/{model}"
    if offered:
        return model in offered
    if endpoint.name in (*OPEN_ENDED, *CLOUDS) or not any(name.startswith(f"{endpoint.name}/") for name in catalog()):
        return True
    return full in registry.known_models(settings) or find_facts(full) != ModelFacts() or endpoint.api == "embedded"


def _unknown_model_message(settings: Settings, endpoint: Endpoint, model: str, offered: tuple[str, ...]) -> str:
    ours = tuple(
        name.partition("/")[2] for name in registry.known_models(settings) if name.startswith(f"{endpoint.name}/")
    )
    close = [f"{endpoint.name}/{each}" for each in similar_names(model, offered or ours)]
    meant = f" Similar: {', '.join(close)}." if close else ""
    if offered:
        return f"{endpoint.name} has no model {model}.{meant} Nothing changed."
    return (
        f"Unknown model {model} for {endpoint.name}.{meant} If it is new, use --live to check with "
        f"{endpoint.name} or --anyway to set it. Nothing changed."
    )


async def _list_all_models(settings: Settings, scope: ClientScope) -> ProviderModels:
    """The models of every reachable provider, or why it does not list them."""
    http = scope.http("list", connect=3.0)
    async with asyncio.TaskGroup() as group:
        asked = {
            endpoint.name: group.create_task(_list_models(endpoint, http))
            for endpoint in settings.providers.values()
            if registry.has_model_list(endpoint)
            and (endpoint.key or not endpoint.key_env)
            and (settings.local_servers or endpoint.name not in LOCAL)
        }
    results = {name: task.result() for name, task in asked.items()}
    # local servers that are not running are not worth a message
    return {name: offer for name, offer in results.items() if offer[0] or name not in LOCAL}


async def _list_models(endpoint: Endpoint, http: HttpClient) -> tuple[tuple[str, ...], str]:
    """The models that a provider lists, and the error if it does not."""
    if not endpoint.base_url:
        return (), ""
    try:
        return tuple(sorted(await models(endpoint, http))), ""
    except ProviderError as error:
        return (), str(error)
