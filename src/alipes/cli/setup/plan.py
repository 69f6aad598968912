"""The plan of a setup: endpoint, key and model, and the changes to the files."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct, structs

from alipes.config.display import HIDDEN, looks_secret, toml_path, toml_string
from alipes.config.environment import Variables
from alipes.config.known_providers import CLOUD_VARIABLES, CLOUDS, KNOWN, find_cloud
from alipes.config.reader import KeyPath
from alipes.config.schema import WIRE_APIS
from alipes.config.settings import Settings
from alipes.config.urls import InvalidValue, check_base_url, is_label, split_url
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.models import Api, Endpoint, Secret
from alipes.providers.registry import known_models, resolve_model

GENERIC_LABELS = ("api", "www", "llm", "ai", "models", "gateway")


class SetupOptions(Struct, frozen=True):
    provider: str = ""
    base_url: str = ""
    api: str = ""
    key: str = ""
    key_env: str = ""
    model: str = ""
    check: bool = True
    yes: bool = False


class SetupPlan(Struct, frozen=True):
    endpoint: Endpoint
    model: str = ""
    save_key: bool = False
    """Save the new key in `.env`."""
    window: int | None = None
    """The context window by the server's list, for a model that we know nothing about."""

    @property
    def name(self) -> str:
        return f"{self.endpoint.name}/{self.model}"


def plan_from_options(settings: Settings, variables: Variables, given: SetupOptions) -> SetupPlan:
    """The plan without a terminal. Raises ConfigError that names all missing options."""
    name = given.provider or provider_from_options(settings, given)
    if not name:
        raise _missing_options("--provider NAME")
    endpoint = add_variables(make_endpoint(settings, name, base_url=given.base_url, api=given.api), variables)
    plan = add_key(SetupPlan(endpoint), variables, given)
    missing = []
    if plan.endpoint.key_env and not plan.endpoint.key and given.check:
        missing.append("--key-env VARIABLE or --key-stdin")
    model = model_name(settings, name, given.model) or default_model(settings, endpoint)
    if not model:
        missing.append("--model NAME")
    if missing:
        raise _missing_options(*missing)
    return structs.replace(plan, model=model)


def _missing_options(*flags: str) -> ConfigError:
    return ConfigError(f"no terminal to ask on; add {' and '.join(flags)}. Nothing changed.")


def provider_from_options(settings: Settings, given: SetupOptions) -> str:
    """The provider implied by the other options; empty if there is none."""
    first, slash, _ = given.model.partition("/")
    if given.base_url:
        return suggest_name(check_url(given.base_url))
    return first if slash and first in settings.providers else ""


def make_endpoint(settings: Settings, name: str, *, base_url: str = "", api: str = "") -> Endpoint:
    """The endpoint of the provider `name`, known or new. Raises ConfigError."""
    if api and api not in WIRE_APIS:
        raise ConfigError(f"{api!r} is not a supported API: use {', '.join(WIRE_APIS)}.")
    url = check_url(base_url) if base_url else ""
    endpoint = settings.providers.get(name)
    if endpoint is None:
        if not url:
            meant = did_you_mean(name, (*settings.providers, *CLOUDS))
            if cloud := CLOUDS.get(name):
                address = cloud.address.format(cloud.asks.partition(",")[0].upper())
                raise ConfigError(f"{name} needs its address: add --base-url {address}.")
            raise ConfigError(
                f"Unknown provider {name!r}.{meant} Add --base-url URL to define it; known: "
                f"{', '.join(settings.providers)}."
            )
        cloud = CLOUDS.get(name) or CLOUDS.get(find_cloud(url))
        endpoint = Endpoint(check_name(name), "openai-chat")
        if cloud is not None:
            endpoint = Endpoint(check_name(name), cloud.api, credentials=cloud.credentials)
    changes = {field: value for field, value in (("base_url", url), ("api", api)) if value}
    if changes and not endpoint.base_url and name in KNOWN:
        raise ConfigError(f"{name} is built in and has no address: omit --base-url and --api.")
    return structs.replace(endpoint, **changes)


def check_url(text: str) -> str:
    """The address as it is saved; a missing scheme is added. Raises ConfigError."""
    try:
        return check_base_url(_add_scheme(text.strip()))
    except InvalidValue as wrong:
        raise ConfigError(f"The address {wrong}.") from wrong


