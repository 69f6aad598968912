"""Builds the settings from the configuration file, `.env` and the environment."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from alipes.config.display import HIDDEN, is_secret_name, toml_key, toml_path, toml_string
from alipes.config.environment import REFERENCE, readable_by_others
from alipes.config.keys import KeysConfig, find_conflicts
from alipes.config.known_providers import CLOUD_VARIABLES, KNOWN, TEST_VARIABLE, guess_provider, is_built_in
from alipes.config.messengers import Messengers
from alipes.config.paths import MODEL_FILE, PROFILE_VARIABLE
from alipes.config.platforms import PluginPlatformConfig
from alipes.config.reader import KeyPath, RawConfig, read_config
from alipes.config.schema import KEYS
from alipes.config.secret_store import read_keyring
from alipes.config.sections.cluster import ClusterConfig, url_password
from alipes.config.sections.files import FilesConfig
from alipes.config.settings import (
    AGENT_PREFIX,
    MIXTURE_PREFIX,
    PERMISSION_MODES,
    TASKS,
    Amount,
    AuxiliaryConfig,
    MixtureConfig,
    SandboxAccess,
    SandboxConfig,
    Settings,
    ShellHook,
    SpendConfig,
)
from alipes.config.tools import PlatformTools, ToolsConfig
from alipes.config.urls import InvalidValue, check_no_proxy, check_proxy, check_usable
from alipes.config.value_types import AMOUNT_FORM
from alipes.features.agents.settings import NAME as AGENT_NAME
from alipes.features.agents.settings import AgentConfig
from alipes.features.mcp.settings import McpConfig, McpServerConfig, find_server_problem
from alipes.features.web_search.settings import WebConfig
from alipes.kernel.errors import ConfigError, MissingExtra
from alipes.kernel.formatting import closest_matches, did_you_mean
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.models import Endpoint, ModelFacts, NamedKey, Proxies, Secret

_FIELDS = (
    *("api", "base_url", "key_env", "model", "headers", "body", "stall", "connect", "schemas"),
    *("on_limit", "credentials"),
)


def build_endpoints(config: RawConfig) -> dict[str, Endpoint]:
    """Every provider by name, with its key if there is one. Problems are added to `config`."""
    names = dict.fromkeys([*config.names("providers"), *KNOWN])
    return {name: _endpoint(config, name) for name in names}


def _endpoint(config: RawConfig, name: str) -> Endpoint:
    if is_built_in(name):
        return KNOWN[name]
    fields = {field: config.effective("providers", name, field).value for field in _FIELDS}
    ours = name in config.names("providers")
    table = config.tables["providers"][name] if ours else None
    if isinstance(table, dict) and not fields["base_url"] and "base_url" not in table:
        text = f"[providers.{toml_key(name)}] has no base_url: add its URL, as in http://HOST:PORT/v1."
        config.add_problem(("providers", name), text)
    variables = list_variables(fields.pop("key_env"))
    headers = cast("dict[str, str]", fields["headers"])
    fields["headers"] = {
        header: _filled(config, ("providers", name, "headers", header), text) for header, text in headers.items()
    }
    read = [NamedKey(each, read_secret(config, each, needed=ours)) for each in variables]
    keys = tuple(each for each in read if each.key)
    first = keys[0] if keys else NamedKey(variables[0] if variables else "", Secret())
    several = keys if len(keys) > 1 else ()
    named = CLOUD_VARIABLES.get(cast("str", fields["credentials"]), ())
    known: dict[str, Any] = {"key": first.key, "key_env": first.variable, "keys": several}
    known["variables"] = {each: found for each in named if (found := _read_variable(config, each))}
    return Endpoint(name=name, **known, **fields)  # type: ignore[arg-type]


def _read_variable(config: RawConfig, name: str) -> Secret:
    """A variable of a cloud; only secrets are hidden in what tools print, not regions and names of files."""
    if is_secret_name(name) and not name.endswith("_FILE"):
        return read_secret(config, name, needed=False)
    return Secret(config.variables.get(name).strip())


def list_variables(value: object) -> list[str]:
    """The variables that `key_env` names; none if it is empty."""
    named = value if isinstance(value, list) else [value]
    return [str(each) for each in named if each]


def _filled(config: RawConfig, place: KeyPath, text: str) -> str:
    """The text with the variables it names; one that is not set is a problem."""

    def value(found: re.Match[str]) -> str:
        secret = read_secret(config, found[1], needed=True).reveal()
        if not secret:
            missing = f"{found[1]}, which is not set: add it to {config.paths.env} or to the environment."
            config.add_problem(place, f"{place[-1]} = {toml_string(text)} needs the variable {missing}")
        return secret

    return re.sub(REFERENCE, value, text)


def read_secret(config: RawConfig, variable: str, *, needed: bool, typed: bool = False) -> Secret:
    """The secret in `variable`; empty if there is none. `typed`: chosen by a person, so that it may contain
    spaces and any characters, unlike a generated key.

    An unusable one is a problem if `needed`; otherwise it is noted and treated as missing, so that a
    broken key of an unused provider does no harm.
    """
    value, source = _find_secret(config, variable)
    if variable:
        config.secret_sources[variable] = source, needed or config.secret_sources.get(variable, ("", False))[1]
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


def _find_secret(config: RawConfig, variable: str) -> tuple[str, str]:
    """The value of `variable` and where it was found; both empty if it is not set."""
    if not variable:
        return "", ""
    if value := config.variables.get(variable).strip():
        return value, config.variables.where(variable)
    if config.effective("secret_store").value == "keyring" and not config.keyring_failed:
        try:
            value = read_keyring(config.paths.home, variable)
        except ConfigError as error:
            config.keyring_failed = True
            config.missing_extra = error.extra if isinstance(error, MissingExtra) and not config.problems else ""
            config.add_problem(("secret_store",), str(error))
    return value, "keyring" if value else ""


def complete_model_name(name: str, known: dict[str, Endpoint]) -> str:
    """`name` as provider/model, with the default model added to a bare provider. Raises ValueError."""
    provider, slash, _ = name.partition("/")
    endpoint = known.get(provider)
    if endpoint is None:
        meant = did_you_mean(provider, known)
        if not slash:
            example = f"{guess_provider(name)}/{name}"
            raise ValueError(f"needs a provider prefix: write it as provider/model, for instance {example}.{meant}")
        others = meant or f" Valid: {', '.join(known)}."
        table = f"[providers.{toml_key(provider)}]"
        raise ValueError(f"has an unknown provider: add {table} with its base_url.{others}")
    if slash or is_built_in(provider):
        return name
    if not endpoint.model:
        raise ValueError(f"has no model: write {provider}/MODEL")
    return f"{provider}/{endpoint.model}"


PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CA_VARIABLE = "SSL_CERT_FILE"
MIN_SECRET_CHARS = 6
"""Shorter secrets are not masked in logs: they would hide ordinary words."""
_PASSWORD = lazy_pattern(r"\w[\w+.-]*://[^/\s:@]*:([^/\s@]+)@")
"""As in the URL of a database."""
AGENTS = "agents"
_MODEL_TABLES = {MIXTURE_PREFIX: MIXTURE_PREFIX, AGENT_PREFIX: AGENTS}
"""Tables whose entries are models, by the provider part of their names."""
_MULTIPLIERS = {"": 1, "k": 1_000, "M": 1_000_000}
T = TypeVar("T")
_VALUES = (
    *("effort", "max_steps", "max_tokens", "silence", "local_servers", "log_level", "debuggable", "secret_store"),
    *("timezone", "store", "store_direct", "store_password_env"),
)
_TABLES = tuple(
    field.name for field in structs.fields(Settings) if isinstance(field.type, type) and issubclass(field.type, Struct)
)
"""Tables with a section of their own. Settings have them as they are in the file, unless `build_settings` says how they
are made."""


def load_settings(home: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in effect. Raises one ConfigError that names every problem and its place."""
    return build_settings(read_config(home, environ))


