"""IRC as a platform: one connection per `listen`; the gateway reconnects."""

import asyncio

from alipes.kernel.platform import Capabilities, OnMessage, OnStatus
from alipes.platforms.connection import Lanes
from alipes.platforms.irc import parse, protocol
from alipes.platforms.irc.connection import open_irc_connection
from alipes.platforms.irc.receive import IrcReceiver
from alipes.platforms.irc.send import IrcSender
from alipes.platforms.messenger import Messenger
from alipes.platforms.settings import IrcSettings
from alipes.runtime.tasks import first_error


class IrcPlatform(Messenger[IrcSettings]):
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