def _add_scheme(address: str) -> str:
    """`http://` for this machine, a private network or an own port, else `https://`; other texts unchanged."""
    found = re.match(r"(\[[0-9a-fA-F:.]+\]|[\w-]+(?:\.[\w-]+)*)(?::(\d+))?(?:/|$)", address)
    if found is None or "://" in address or looks_secret(address):
        return address
    host, port = found[1], found[2]
    if not port and "." not in host and host != "localhost" and not host.startswith("["):
        return address  # may be a model name
    private = re.match(r"localhost$|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|\[|.*\.(?:local|lan)$", host)
    return f"{'http' if private or port not in (None, '443', '8443') else 'https'}://{address}"


def check_name(name: str) -> str:
    if not is_label(name):
        raise ConfigError(f"{name!r} is not a valid provider name: use letters, digits, - and _.")
    return name


def check_key(key: str) -> str:
    """The key without surrounding spaces and quotes. Raises ConfigError."""
    bare = key.strip().strip("\"'")
    if not bare.isascii() or any(not c.isprintable() or c == " " for c in bare):
        raise ConfigError("The key contains spaces or invalid characters: copy it again.")
    return bare


def suggest_name(url: str) -> str:
    """A short name for the server at `url`."""
    if cloud := find_cloud(url):
        return cloud
    host = split_url(url, ("http", "https"), "").host
    labels = [label for label in host.split(".")[:-1] if label not in GENERIC_LABELS]
    if not labels or host.replace(".", "").isdecimal() or not is_label(labels[-1]):
        return "local"
    return f"my-{labels[-1]}" if labels[-1] in KNOWN else labels[-1]


def add_key(plan: SetupPlan, variables: Variables, given: SetupOptions) -> SetupPlan:
    """The plan with the key from the options, if there is one. Raises ConfigError."""
    endpoint = plan.endpoint
    if given.key_env:
        variable, save = given.key_env, False
        key = variables.get(variable).strip()
        if not key and given.check:
            raise ConfigError(f"{variable} is set neither in the environment nor in {variables.file}.")
        key = check_key(key)
    elif given.key:
        key = check_key(given.key)
        word = re.sub(r"\W", "_", endpoint.name).upper()
        variable = endpoint.key_env or f"{'_' if word[0].isdecimal() else ''}{word}_API_KEY"
        theirs = variables.environ.get(variable, "").strip()
        save = theirs != key
        if theirs and save:  # the environment overrides .env, so use another variable
            variable = f"ALIPES_{variable}"
    else:
        return plan
    endpoint = structs.replace(endpoint, key=Secret(key), key_env=variable, credentials="key")
    return structs.replace(plan, endpoint=endpoint, save_key=save)


def add_variables(endpoint: Endpoint, variables: Variables) -> Endpoint:
    """The endpoint with what the environment says about its cloud."""
    known = {each: Secret(variables.get(each).strip()) for each in CLOUD_VARIABLES.get(endpoint.credentials, ())}
    return structs.replace(endpoint, variables={name: found for name, found in known.items() if found})


def model_name(settings: Settings, provider: str, text: str) -> str:
    """The name of the model without the prefix of its provider."""
    inner = text.removeprefix(f"{provider}/")
    names = known_models(settings)
    return text if f"{provider}/{text}" in names or text not in names else inner


def default_model(settings: Settings, endpoint: Endpoint) -> str:
    """The model in use if it is of this provider, else the provider's default; empty if it has none."""
    first, _, model = settings.model.partition("/")
    if first == endpoint.name and model:
        return model
    if endpoint.name in KNOWN and not endpoint.base_url:
        return resolve_model(settings, endpoint.name)[1]
    return endpoint.model


def plan_changes(plan: SetupPlan, settings: Settings) -> tuple[dict[KeyPath, str], dict[str, str]]:
    """The changes to config.toml and to `.env`."""
    endpoint = plan.endpoint
    before = settings.providers.get(endpoint.name) or Endpoint(endpoint.name, cast("Api", ""))
    values: dict[KeyPath, str] = {
        ("providers", endpoint.name, field): getattr(endpoint, field)
        for field in ("api", "base_url", "key_env", "credentials")
        if getattr(endpoint, field) != getattr(before, field)
    }
    if plan.window:
        values["models", plan.name, "window"] = str(plan.window)
    secrets = {endpoint.key_env: endpoint.key.reveal()} if plan.save_key else {}
    return {("model",): plan.name, **values}, secrets


def format_changes(settings: Settings, values: Mapping[KeyPath, str], secrets: Mapping[str, str]) -> Iterator[str]:
    """The changes as lines, grouped by file."""
    yield f"  {settings.paths.config}"
    for way, value in values.items():
        yield f"    {toml_path(way)} = {value if way[-1] == 'window' else toml_string(value)}"
    if secrets:
        yield f"  {settings.paths.env} (only you can read it)"
    for name in secrets:
        yield f"    {name}={HIDDEN}"
