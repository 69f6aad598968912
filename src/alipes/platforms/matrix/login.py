"""State of our device, login by token or password, and cross-signing so that clients trust the device.

The library does not support cross-signing. If it was set up elsewhere for the account, it is left alone.
"""

import json
import logging
from pathlib import Path
from typing import Any, TypeAlias

import nio  # type: ignore[import-untyped]
from msgspec import Struct
from vodozemac import Account, PickleException

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.models import Secret
from alipes.platforms.matrix.client import FAILURES, MatrixClient, MatrixError, expect
from alipes.platforms.matrix.payloads import translate_error
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.platforms.state_files import StateFile


class MatrixLogin(Struct, frozen=True):
    """Our login. The keys of encrypted rooms belong to the device."""

    user: str = ""
    device: str = ""
    token: str = ""
    made: bool = False
    """True if we logged in with the password and may do so again."""


class SigningKeys(Struct, frozen=True):
    user: str = ""
    master: str = ""
    own: str = ""
    """Signs devices; is itself signed by the master key."""
    signed: str = ""


class SyncState(Struct, frozen=True):
    user: str = ""
    since: str = ""
    """The homeserver's sync token before which everything was delivered."""
    unread: tuple[dict[str, Any], ...] = ()
    """Events that could not be decrypted so far, oldest first."""