def with_plugins(settings: Settings, enabled: bool) -> Settings:
    """The same settings; in safe mode unless `enabled`."""
    if enabled:
        return settings
    return structs.replace(settings, plugins=structs.replace(settings.plugins, safe=True))


def build_settings(config: RawConfig) -> Settings:
    """Settings from what was read. Raises ConfigError with every problem."""
    known = build_endpoints(config)
    model = _models(config, known, "model")
    messengers = _messengers(config)
    spend = _values(config, ("spend",), SpendConfig)
    named = {name: _named(config, "plugins", name) for name in ("deadlines", "entries")}
    values: dict[str, Any] = {name: config.effective(name).value for name in _VALUES}
    tables: dict[str, Any] = {
        "browser": _table(config, "browser", executable=_path(config, "browser.executable", Path.is_file)),
        "keys": _keys(config),
        "embedded": _table(config, "embedded", gguf=_path(config, "embedded.gguf", Path.is_file)),
        "serve": _table(config, "serve", key=_secret(config, "serve.key_env")),
        "spend": SpendConfig(**{name: parse_amount(text) for name, text in spend.items()}),
        "sandbox": _sandbox(config),
        "mcp": _mcp(config),
        "messengers": messengers,
        "web": _web(config),
        "gateway": _table(config, "gateway", stt_key=_secret(config, "gateway.stt_key_env")),
        "files": _files(config),
        "cluster": _cluster(config),
        "plugins": _table(config, "plugins", **named),
        "tools": _tools(config),
        "proxies": _proxies(config),
    }
    settings = Settings(
        home=config.paths.home,
        model=model[0] if model else "",
        model_source="ALIPES_MODEL" if config.effective("model").layer == "variable" else "config.toml",
        fallback=_models(config, known, "fallback"),
        providers=known,
        models=_facts(config, known),
        **values,
        **tables,
        **{name: _table(config, name) for name in _TABLES if name not in tables},
        store_password=_store_password(config),
        workdir=_path(config, "workdir", Path.is_dir),
        ca_file=_ca_file(config),
        auxiliary={task: _auxiliary(config, task, known) for task in config.names("auxiliary")},
        moa=_mixtures(config, known),
        agents=_agents(config),
        platforms={name: _platform(config, name) for name in config.names("platforms")},
        toolsets={name: tuple(names) for name, names in _named(config, "toolsets").items()},
        hooks={hook: tuple(ShellHook(**each) for each in listed) for hook, listed in _named(config, "hooks").items()},
        notes=(*_notes(config), *messengers.notes),
        hidden=tuple(Secret(value) for value in _hidden(config) if len(value) >= MIN_SECRET_CHARS),
    )
    config.raise_problems()
    return settings


