"""What is to be set up: whom to ask, with which key, for which model; and what the files will say of it."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct, structs

from alipes.config.display import HIDDEN, dotted, quoted
from alipes.config.environment import Variables
from alipes.config.known_providers import KNOWN
from alipes.config.schema import WIRES
from alipes.config.settings import Settings
from alipes.config.urls import Wrong, check_base_url, is_label, split
from alipes.config.validation import Way
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.models import Api, Endpoint, Secret
from alipes.providers.registry import known, resolve

COMMON = ("api", "www", "llm", "ai", "models", "gateway")


class Given(Struct, frozen=True):
    """What the command line said already."""

    provider: str = ""
    base_url: str = ""
    api: str = ""
    key: str = ""
    key_env: str = ""
    model: str = ""
    check: bool = True
    yes: bool = False


class Plan(Struct, frozen=True):
    endpoint: Endpoint
    model: str = ""
    keep: bool = False
    """The key is new, and is to be written into `.env`."""

    @property
    def name(self) -> str:
        return f"{self.endpoint.name}/{self.model}"


def settle(settings: Settings, variables: Variables, given: Given) -> Plan:
    """The plan where nobody can be asked. Raises ConfigError that names every flag that is missing."""
    name = given.provider or name_of(settings, given)
    if not name:
        raise _lacking("--provider NAME")
    endpoint = endpoint_of(settings, name, base_url=given.base_url, api=given.api)
    plan = with_key(Plan(endpoint), variables, given)
    missing = []
    if plan.endpoint.key_env and not plan.endpoint.key and given.check:
        missing.append("--key-env VARIABLE or --key-stdin")
    model = model_of(settings, name, given.model) or usual(settings, endpoint)
    if not model:
        missing.append("--model NAME")
    if missing:
        raise _lacking(*missing)
    return structs.replace(plan, model=model)


def _lacking(*flags: str) -> ConfigError:
    return ConfigError(
        f"alipes setup can ask only at a terminal; here it also needs {' and '.join(flags)}. "
        "Nothing was changed."
    )


def name_of(settings: Settings, given: Given) -> str:
    """The provider that the other flags mean; empty when they mean none."""
    first, slash, _ = given.model.partition("/")
    if given.base_url:
        return name_for(check_url(given.base_url))
    return first if slash and first in settings.providers else ""


def endpoint_of(settings: Settings, name: str, *, base_url: str = "", api: str = "") -> Endpoint:
    """The provider called `name`, known or new. Raises ConfigError."""
    if api and api not in WIRES:
        raise ConfigError(f"{api!r} is not an API we speak: give one of {', '.join(WIRES)}.")
    url = check_url(base_url) if base_url else ""
    endpoint = settings.providers.get(name)
    if endpoint is None:
        if not url:
            meant = did_you_mean(name, settings.providers)
            raise ConfigError(
                f"No provider is called {name!r}.{meant} Add --base-url URL to make it one of yours; known "
                f"are {', '.join(name for name in settings.providers if name != 'scripted')}."
            )
        endpoint = Endpoint(check_name(name), "openai-chat")
    changes = {field: value for field, value in (("base_url", url), ("api", api)) if value}
    if changes and not endpoint.base_url and name in KNOWN:
        raise ConfigError(f"{name} is built in and has no address: leave out --base-url and --api.")
    return structs.replace(endpoint, **changes)


def check_url(text: str) -> str:
    try:
        return check_base_url(text)
    except Wrong as wrong:
        raise ConfigError(f"The address {wrong}.") from wrong


def check_name(name: str) -> str:
    if not is_label(name):
        raise ConfigError(f"{name!r} is no name for a provider: use letters, digits, - and _.")
    return name


def check_key(key: str) -> str:
    """A pasted key as it is sent. Raises ConfigError."""
    bare = key.strip().strip("\"'")
    if not bare.isascii() or any(not c.isprintable() or c == " " for c in bare):
        raise ConfigError("The key has blanks, line breaks or letters that no key has: copy it again.")
    return bare


def name_for(url: str) -> str:
    """A name for whoever answers at `url`, as a person might choose it."""
    host = split(url, ("http", "https"), "").host
    labels = [label for label in host.split(".")[:-1] if label not in COMMON]
    if not labels or host.replace(".", "").isdecimal() or not is_label(labels[-1]):
        return "local"
    return f"my-{labels[-1]}" if labels[-1] in KNOWN else labels[-1]


def with_key(plan: Plan, variables: Variables, given: Given) -> Plan:
    """The plan with the key that was given, if one was. Raises ConfigError."""
    endpoint = plan.endpoint
    if given.key_env:
        key = variables.get(given.key_env).strip()
        if not key and given.check:
            raise ConfigError(
                f"{given.key_env} is not set, neither in the environment nor in {variables.file}."
            )
        return Plan(structs.replace(endpoint, key=Secret(check_key(key)), key_env=given.key_env), plan.model)
    if not given.key:
        return plan
    key = check_key(given.key)
    variable = endpoint.key_env or _variable(endpoint.name)
    if (theirs := variables.environ.get(variable, "").strip()) == key:
        return Plan(structs.replace(endpoint, key=Secret(key), key_env=variable), plan.model)
    if theirs:  # the environment goes over .env, so there it would be in vain
        variable = f"ALIPES_{variable}"
    return Plan(structs.replace(endpoint, key=Secret(key), key_env=variable), plan.model, keep=True)


def _variable(name: str) -> str:
    word = re.sub(r"\W", "_", name).upper()
    return f"{'_' if word[0].isdecimal() else ''}{word}_API_KEY"


def model_of(settings: Settings, provider: str, text: str) -> str:
    """The model's own name at its provider, also when `text` begins with the provider's."""
    inner = text.removeprefix(f"{provider}/")
    names = known(settings)
    return text if f"{provider}/{text}" in names or text not in names else inner


def usual(settings: Settings, endpoint: Endpoint) -> str:
    """The model in use if it is this provider's, else the provider's usual one; empty when it has none."""
    first, _, model = settings.model.partition("/")
    if first == endpoint.name and model:
        return model
    if endpoint.name in KNOWN and not endpoint.base_url:
        return resolve(settings, endpoint.name)[1]
    return endpoint.model


def changes(plan: Plan, settings: Settings) -> tuple[dict[Way, str], dict[str, str]]:
    """What is to be written into config.toml, and what into `.env`."""
    endpoint = plan.endpoint
    before = settings.providers.get(endpoint.name) or Endpoint(endpoint.name, cast("Api", ""))
    values: dict[Way, str] = {
        ("providers", endpoint.name, field): getattr(endpoint, field)
        for field in ("api", "base_url", "key_env")
        if getattr(endpoint, field) != getattr(before, field)
    }
    secrets = {endpoint.key_env: endpoint.key.reveal()} if plan.keep else {}
    return {("model",): plan.name, **values}, secrets


def told(settings: Settings, values: Mapping[Way, str], secrets: Mapping[str, str]) -> Iterator[str]:
    """The changes, file by file."""
    yield f"  {settings.paths.config}"
    for way, value in values.items():
        yield f"    {dotted(way)} = {quoted(value)}"
    if secrets:
        yield f"  {settings.paths.env} (only you can read it)"
    for name in secrets:
        yield f"    {name}={HIDDEN}"
