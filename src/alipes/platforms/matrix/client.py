"""matrix-nio on our connections: it knows rooms, keys and words; who connects, waits and retries is us."""

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

import httpx2
import nio  # type: ignore[import-untyped]
import nio.store  # type: ignore[import-untyped]
from peewee import SqliteDatabase  # type: ignore[import-untyped]

from alipes.platforms.matrix.cursor import Login
from alipes.platforms.matrix.settings import SLACK
from alipes.runtime.http.clients import Http

log = logging.getLogger(__name__)
T = TypeVar("T")

_CHARSET = re.compile(r";.*")
for _name in ("nio.events.misc", "nio.responses"):
    logging.getLogger(_name).setLevel(logging.ERROR)  # they would write what people say into our log


class Refusal(Exception):
    """The homeserver said no. Never leaves this platform: `ours` puts it in our words."""

    session = ""
    """Where it wants to see a password: by what it knows us then."""

    def __init__(self, code: str, why: str, status: int = 0, wait: float | None = None) -> None:
        """`wait`: seconds it asked for."""
        super().__init__(f"{code or status}: {why}")
        self.code, self.why, self.status, self.wait = code, why, status, wait


class LostKeys(Exception):
    """The homeserver has keys of our device that we do not have (any more)."""


TROUBLE = (Refusal, httpx2.HTTPError, nio.EncryptionError, nio.LocalProtocolError)
"""What a call may raise."""


def given(response: Any, kind: type[T]) -> T:
    """The answer, if it is of this kind; else it is raised."""
    if isinstance(response, kind):
        return response
    status = getattr(getattr(response, "transport_response", None), "status", 0)
    wait = getattr(response, "retry_after_ms", None)
    code = getattr(response, "status_code", None) or ""
    if wait is None and (code == "M_LIMIT_EXCEEDED" or status == 429):
        wait = 5000
    why = str(getattr(response, "message", response))
    raise Refusal(code, why, status, None if wait is None else wait / 1000)


class Keys(nio.store.SqliteStore):  # type: ignore[misc]
    """The library's own store of keys, in a file that only we may read."""

    def _create_database(self) -> Any:
        os.close(os.open(self.database_path, os.O_WRONLY | os.O_CREAT, 0o600))
        # A write, which happens on the loop, seldom waits for the disk; a kill loses nothing by that.
        pragmas = {"foreign_keys": 1, "secure_delete": 1, "journal_mode": "wal", "synchronous": "normal"}
        return SqliteDatabase(self.database_path, pragmas=pragmas)


