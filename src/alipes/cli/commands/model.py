"""`alipes model`: which model is asked and why, which others there are, and choosing another."""

import asyncio
import sys
from collections.abc import Iterator
from typing import TypeAlias

from alipes.cli.options import Words
from alipes.config.editor import set_value
from alipes.config.known_providers import KEYED, LOCAL
from alipes.config.settings import Settings, load
from alipes.config.settings_parts import MIXED
from alipes.kernel.errors import ConfigError, ProviderError
from alipes.kernel.models import Endpoint, ModelFacts
from alipes.providers.catalog import catalog, facts, near
from alipes.providers.registry import Choice, Models, choose, known, mixed, ready, resolve
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope, Http

PAGE = """\
usage: alipes model [--live] [--all]        the model in use, why, and which others there are
       alipes model [--live] [--anyway] NAME     use NAME from now on

NAME is provider/model, a provider alone (its usual model), or a model alone when only
one provider has it. The choice is kept in config.toml.

options:
  --live                also ask the providers themselves for their lists
  --all                 also show models whose provider has no key yet
  --anyway              use NAME although we have never heard of it
  -h, --help            show this page

Exit status: 0 done; 2 wrong usage or settings, or no such model; then nothing was changed.
"""
Offers: TypeAlias = dict[str, tuple[tuple[str, ...], str]]
OPEN_ENDED = ("openrouter",)
"""Providers with more models than anybody lists."""


def run(argv: list[str]) -> int:
    """Do what the words say. Answers go to standard output, errors to standard error."""
    words = Words("alipes model", PAGE)
    words.add_argument("name", nargs="?", default="")
    words.add_argument("--live", action="store_true")
    words.add_argument("--all", action="store_true")
    words.add_argument("--anyway", action="store_true")
    try:
        given = words.parse_args(argv)
        if given.name and given.all:
            words.error("--all is for the list; leave it out when you name a model")
        settings = load()
        answer = (
            _switch(settings, given.name, live=given.live, anyway=given.anyway)
            if given.name
            else _show(settings, live=given.live, all=given.all)
        )
        for line in asyncio.run(answer):
            print(line)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    return 0


async def _show(settings: Settings, *, live: bool, all: bool) -> list[str]:
    async with ClientScope(settings.proxies, trust=settings.ca_file or None) as scope:
        choice = await choose(settings, scope)
        offers = await _ask_around(settings, scope) if live else {}
    return [
        f"{choice.model}: {choice.why}",
        "",
        *_table(settings, choice, offers, all),
        "",
        *_hints(settings, all),
    ]


def _table(settings: Settings, choice: Choice, offers: Offers, all: bool) -> Iterator[str]:
    ours = [name for name in known(settings) if all or ready(settings, name)]
    ours += [f"{MIXED}/{name}" for name in settings.mixtures]
    theirs = [f"{provider}/{model}" for provider, (offered, _) in offers.items() for model in offered]
    listed = [name for name in dict.fromkeys((choice.model, *ours, *theirs)) if name != "scripted/echo"]
    width = max(len(name) for name in listed)
    yield f"  {'model':<{width}}  {'window':>6}  $ per million tokens: read / from cache / written"
    for name in listed:
        yield f"{'*' if name == choice.model else ' '} {name:<{width}}  {facts_line(settings, name)}"
    for provider, (_, trouble) in offers.items():
        if trouble:
            yield f"  {provider} does not say: {trouble}"


def facts_line(settings: Settings, name: str) -> str:
    """Window and prices of a model, as wide as those of every other."""
    found = facts(name, settings.models)
    prices = (found.price_input, found.price_cached, found.price_output)
    if found.price_input is None:
        money = "unknown"
    elif not any(prices):
        money = "free"
    else:
        money = " / ".join("?" if price is None else f"{price:g}" for price in prices)
        money += f"; more above {_size(found.long_from)}" if found.long_from else ""
    return f"{_size(found.window):>6}  {money}"


