"""From what was read to the providers that can be asked: the known ones, and the operator's over them."""

import re
from typing import cast

from alipes.config.display import HIDDEN, bare, quoted
from alipes.config.known_providers import BUILT_IN, KNOWN
from alipes.config.loader import Reading
from alipes.config.validation import Problem
from alipes.config.value_types import REFERENCE
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint, Secret

_FIELDS = ("api", "base_url", "key_env", "model", "headers", "body", "stall", "connect")


def endpoints(reading: Reading) -> dict[str, Endpoint]:
    """Every provider by name, with its key where there is one. Problems are added to `reading`."""
    names = dict.fromkeys([*reading.names("providers"), *KNOWN])
    return {name: _endpoint(reading, name) for name in names}


def _endpoint(reading: Reading, name: str) -> Endpoint:
    if name in BUILT_IN:
        return KNOWN[name]
    fields = {field: reading.picked("providers", name, field).value for field in _FIELDS}
    ours = name in reading.names("providers")
    table = reading.tables["providers"][name] if ours else None
    if isinstance(table, dict) and not fields["base_url"] and "base_url" not in table:
        fix = "add its address, as in http://HOST:PORT/v1"
        reading.problems.append(
            Problem(("providers", name), f"[providers.{bare(name)}] has no base_url: {fix}.")
        )
    variable = cast("str", fields["key_env"])
    headers = cast("dict[str, str]", fields["headers"])
    fields["headers"] = {header: _filled(reading, name, header, text) for header, text in headers.items()}
    return Endpoint(name=name, key=read_secret(reading, variable, needed=ours), **fields)  # type: ignore[arg-type]


def _filled(reading: Reading, provider: str, header: str, text: str) -> str:
    def value(found: re.Match[str]) -> str:
        secret = read_secret(reading, found[1], needed=True).reveal()
        if not secret:
            missing = f"{found[1]}, which is not set: add it to {reading.paths.env} or to the environment."
            place = ("providers", provider, "headers", header)
            reading.problems.append(Problem(place, f"{header} = {quoted(text)} needs the variable {missing}"))
        return secret

    return re.sub(REFERENCE, value, text)


def read_secret(reading: Reading, variable: str, *, needed: bool, typed: bool = False) -> Secret:
    """The secret in `variable`, empty when there is none. `typed`: a person chose it, so that it may have
    blanks and any letters, which no key has that was made by a machine.

    One that could not be sent is a problem if `needed`; else it is noted and counts as missing,
    so that a broken key nobody asked for keeps nobody from working.
    """
    value = reading.variables.get(variable).strip() if variable else ""
    wrong = ""
    if value[:1] in ("'", '"') or value[-1:] in ("'", '"'):
        wrong = "has quotes in its value: leave them out"
    elif not value.isprintable() or (not typed and (not value.isascii() or " " in value)):
        wrong = "has blanks, line breaks or letters that no key has: paste it again"
    if not wrong:
        reading.secrets.add(value)
        return Secret(value)
    if needed:
        reading.complain(variable, HIDDEN, wrong)
    else:
        reading.notes.append(f"{reading.variables.where(variable)}: {variable} is not used: it {wrong}.")
    return Secret()


def check_model(name: str, known: dict[str, Endpoint]) -> str:
    """`name` as provider/model, a provider alone completed; raises ValueError with the reason."""
    provider, slash, _ = name.partition("/")
    endpoint = known.get(provider)
    if endpoint is None:
        meant = did_you_mean(provider, known)
        if not slash:
            raise ValueError(
                f"lacks its provider: write it as provider/model, for instance openai/{name}.{meant}"
            )
        others = meant or f" Known are {', '.join(known)}."
        table = f"[providers.{bare(provider)}]"
        raise ValueError(f"names a provider we do not know: add {table} with its base_url.{others}")
    if slash or provider in BUILT_IN:
        return name
    if not endpoint.model:
        raise ValueError(f"names no model: write {provider}/MODEL")
    return f"{provider}/{endpoint.model}"


def model_facts(reading: Reading) -> dict[str, dict[str, Json]]:
    """The operator's corrections to what is known of models, by provider/model."""
    facts: dict[str, dict[str, Json]] = {}
    for way, value in reading.values.items():
        if way[0] == "models":
            facts.setdefault(way[1], {})[way[2]] = value
    return facts
