"""matrix-nio's client on our HTTP connections: the library handles rooms and keys, we connect and retry."""

import asyncio
import json
import logging
import os
import re
import secrets
from collections import defaultdict
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import nio  # type: ignore[import-untyped]
import nio.store  # type: ignore[import-untyped]
from peewee import SqliteDatabase  # type: ignore[import-untyped]

from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.messages import HttpResponse

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_GRACE = 15.0
"""Seconds beyond the poll time, or half of it, after which a connection counts as dead."""

_CHARSET = re.compile(r";.*")
for _name in ("nio.events.misc", "nio.responses"):
    logging.getLogger(_name).setLevel(logging.ERROR)  # they would log the content of messages


class MatrixError(Exception):
    """The homeserver returned an error. It stays inside this platform; see `translate_error`."""

    session = ""
    """Session of an authentication that needs a password."""

    def __init__(self, code: str, why: str, status: int = 0, wait: float | None = None) -> None:
        """`wait`: seconds the homeserver asked for."""
        super().__init__(f"{code or status}: {why}")
        self.code, self.why, self.status, self.wait = code, why, status, wait


class LostKeys(Exception):
    """The homeserver has keys of our device that we do not have."""


FAILURES = (MatrixError, httpx2.HTTPError, nio.EncryptionError, nio.LocalProtocolError)
"""What a call may raise."""


def expect(response: Any, kind: type[T]) -> T:
    """The response, if it is of this kind; otherwise raises it as `MatrixError`."""
    if isinstance(response, kind):
        return response
    status = getattr(getattr(response, "transport_response", None), "status", 0)
    wait = getattr(response, "retry_after_ms", None)
    code = getattr(response, "status_code", None) or ""
    if wait is None and (code == "M_LIMIT_EXCEEDED" or status == 429):
        wait = 5000
    why = str(getattr(response, "message", response))
    raise MatrixError(code, why, status, None if wait is None else wait / 1000)


class MatrixKeyStore(nio.store.SqliteStore):  # type: ignore[misc]
    """The library's key store in a private file."""

    def _create_database(self) -> Any:
        os.close(os.open(self.database_path, os.O_WRONLY | os.O_CREAT, 0o600))
        # writes happen on the loop and rarely wait for the disk; a kill loses nothing
        pragmas = {"foreign_keys": 1, "secure_delete": 1, "journal_mode": "wal", "synchronous": "normal"}
        return SqliteDatabase(self.database_path, pragmas=pragmas)


