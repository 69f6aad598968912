"""Endpoints for the settings: their values, where each comes from and why, and changes to config.toml and secrets."""

import asyncio
import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.config.display import HIDDEN, mask_value, toml_path
from alipes.config.editor import ConfigConflict, change, has_value
from alipes.config.environment import REFERENCE
from alipes.config.loader import build_settings
from alipes.config.reader import KeyPath, Layer, RawConfig, read_config
from alipes.config.schema import find_key
from alipes.config.secrets import MISSING, find_sources, remove_secret, save_secret
from alipes.config.toml_lines import split_key
from alipes.config.value_types import HEADERS, VARIABLES, ValueForm
from alipes.config.values import explain_value, format_origin, list_keys, resolve_key
from alipes.core.app import App
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import hash_text
from alipes.web.control import ServerControl, refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response

MAX_CHANGES = 200
_READ_AT_EACH_START = ("terminal", "keys")
"""Sections that only the terminal uses: a server need not be restarted for them."""


class SettingsQuery(Struct, frozen=True):
    key: Annotated[str, Meta(max_length=500)] = ""
    """Only this setting, or those of this section, such as `serve`."""


class SettingDocument(Struct, frozen=True, omit_defaults=True):
    key: str
    value: Any
    """Secrets in it are replaced by `***`."""
    default: Any
    source: Layer
    origin: str
    """Where the value comes from, for people: a file with its line, a variable, `default`."""
    type: ValueForm
    accepts: str
    """What is accepted, in words."""
    description: str
    restart: bool
    """A change takes effect when the server is restarted."""
    line: int | None = None
    choices: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    variable: str = ""
    """The environment variable that overrides it."""
    fixed: bool = False
    """That variable is set: a change in the file has no effect."""
    secret: str = ""
    """The name of the secret, if this setting names one."""
    set: bool = False
    """That secret is set."""
    why: str = ""
    """All of this in words."""


class SecretDocument(Struct, frozen=True):
    """The name of a secret and where it comes from; never its value."""

    name: str
    set: bool
    source: str
    used: bool
    """A setting names it."""


class SettingsDocument(Struct, frozen=True):
    file: str
    base: str
    """Give it with a change, so that a change made meanwhile by somebody else is not overwritten."""
    settings: tuple[SettingDocument, ...]
    secrets: tuple[SecretDocument, ...]
    problems: tuple[str, ...]
    """What is wrong in the files now."""


class SettingsChanges(Struct, frozen=True, forbid_unknown_fields=True):
    changes: Annotated[dict[str, Any], Meta(min_length=1, max_length=MAX_CHANGES)]
    """Values by key; null removes a setting from the file, so that its default applies."""
    base: Annotated[str, Meta(max_length=100)] = ""
    """`base` of the settings that the changes were made for."""


class WrittenSettings(Struct, frozen=True):
    written: tuple[str, ...]
    restart: bool
    base: str
    problems: tuple[str, ...]
    """Older problems of the file."""


