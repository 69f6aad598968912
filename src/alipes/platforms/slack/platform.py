"""The messenger port on slack_sdk: one connection per `listen`, and every call out tried once."""

import asyncio
from contextlib import suppress

from alipes.kernel.errors import ConfigError, DeliveryError, Gone
from alipes.kernel.platform import Piece, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.platforms.connection import Lanes, Trouble
from alipes.platforms.files import anyone
from alipes.platforms.slack import markup
from alipes.platforms.slack.backfill import Gaps
from alipes.platforms.slack.receive import Door, Listening, Seen
from alipes.platforms.slack.send import Begun, Speaking
from alipes.platforms.slack.settings import SlackSettings
from alipes.platforms.slack.socket import Connection
from alipes.platforms.slack.web_api import UNKNOWN_TOKEN, Calls, code
from alipes.runtime.tasks import first, to_the_end

TALENTS = Talents(
    longest=markup.LONGEST,
    edits=True,
    pace=1.2,
    typing=60.0,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    remembers=True,
    deletes=True,
)


class Slack:
    """Sends while `listen` runs, whether or not a line stands at the moment."""

    name = "slack"
    talents = TALENTS

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._welcome: Welcome = anyone
        self._known: frozenset[str] = frozenset()
        self._speaking: Speaking | None = None
        self._listening: Listening | None = None

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Files are fetched for those of whom this is true; it is asked with the arrival as it is without."""
        self._welcome = welcome

    async def listen(self, take: Take, tell: Tell) -> None:
        seen = Seen(self._settings.folder / "seen.json")
        calls = Calls(self._settings)
        await calls.open()
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = Listening(
                    self._settings, calls, seen, lanes=Lanes(tasks), door=Door(take, self._welcome)
                )
                listening.known = self._known
                listening.me = await _log_in(calls, Trouble("Slack", tell, _judged))
                connection = Connection(calls, listening.hear, beat=self._settings.beat, tasks=tasks)
                connection.on_gap = Gaps(calls, seen, listening).read
                self._listening = listening
                self._speaking = Speaking(calls, listening, Begun(self._settings.folder / "begun.jsonl"))
                tasks.create_task(seen.keep())
                await connection.serve(tell)
        except BaseExceptionGroup as errors:
            raise first(errors) from None
        finally:
            self._speaking = self._listening = None
            await to_the_end(calls.close)
            seen.flush()

    def pieces(self, text: str) -> tuple[Piece, ...]:
        return markup.pieces(text)

    async def send(self, address: Address, piece: Piece) -> str:
        speaking = self._open()
        return await (speaking.show(address, piece) if piece.media else speaking.send(address, piece))

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        await self._open().edit(address, message, piece)

    async def delete(self, address: Address, message: str) -> None:
        with suppress(Gone):
            await self._open().delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._open().sign(address)

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Slack lets nobody but the operator register commands (see docs/slack.md); we know ours by name."""
        self._known = frozenset(name for name, _ in commands)
        if self._listening is not None:
            self._listening.known = self._known

    def _open(self) -> Speaking:
        if self._speaking is None:
            raise DeliveryError("Slack is not connected yet.")
        return self._speaking


async def _log_in(calls: Calls, trouble: Trouble) -> str:
    """Our own id, however long it takes to learn that."""
    while True:
        try:
            return str((await calls("logging in", "auth_test"))["user_id"])
        except DeliveryError as error:
            await trouble.wait(error)


def _judged(error: Exception, _count: int) -> DeliveryError:
    assert isinstance(error, DeliveryError)
    if code(error) in UNKNOWN_TOKEN:
        raise ConfigError(
            "Slack does not know the bot's token: it begins with xoxb-, and is shown where the app "
            f"was installed ({code(error)})."
        ) from error
    return error