class MatrixState:
    """State of a device in private files.

    A lost or old sync position is harmless, since the store ignores messages that it already has.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # our tools do not read files named `.key`
        self.login = StateFile(folder / "login.key", MatrixLogin)
        self.signing = StateFile(folder / "signing.key", SigningKeys)
        self.sync = StateFile(folder / "heard.json", SyncState)

    def sync_state(self, user: str) -> SyncState:
        state = self.sync.read()
        return state if state.user == user else SyncState(user)


LOGGED_OUT = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")


class LoggedOut(Exception):
    """The homeserver ended our login."""


def classify_failure(failure: Exception, _count: int) -> DeliveryError:
    """Translate a failure while receiving. Raises `LoggedOut` if waiting cannot help."""
    if isinstance(failure, MatrixError) and failure.code in LOGGED_OUT:
        raise LoggedOut(failure.why) from failure
    return translate_error(failure, "waiting for messages")


async def log_in(client: MatrixClient, settings: MatrixConfig, state: MatrixState) -> MatrixLogin:
    """Log in. Raises ConfigError if the configuration is wrong, otherwise `FAILURES`."""
    if settings.token:
        return await _by_token(client, settings)
    known = state.login.read()
    if known.user != settings.user:
        known = MatrixLogin()
    if known.token:
        return known
    login = await _by_password(client, settings, known.device)
    state.login.write(login)
    return login


async def _by_token(client: MatrixClient, settings: MatrixConfig) -> MatrixLogin:
    client.access_token = settings.token.reveal()
    try:
        response: Any = expect(await client.whoami(), nio.WhoamiResponse)
    except MatrixError as refused:
        if refused.code in LOGGED_OUT:
            raise bad_token_error() from refused
        _nowhere(refused, settings)
        raise
    if response.user_id != settings.user:
        raise ConfigError(
            f"The token that [matrix] token_env names belongs to {response.user_id}, not to {settings.user}: "
            "correct matrix.user, or use a token of that user."
        )
    if not response.device_id and settings.encryption:
        raise ConfigError(
            "The Matrix token has no device, so encryption is not possible: log in with a "
            "password instead, or set matrix.encryption = false."
        )
    return MatrixLogin(response.user_id, response.device_id or "none", settings.token.reveal())


async def _by_password(client: MatrixClient, settings: MatrixConfig, device: str) -> MatrixLogin:
    asked = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": settings.user},
        "password": settings.password.reveal(),
        "initial_device_display_name": settings.device,
    }
    if device:  # reuse the device whose keys we have
        asked["device_id"] = device
    try:
        response: Any = expect(await client.login_raw(asked), nio.LoginResponse)
    except MatrixError as refused:
        _nowhere(refused, settings)
        if refused.wait is None and 400 <= refused.status < 500:
            raise ConfigError(
                f"The homeserver rejected the login of {settings.user} with the password that [matrix] "
                f"password_env names: {refused.why}."
            ) from refused
        raise
    return MatrixLogin(response.user_id, response.device_id, response.access_token, made=True)


def _nowhere(refused: MatrixError, settings: MatrixConfig) -> None:
    if refused.status == 404:
        server = settings.user.partition(":")[2]
        raise ConfigError(
            f"There is no Matrix homeserver at matrix.base_url ({settings.base_url}): find the address at "
            f"https://{server}/.well-known/matrix/client."
        ) from refused


def bad_token_error() -> ConfigError:
    return ConfigError(
        "The homeserver does not know the token that [matrix] token_env names: create a new one, or use a "
        "password instead."
    )


def lost_keys_error(settings: MatrixConfig) -> ConfigError:
    return ConfigError(
        "The encryption keys of the device of the Matrix token are missing or belong to another program: "
        "create a token only for alipes, and a new one if its folder was deleted "
        f"({settings.data_folder}); or use a password instead."
    )


log = logging.getLogger(__name__)

API = "/_matrix/client/v3/keys"
PICKLE = b"alipes".ljust(32, b"\0")
"""The file is private; this is not a secret."""
Table: TypeAlias = dict[str, Any]


class CrossSigner:
    """Cross-signs our device. Called once per start; a failure is retried at the next."""

    def __init__(self, client: MatrixClient, state: MatrixState, password: Secret) -> None:
        self._client, self._state, self._password = client, state, password
        self._user = str(client.user_id)

    async def ensure_signed(self) -> None:
        state = self._state.signing.read()
        if state.user == self._user and state.signed == self._client.device_id:
            return
        try:
            await self._sign_device(state)
        except FAILURES as failure:
            log.warning("cross-signing our Matrix device failed, so it shows as unverified: %s", failure)

    async def _sign_device(self, state: SigningKeys) -> None:
        master, own = _keys(state) if state.user == self._user else (Account(), Account())
        known = await self._client.call_api("POST", f"{API}/query", {"device_keys": {self._user: []}})
        failure = known.get("master_keys", {}).get(self._user, {}).get("keys", {})
        if failure and _public(master) not in failure.values():
            log.info("cross-signing of %s was set up elsewhere: verify our device there", self._user)
            return
        if not failure:
            # save first: keys that exist only on the homeserver could never be used or replaced
            self._state.signing.write(SigningKeys(self._user, master.pickle(PICKLE), own.pickle(PICKLE)))
            await self._publish(master, own)
        device = {
            name: value
            for name, value in known["device_keys"][self._user][self._client.device_id].items()
            if name not in ("unsigned", "signatures")
        }
        signed = {self._user: {self._client.device_id: self._sign(device, own)}}
        response = await self._client.call_api("POST", f"{API}/signatures/upload", signed)
        if response.get("failures"):
            raise MatrixError("", f"the signature was rejected: {response['failures']}")
        done = SigningKeys(self._user, master.pickle(PICKLE), own.pickle(PICKLE), str(self._client.device_id))
        self._state.signing.write(done)

    async def _publish(self, master: Account, own: Account) -> None:
        """Most homeservers accept the first keys of an account as they are; others ask for the password."""
        keys: Table = {
            "master_key": self._key(master, "master"),
            "self_signing_key": self._sign(self._key(own, "self_signing"), master),
        }
        try:
            await self._client.call_api("POST", f"{API}/device_signing/upload", keys)
        except MatrixError as refused:
            if refused.status != 401 or not self._password:
                raise
            auth = {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": self._user},
                "password": self._password.reveal(),
                "session": refused.session,
            }
            await self._client.call_api("POST", f"{API}/device_signing/upload", keys | {"auth": auth})

    def _key(self, key: Account, usage: str) -> Table:
        return {"user_id": self._user, "usage": [usage], "keys": {f"ed25519:{_public(key)}": _public(key)}}

    def _sign(self, response: Table, by: Account) -> Table:
        signature = by.sign(nio.Api.to_canonical_json(response).encode()).to_base64()
        return response | {"signatures": {self._user: {f"ed25519:{_public(by)}": signature}}}


def _public(key: Account) -> str:
    return str(key.ed25519_key.to_base64())


def _keys(state: SigningKeys) -> tuple[Account, Account]:
    try:
        return Account.from_pickle(state.master, PICKLE), Account.from_pickle(state.own, PICKLE)
    except (PickleException, ValueError, json.JSONDecodeError):
        return Account(), Account()