def _table(config: RawConfig, name: str, **more: Any) -> Any:
    """The struct of the table `name`, with `more` fields given by the caller."""
    (struct,) = (field.type for field in structs.fields(Settings) if field.name == name)
    return struct(**_values(config, (name,), struct) | more)


def _keys(config: RawConfig) -> KeysConfig:
    """`[keys]`; a key that two actions share is added to the problems."""
    keys: KeysConfig = _table(config, "keys")
    for action, text in find_conflicts(keys):
        config.add_problem(("keys", action), text)
    return keys


def _values(config: RawConfig, table: tuple[str, ...], struct: type[Struct]) -> dict[str, Any]:
    """The effective value of each setting of a table, as its struct takes it."""
    pattern = ".".join(table if len(table) == 1 else (*table[:-1], "*"))
    names = {key.path.rpartition(".")[2] for key in KEYS if key.path.rpartition(".")[0] == pattern}
    found = {name: config.effective(*table, name).value for name in struct.__struct_fields__ if name in names}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _models(config: RawConfig, known: dict[str, Endpoint], key: str) -> tuple[str, ...]:
    value = config.effective(key).value
    names = []
    for item, name in enumerate(value if isinstance(value, list) else [value]):
        try:
            first, _, preset = str(name).partition("/")
            is_table = first in _MODEL_TABLES and preset in config.names(_MODEL_TABLES[first])
            names.append(str(name) if not name or is_table else complete_model_name(str(name), known))
        except ValueError as error:
            config.report(key, str(name), str(error), item if isinstance(value, list) else None)
    return tuple(names)