class MatrixClient(nio.AsyncClient):  # type: ignore[misc]
    """One device during one `listen`. It opens no connection and leaves no task behind."""

    def __init__(self, http: HttpClient, folder: Path, *, encryption: bool, patience: float) -> None:
        config = nio.AsyncClientConfig(
            store=MatrixKeyStore,
            store_name="keys.db",
            encryption_enabled=encryption,
            max_limit_exceeded=0,
            max_timeouts=0,
            request_timeout=patience,
        )
        self._http, self._patience = http, patience
        self._sharing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        super().__init__("", store_path=str(folder), config=config)

    def close_store(self) -> None:
        if self.store:
            self.store.database.close()

    async def send(
        self,
        method: str,
        path: str,
        data: Any = None,
        headers: dict[str, str] | None = None,
        trace_context: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> "NioResponse":
        """Every request of the library passes here. Raises `httpx2.HTTPError`."""
        content = data.encode() if isinstance(data, str) else data
        response = await self._http.request(
            method, path, headers=headers, content=content, timeout=timeout or self._patience
        )
        return NioResponse(response)

    async def poll_sync(self, since: str, filter: dict[str, Any], wait: float, *, whole: bool = False) -> Any:
        """Events after `since`, as soon as there are any or after `wait` seconds.

        `whole`: with the full state of our rooms, however long that takes.
        """
        method, path = nio.Api.sync(
            self.access_token, since or None, int(wait * 1000) or None, filter, whole and bool(since)
        )
        limit = wait + min(POLL_GRACE, wait / 2) if wait else self._patience * (4 if whole else 1)
        return expect(await self._send(nio.SyncResponse, method, path, timeout=limit), nio.SyncResponse)

    async def send_event(self, room_id: str, kind: str, content: dict[str, Any], tx_id: str) -> str:
        """Send an event, encrypted if the room is, and return its id. The same `tx_id` is one event."""
        room = self.rooms.get(room_id)
        if room is not None and room.encrypted and kind != "m.reaction":
            if self.olm is None:
                raise MatrixError("M_FORBIDDEN", "the room is encrypted, but encryption is off")
            await self._share_keys(room)
            kind, content = self.encrypt(room_id, kind, content)
        sent = await self._send(
            nio.RoomSendResponse, *nio.Api.room_send(self.access_token, room_id, kind, content, tx_id), (room_id,)
        )
        return str(expect(sent, nio.RoomSendResponse).event_id)

    async def _share_keys(self, room: Any) -> None:
        """Share the room key with everybody in the room. The library's own version continues if that fails."""
        room_id = room.room_id
        async with self._sharing[room_id]:
            if not room.members_synced:
                expect(await self.joined_members(room_id), nio.JoinedMembersResponse)
            if self.should_query_keys:
                expect(await self.keys_query(), nio.KeysQueryResponse)
            if not self.olm.should_share_group_session(room_id):
                return
            if missing := self.get_missing_sessions(room_id):
                expect(await self.keys_claim(missing), nio.KeysClaimResponse)
            shares = self.olm.share_group_session_parallel(room_id, list(room.users), True)
            for people, keys in shares:
                method, path, data = nio.Api.to_device(
                    self.access_token, "m.room.encrypted", keys, secrets.token_hex(16)
                )
                answer = await self._send(nio.ShareGroupSessionResponse, method, path, data, (room_id, people))
                expect(answer, nio.ShareGroupSessionResponse)
            self.olm.outbound_group_sessions[room_id].shared = True

    async def maintain_keys(self) -> None:
        """Upload our keys, query those of others and send pending key messages."""
        if self.olm is None:
            return
        if self.should_upload_keys:
            try:
                expect(await self.keys_upload(), nio.KeysUploadResponse)
            except MatrixError as refused:
                if refused.status == 400:
                    raise LostKeys(refused.why) from refused
                raise
        if self.should_query_keys:
            expect(await self.keys_query(), nio.KeysQueryResponse)
        if self.should_claim_keys:
            expect(await self.keys_claim(self.get_users_for_key_claiming()), nio.KeysClaimResponse)
        for message in tuple(self.outgoing_to_device_messages):
            expect(await self.to_device(message), nio.ToDeviceResponse)

    def stream(self, path: str) -> AbstractAsyncContextManager[HttpResponse]:
        """GET with an unread body."""
        return self._http.stream("GET", path, headers={"authorization": f"Bearer {self.access_token}"})

    async def call_api(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call that the library does not offer."""
        headers = {"authorization": f"Bearer {self.access_token}", "content-type": "application/json"}
        answer = await self.send(method, path, json.dumps(body), headers)
        answered = await self.parse_body(answer)
        if answer.status == 200:
            return dict(answered)
        wait = answered.get("retry_after_ms", 5000) / 1000 if answer.status == 429 else None
        refusal = MatrixError(str(answered.get("errcode", "")), str(answered.get("error", "")), answer.status, wait)
        refusal.session = str(answered.get("session", ""))
        raise refusal

    async def upload_bytes(self, data: bytes, name: str, mime: str) -> str:
        """Upload bytes; returns their address on the homeserver."""
        method, path = nio.Api.upload(self.access_token, name)
        answer = await self._send(nio.UploadResponse, method, path, data, content_type=mime, timeout=4 * self._patience)
        return str(expect(answer, nio.UploadResponse).content_uri)


class NioResponse:
    """An HTTP response with the interface that the library expects."""

    content_disposition = None

    def __init__(self, response: HttpResponse) -> None:
        self._response = response
        self.status = response.status_code
        self.content_type = _CHARSET.sub("", response.headers.get("content-type", "")).strip()

    async def json(self) -> Any:
        return json.loads(self._response.content)

    async def text(self) -> str:
        return self._response.text

    async def read(self) -> bytes:
        return self._response.content
