"""Matrix as a platform, on matrix-nio: one device per `listen`, on our own connections."""

import asyncio

from msgspec.structs import replace

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import OnMessage, OnStatus, Platform
from alipes.platforms.connection import ConnectionRetry, Lanes, optional_library
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.platforms.messenger import CHAT, Messenger
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.tasks import unwrap_error_group

with optional_library("Matrix", "matrix-nio", "matrix"):
    from alipes.platforms.matrix import login, payloads
    from alipes.platforms.matrix.client import FAILURES, POLL_GRACE, LostKeys, MatrixClient
    from alipes.platforms.matrix.files import MatrixFiles
    from alipes.platforms.matrix.parse import EventCache
    from alipes.platforms.matrix.receive import MatrixEvents, MatrixReceiver, SyncPosition, UndecryptedEvents
    from alipes.platforms.matrix.send import TYPING, MatrixSender


class MatrixPlatform(Messenger[MatrixConfig]):
    """Sends while `listen` runs, also while the homeserver does not answer."""

    name, title = "matrix", "Matrix"
    capabilities = replace(CHAT, max_length=payloads.LONGEST, edit_interval=1.5, typing_seconds=TYPING)
    format_message = staticmethod(payloads.format_markdown)

    def __init__(self, settings: MatrixConfig, scope: ClientScope) -> None:
        super().__init__(settings)
        stall = max(settings.poll + POLL_GRACE, 4 * settings.patience)
        self._http = scope.http("matrix", base_url=settings.base_url, stall=stall)

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings, state = self.settings, login.MatrixState(self.settings.data_folder)
        client = MatrixClient(
            self._http, settings.data_folder, encryption=settings.encryption, patience=settings.patience
        )
        try:
            retry = ConnectionRetry("Matrix", on_status, login.classify_failure)
            device = await retry.until_success(lambda: login.log_in(client, settings, state), *FAILURES)
            client.restore_login(device.user, device.device, device.token)
            await self._serve(client, state, on_message, on_status)
        except login.LoggedOut as ended:
            if settings.token:
                raise login.bad_token_error() from ended
            state.login.write(replace(state.login.read(), token=""))
            raise DeliveryError("The homeserver ended our login; logging in again.") from ended
        except LostKeys as lost:
            if settings.token:
                raise login.lost_keys_error(settings) from lost
            state.login.write(login.MatrixLogin())
            raise DeliveryError("The keys of our device are lost; logging in as a new device.") from lost
        finally:
            self.sender = None
            client.close_store()

    async def _serve(
        self, client: MatrixClient, state: login.MatrixState, on_message: OnMessage, on_status: OnStatus
    ) -> None:
        settings, synced, cache = self.settings, state.sync_state(client.user_id), EventCache(client)
        sender = MatrixSender(client, cache)
        handler = MatrixEvents(self, client, cache, MatrixFiles(client, settings), on_message)

        def save() -> None:
            state.sync.write(login.SyncState(synced.user, progress.since, undecrypted.waiting))

        progress = SyncPosition(synced.since, lambda _since: save())
        undecrypted = UndecryptedEvents(client, handler, synced.unread, sender=sender, changed=save)
        signer = login.CrossSigner(client, state, settings.password)
        receiver = MatrixReceiver(client, handler, undecrypted, progress, signer)
        self.sender = sender
        with unwrap_error_group():
            async with asyncio.TaskGroup() as tasks:
                receiver.lanes = Lanes(tasks)
                await receiver.run(on_status, settings.poll)


def open_platform(settings: MatrixConfig, scope: ClientScope) -> Platform:
    if not settings.user.startswith("@") or ":" not in settings.user:
        raise ConfigError("Matrix needs your bot's user id: set matrix.user, as in @alipes:example.org.")
    if not settings.token and not settings.password:
        raise ConfigError(
            "Matrix needs an access token or a password: set the variable that [matrix] token_env or "
            "password_env names."
        )
    return MatrixPlatform(settings, scope)