def _facts(config: RawConfig, known: dict[str, Endpoint]) -> dict[str, ModelFacts]:
    """The operator's corrections to the model catalog, by provider/model."""
    facts: dict[str, dict[str, Any]] = {}
    for path, value in config.values.items():
        if path[0] == "models":
            facts.setdefault(path[1], {})[path[2]] = value
    for name in facts:
        _complete(config, ("models", name), name, known, f"[{toml_path(('models', name))}]")
    fetched = _read_model_file(config)
    return fetched | {
        name: structs.replace(fetched.get(name, ModelFacts()), **values) for name, values in facts.items()
    }


def _read_model_file(config: RawConfig) -> dict[str, ModelFacts]:
    """What `alipes model --refresh` fetched; a broken file is noted and not used."""
    home = config.paths.home
    if not (home / MODEL_FILE).exists():
        return {}
    from alipes.config.model_file import read_models  # noqa: PLC0415

    try:
        return read_models(home).models
    except (ConfigError, OSError) as error:
        config.notes.append(f"{home / MODEL_FILE} is not used: {error}. Run `alipes model --refresh` again.")
        return {}


def _complete(config: RawConfig, place: KeyPath, name: str, known: dict[str, Endpoint], subject: str) -> str:
    """`name` as provider/model; if it cannot be one, a problem at `place` that starts with `subject`."""
    try:
        return complete_model_name(name, known)
    except ValueError as error:
        config.add_problem(place, f"{subject} {error}")
        return name


def _auxiliary(config: RawConfig, task: str, known: dict[str, Endpoint]) -> AuxiliaryConfig:
    place: KeyPath = ("auxiliary", task)
    if task not in TASKS:
        meant = did_you_mean(task, TASKS) or f" Valid tasks: {', '.join(TASKS)}."
        config.add_problem(place, f"unknown task [{toml_path(place)}].{meant}")
        return AuxiliaryConfig()
    fields = _values(config, place, AuxiliaryConfig)
    name, place = str(fields["model"]), (*place, "model")
    if name and not name.startswith(f"{MIXTURE_PREFIX}/"):
        fields["model"] = _complete(config, place, name, known, f'{toml_path(place)} = "{name}"')
    return AuxiliaryConfig(**fields)


def parse_amount(text: str) -> Amount | None:
    """A spending limit from its text, which was checked before; None if it is empty."""
    found = re.fullmatch(AMOUNT_FORM, text)
    if found is None:
        return None
    dollars, count, unit = found.groups()
    if dollars:
        return Amount(text, dollars=float(dollars))
    return Amount(text, tokens=int(float(count) * _MULTIPLIERS[unit]))


def _sandbox(config: RawConfig) -> SandboxConfig:
    """`[sandbox]` with its tables for projects and permission modes; problems are added to `config`."""
    found: dict[str, dict[str, SandboxAccess]] = {"projects": {}, "modes": {}}
    for kind, tables in found.items():
        for name in config.names("sandbox", kind):
            place: KeyPath = ("sandbox", kind, name)
            if kind == "modes" and name not in PERMISSION_MODES:
                config.add_problem(place, f"unknown permission mode {name!r}: {' or '.join(PERMISSION_MODES)}.")
            if kind == "projects" and (problem := _find_project_problem(name)):
                config.add_problem(place, f"[{toml_path(place)}] {problem}")
            tables[os.path.expanduser(name)] = SandboxAccess(**_values(config, place, SandboxAccess))
    values = _values(config, ("sandbox",), SandboxConfig)
    return SandboxConfig(**values, projects=found["projects"], modes=found["modes"])


