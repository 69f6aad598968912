"""Runs `alipes serve` as a process: wait until ready, query over HTTP, send signals; with a fake Telegram."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from alipes.runtime.process_lock import find_holder
from tests.e2e.program import Home
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer
from tests.world.telegram_server import TOKEN, TelegramServer

OWNER = 7


class ServeProcess:
    """A running `alipes serve`."""

    def __init__(self, home: Home, process: asyncio.subprocess.Process, notifications: socket.socket) -> None:
        self.home, self.process, self.notifications = home, process, notifications

    @property
    def address(self) -> str:
        found = find_holder(self.home.path / "run" / "serve.claim")
        assert found is not None, "nobody serves"
        return found.address

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self.address, trust_env=False) as client:
            return await client.get(path, headers=headers)

    async def metric(self, name: str) -> float:
        for line in (await self.get("/metrics")).text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def ready(self) -> None:
        """Wait until `/ready` returns 200."""
        while (await self.get("/ready")).status_code != 200:
            await asyncio.sleep(0.02)

    async def heard(self, word: bytes) -> bytes:
        """Wait for this notification to systemd."""
        loop = asyncio.get_running_loop()
        while word not in (said := await loop.sock_recv(self.notifications, 4096)):
            pass
        return said

    async def left(self, *, by: signal.Signals | None = signal.SIGTERM) -> int:
        """Send the signal and return the exit status."""
        if by is not None:
            self.process.send_signal(by)
        return await self.process.wait()


def write_settings(home: Home, model: ModelServer, telegram: TelegramServer | None = None, **more: Any) -> None:
    """Write the settings of a home that uses the model and messenger on loopback."""
    home.path.mkdir(exist_ok=True, mode=0o700)
    lines = ['model = "test/scripted"', *(f"{name} = {value}" for name, value in more.items())]
    lines += ["[providers.test]", 'api = "openai-chat"', f'base_url = "{model.url("openai-chat")}"']
    if telegram is not None:
        lines += ["[telegram]", f'base_url = "{telegram.url}"', "poll = 2", f"allow = [{OWNER}]"]
        (home.path / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram.token}\n")
        (home.path / ".env").chmod(0o600)
    (home.path / "config.toml").write_text("\n".join(lines) + "\n")


@asynccontextmanager
async def open_serve(home: Home, *words: str, within: float = LIMIT_S, **more: Any) -> AsyncIterator[ServeProcess]:
    """Start `alipes serve` and wait until it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        path = Path(home.path.parent, f"notify-{os.urandom(3).hex()}")
        notifications.bind(str(path))
        notifications.setblocking(False)
        port = () if "--port" in words else ("--port", "0")
        async with home.started("serve", *port, *words, NOTIFY_SOCKET=str(path), **more) as process:
            served = ServeProcess(home, process, notifications)
            async with asyncio.timeout(within):
                listening = asyncio.create_task(served.heard(b"READY=1"))
                ended = asyncio.create_task(process.wait())
                await asyncio.wait({listening, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not listening.done():
                    listening.cancel()
                    assert process.stderr is not None
                    raise AssertionError(f"ended with {ended.result()}: {(await process.stderr.read()).decode()}")
                ended.cancel()
            yield served


__all__ = ["OWNER", "TOKEN", "ServeProcess", "open_serve", "write_settings"]