def _size(tokens: int | None) -> str:
    if tokens is None:
        return "?"
    return f"{tokens / 1e6:.3g}M" if tokens >= 1_000_000 else f"{round(tokens / 1000)}k"


def _hints(settings: Settings, all: bool) -> Iterator[str]:
    keyless = [settings.providers[name] for name in KEYED if not settings.providers[name].key]
    if keyless:
        yield f"No key yet: {', '.join(f'{each.name} ({each.key_env})' for each in keyless)}."
        yield f"Keys go into {settings.paths.env}; `alipes config set {keyless[0].key_env} -` puts one there."
    more = "" if all else "; `alipes model --all` shows more"
    yield f"`alipes model NAME` uses another from now on{more}."


async def _switch(settings: Settings, name: str, *, live: bool, anyway: bool) -> list[str]:
    """Raises ConfigError, with everything as it was, unless `name` can be asked."""
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as opened,
    ):
        backend = await opened.open(name)
        trouble = "" if mixed(settings, name) else await _examine(settings, name, scope, live, anyway)
    left = set_value(("model",), backend.name)
    said = [f"{backend.name} is used from now on."]
    if trouble:
        said.append(trouble)
    if (winning := load().model) != backend.name:
        said.append(f"But ALIPES_MODEL says {winning}, which wins while it is set.")
    if backend.facts.tools is False:
        said.append("It cannot call tools, so it can only talk.")
    return [*said, *(f"Still wrong in the file: {problem}" for problem in left)]


async def _examine(settings: Settings, name: str, scope: ClientScope, live: bool, anyway: bool) -> str:
    """What is doubtful about a model. Raises ConfigError where nobody has heard of it."""
    endpoint, model = resolve(settings, name)
    offered, trouble = await _ask(endpoint, scope.http("list")) if live else ((), "")
    if not anyway and not _heard_of(settings, endpoint, model, offered):
        raise ConfigError(_never_heard(settings, endpoint, model, offered))
    return f"{endpoint.name} could not be asked: {trouble}" if trouble else ""


def _heard_of(settings: Settings, endpoint: Endpoint, model: str, offered: tuple[str, ...]) -> bool:
    full = f"{endpoint.name}/{model}"
    if offered:
        return model in offered
    if endpoint.name in OPEN_ENDED or not any(name.startswith(f"{endpoint.name}/") for name in catalog()):
        return True
    return full in known(settings) or facts(full) != ModelFacts() or endpoint.api == "embedded"


def _never_heard(settings: Settings, endpoint: Endpoint, model: str, offered: tuple[str, ...]) -> str:
    ours = tuple(name.partition("/")[2] for name in known(settings) if name.startswith(f"{endpoint.name}/"))
    close = [f"{endpoint.name}/{each}" for each in near(model, offered or ours)]
    meant = f" Near to it: {', '.join(close)}." if close else ""
    if offered:
        return f"{endpoint.name} does not offer {model}.{meant} Nothing was changed."
    return (
        f"We know no model {model} of {endpoint.name}.{meant} It may be new: --live asks {endpoint.name}, "
        "--anyway takes your word for it. Nothing was changed."
    )


async def _ask_around(settings: Settings, scope: ClientScope) -> Offers:
    """What each provider that can be asked offers, or why it does not say."""
    http = scope.http("list", connect=3.0)
    async with asyncio.TaskGroup() as group:
        asked = {
            endpoint.name: group.create_task(_ask(endpoint, http))
            for endpoint in settings.providers.values()
            if endpoint.base_url and (endpoint.key or not endpoint.key_env)
        }
    told = {name: task.result() for name, task in asked.items()}
    # that a local server is not there is no news
    return {name: offer for name, offer in told.items() if offer[0] or name not in LOCAL}


async def _ask(endpoint: Endpoint, http: Http) -> tuple[tuple[str, ...], str]:
    """The models that a provider says it has, and what kept it from saying."""
    if not endpoint.base_url:
        return (), ""
    try:
        return tuple(sorted(await models(endpoint, http))), ""
    except ProviderError as error:
        return (), str(error)
