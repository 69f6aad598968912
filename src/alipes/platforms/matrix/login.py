"""Cross-signing: our account vouches for our device, so that clients do not warn of it, nor leave it out.

The library knows none. Where somebody set it up for the account elsewhere, it is theirs, and left alone.
"""

import json
import logging
from typing import Any, TypeAlias

import nio  # type: ignore[import-untyped]
from vodozemac import Account, PickleException

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.models import Secret
from alipes.platforms.matrix.client import TROUBLE, Client, Refusal, given
from alipes.platforms.matrix.cursor import Kept, Login, Signing
from alipes.platforms.matrix.payloads import ours
from alipes.platforms.matrix.settings import MatrixSettings

LOGGED_OUT = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")


class LoggedOut(Exception):
    """The homeserver ended our login."""


def judged(theirs: Exception, _count: int) -> DeliveryError:
    """What keeps us from listening. Raises `LoggedOut` when waiting does not help."""
    if isinstance(theirs, Refusal) and theirs.code in LOGGED_OUT:
        raise LoggedOut(theirs.why) from theirs
    return ours(theirs, "waiting for messages")


async def log_in(client: Client, settings: MatrixSettings, kept: Kept) -> Login:
    """Who we are. Raises ConfigError where only the operator can help, else `TROUBLE` kinds."""
    if settings.token:
        return await _by_token(client, settings)
    known = kept.login()
    if known.user != settings.user:
        known = Login()
    if known.token:
        return known
    made = await _by_password(client, settings, known.device)
    kept.log_in(made)
    return made


async def _by_token(client: Client, settings: MatrixSettings) -> Login:
    client.access_token = settings.token.reveal()
    try:
        told: Any = given(await client.whoami(), nio.WhoamiResponse)
    except Refusal as refused:
        if refused.code in LOGGED_OUT:
            raise bad_token() from refused
        _nowhere(refused, settings)
        raise
    if told.user_id != settings.user:
        raise ConfigError(
            f"The token that [matrix] token_env names belongs to {told.user_id}, not to {settings.user}: "
            "correct matrix.user, or use a token of that user."
        )
    if not told.device_id and settings.encryption:
        raise ConfigError(
            "The Matrix token belongs to no device, so nothing can be encrypted with it: log in with a "
            "password instead, or set matrix.encryption = false."
        )
    return Login(told.user_id, told.device_id or "none", settings.token.reveal())


async def _by_password(client: Client, settings: MatrixSettings, device: str) -> Login:
    asked = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": settings.user},
        "password": settings.password.reveal(),
        "initial_device_display_name": settings.device,
    }
    if device:  # its keys are here
        asked["device_id"] = device
    try:
        told: Any = given(await client.login_raw(asked), nio.LoginResponse)
    except Refusal as refused:
        _nowhere(refused, settings)
        if refused.wait is None and 400 <= refused.status < 500:
            raise ConfigError(
                f"The homeserver does not let {settings.user} in with the password that [matrix] "
                f"password_env names: {refused.why}."
            ) from refused
        raise
    return Login(told.user_id, told.device_id, told.access_token, made=True)


def _nowhere(refused: Refusal, settings: MatrixSettings) -> None:
    if refused.status == 404:
        server = settings.user.partition(":")[2]
        raise ConfigError(
            f"There is no Matrix homeserver at matrix.base_url ({settings.base_url}): the address is told at "
            f"https://{server}/.well-known/matrix/client."
        ) from refused


def bad_token() -> ConfigError:
    return ConfigError(
        "The homeserver does not know the token that [matrix] token_env names: make a new one, or give a "
        "password instead."
    )


def lost_keys(settings: MatrixSettings) -> ConfigError:
    return ConfigError(
        "The keys of the device to which the Matrix token belongs are not ours, or were lost, so that nobody "
        "could read what we encrypt: make a token for alipes alone, and a new one if its folder was deleted "
        f"({settings.folder}); or give a password instead."
    )


log = logging.getLogger(__name__)

API = "/_matrix/client/v3/keys"
PICKLE = b"alipes".ljust(32, b"\0")
"""The file is private; this keeps nobody out."""
Table: TypeAlias = dict[str, Any]


class Signer:
    """`vouch` is called once per start; whatever fails is tried again at the next."""

    def __init__(self, client: Client, kept: Kept, password: Secret) -> None:
        self._client, self._kept, self._password = client, kept, password
        self._user = str(client.user_id)

    async def vouch(self) -> None:
        kept = self._kept.signing()
        if kept.user == self._user and kept.signed == self._client.device_id:
            return
        try:
            await self._vouch(kept)
        except TROUBLE as theirs:
            log.warning("our device on Matrix could not be cross-signed, and shows as unverified: %s", theirs)

    async def _vouch(self, kept: Signing) -> None:
        master, own = _keys(kept) if kept.user == self._user else (Account(), Account())
        known = await self._client.ask("POST", f"{API}/query", {"device_keys": {self._user: []}})
        theirs = known.get("master_keys", {}).get(self._user, {}).get("keys", {})
        if theirs and _public(master) not in theirs.values():
            log.info("cross-signing was set up for %s elsewhere: verify our device there", self._user)
            return
        if not theirs:
            # First the file: keys that are there and not here could never be used, nor replaced.
            self._kept.sign(Signing(self._user, master.pickle(PICKLE), own.pickle(PICKLE)))
            await self._publish(master, own)
        device = {
            name: value
            for name, value in known["device_keys"][self._user][self._client.device_id].items()
            if name not in ("unsigned", "signatures")
        }
        signed = {self._user: {self._client.device_id: self._signed(device, own)}}
        told = await self._client.ask("POST", f"{API}/signatures/upload", signed)
        if told.get("failures"):
            raise Refusal("", f"the signature was refused: {told['failures']}")
        done = Signing(self._user, master.pickle(PICKLE), own.pickle(PICKLE), str(self._client.device_id))
        self._kept.sign(done)

    async def _publish(self, master: Account, own: Account) -> None:
        """Most homeservers take the first keys of an account as they are; others want to see the password."""
        keys: Table = {
            "master_key": self._key(master, "master"),
            "self_signing_key": self._signed(self._key(own, "self_signing"), master),
        }
        try:
            await self._client.ask("POST", f"{API}/device_signing/upload", keys)
        except Refusal as refused:
            if refused.status != 401 or not self._password:
                raise
            auth = {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": self._user},
                "password": self._password.reveal(),
                "session": refused.session,
            }
            await self._client.ask("POST", f"{API}/device_signing/upload", keys | {"auth": auth})

    def _key(self, key: Account, usage: str) -> Table:
        return {"user_id": self._user, "usage": [usage], "keys": {f"ed25519:{_public(key)}": _public(key)}}

    def _signed(self, told: Table, by: Account) -> Table:
        signature = by.sign(nio.Api.to_canonical_json(told).encode()).to_base64()
        return told | {"signatures": {self._user: {f"ed25519:{_public(by)}": signature}}}


def _public(key: Account) -> str:
    return str(key.ed25519_key.to_base64())


def _keys(kept: Signing) -> tuple[Account, Account]:
    try:
        return Account.from_pickle(kept.master, PICKLE), Account.from_pickle(kept.own, PICKLE)
    except (PickleException, ValueError, json.JSONDecodeError):
        return Account(), Account()
