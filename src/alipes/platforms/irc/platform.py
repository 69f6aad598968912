"""IRC as a platform: one connection per `listen`; passes messages on, answers CTCP requests, rejoins channels."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import Capabilities, IncomingMessage, OnMessage, OnStatus, Platform
from alipes.platforms.connection import Lanes
from alipes.platforms.irc import parse, protocol
from alipes.platforms.irc.connection import IrcConnection, open_irc_connection
from alipes.platforms.irc.protocol import CTCP, IrcLine, fold_name, is_channel
from alipes.platforms.irc.send import ANSWER_TIMEOUT, IrcSender
from alipes.platforms.irc.settings import IrcConfig
from alipes.platforms.messenger import Messenger
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.tasks import first_error

MAX_ANSWER_CHARS = 10
"""Longest text that may be an answer to a question of ours."""


class IrcReceiver:
    """Handles the lines of one connection, in order per chat."""

    def __init__(
        self,
        messenger: Messenger[IrcConfig],
        connection: IrcConnection,
        sender: IrcSender,
        lanes: Lanes,
        on_message: OnMessage,
    ) -> None:
        self._messenger, self._settings, self._connection = messenger, messenger.settings, connection
        self._sender, self._lanes, self._on_message = sender, lanes, on_message

    async def run(self, report_ready: Callable[[], None]) -> DeliveryError:
        """Serve until the connection ends; returns the reason."""
        self._connection.on_line, self._connection.on_left = self._on_line, self._sender.forget
        self._restore()
        report_ready()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._connection.keep_alive(self._settings.quiet, self._restore))
                await self._connection.serve(report_ready)
        except* DeliveryError as errors:
            error = first_error(errors)
            assert isinstance(error, DeliveryError)
            failure = error
        return failure

    def _restore(self) -> None:
        """Join the configured channels we are not in, and ask for the configured nick."""
        connection, settings = self._connection, self._settings
        for channel in settings.channels:
            if fold_name(channel) not in connection.joined:
                connection.write("JOIN", channel)
        if connection.nick != settings.nick:
            connection.write("NICK", settings.nick)

    def _on_line(self, line: IrcLine) -> None:
        own = fold_name(line.nick) == fold_name(self._connection.nick)
        if "!" not in line.source or own or len(line.params) < 2:
            return
        if (request := parse.parse_ctcp(line)) is not None:
            self._answer_ctcp(line.nick, *request)
            return
        if parse.is_stale(line, time.time()):
            return
        chat = line.params[0] if is_channel(line.params[0]) else line.nick
        departures = self._sender.departures
        self._lanes.put(fold_name(chat), lambda: self._deliver(line, departures))

    def _answer_ctcp(self, nick: str, kind: str, text: str) -> None:
        answers = {"VERSION": "alipes", "PING": text[:64], "CLIENTINFO": "ACTION CLIENTINFO PING VERSION"}
        answer = answers.get(kind)
        if answer is not None and self._sender.may_send_extra():
            self._connection.write("NOTICE", nick, f"{CTCP}{kind} {answer}{CTCP}")

    async def _deliver(self, line: IrcLine, departures: int) -> None:
        make = partial(
            parse.parse_message,
            line,
            nicks={self._connection.nick, self._settings.nick},
            commands=self._messenger.commands,
            per_user=self._settings.per_user,
        )
        message = make(parse.person_id(line.source, ""))
        if message is None:
            return
        relevant = self._is_relevant(message)
        sender = await self._identify(line, relevant)
        if relevant:  # otherwise the identity is only a guess
            self._sender.remember(line.source, sender, departures)
        if (message := make(sender)) is not None:
            await self._on_message(message)

    def _is_relevant(self, message: IncomingMessage) -> bool:
        """True if the sender is worth a WHOIS. In a busy channel only short texts may answer us without a mention."""
        if message.addressed or self._settings.group == "all":
            return True
        return len(message.text) <= MAX_ANSWER_CHARS and self._sender.may_send_extra()

    async def _identify(self, line: IrcLine, relevant: bool) -> str:
        """The account of the sender, from the line's tag or WHOIS; otherwise their mask."""
        if "account-tag" in self._connection.features:
            return parse.person_id(line.source, line.tags.get("account", ""))
        if (known := self._sender.known(line.source)) or not relevant:
            return known or parse.person_id(line.source, "")
        try:
            found = await self._connection.whois(line.nick, ANSWER_TIMEOUT)
        except DeliveryError:
            return parse.person_id(line.source, "")
        same = fold_name(found.source) == fold_name(line.source)
        return parse.person_id(line.source, found.account if same else "")


class IrcPlatform(Messenger[IrcConfig]):
    """Sends while `listen` runs and is logged in. IRC transfers no files."""

    name, title = parse.NAME, "IRC"
    capabilities = Capabilities(protocol.MAX_PART_CHARS)
    format_message = staticmethod(protocol.format_markdown)

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings = self.settings
        try:
            async with open_irc_connection(settings) as connection, asyncio.TaskGroup() as handlers:
                self.sender = sender = IrcSender(connection, settings.pace, settings.channels)
                receiver = IrcReceiver(self, connection, sender, Lanes(handlers), on_message)
                # lines that were read are handled also when the connection breaks: nobody repeats them
                failure = await receiver.run(lambda: on_status("ready", ""))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self.sender = None
        raise failure


def open_platform(settings: IrcConfig, scope: ClientScope) -> Platform:
    bad = [each for each in settings.channels if not is_channel(each) or any(char in each for char in " ,\a")]
    if bad:
        raise ConfigError(f"irc.channels: {bad[0]!r} is not a channel name; they start with #, as in #general.")
    if not settings.nick or any(char in settings.nick for char in " !@:,*\r\n\0"):
        raise ConfigError(f"irc.nick: {settings.nick!r} is not a valid nick.")
    return IrcPlatform(settings)