def _find_project_problem(name: str) -> str:
    """Why a name is no project directory; empty if it is one."""
    path = os.path.normpath(os.path.expanduser(name.strip())) if name.strip() else ""
    home = os.path.expanduser("~")
    if not os.path.isabs(path):
        return "must name a directory by an absolute path, or one that starts with ~."
    if os.path.commonpath((path, home)) == path:
        return "names / or a directory that contains your home: it would hold for every project. Name each project."
    return ""


def _mcp(config: RawConfig) -> McpConfig:
    """`[mcp]` with its servers; problems are added to `config`."""
    servers = {}
    for name in config.names("mcp", "servers"):
        place: KeyPath = ("mcp", "servers", name)
        fields = _values(config, place, McpServerConfig)
        if problem := find_server_problem(name, McpServerConfig(**fields)):
            config.add_problem(place, f"[{toml_path(place)}] {problem}")
        servers[name] = _fill_server(config, McpServerConfig(**fields))
        if why := servers[name].problem:
            config.notes.append(f"The MCP server {name} is off: {why}.")
    return McpConfig(**_values(config, ("mcp",), McpConfig), servers=servers)


def _fill_server(config: RawConfig, server: McpServerConfig) -> McpServerConfig:
    """The server with its variables filled in. If one is not set, only this server is off."""
    missing = dict[str, None]()

    def value(found: re.Match[str]) -> str:
        secret = read_secret(config, found[1], needed=server.enabled).reveal()
        if not secret:
            missing[found[1]] = None
        return secret

    tables = {
        table: {key: re.sub(REFERENCE, value, text) for key, text in getattr(server, table).items()}
        for table in ("env", "headers")
    }
    if missing and server.enabled:
        where = f"add it to {config.paths.env} or to the environment"
        problem = f"it needs the variable {', '.join(missing)}, which is not set: {where}"
        return structs.replace(server, **tables, problem=problem)
    return structs.replace(server, **tables)


def _agents(config: RawConfig) -> dict[str, AgentConfig]:
    """Every `[agents.NAME]`; problems are added to `config`."""
    found = {}
    for name in config.names(AGENTS):
        place: KeyPath = (AGENTS, name)
        fields = _values(config, place, AgentConfig)
        fields["env"] = {key: _filled(config, (*place, "env", key), text) for key, text in fields["env"].items()}
        if not re.fullmatch(AGENT_NAME, name):
            config.add_problem(
                place, f"[{toml_path(place)}] has an invalid name: use lower-case letters, digits, - and _."
            )
        found[name] = AgentConfig(**fields)
    return found


def _mixtures(config: RawConfig, known: dict[str, Endpoint]) -> dict[str, MixtureConfig]:
    """Every `[moa.NAME]`; problems are added to `config`."""
    found = {}
    for name in config.names(MIXTURE_PREFIX):
        fields = _values(config, (MIXTURE_PREFIX, name), MixtureConfig)
        models = [_mixture_model(config, name, "models", str(model), known) for model in fields["models"] or ()]
        aggregator = _mixture_model(config, name, "aggregator", str(fields["aggregator"] or ""), known)
        if not models or not aggregator:
            missing = "models" if not models else "aggregator"
            text = f"[{MIXTURE_PREFIX}.{toml_key(name)}] has no {missing}: give it as provider/model."
            config.add_problem((MIXTURE_PREFIX, name), text)
        found[name] = MixtureConfig(tuple(models), aggregator, fields["timeout"])
    return found


def _mixture_model(config: RawConfig, preset: str, field: str, name: str, known: dict[str, Endpoint]) -> str:
    if not name:
        return ""
    subject = f"{field} of [{MIXTURE_PREFIX}.{toml_key(preset)}] contains {toml_string(name)}, which"
    return _complete(config, (MIXTURE_PREFIX, preset, field), name, known, subject)


def _messengers(config: RawConfig) -> Messengers:
    made = {}
    for field in structs.fields(Messengers):
        values = _values(config, (field.name,), field.type)
        secrets = {
            key.removesuffix("_env"): _secret(config, f"{field.name}.{key}") for key in values if key.endswith("_env")
        }
        made[field.name] = field.type(**values, **secrets)
        if problem := made[field.name].problem:
            name, value, wrong = problem
            config.report(f"{field.name}.{name}", value, wrong)
    return Messengers(**made)