class SecretChange(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    value: Annotated[str, Meta(min_length=1, max_length=100_000)] | None
    """null: remove it."""


class WrittenSecret(Struct, frozen=True):
    written: str
    restart: Literal[True]
    where: str
    overridden: bool
    """The environment also sets it, and that value is used."""


class SettingsEndpoints:
    def __init__(self, app: App, control: ServerControl) -> None:
        self._app, self._control = app, control

    @ApiEndpoint(
        "GET", "/v1/settings", "admin", readable=True, query=SettingsQuery, answer=SettingsDocument, errors=(404, 409)
    )
    async def list(self, call: ApiCall) -> Response:
        """List the settings with their values and origins."""
        query: SettingsQuery = call.query
        return json_response(await asyncio.to_thread(self._read_all, query.key))

    @ApiEndpoint("GET", "/v1/settings/{key}", "admin", readable=True, answer=SettingDocument, errors=(409,))
    async def look(self, call: ApiCall) -> Response:
        """Get a setting, with `why`: its origin and meaning in words."""
        return json_response(await asyncio.to_thread(self._read_one, call.path["key"]))

    @ApiEndpoint("PATCH", "/v1/settings", "admin", body=SettingsChanges, answer=WrittenSettings, errors=(409,))
    async def change(self, call: ApiCall) -> Response:
        """Change settings in config.toml: all or none, validated before they are written."""
        done = await asyncio.to_thread(self._write, call.body)
        self._app.store.changes.announce("settings")
        return json_response(done)

    @ApiEndpoint("PATCH", "/v1/settings/secrets", "admin", body=SecretChange, answer=WrittenSecret, errors=(409,))
    async def change_secret(self, call: ApiCall) -> Response:
        """Save or remove a secret."""
        body: SecretChange = call.body
        if body.value:
            self._app.secrets.add(body.value)
        done = await asyncio.to_thread(self._write_secret, body)
        self._app.store.changes.announce("settings")
        return json_response(done)

    def _read(self) -> RawConfig:
        with refuse_invalid(409, "config"):
            return read_config(self._app.settings.home, self._control.environ)

    def _read_all(self, key: str) -> SettingsDocument:
        config = self._read()
        problems = _find_problems(config)
        keys = list_keys(config)
        if key:
            with refuse_invalid(404, "no_setting"):
                way = resolve_key(config, key)
            keys = [each for each in keys if each[: len(way)] == way] or [way]
        with refuse_invalid(409, "config"):
            sources = [] if problems else find_sources(config)
        secrets = tuple(SecretDocument(each.name, each.source != MISSING, each.source, each.used) for each in sources)
        named = {each.name for each in secrets if each.set}
        settings = tuple(_setting_document(config, each, named) for each in keys)
        file = str(config.paths.config)
        return SettingsDocument(file, hash_text(config.text), settings, secrets, tuple(problems))

    def _read_one(self, key: str) -> SettingDocument:
        config = self._read()
        with refuse_invalid(404, "no_setting"):
            way = resolve_key(config, key)
        if find_key(way) is None:
            raise HttpProblem(404, f"{key} is a section: get /v1/settings?key={key}", code="no_setting")
        _find_problems(config)
        named = {name for name, (source, _) in config.secret_sources.items() if source}
        value_line, *why = explain_value(config, way)
        return _setting_document(config, way, named, why="\n".join(why if _is_private(way) else (value_line, *why)))

    def _write(self, body: SettingsChanges) -> WrittenSettings:
        home, environ = self._app.settings.home, self._control.environ
        config, values = self._read(), dict[KeyPath, Any]()
        for key, value in body.changes.items():
            way = split_key(key)
            if not way:
                raise HttpProblem(422, f"{key!r} is not a setting: use dots, as in serve.port", code="invalid")
            if _has_hidden(value):
                why = f"{key} contains {HIDDEN}, which hides a secret: give the whole value"
                raise HttpProblem(422, why, code="hidden")
            if value is None and not has_value(config.tables, way):
                with refuse_invalid():
                    resolve_key(config, key)
                continue
            values[way] = value
        try:
            left = change(values, home=home, environ=environ, base=body.base)
        except ConfigConflict as error:
            raise HttpProblem(409, str(error), code="changed") from error
        except ConfigError as error:
            raise HttpProblem(422, str(error), code="invalid") from error
        restart = any(way[0] not in _READ_AT_EACH_START for way in values)
        base = hash_text(self._read().text)
        return WrittenSettings(tuple(toml_path(way) for way in values), restart, base, tuple(left))

    def _write_secret(self, body: SecretChange) -> WrittenSecret:
        config = self._read()
        with refuse_invalid():
            where = (
                remove_secret(config, body.name)
                if body.value is None
                else save_secret(config, body.name, body.value.strip())
            )
        return WrittenSecret(body.name, True, where, bool(config.variables.environ.get(body.name)))


def _find_problems(config: RawConfig) -> list[str]:
    """What is wrong in the files; also notes which secrets the settings name."""
    try:
        build_settings(config)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def _setting_document(config: RawConfig, way: KeyPath, secrets: set[str], why: str = "") -> SettingDocument:
    key = find_key(way)
    assert key is not None
    way = way[: key.path.count(".") + 1]
    found = config.effective(*way)
    secret = str(found.value or "") if way[-1].endswith("_env") else ""
    return SettingDocument(
        toml_path(way),
        _hide_texts(found.value) if _is_private(way) else mask_value(found.value),
        mask_value(key.default),
        found.layer,
        format_origin(config, way, found),
        key.type.form,
        key.type.description,
        key.description,
        way[0] not in _READ_AT_EACH_START,
        line=config.line(way) if found.layer == "file" else None,
        choices=key.type.choices,
        min=key.type.low,
        max=key.type.high,
        variable=key.variable,
        fixed=found.layer == "variable",
        secret=secret,
        set=secret in secrets,
        why=why,
    )


def _is_private(way: KeyPath) -> bool:
    """True for tables of headers and variables, in which any text may be a secret."""
    key = find_key(way)
    return key is not None and key.type in (HEADERS, VARIABLES)


def _hide_texts(value: object) -> object:
    """The table with each text hidden that does not just name a variable."""
    if not isinstance(value, dict):
        return value
    return {name: text if re.fullmatch(REFERENCE, str(text)) else HIDDEN for name, text in value.items()}


def _has_hidden(value: object) -> bool:
    match value:
        case str():
            return HIDDEN in value
        case list():
            return any(map(_has_hidden, value))
        case dict():
            return any(map(_has_hidden, value.values()))
    return False
