"""The secrets of a home by name: lists where each comes from, saves and removes them. Never shows a value."""

from msgspec import Struct

from alipes.config.editor import change, set_secret
from alipes.config.loader import build_settings
from alipes.config.reader import RawConfig
from alipes.config.secret_store import read_keyring, remove_from_keyring, write_keyring
from alipes.config.values import check_secret_name
from alipes.kernel.errors import ConfigError

MISSING = "missing"


class SecretSource(Struct, frozen=True):
    """A secret by its name; `source` is `environment`, `.env:LINE`, `keyring` or `missing`."""

    name: str
    source: str
    used: bool
    """A setting names it."""


def find_sources(config: RawConfig) -> list[SecretSource]:
    """The secrets that settings name, and the other variables in `.env`. Raises ConfigError."""
    build_settings(config)
    used = [
        SecretSource(name, source or MISSING, True)
        for name, (source, needed) in sorted(config.secret_sources.items())
        if source or needed
    ]
    others = sorted(config.variables.lines.keys() - config.secret_sources.keys())
    return [*used, *(SecretSource(name, config.variables.where(name), False) for name in others)]


def save_secret(config: RawConfig, name: str, value: str) -> str:
    """Save a secret in `.env` or the keyring; returns where. Raises ConfigError, leaving both unchanged."""
    _check_name(name)
    check_secret_name(name)
    home = config.paths.home
    if _uses_keyring(config):
        write_keyring(home, name, value)
        return "the keyring"
    return str(set_secret(name, value, home=home, environ=config.variables.environ))


def remove_secret(config: RawConfig, name: str) -> str:
    """Remove a secret; returns where it was. Raises ConfigError if there is none of this name."""
    _check_name(name)
    home, env = config.paths.home, config.paths.env
    if name in config.variables.lines:
        change({}, {name: None}, home=home, environ=config.variables.environ)
        return str(env)
    if _uses_keyring(config) and read_keyring(home, name):
        remove_from_keyring(home, name)
        return "the keyring"
    stores = f"{env} or the keyring" if _uses_keyring(config) else str(env)
    raise ConfigError(f"{name} is not in {stores}.")


def _uses_keyring(config: RawConfig) -> bool:
    return config.effective("secret_store").value == "keyring"


def _check_name(name: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise ConfigError(f"{name!r} is not a name: use A-Z, 0-9 and _, as in OPENAI_API_KEY.")