def _platform(config: RawConfig, name: str) -> PluginPlatformConfig:
    """The settings of a plugin's platform."""
    if not isinstance(config.tables["platforms"][name], dict):
        return PluginPlatformConfig()  # reported already
    return PluginPlatformConfig(**_values(config, ("platforms", name), PluginPlatformConfig))


def _tools(config: RawConfig) -> ToolsConfig:
    """`[tools]` with its tables for platforms."""
    tables = (name for name in config.names("tools") if isinstance(config.tables["tools"][name], dict))
    platforms = {name: PlatformTools(**_values(config, ("tools", name), PlatformTools)) for name in tables}
    return ToolsConfig(**_values(config, ("tools",), ToolsConfig), platforms=platforms)


def _secret(config: RawConfig, key: str) -> Secret:
    """The value of the variable that the setting `key` names."""
    table, _, name = key.partition(".")
    variable = str(config.effective(table, name).value)
    return read_secret(config, variable, needed=table in config.tables, typed="password" in name)


def _store_password(config: RawConfig) -> Secret:
    """The password of the store. One in the file is a problem; one in a URL of the environment is a secret."""
    for name in ("store", "store_direct"):
        found = config.effective(name)
        if password := url_password(str(found.value)):
            config.secrets.add(password)
            if found.layer == "file":
                variable = config.effective("store_password_env").value or "ALIPES_STORE_PASSWORD"
                wrong = f"contains a password: move it to .env (run `alipes config set {variable} -`)"
                config.report(name, str(found.value), wrong)
    if not config.effective("store").value and config.effective("store_direct").value:
        config.report("store_direct", str(config.effective("store_direct").value), "needs store: set it too")
    variable = str(config.effective("store_password_env").value)
    return read_secret(config, variable, needed=bool(config.effective("store").value), typed=True)


def _files(config: RawConfig) -> FilesConfig:
    """`[files]`; the keys are needed for a bucket only."""
    needed = config.effective("files", "store").value == "s3"
    variables = {name: str(config.effective("files", f"{name}_env").value) for name in ("key", "secret")}
    secrets = {name: read_secret(config, variable, needed=needed) for name, variable in variables.items()}
    if needed and not config.effective("files", "bucket").value:
        config.report("files.store", "s3", "needs files.bucket: the name of a bucket")
    _check_absolute(config, "files", "folder")
    files: FilesConfig = _table(config, "files", **secrets)
    return files


def _cluster(config: RawConfig) -> ClusterConfig:
    _check_absolute(config, "cluster", "folder")
    cluster: ClusterConfig = _table(config, "cluster")
    return cluster


def _check_absolute(config: RawConfig, *path: str) -> None:
    folder = str(config.effective(*path).value)
    if folder and not folder.startswith("/"):
        config.report(".".join(path), folder, "must be an absolute path: all workers need the same one")


def _web(config: RawConfig) -> WebConfig:
    """`[web]`; the keys of search services are optional, also if the table is there."""
    services = ("brave", "tavily", "exa", "google")
    variables = {name: str(config.effective("web", f"{name}_key_env").value) for name in services}
    keys = {f"{name}_key": read_secret(config, variable, needed=False) for name, variable in variables.items()}
    web: WebConfig = _table(config, "web", **keys)
    return web


def _named(config: RawConfig, *tables: str) -> dict[str, Any]:
    """The values directly under a table whose keys the operator chose."""
    depth = len(tables)
    return {
        path[depth]: value for path, value in config.values.items() if path[:depth] == tables and len(path) == depth + 1
    }


