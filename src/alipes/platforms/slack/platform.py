"""Slack as a platform, on slack_sdk: one connection per `listen`, one attempt per call."""

import asyncio
from contextlib import suppress

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.platform import Capabilities, MayFetch, MessagePart, OnMessage, OnStatus
from alipes.kernel.turns import Address
from alipes.platforms.connection import ConnectionRetry, Lanes
from alipes.platforms.files import fetch_for_anyone
from alipes.platforms.slack import markup
from alipes.platforms.slack.backfill import SlackBackfill
from alipes.platforms.slack.receive import SlackReadPosition, SlackReceiver
from alipes.platforms.slack.send import SendJournal, SlackSender
from alipes.platforms.slack.settings import SlackSettings
from alipes.platforms.slack.socket import SlackConnection
from alipes.platforms.slack.web_api import UNKNOWN_TOKEN, SlackApi, error_code
from alipes.runtime.tasks import first_error, run_to_completion

CAPABILITIES = Capabilities(
    max_length=markup.LONGEST,
    can_edit=True,
    edit_interval=1.2,
    typing_seconds=60.0,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    deduplicates=True,
    can_delete=True,
)


class SlackPlatform:
    """Sends while `listen` runs, also while the socket is closed."""

    name = "slack"
    capabilities = CAPABILITIES

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._may_fetch: MayFetch = fetch_for_anyone
        self._known: frozenset[str] = frozenset()
        self._sender: SlackSender | None = None
        self._receiver: SlackReceiver | None = None

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        self._may_fetch = may_fetch

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        position = SlackReadPosition(self._settings.folder / "seen.json")
        api = SlackApi(self._settings)
        await api.open()
        try:
            async with asyncio.TaskGroup() as tasks:
                receiver = SlackReceiver(
                    self._settings, api, position, lanes=Lanes(tasks), on_message=on_message, may_fetch=self._may_fetch
                )
                receiver.known = self._known
                receiver.me = await _log_in(api, ConnectionRetry("Slack", on_status, _classify_failure))
                connection = SlackConnection(api, receiver.on_request, beat=self._settings.beat, tasks=tasks)
                connection.on_gap = SlackBackfill(api, position, receiver).read
                self._receiver = receiver
                self._sender = SlackSender(api, receiver, SendJournal(self._settings.folder / "begun.jsonl"))
                tasks.create_task(position.save_periodically())
                await connection.serve(on_status)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self._sender = self._receiver = None
            await run_to_completion(api.close)
            position.flush()

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        return markup.format_markdown(text)

    async def send(self, address: Address, part: MessagePart) -> str:
        sender = self._open()
        return await (sender.send_file(address, part) if part.media else sender.send(address, part))

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        await self._open().edit(address, message, part)

    async def delete(self, address: Address, message: str) -> None:
        with suppress(Undeliverable):
            await self._open().delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._open().show_busy(address)

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Slack lets only the operator register commands (see docs/slack.md); we only need their names."""
        self._known = frozenset(name for name, _ in commands)
        if self._receiver is not None:
            self._receiver.known = self._known

    def _open(self) -> SlackSender:
        if self._sender is None:
            raise DeliveryError("Slack is not connected yet.")
        return self._sender


async def _log_in(api: SlackApi, retry: ConnectionRetry) -> str:
    """Our user id; waits while Slack is not reachable."""
    while True:
        try:
            return str((await api("logging in", "auth_test"))["user_id"])
        except DeliveryError as error:
            await retry.wait(error)


def _classify_failure(error: Exception, _count: int) -> DeliveryError:
    assert isinstance(error, DeliveryError)
    if error_code(error) in UNKNOWN_TOKEN:
        raise ConfigError(
            "Slack does not know the bot's token: it starts with xoxb- and is shown where the app "
            f"was installed ({error_code(error)})."
        ) from error
    return error
