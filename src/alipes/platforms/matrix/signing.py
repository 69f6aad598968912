"""Cross-signing: our account vouches for our device, so that clients do not warn of it, nor leave it out.

The library knows none. Where somebody set it up for the account elsewhere, it is theirs, and left alone.
"""

import json
import logging
from typing import Any, TypeAlias

import nio  # type: ignore[import-untyped]
from vodozemac import Account, PickleException

from alipes.kernel.endpoints import Secret
from alipes.platforms.matrix.client import TROUBLE, Client, Refusal
from alipes.platforms.matrix.kept import Kept, Signing

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
