"""The Telegram platform on the loopback Bot API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.kernel.models import Secret
from alipes.kernel.turns import Address
from alipes.platforms.telegram.platform import TelegramPlatform
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.runtime.http.clients import ClientScope
from tests.world.telegram_server import TOKEN, TelegramServer

CHAT = Address("telegram", "7")


@asynccontextmanager
async def bot(server: TelegramServer, folder: Path, **more: Any) -> AsyncIterator[TelegramPlatform]:
    """It can send, and does not receive."""
    settings = {"token": Secret(TOKEN), "data_folder": folder, "base_url": server.url, **more}
    async with ClientScope() as scope:
        yield TelegramPlatform(TelegramConfig(**settings), scope)
