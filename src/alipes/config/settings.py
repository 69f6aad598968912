"""What the operator decided, as frozen values. Nothing above `config` reads a file or a variable for it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, structs

from alipes.config.display import dotted, is_secret_name, sentence
from alipes.config.environment import exposure
from alipes.config.loader import Reading, read
from alipes.config.paths import Paths
from alipes.config.platforms import MESSENGERS, Meeting, Messengers, fitting, meeting, messengers, secret
from alipes.config.providers import check_model, endpoints, model_facts
from alipes.config.proxies import PROXY_VARIABLES, proxies
from alipes.config.schema import KEYS
from alipes.config.settings_parts import (
    Api,
    DelegationSettings,
    MixturePreset,
    PluginSettings,
    Senses,
    ShellHook,
    Side,
    api_settings,
    delegation_settings,
    is_mixture,
    mixtures,
    plugin_settings,
    senses_settings,
    shell_hooks,
    side_settings,
    toolsets,
)
from alipes.config.validation import Problem
from alipes.kernel.formatting import near
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint, ModelFacts, Proxies, Secret
from alipes.kernel.ports import Effort
from alipes.kernel.turns import Busy

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
CA_VARIABLE = "SSL_CERT_FILE"
_PASSWORD = re.compile(r"\w[\w+.-]*://[^/\s:@]*:([^/\s@]+)@")
"""As in the address of a database."""
SHORTEST_SECRET = 6
"""Shorter ones are not masked in logs: they would blot out ordinary words."""


class Embedded(Struct, frozen=True):
    """The model that runs here, without key or network."""

    gguf: str = ""
    threads: int = 0
    context: int = 8192


class Terminal(Struct, frozen=True):
    theme: Literal["auto", "dark", "light"] = "auto"
    thinking: bool = True
    busy: Busy = "interrupt"


class Serve(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8742
    key_env: str = "ALIPES_API_KEY"
    drain: float = 20.0
    key: Secret = Secret()


class GatewaySettings(Struct, frozen=True):
    pairing: bool = True
    expiry: float = 43_200.0
    tries: int = 8
    stt_command: str = ""
    stt_url: str = ""
    stt_model: str = "whisper-1"
    stt_key_env: str = ""
    stt_key: Secret = Secret()


class Settings(Struct, frozen=True, kw_only=True):
    """Made by `load`, or by hand in tests. The meaning of each key is told in `keys`."""

    home: Path
    model: str = ""
    """`provider/model`, `embedded`, `scripted`; empty means choose."""
    fallback: tuple[str, ...] = ()
    providers: dict[str, Endpoint] = {}
    """Configured ones first, then every known one, with its key or without."""
    models: dict[str, ModelFacts] = {}
    effort: Effort = ""
    max_steps: int = 50
    max_tokens: int = 8192
    silence: float = 1800.0
    workdir: str = ""
    ca_file: str = ""
    """Whom TLS trusts; empty means whom the system trusts."""
    log_level: LogLevel = "info"
    debuggable: bool = False
    embedded: Embedded = Embedded()
    terminal: Terminal = Terminal()
    serve: Serve = Serve()
    api: Api = Api()
    side: Side = Side()
    delegation: DelegationSettings = DelegationSettings()
    mixtures: dict[str, MixturePreset] = {}
    """By name, models that answer together."""
    senses: Senses = Senses()
    messengers: Messengers = Messengers()
    platforms: dict[str, Meeting] = {}
    """By name, those that plugins bring; one that is not named is met as usual."""
    gateway: GatewaySettings = GatewaySettings()
    plugins: PluginSettings = PluginSettings()
    toolsets: dict[str, tuple[str, ...]] = {}
    """By platform, what the model may use there; a platform that is not named may use everything."""
    hooks: dict[str, tuple[ShellHook, ...]] = {}
    """Shell hooks, by the name of the hook."""
    proxies: Proxies = Proxies()
    notes: tuple[str, ...] = ()
    """Words for the operator about things that are no errors."""
    hidden: tuple[Secret, ...] = ()

    @property
    def paths(self) -> Paths:
        return Paths(self.home)

    def secrets(self) -> tuple[str, ...]:
        """Values that must never reach a log or a screen, longest first."""
        return tuple(sorted({secret.reveal() for secret in self.hidden}, key=len, reverse=True))


def load(home: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in effect. Raises one ConfigError that tells every problem and where it is."""
    return build(read(home, environ))


def with_plugins(settings: Settings, wanted: bool) -> Settings:
    """The same in safe mode, unless plugins are wanted."""
    return (
        settings
        if wanted
        else structs.replace(settings, plugins=structs.replace(settings.plugins, safe=True))
    )


