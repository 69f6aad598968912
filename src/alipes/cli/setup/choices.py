"""Whom and what one can choose from, in a line each: providers, servers found here, the toy, their models."""

import asyncio
import re
from collections.abc import Iterator

from alipes.cli.commands.model import facts_line
from alipes.cli.setup.plan import usual
from alipes.cli.setup.prompts import Option
from alipes.config.environment import Variables
from alipes.config.known_providers import KEYED, LOCAL
from alipes.config.settings import Settings
from alipes.kernel.errors import ProviderError
from alipes.kernel.models import Endpoint
from alipes.providers.registry import PROBING, known
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope, Http

ANOTHER = "another server"
"""What is chosen to give an address; no provider can have this name."""
ABOUT = {
    "anthropic": "Claude models, by Anthropic",
    "openai": "GPT models, by OpenAI",
    "openrouter": "models of all makers with one key",
    "gemini": "Gemini models, by Google",
    "deepseek": "DeepSeek models",
    "groq": "open models, very fast",
    "xai": "Grok models, by xAI",
    "mistral": "Mistral models",
    "ollama": "Ollama, on this computer",
    "lmstudio": "LM Studio, on this computer",
    "llamacpp": "llama.cpp's server, on this computer",
    "vllm": "vLLM, on this computer",
    "embedded": "a toy that came along: no key, no network, not much sense",
}
KEYS_AT = {
    "anthropic": "platform.claude.com/settings/keys",
    "openai": "platform.openai.com/api-keys",
    "openrouter": "openrouter.ai/settings/keys",
    "gemini": "aistudio.google.com/apikey",
    "deepseek": "platform.deepseek.com/api_keys",
    "groq": "console.groq.com/keys",
    "xai": "console.x.ai",
    "mistral": "console.mistral.ai/api-keys",
}
APIS = (
    Option("openai-chat", "openai-chat", "OpenAI's chat completions; nearly every server speaks it"),
    Option("openai-responses", "openai-responses", "OpenAI's responses"),
    Option("anthropic", "anthropic", "Anthropic's messages"),
)
MODEL_HINT = "window, $ per million tokens: read / from cache / written; type to filter"
_MUTE = r"embed|whisper|tts|dall-e|moderation|rerank|transcri|speech|imagen|image-|sora|veo-"
"""Names of models that cannot hold a conversation."""


async def find_local(settings: Settings, scope: ClientScope, *, within: float = PROBING) -> dict[str, int]:
    """The local servers that answer, each with how many models it has."""
    http = scope.http("probe")
    endpoints = [settings.providers[name] for name in LOCAL if name in settings.providers]
    async with asyncio.TaskGroup() as group:
        asked = {each.name: group.create_task(_count(each, http, within)) for each in endpoints}
    return {name: count for name, task in asked.items() if (count := task.result()) is not None}


async def _count(endpoint: Endpoint, http: Http, within: float) -> int | None:
    try:
        return len(await models(endpoint, http, within=within))
    except ProviderError:
        return None


def providers(settings: Settings, variables: Variables, found: dict[str, int] | None) -> list[Option]:
    """The operator's own first, then servers that were found, those that take a key, and the rest.

    `found`: None when nobody looked.
    """
    own = [name for name in settings.providers if name not in ABOUT and name != "scripted"]
    order = dict.fromkeys((*own, *(found or ()), *KEYED, *LOCAL, "embedded"))
    options = [
        Option(name, name, _about(settings.providers[name], variables, found))
        for name in order
        if name in settings.providers
    ]
    return [*options, Option(ANOTHER, "other", "any server that speaks OpenAI's or Anthropic's API")]


def _about(endpoint: Endpoint, variables: Variables, found: dict[str, int] | None) -> str:
    about = ABOUT.get(endpoint.name, endpoint.base_url)
    if found and endpoint.name in found:
        count = found[endpoint.name]
        return f"{about}: running, {count} model{'' if count == 1 else 's'}"
    if endpoint.key:
        where = "the environment" if variables.environ.get(endpoint.key_env) else ".env"
        return f"{about}; its key is in {where}"
    return f"{about}; not running now" if found is not None and endpoint.name in LOCAL else about


def preferred(settings: Settings, found: dict[str, int] | None) -> str:
    """Who is preselected: the provider in use, else one with a key, else a local server, else the first."""
    if settings.model:
        return settings.model.partition("/")[0]
    keyed = [name for name in (*KEYED, *settings.providers) if settings.providers[name].key]
    return [*keyed, *(found or {}), KEYED[0]][0]


def model_options(settings: Settings, endpoint: Endpoint, offered: tuple[str, ...]) -> list[Option]:
    """What a provider offers, those we know and prefer first; what we know of it when it does not say."""
    names = [name.partition("/")[2] for name in known(settings) if name.startswith(f"{endpoint.name}/")]
    if offered:
        talking = [
            name for name in sorted(offered) if name.isprintable() and not re.search(_MUTE, name, re.I)
        ]
        names = [name for name in names if name in offered] + talking
    first = usual(settings, endpoint)
    ordered = dict.fromkeys([first, *names] if first in names else names)
    return list(_options(settings, endpoint, ordered))


def _options(settings: Settings, endpoint: Endpoint, names: dict[str, None]) -> Iterator[Option]:
    for name in names:
        yield Option(name, name, facts_line(settings, f"{endpoint.name}/{name}"))
