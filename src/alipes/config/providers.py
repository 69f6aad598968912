"""Builds the provider endpoints: the known ones, overridden by the operator's settings."""

import re
from typing import cast

from alipes.config.display import HIDDEN, toml_key, toml_string
from alipes.config.environment import REFERENCE
from alipes.config.known_providers import BUILT_IN, KNOWN
from alipes.config.reader import RawConfig
from alipes.config.validation import ConfigProblem
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint, Secret

_FIELDS = ("api", "base_url", "key_env", "model", "headers", "body", "stall", "connect")


def build_endpoints(config: RawConfig) -> dict[str, Endpoint]:
    """Every provider by name, with its key if there is one. Problems are added to `config`."""
    names = dict.fromkeys([*config.names("providers"), *KNOWN])
    return {name: _endpoint(config, name) for name in names}


def _endpoint(config: RawConfig, name: str) -> Endpoint:
    if name in BUILT_IN:
        return KNOWN[name]
    fields = {field: config.effective("providers", name, field).value for field in _FIELDS}
    ours = name in config.names("providers")
    table = config.tables["providers"][name] if ours else None
    if isinstance(table, dict) and not fields["base_url"] and "base_url" not in table:
        fix = "add its URL, as in http://HOST:PORT/v1"
        config.problems.append(
            ConfigProblem(("providers", name), f"[providers.{toml_key(name)}] has no base_url: {fix}.")
        )
    variable = cast("str", fields["key_env"])
    headers = cast("dict[str, str]", fields["headers"])
    fields["headers"] = {header: _filled(config, name, header, text) for header, text in headers.items()}
    return Endpoint(name=name, key=read_secret(config, variable, needed=ours), **fields)  # type: ignore[arg-type]


def _filled(config: RawConfig, provider: str, header: str, text: str) -> str:
    def value(found: re.Match[str]) -> str:
        secret = read_secret(config, found[1], needed=True).reveal()
        if not secret:
            missing = f"{found[1]}, which is not set: add it to {config.paths.env} or to the environment."
            place = ("providers", provider, "headers", header)
            config.problems.append(
                ConfigProblem(place, f"{header} = {toml_string(text)} needs the variable {missing}")
            )
        return secret

    return re.sub(REFERENCE, value, text)


def read_secret(config: RawConfig, variable: str, *, needed: bool, typed: bool = False) -> Secret:
    """The secret in `variable`; empty if there is none. `typed`: chosen by a person, so that it may contain
    spaces and any characters, unlike a generated key.

    An unusable one is a problem if `needed`; otherwise it is noted and treated as missing, so that a
    broken key of an unused provider does no harm.
    """
    value = config.variables.get(variable).strip() if variable else ""
    wrong = ""
    if value[:1] in ("'", '"') or value[-1:] in ("'", '"'):
        wrong = "has stray quotes: remove them"
    elif not value.isprintable() or (not typed and (not value.isascii() or " " in value)):
        wrong = "contains spaces or invalid characters: paste it again"
    if not wrong:
        config.secrets.add(value)
        return Secret(value)
    if needed:
        config.report_variable(variable, HIDDEN, wrong)
    else:
        config.notes.append(f"{config.variables.where(variable)}: {variable} is not used: it {wrong}.")
    return Secret()


def complete_model_name(name: str, known: dict[str, Endpoint]) -> str:
    """`name` as provider/model, with the default model added to a bare provider. Raises ValueError."""
    provider, slash, _ = name.partition("/")
    endpoint = known.get(provider)
    if endpoint is None:
        meant = did_you_mean(provider, known)
        if not slash:
            raise ValueError(
                f"needs a provider prefix: write it as provider/model, for instance openai/{name}.{meant}"
            )
        others = meant or f" Valid: {', '.join(known)}."
        table = f"[providers.{toml_key(provider)}]"
        raise ValueError(f"has an unknown provider: add {table} with its base_url.{others}")
    if slash or provider in BUILT_IN:
        return name
    if not endpoint.model:
        raise ValueError(f"has no model: write {provider}/MODEL")
    return f"{provider}/{endpoint.model}"


def read_model_facts(config: RawConfig) -> dict[str, dict[str, Json]]:
    """The operator's corrections to the model catalog, by provider/model."""
    facts: dict[str, dict[str, Json]] = {}
    for path, value in config.values.items():
        if path[0] == "models":
            facts.setdefault(path[1], {})[path[2]] = value
    return facts
