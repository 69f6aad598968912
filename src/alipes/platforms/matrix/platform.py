"""The messenger port on matrix-nio: one device per `listen`, on our own connections. It keeps no state."""

import asyncio

from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Arrival, Piece, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.platforms.connection import Lanes, Trouble
from alipes.platforms.files import anyone
from alipes.platforms.matrix import payloads
from alipes.platforms.matrix.client import TROUBLE, Client, LostKeys
from alipes.platforms.matrix.cursor import Heard, Kept, Login, Progress
from alipes.platforms.matrix.events import Hearing, Unread
from alipes.platforms.matrix.files import Files
from alipes.platforms.matrix.login import LoggedOut, Signer, bad_token, judged, log_in, lost_keys
from alipes.platforms.matrix.parse import Reader, Recall
from alipes.platforms.matrix.receive import Listening
from alipes.platforms.matrix.send import TYPING, Speaker
from alipes.platforms.matrix.settings import MatrixSettings
from alipes.runtime.http.clients import Http
from alipes.runtime.tasks import first

TALENTS = Talents(
    longest=payloads.LONGEST,
    edits=True,
    pace=1.5,
    typing=TYPING,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    remembers=True,
    deletes=True,
)


class Matrix:
    """Sends while `listen` runs, whether or not the homeserver answers at the moment."""

    name = "matrix"
    talents = TALENTS

    def __init__(self, settings: MatrixSettings, http: Http) -> None:
        self._settings, self._http = settings, http
        self._welcome: Welcome = anyone
        self._reader = Reader(settings.per_user, settings.group)
        self._hearing: Hearing | None = None
        self._speaker: Speaker | None = None

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Files are fetched for those of whom this is true; it is asked with the arrival as it is without."""
        self._welcome = welcome

    async def listen(self, take: Take, tell: Tell) -> None:
        settings, kept = self._settings, Kept(self._settings.folder)
        client = Client(
            self._http, settings.folder, encryption=settings.encryption, patience=settings.patience
        )
        try:
            login = await self._log_in(client, kept, Trouble("Matrix", tell, judged))
            client.enter(login)
            await self._serve(client, kept, take, tell)
        except LoggedOut as ended:
            if settings.token:
                raise bad_token() from ended
            kept.log_in(replace(kept.login(), token=""))
            raise DeliveryError("The homeserver ended our login; we log in anew.") from ended
        except LostKeys as lost:
            if settings.token:
                raise lost_keys(settings) from lost
            kept.log_in(Login())
            raise DeliveryError("The keys of our device are lost; we log in anew, as another.") from lost
        finally:
            self._hearing = self._speaker = None
            client.end()

    async def _log_in(self, client: Client, kept: Kept, trouble: Trouble) -> Login:
        while True:
            try:
                return await log_in(client, self._settings, kept)
            except TROUBLE as theirs:
                await trouble.wait(theirs)

    async def _serve(self, client: Client, kept: Kept, take: Take, tell: Tell) -> None:
        settings, heard, recall = self._settings, kept.heard(client.user_id), Recall(client)
        speaker = Speaker(client, recall)
        files = Files(client, settings.folder / "files", largest=settings.largest, picture=settings.picture)
        hearing = Hearing(client, recall, files, take, self._welcome)
        hearing.reader = self._reader

        def keep() -> None:
            kept.hear(Heard(heard.user, progress.since, unread.waiting))

        async def say(made: Arrival, piece: Piece) -> None:
            await speaker.send(made.address, piece)

        progress = Progress(heard.since, lambda _since: keep())
        unread = Unread(client, hearing, heard.unread, say=say, changed=keep)
        signer = Signer(client, kept, settings.password)
        listening = Listening(client, hearing, unread, progress, signer)
        self._hearing, self._speaker = hearing, speaker
        try:
            async with asyncio.TaskGroup() as tasks:
                listening.lanes = Lanes(tasks)
                await listening.run(tell, settings.poll)
        except BaseExceptionGroup as errors:
            raise first(errors) from None

    def pieces(self, text: str) -> tuple[Piece, ...]:
        return payloads.pieces(text)

    async def send(self, address: Address, piece: Piece) -> str:
        return await self._voice().send(address, piece)

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        await self._voice().edit(address, message, piece)

    async def delete(self, address: Address, message: str) -> None:
        await self._voice().delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._voice().typing(address)

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Matrix has none; but we know what is a command of ours."""
        self._reader = replace(self._reader, commands=frozenset(name for name, _about in commands))
        if self._hearing is not None:
            self._hearing.reader = self._reader

    def _voice(self) -> Speaker:
        if self._speaker is None:
            raise DeliveryError("Matrix is not connected yet.")
        return self._speaker
