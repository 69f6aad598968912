"""Logins at MCP servers, kept like other secrets: in `.env` or in the keyring, one variable per server.

Backups leave `.env` out, commands and models never see it, and every token that is read or written is masked.
"""

import re
from collections.abc import Callable

import msgspec
from msgspec import Struct

from alipes.config.environment import read_variables
from alipes.config.paths import Paths
from alipes.config.secret_store import read_keyring, remove_from_keyring, write_keyring
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json


class StoredLogin(Struct, frozen=True, omit_defaults=True):
    """What a login left: tokens, the registered client, and where tokens are renewed and revoked."""

    url: str
    """The server that it is for; the tokens are sent nowhere else."""
    tokens: dict[str, Json]
    expires_at: float | None = None
    client: dict[str, Json] | None = None
    metadata: dict[str, Json] | None = None
    """Of the authorization server (RFC 8414)."""
    resource: dict[str, Json] | None = None
    """Of the protected resource (RFC 9728)."""
    port: int = 0
    """Of the address to which the browser was sent back; a client is registered for it."""

    def secrets(self) -> tuple[str, ...]:
        client = self.client or {}
        found = (self.tokens.get("access_token"), self.tokens.get("refresh_token"), client.get("client_secret"))
        return tuple(each for each in found if isinstance(each, str) and each)


_decoder = msgspec.json.Decoder(StoredLogin)


class TokenStore:
    """Reads and writes logins. Its methods block: call them in a thread."""

    def __init__(self, paths: Paths, *, keyring: bool = False, hide: Callable[..., None] = lambda *_: None) -> None:
        """`keyring`: they are kept in the keyring of the operating system. `hide(*secrets)` masks secrets in logs and
        in everything that models and people are shown."""
        self._paths, self._keyring, self._hide = paths, keyring, hide

    def read(self, server: str, url: str) -> StoredLogin | None:
        """The login at `url`; None if there is none, or if it was for another address."""
        name = variable_of(server)
        if self._keyring:
            text = read_keyring(self._paths.home, name)
        else:
            line = read_variables(self._paths.env, {}).lines.get(name)
            text = line.value if line else ""
        try:
            found = _decoder.decode(text) if text else None
        except msgspec.DecodeError:
            return None  # changed by hand: a new login replaces it
        if found is None or found.url != url:
            return None
        self._hide(*found.secrets())
        return found

    def write(self, server: str, login: StoredLogin) -> None:
        """Raises ConfigError."""
        self._hide(*login.secrets())
        text = msgspec.json.encode(login).decode()
        self._hide(text)
        if self._keyring:
            write_keyring(self._paths.home, variable_of(server), text)
        else:
            self._edit(variable_of(server), text)

    def remove(self, server: str) -> bool:
        """False if there was none. Raises ConfigError."""
        name = variable_of(server)
        if self._keyring:
            if found := bool(read_keyring(self._paths.home, name)):
                remove_from_keyring(self._paths.home, name)
            return found
        if name not in read_variables(self._paths.env, {}).lines:
            return False
        self._edit(name, None)
        return True

    def _edit(self, name: str, value: str | None) -> None:
        from alipes.config.editor import change  # noqa: PLC0415

        try:
            change({}, {name: value}, home=self._paths.home)
        except ConfigError as error:
            raise ConfigError(f"the login could not be saved: {error}") from error


def make_store(settings: Settings, hide: Callable[..., None]) -> TokenStore:
    """The store that the settings name."""
    return TokenStore(settings.paths, keyring=settings.secret_store == "keyring", hide=hide)


def variable_of(server: str) -> str:
    """The variable that holds the login at a server."""
    return f"MCP_{re.sub(r'[^A-Z0-9]', '_', server.upper())}_OAUTH_TOKEN"