def _path(config: RawConfig, key: str, test: Callable[[Path], bool]) -> str:
    """A path, relative to the home, that passes `test`."""
    text = str(config.effective(*key.split(".")).value)
    if not text:
        return ""
    try:
        path = config.paths.home / Path(text).expanduser()
        if test(path):
            return str(path)
        kind = "directory" if test is Path.is_dir else "file"
        wrong = f"is not a {kind}: create it, or correct the path"
    except (OSError, RuntimeError) as error:
        wrong = f"is not a valid path: {error}"
    config.report(key, text, wrong)
    return ""


def _ca_file(config: RawConfig) -> str:
    """The setting, else OpenSSL's own variable, whose path is relative to the working directory."""
    if config.effective("ca_file").value:
        return _path(config, "ca_file", Path.is_file)
    text = config.variables.get(CA_VARIABLE)
    if not text or Path(text).is_file():
        return str(Path(text).absolute()) if text else ""
    config.report_variable(CA_VARIABLE, text, "is not a file: correct the variable, or unset it")
    return ""


def _proxies(config: RawConfig) -> Proxies:
    """The proxy variables, read as curl reads them: lower case wins over upper case."""
    http, https = (_check_proxy_variable(config, name, _proxy) for name in ("HTTP_PROXY", "HTTPS_PROXY"))
    # Desktops set ALL_PROXY to a SOCKS address beside the other two, which leave it nothing to do.
    every = _check_proxy_variable(config, "ALL_PROXY", check_proxy if http and https else _proxy)
    no = _check_proxy_variable(config, "NO_PROXY", check_no_proxy)
    return Proxies(http or "", https or "", "" if http and https else every or "", no or ())


def _proxy(text: str) -> str:
    return check_usable(check_proxy(text))


def _check_proxy_variable(config: RawConfig, variable: str, check: Callable[[str], T]) -> T | None:
    name = _proxy_variable(config, variable)
    text = config.variables.get(name)
    try:
        return check(text) if text else None
    except InvalidValue as wrong:
        config.report_variable(name, text, str(wrong))
        return None


def _proxy_variable(config: RawConfig, variable: str) -> str:
    if config.variables.get(variable.lower()):
        return variable.lower()
    # A CGI server sets HTTP_PROXY from a caller's `Proxy:` header; only the lower case is trusted there.
    if variable == "HTTP_PROXY" and config.variables.environ.get("REQUEST_METHOD"):
        return variable.lower()
    return variable


_CHILD_VARIABLE = "ALIPES_CHILD"
"""Set for child processes by `runtime.processes.process_tree`, which is a layer beside this one."""


def _notes(config: RawConfig) -> tuple[str, ...]:
    ours = {"ALIPES_HOME", PROFILE_VARIABLE, *(key.variable for key in KEYS if key.variable)}
    ours |= {str(value) for path, value in config.values.items() if path[-1].endswith("_env")}
    ours |= {str(key.default) for key in KEYS if key.path.endswith("_env")}
    for name in sorted({*config.variables.names()} - {TEST_VARIABLE, _CHILD_VARIABLE}):
        if name.startswith("ALIPES_") and name not in ours and (meant := closest_matches(name, ours, 1)):
            config.notes.append(f"Unknown variable {name}. Did you mean {meant[0]}?")
    warning = readable_by_others(config.paths.env) if config.variables.lines else ""
    return tuple([*config.notes, warning] if warning else config.notes)


def _hidden(config: RawConfig) -> set[str]:
    """Secrets in use, values in `.env`, variables named like secrets, passwords in URLs."""
    variables = config.variables
    plain = {spelling for name in PROXY_VARIABLES for spelling in (name, name.lower())}
    in_file = {
        line.value for name, line in variables.lines.items() if not name.startswith("ALIPES_") or is_secret_name(name)
    }
    named = {value for name, value in variables.environ.items() if is_secret_name(name)}
    users = {variables.get(name).partition("://")[2].rpartition("@")[0] for name in plain}
    addresses = {variables.get(name) for name in plain}
    within = {found[1] for value in variables.environ.values() for found in [_PASSWORD.match(value)] if found}
    passwords = within | {user.partition(":")[2] for user in users}
    return (config.secrets | in_file | named | users | passwords) - addresses
