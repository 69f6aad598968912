"""Slack as a platform, on slack_sdk: one connection per `listen`, one attempt per call."""

import asyncio

from msgspec.structs import replace

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import OnMessage, OnStatus, Platform
from alipes.platforms.connection import ConnectionRetry, Lanes, optional_library
from alipes.platforms.messenger import CHAT, Messenger
from alipes.platforms.slack.settings import SlackConfig
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.tasks import first_error, run_to_completion

with optional_library("Slack", "slack_sdk", "slack"):
    from alipes.platforms.slack import markup
    from alipes.platforms.slack.receive import SlackBackfill, SlackFiles, SlackReadPosition, SlackReceiver
    from alipes.platforms.slack.send import SendJournal, SlackSender
    from alipes.platforms.slack.socket import SlackConnection
    from alipes.platforms.slack.web_api import UNKNOWN_TOKEN, SlackApi, error_code


class SlackPlatform(Messenger[SlackConfig]):
    """Sends while `listen` or `run_sender` runs, also while the socket is closed. Only the operator can register
    commands with Slack (see docs/slack.md)."""

    name, title = "slack", "Slack"
    capabilities = replace(CHAT, max_length=markup.LONGEST, edit_interval=1.2, typing_seconds=60.0, sends_alone=True)
    format_message = staticmethod(markup.format_markdown)

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        position = SlackReadPosition(self.settings.data_folder / "seen.json")
        api = SlackApi(self.settings)
        await api.open()
        try:
            async with asyncio.TaskGroup() as tasks:
                receiver = SlackReceiver(self, api, position, Lanes(tasks), on_message)
                receiver.me = await _log_in(api, on_status)
                backfill = SlackBackfill(api, position, receiver)
                connection = SlackConnection(api, receiver.on_request, backfill.read, tasks)
                journal = SendJournal(self.settings.data_folder / "begun.jsonl")
                self.sender = SlackSender(
                    api, receiver.files, journal, lanes=receiver.lanes, latest=receiver.latest, me=receiver.me
                )
                tasks.create_task(position.save_periodically())
                await connection.serve(on_status)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self.sender = None
            await run_to_completion(api.close)
            position.flush()

    async def run_sender(self, on_status: OnStatus) -> None:
        """Use the Web API only. Without events no message can be marked as being worked on."""
        api = SlackApi(self.settings)
        await api.open()
        try:
            async with asyncio.TaskGroup() as tasks:
                me = await _log_in(api, on_status)
                files = SlackFiles(api, self.settings)
                self.sender = SlackSender(api, files, SendJournal(None), lanes=Lanes(tasks), latest={}, me=me)
                on_status("ready", "")
                await asyncio.get_running_loop().create_future()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self.sender = None
            await run_to_completion(api.close)


async def _log_in(api: SlackApi, on_status: OnStatus) -> str:
    """Returns the bot's user id. Raises `ConfigError` if the token is wrong."""
    retry = ConnectionRetry("Slack", on_status, _classify_failure)
    us = await retry.until_success(lambda: api("logging in", "auth_test"), DeliveryError)
    return str(us["user_id"])


def _classify_failure(error: Exception, _count: int) -> DeliveryError:
    assert isinstance(error, DeliveryError)
    if error_code(error) in UNKNOWN_TOKEN:
        raise ConfigError(
            "Slack does not know the bot's token: it starts with xoxb- and is shown where the app "
            f"was installed ({error_code(error)})."
        ) from error
    return error


def open_platform(settings: SlackConfig, scope: ClientScope) -> Platform:
    if not settings.token or not settings.app_token:
        raise ConfigError(
            "Slack needs two tokens, the bot token (xoxb-) and the app-level token (xapp-): set the "
            "variables that [slack] token_env and app_token_env name."
        )
    return SlackPlatform(settings)