class Client(nio.AsyncClient):  # type: ignore[misc]
    """One device, for one time of listening. It opens no connection, and leaves no task behind."""

    def __init__(self, http: Http, folder: Path, *, encryption: bool, patience: float) -> None:
        config = nio.AsyncClientConfig(
            store=Keys,
            store_name="keys.db",
            encryption_enabled=encryption,
            max_limit_exceeded=0,
            max_timeouts=0,
            request_timeout=patience,
        )
        self._http, self._patience = http, patience
        self._sharing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        super().__init__("", store_path=str(folder), config=config)

    def enter(self, login: Login) -> None:
        """Be this device, with its keys."""
        self.restore_login(login.user, login.device, login.token)

    def end(self) -> None:
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
    ) -> "Answered":
        """Every request of the library passes here. Raises `httpx2.HTTPError` kinds."""
        content = data.encode() if isinstance(data, str) else data
        response = await self._http.request(
            method, path, headers=headers, content=content, timeout=timeout or self._patience
        )
        return Answered(response)

    async def news(self, since: str, filter: dict[str, Any], wait: float, *, whole: bool = False) -> Any:
        """What happened after `since`, as soon as there is something, or after `wait` seconds.

        `whole`: with all that there is to know of our rooms, however long that takes.
        """
        method, path = nio.Api.sync(
            self.access_token, since or None, int(wait * 1000) or None, filter, whole and bool(since)
        )
        limit = wait + min(SLACK, wait / 2) if wait else self._patience * (4 if whole else 1)
        return given(await self._send(nio.SyncResponse, method, path, timeout=limit), nio.SyncResponse)

    async def put(self, room_id: str, kind: str, content: dict[str, Any], tx_id: str) -> str:
        """Send an event, encrypted where the room is; the id it has there. The same `tx_id` is one event."""
        room = self.rooms.get(room_id)
        if room is not None and room.encrypted and kind != "m.reaction":
            if self.olm is None:
                raise Refusal("M_FORBIDDEN", "the room is encrypted, and encryption is switched off")
            await self._share(room)
            kind, content = self.encrypt(room_id, kind, content)
        sent = await self._send(
            nio.RoomSendResponse,
            *nio.Api.room_send(self.access_token, room_id, kind, content, tx_id),
            (room_id,),
        )
        return str(given(sent, nio.RoomSendResponse).event_id)

    async def _share(self, room: Any) -> None:
        """Everybody there has what it takes to read us. The library's own goes on also where that failed."""
        room_id = room.room_id
        async with self._sharing[room_id]:
            if not room.members_synced:
                given(await self.joined_members(room_id), nio.JoinedMembersResponse)
            if self.should_query_keys:
                given(await self.keys_query(), nio.KeysQueryResponse)
            if not self.olm.should_share_group_session(room_id):
                return
            if missing := self.get_missing_sessions(room_id):
                given(await self.keys_claim(missing), nio.KeysClaimResponse)
            shares = self.olm.share_group_session_parallel(room_id, list(room.users), True)
            for people, keys in shares:
                method, path, data = nio.Api.to_device(
                    self.access_token, "m.room.encrypted", keys, secrets.token_hex(16)
                )
                answer = await self._send(
                    nio.ShareGroupSessionResponse, method, path, data, (room_id, people)
                )
                given(answer, nio.ShareGroupSessionResponse)
            self.olm.outbound_group_sessions[room_id].shared = True

    async def tend(self) -> None:
        """What encryption needs beside messages: our keys are there, we know those of others."""
        if self.olm is None:
            return
        if self.should_upload_keys:
            try:
                given(await self.keys_upload(), nio.KeysUploadResponse)
            except Refusal as refused:
                if refused.status == 400:
                    raise LostKeys(refused.why) from refused
                raise
        if self.should_query_keys:
            given(await self.keys_query(), nio.KeysQueryResponse)
        if self.should_claim_keys:
            given(await self.keys_claim(self.get_users_for_key_claiming()), nio.KeysClaimResponse)
        for message in tuple(self.outgoing_to_device_messages):
            given(await self.to_device(message), nio.ToDeviceResponse)

    def stream(self, path: str) -> AbstractAsyncContextManager[httpx2.Response]:
        """Something of the homeserver's, its body unread."""
        return self._http.stream("GET", path, headers={"authorization": f"Bearer {self.access_token}"})

    async def ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Something for which the library has no words."""
        headers = {"authorization": f"Bearer {self.access_token}", "content-type": "application/json"}
        answer = await self.send(method, path, json.dumps(body), headers)
        told = await self.parse_body(answer)
        if answer.status == 200:
            return dict(told)
        wait = told.get("retry_after_ms", 5000) / 1000 if answer.status == 429 else None
        refusal = Refusal(str(told.get("errcode", "")), str(told.get("error", "")), answer.status, wait)
        refusal.session = str(told.get("session", ""))
        raise refusal

    async def upload_bytes(self, data: bytes, name: str, mime: str) -> str:
        """Where the homeserver keeps them now."""
        method, path = nio.Api.upload(self.access_token, name)
        answer = await self._send(
            nio.UploadResponse, method, path, data, content_type=mime, timeout=4 * self._patience
        )
        return str(given(answer, nio.UploadResponse).content_uri)


class Answered:
    """An answer, with the names by which the library reads one."""

    content_disposition = None

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.content_type = _CHARSET.sub("", response.headers.get("content-type", "")).strip()

    async def json(self) -> Any:
        return json.loads(self._response.content)

    async def text(self) -> str:
        return self._response.text

    async def read(self) -> bytes:
        return self._response.content
