"""Secrets in the keyring of the operating system. The package `keyring` is optional and imported only when used."""

from importlib import import_module
from pathlib import Path
from typing import Any

from alipes.config.paths import DEFAULT_PROFILE, profile_name
from alipes.kernel.errors import ConfigError, MissingExtra

SERVICE = "alipes"
"""The name under which the keyring lists the secrets of the default profile; others add theirs, as in `alipes/work`."""


def read_keyring(home: Path, name: str) -> str:
    """The secret; empty if there is none. Raises ConfigError if the keyring cannot be used."""
    return str(_call("get_password", home, name) or "")


def write_keyring(home: Path, name: str, value: str) -> None:
    """Store a secret. Raises ConfigError if the keyring cannot be used."""
    _call("set_password", home, name, value)


def remove_from_keyring(home: Path, name: str) -> None:
    """Remove a secret that is there. Raises ConfigError if the keyring cannot be used."""
    _call("delete_password", home, name)


def _call(function: str, home: Path, *values: str) -> Any:
    try:
        keyring, errors = import_module("keyring"), import_module("keyring.errors")
    except ModuleNotFoundError as error:
        why = 'secret_store = "keyring" needs the package keyring: run `alipes install keyring`.'
        raise MissingExtra(why, "keyring") from error
    profile = profile_name(home)
    try:
        return getattr(keyring, function)(SERVICE if profile == DEFAULT_PROFILE else f"{SERVICE}/{profile}", *values)
    except errors.KeyringError as error:
        why = str(error) or type(error).__name__
        raise ConfigError(f'the keyring cannot be used: {why}. Unlock it, or set secret_store = "file".') from error
