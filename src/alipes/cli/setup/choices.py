"""Choices of the setup: providers, local servers and models, with one line about each."""

import asyncio
import re

from alipes.cli.commands.model import format_facts
from alipes.cli.setup.plan import default_model
from alipes.cli.setup.prompts import Choice
from alipes.config.environment import Variables
from alipes.config.known_providers import CLOUDS, KEYED, LOCAL
from alipes.config.settings import Settings
from alipes.kernel.errors import ProviderError
from alipes.kernel.formatting import format_count
from alipes.kernel.models import Endpoint
from alipes.providers.registry import PROBE_TIMEOUT_S, find_facts, known_models
from alipes.providers.streaming import OfferedModel, models
from alipes.runtime.http.clients import ClientScope, HttpClient

OTHER_SERVER = "another server"
"""Choice for entering an address; not a valid provider name."""
CLOUD = "a cloud"
"""Choice of another list; not a valid provider name."""
PROVIDER_NOTES = {
    "anthropic": "Claude models, by Anthropic",
    "openai": "GPT models, by OpenAI",
    "openrouter": "models of many providers with one key",
    "gemini": "Gemini models, by Google",
    "deepseek": "DeepSeek models",
    "groq": "open models, very fast",
    "xai": "Grok models, by xAI",
    "mistral": "Mistral models",
    "ollama": "Ollama, on this computer",
    "lmstudio": "LM Studio, on this computer",
    "llamacpp": "llama.cpp's server, on this computer",
    "vllm": "vLLM, on this computer",
    "embedded": "tiny demo model (no key, works offline)",
}
KEY_PAGES = {
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
    Choice("openai-chat", "openai-chat", "OpenAI chat completions; supported by nearly every server"),
    Choice("openai-responses", "openai-responses", "OpenAI responses"),
    Choice("anthropic", "anthropic", "Anthropic messages"),
    Choice("gemini", "gemini", "Gemini's own API"),
    Choice("bedrock", "bedrock", "Amazon Bedrock"),
)
MODEL_HINT = "context, $ per 1M tokens: input / cached / output; type to filter"
NAMES_HINT = "type to filter"
"""If nothing is known about the models."""
_NOT_CHAT = r"embed|whisper|tts|dall-e|moderation|rerank|transcri|speech|imagen|image-|sora|veo-"
"""Names of models that cannot chat."""


async def find_local_servers(
    settings: Settings, scope: ClientScope, *, within: float = PROBE_TIMEOUT_S
) -> dict[str, int]:
    """The running local servers with their number of models."""
    http = scope.http("probe")
    endpoints = [settings.providers[name] for name in LOCAL if name in settings.providers]
    async with asyncio.TaskGroup() as group:
        asked = {each.name: group.create_task(_count_models(each, http, within)) for each in endpoints}
    return {name: count for name, task in asked.items() if (count := task.result()) is not None}


async def _count_models(endpoint: Endpoint, http: HttpClient, within: float) -> int | None:
    try:
        return len(await models(endpoint, http, within=within))
    except ProviderError:
        return None


def provider_choices(settings: Settings, variables: Variables, found: dict[str, int] | None) -> list[Choice]:
    """The user's own providers first, then running local servers, then those with a key, then the rest.

    `found`: the running local servers; None if they were not searched.
    """
    own = [name for name, own in settings.providers.items() if own.base_url and name not in PROVIDER_NOTES]
    order = dict.fromkeys((*own, *(found or ()), *KEYED, *LOCAL, "embedded"))
    options = [
        Choice(name, name, _provider_note(settings.providers[name], variables, found))
        for name in order
        if name in settings.providers
    ]
    clouds = Choice(CLOUD, "cloud", "Amazon Bedrock, Google Vertex, Azure OpenAI, Microsoft Foundry")
    return [*options, clouds, Choice(OTHER_SERVER, "other", "any server with an OpenAI or Anthropic API")]


def cloud_choices() -> list[Choice]:
    return [Choice(name, name, each.title) for name, each in CLOUDS.items()]


def _provider_note(endpoint: Endpoint, variables: Variables, found: dict[str, int] | None) -> str:
    about = PROVIDER_NOTES.get(endpoint.name, endpoint.base_url)
    if found and endpoint.name in found:
        return f"{about}: running, {format_count(found[endpoint.name], 'model')}"
    if endpoint.key:
        where = "the environment" if variables.environ.get(endpoint.key_env) else ".env"
        return f"{about}; key found in {where}"
    return f"{about}; not running" if found is not None and endpoint.name in LOCAL else about


def default_provider(settings: Settings, found: dict[str, int] | None) -> str:
    """The preselected provider: the one in use, one with a key, a local server, or the first."""
    if settings.model:
        return settings.model.partition("/")[0]
    keyed = [name for name in (*KEYED, *settings.providers) if settings.providers[name].key]
    return [*keyed, *(found or {}), KEYED[0]][0]


def model_choices(settings: Settings, endpoint: Endpoint, offered: tuple[str, ...]) -> list[Choice]:
    """The models that the provider listed, known ones first; without a list, the known ones."""
    names = [name.partition("/")[2] for name in known_models(settings) if name.startswith(f"{endpoint.name}/")]
    if offered:
        talking = [name for name in sorted(offered) if name.isprintable() and not re.search(_NOT_CHAT, name, re.I)]
        names = [name for name in names if name in offered] + talking
    first = default_model(settings, endpoint)
    ordered = dict.fromkeys([first, *names] if first in names else names)
    windows = {str(name): window for name in offered if (window := offered_window(name))}
    return [
        Choice(name, name, _describe_model(settings, f"{endpoint.name}/{name}", windows.get(name))) for name in ordered
    ]


def _describe_model(settings: Settings, name: str, window: int | None) -> str:
    """Context window and prices; empty if neither is known."""
    found = find_facts(name, settings.models)
    known = found.window or window or found.price_input is not None
    return format_facts(settings, name, window) if known else ""


def offered_window(name: str) -> int | None:
    """The context window that the server's list says for the model."""
    return name.window if isinstance(name, OfferedModel) else None