def build(reading: Reading) -> Settings:
    """Settings from what was read; raises ConfigError with every problem."""
    picked = {key.path: reading.picked(*key.path.split(".")).value for key in KEYS if "*" not in key.path}
    picked["workdir"] = _path(reading, "workdir", Path.is_dir)
    picked["embedded.gguf"] = _path(reading, "embedded.gguf", Path.is_file)
    known = endpoints(reading)
    model = _known_models(reading, known, "model")
    reached = messengers(reading, {name: _under(picked, name) for name in MESSENGERS})
    settings = Settings(
        home=reading.paths.home,
        model=model[0] if model else "",
        fallback=_known_models(reading, known, "fallback"),
        providers=known,
        models=_facts(reading, known),
        effort=cast("Effort", picked["effort"]),
        max_steps=cast("int", picked["max_steps"]),
        max_tokens=cast("int", picked["max_tokens"]),
        silence=cast("float", picked["silence"]),
        workdir=cast("str", picked["workdir"]),
        ca_file=_ca_file(reading),
        log_level=cast("LogLevel", picked["log_level"]),
        debuggable=cast("bool", picked["debuggable"]),
        embedded=Embedded(**_under(picked, "embedded")),
        terminal=Terminal(**_under(picked, "terminal")),
        serve=Serve(**_under(picked, "serve"), key=secret(reading, "serve.key_env")),
        api=api_settings(reading, picked),
        side=side_settings(reading, picked, known),
        delegation=delegation_settings(picked),
        mixtures=mixtures(reading, known),
        senses=senses_settings(picked),
        messengers=reached,
        platforms={name: meeting(reading, name) for name in reading.names("platforms")},
        gateway=GatewaySettings(**_under(picked, "gateway"), stt_key=secret(reading, "gateway.stt_key_env")),
        plugins=plugin_settings(reading, _under(picked, "plugins")),
        toolsets=toolsets(reading),
        hooks=shell_hooks(reading),
        proxies=proxies(reading),
        notes=(*_notes(reading), *reached.notes),
        hidden=tuple(Secret(value) for value in _hidden(reading) if len(value) >= SHORTEST_SECRET),
    )
    reading.refuse()
    return settings


def _under(picked: dict[str, Json], table: str) -> dict[str, Any]:
    """The values of one table, as its Struct takes them."""
    inner = {path.partition(".")[2]: value for path, value in picked.items() if path.startswith(f"{table}.")}
    return fitting(inner)


def _known_models(reading: Reading, known: dict[str, Endpoint], key: str) -> tuple[str, ...]:
    value = reading.picked(key).value
    names = []
    for item, name in enumerate(value if isinstance(value, list) else [value]):
        try:
            whole = not name or is_mixture(reading, str(name))
            names.append(str(name) if whole else check_model(str(name), known))
        except ValueError as error:
            reading.fault(key, str(name), str(error), item if isinstance(value, list) else None)
    return tuple(names)


def _facts(reading: Reading, known: dict[str, Endpoint]) -> dict[str, ModelFacts]:
    facts = model_facts(reading)
    for name in facts:
        try:
            check_model(name, known)
        except ValueError as error:
            reading.problems.append(
                Problem(("models", name), sentence(f"[{dotted(('models', name))}] {error}"))
            )
    return {name: ModelFacts(**cast("dict[str, Any]", values)) for name, values in facts.items()}


def _path(reading: Reading, key: str, test: Callable[[Path], bool]) -> str:
    """A path, from the home where it is relative, that passes `test`."""
    text = str(reading.picked(*key.split(".")).value)
    if not text:
        return ""
    try:
        path = reading.paths.home / Path(text).expanduser()
        if test(path):
            return str(path)
        what = "folder" if test is Path.is_dir else "file"
        wrong = f"is not there as a {what}: make it, or correct the path"
    except (OSError, RuntimeError) as error:
        wrong = f"cannot be a path: {error}"
    reading.fault(key, text, wrong)
    return ""


def _ca_file(reading: Reading) -> str:
    """The setting, else what OpenSSL's own variable says, whose path is taken from where we stand."""
    if reading.picked("ca_file").value:
        return _path(reading, "ca_file", Path.is_file)
    text = reading.variables.get(CA_VARIABLE)
    if not text or Path(text).is_file():
        return str(Path(text).absolute()) if text else ""
    reading.complain(CA_VARIABLE, text, "is not there as a file: correct the variable, or empty it")
    return ""


def _notes(reading: Reading) -> tuple[str, ...]:
    ours = {"ALIPES_HOME", *(key.variable for key in KEYS if key.variable)}
    ours |= {str(value) for way, value in reading.values.items() if way[-1].endswith("_env")}
    ours |= {str(key.default) for key in KEYS if key.path.endswith("_env")}
    for name in sorted(reading.variables.names()):
        if name.startswith("ALIPES_") and name not in ours and (meant := near(name, ours, 1)):
            reading.notes.append(f"The variable {name} means nothing to us. Did you mean {meant[0]}?")
    warning = exposure(reading.paths.env) if reading.variables.lines else ""
    return tuple([*reading.notes, warning] if warning else reading.notes)


def _hidden(reading: Reading) -> set[str]:
    """Secrets in use, what `.env` holds, variables named like secrets, passwords in addresses."""
    variables = reading.variables
    plain = {spelt for name in PROXY_VARIABLES for spelt in (name, name.lower())}
    told = {
        line.value
        for name, line in variables.lines.items()
        if not name.startswith("ALIPES_") or is_secret_name(name)
    }
    named = {value for name, value in variables.environ.items() if is_secret_name(name)}
    users = {variables.get(name).partition("://")[2].rpartition("@")[0] for name in plain}
    addresses = {variables.get(name) for name in plain}
    within = {found[1] for value in variables.environ.values() for found in [_PASSWORD.match(value)] if found}
    passwords = within | {user.partition(":")[2] for user in users}
    return (reading.secrets | told | named | users | passwords) - addresses
