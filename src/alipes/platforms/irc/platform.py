"""IRC as a platform: one connection per `listen`; the gateway reconnects."""

import asyncio

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Capabilities, MayFetch, MessagePart, OnMessage, OnStatus
from alipes.kernel.turns import Address
from alipes.platforms.connection import Lanes
from alipes.platforms.irc import parse, protocol
from alipes.platforms.irc.connect import open_irc_connection
from alipes.platforms.irc.receive import IrcReceiver
from alipes.platforms.irc.send import IrcSender
from alipes.platforms.irc.settings import IrcSettings
from alipes.runtime.tasks import first_error


class IrcPlatform:
    """Sends while `listen` runs and is logged in."""

    name = parse.NAME
    capabilities = Capabilities(max_length=protocol.MAX_PART_CHARS)

    def __init__(self, settings: IrcSettings) -> None:
        self._settings = settings
        self._sender: IrcSender | None = None
        self._commands: frozenset[str] = frozenset()

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        """IRC transfers no files."""

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings = self._settings
        try:
            async with open_irc_connection(settings) as connection, asyncio.TaskGroup() as handlers:
                self._sender = IrcSender(connection, settings.pace, settings.channels)
                receiver = IrcReceiver(connection, settings, self._sender, Lanes(handlers), on_message)
                receiver.commands = lambda: self._commands
                # lines that were read are handled also when the connection breaks: nobody repeats them
                failure = await receiver.run(lambda: on_status("ready", ""))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self._sender = None
        raise failure

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        return protocol.format_markdown(text)

    async def send(self, address: Address, part: MessagePart) -> str:
        """IRC messages have no id, so ours is returned."""
        if self._sender is None:
            raise DeliveryError("IRC is not connected yet.")
        await self._sender.send(address, part)
        return part.id or "said"

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        raise DeliveryError("IRC messages cannot be edited.")

    async def delete(self, address: Address, message: str) -> None:
        raise DeliveryError("IRC messages cannot be deleted.")

    async def typing(self, address: Address) -> None:
        """IRC has no typing indicator."""

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        self._commands = frozenset(name for name, _ in commands)
