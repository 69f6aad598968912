"""Matrix as a platform, on matrix-nio: one device per `listen`, on our own connections."""

import asyncio

from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Capabilities, IncomingMessage, MayFetch, MessagePart, OnMessage, OnStatus
from alipes.kernel.turns import Address
from alipes.platforms.connection import ConnectionRetry, Lanes
from alipes.platforms.files import fetch_for_anyone
from alipes.platforms.matrix import payloads
from alipes.platforms.matrix.client import FAILURES, LostKeys, MatrixClient
from alipes.platforms.matrix.cursor import MatrixLogin, MatrixState, SyncPosition, SyncState
from alipes.platforms.matrix.events import MatrixEvents, UndecryptedEvents
from alipes.platforms.matrix.files import MatrixFiles
from alipes.platforms.matrix.login import (
    CrossSigner,
    LoggedOut,
    bad_token_error,
    classify_failure,
    log_in,
    lost_keys_error,
)
from alipes.platforms.matrix.parse import EventCache, ParseOptions
from alipes.platforms.matrix.receive import MatrixReceiver
from alipes.platforms.matrix.send import TYPING, MatrixSender
from alipes.platforms.matrix.settings import MatrixSettings
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.tasks import first_error

CAPABILITIES = Capabilities(
    max_length=payloads.LONGEST,
    can_edit=True,
    edit_interval=1.5,
    typing_seconds=TYPING,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    deduplicates=True,
    can_delete=True,
)


class MatrixPlatform:
    """Sends while `listen` runs, also while the homeserver does not answer."""

    name = "matrix"
    capabilities = CAPABILITIES

    def __init__(self, settings: MatrixSettings, http: HttpClient) -> None:
        self._settings, self._http = settings, http
        self._may_fetch: MayFetch = fetch_for_anyone
        self._options = ParseOptions(settings.per_user, settings.group)
        self._events: MatrixEvents | None = None
        self._sender: MatrixSender | None = None

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        self._may_fetch = may_fetch

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings, state = self._settings, MatrixState(self._settings.folder)
        client = MatrixClient(self._http, settings.folder, encryption=settings.encryption, patience=settings.patience)
        try:
            login = await self._log_in(client, state, ConnectionRetry("Matrix", on_status, classify_failure))
            client.use_login(login)
            await self._serve(client, state, on_message, on_status)
        except LoggedOut as ended:
            if settings.token:
                raise bad_token_error() from ended
            state.save_login(replace(state.login(), token=""))
            raise DeliveryError("The homeserver ended our login; logging in again.") from ended
        except LostKeys as lost:
            if settings.token:
                raise lost_keys_error(settings) from lost
            state.save_login(MatrixLogin())
            raise DeliveryError("The keys of our device are lost; logging in as a new device.") from lost
        finally:
            self._events = self._sender = None
            client.close_store()

    async def _log_in(self, client: MatrixClient, state: MatrixState, retry: ConnectionRetry) -> MatrixLogin:
        while True:
            try:
                return await log_in(client, self._settings, state)
            except FAILURES as failure:
                await retry.wait(failure)

    async def _serve(
        self, client: MatrixClient, state: MatrixState, on_message: OnMessage, on_status: OnStatus
    ) -> None:
        settings, synced, cache = self._settings, state.sync_state(client.user_id), EventCache(client)
        sender = MatrixSender(client, cache)
        files = MatrixFiles(client, settings.folder / "files", largest=settings.largest, picture=settings.picture)
        handler = MatrixEvents(client, cache, files, on_message, self._may_fetch)
        handler.options = self._options

        def save() -> None:
            state.save_sync_state(SyncState(synced.user, progress.since, undecrypted.waiting))

        async def say(incoming: IncomingMessage, part: MessagePart) -> None:
            await sender.send(incoming.address, part)

        progress = SyncPosition(synced.since, lambda _since: save())
        undecrypted = UndecryptedEvents(client, handler, synced.unread, say=say, changed=save)
        signer = CrossSigner(client, state, settings.password)
        receiver = MatrixReceiver(client, handler, undecrypted, progress, signer)
        self._events, self._sender = handler, sender
        try:
            async with asyncio.TaskGroup() as tasks:
                receiver.lanes = Lanes(tasks)
                await receiver.run(on_status, settings.poll)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        return payloads.format_markdown(text)

    async def send(self, address: Address, part: MessagePart) -> str:
        return await self._require_sender().send(address, part)

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        await self._require_sender().edit(address, message, part)

    async def delete(self, address: Address, message: str) -> None:
        await self._require_sender().delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._require_sender().typing(address)

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Matrix has no command menu; the names are needed to recognise commands."""
        self._options = replace(self._options, commands=frozenset(name for name, _about in commands))
        if self._events is not None:
            self._events.options = self._options

    def _require_sender(self) -> MatrixSender:
        if self._sender is None:
            raise DeliveryError("Matrix is not connected yet.")
        return self._sender
