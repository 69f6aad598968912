"""`alipes serve`, its messenger and its model as three processes."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from alipes.runtime.process_lock import find_holder
from tests.world import echo_model
from tests.world.environment import LIMIT_S, environment
from tests.world.model_server import ModelProcess as Model
from tests.world.telegram_control import TelegramProcess as Messenger
from tests.world.telegram_control import serve as serve_telegram

PLUGIN = "trial"


class ServeProcess:
    """`alipes serve` on one home; `start` and `kill` it repeatedly."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.process: asyncio.subprocess.Process | None = None
        self._folder, self._starts = folder, 0

    def settle(self, model: Model, messenger: Messenger | None, *, plugin: str = "", **more: object) -> None:
        """Write its settings; `plugin`: source code of one. `more`: TOML values in `[telegram]`."""
        for folder in (self.home, self.work):
            folder.mkdir(mode=0o700, exist_ok=True)
        lines = ['model = "test/parrot"', 'log_level = "warning"', f'workdir = "{self.work}"']
        lines += ["[providers.test]", 'api = "openai-chat"', f'base_url = "{model.url("openai-chat")}"']
        if messenger is not None:
            telegram = {"busy": '"queue"', "allow": '["*"]', "poll": "20", **more}
            lines += ["[telegram]", f'base_url = "{messenger.url}"']
            lines += [f"{name} = {value}" for name, value in telegram.items()]
            (self.home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={messenger.token}\n")
            (self.home / ".env").chmod(0o600)
        if plugin:
            lines += ["[plugins]", f'enabled = ["{PLUGIN}"]']
            place = self.home / "plugins" / PLUGIN
            place.mkdir(parents=True)
            (place / "__init__.py").write_text(plugin)
            (place / "plugin.toml").write_text(f'name = "{PLUGIN}"\nversion = "1.0"\n')
        (self.home / "config.toml").write_text("\n".join(lines) + "\n")

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was not started"
        return self.process.pid

    async def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds that took."""
        self._starts += 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
            notifications.bind(str(self._folder / f"notify{self._starts}"))
            notifications.setblocking(False)
            began = time.monotonic()
            with open(self._folder / "stderr", "ab") as errors:
                self.process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "alipes", "serve", "--port", "0"),
                    env=self._environment(str(notifications.getsockname())),
                    cwd=self.work,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=errors,
                )
            ready = asyncio.create_task(_wait_for_word(notifications, b"READY=1"))
            gone = asyncio.create_task(self.process.wait())
            await asyncio.wait({ready, gone}, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
            gone.cancel()
            if not ready.done():
                ready.cancel()
                raise AssertionError(f"not ready: {(self._folder / 'stderr').read_text()[-2000:]}")
            return time.monotonic() - began

    def _environment(self, notify: str) -> dict[str, str]:
        return environment(self._folder, ALIPES_HOME=str(self.home), NOTIFY_SOCKET=notify)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        await self._end(signal.SIGKILL)

    async def leave(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            process.send_signal(how)
            await process.wait()

    async def metrics(self) -> dict[str, float]:
        """The values of `/metrics`, by name and labels."""
        found = find_holder(self.home / "run" / "serve.claim")
        assert found is not None, "nobody serves"
        host, _, port = found.address.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(f"GET /metrics HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n".encode())
            page = (await reader.read()).decode()
        finally:
            writer.close()
        pairs = (line.rpartition(" ") for line in page.partition("\r\n\r\n")[2].splitlines() if line[:1] != "#")
        return {name: float(value) for name, _, value in pairs if name}

    def cpu(self) -> float:
        return cpu(self.pid)

    def loop_cpu(self) -> float:
        """CPU seconds of the thread of its event loop so far."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def resident(self) -> float:
        """Resident megabytes, without its children."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class ServeSetup(Struct):
    """The three processes."""

    folder: Path
    service: ServeProcess
    messenger: Messenger
    model: Model


@asynccontextmanager
async def open_setup(folder: Path, *, plugin: str = "", **more: object) -> AsyncIterator[ServeSetup]:
    """The service is not started yet. `more`: values of `[telegram]`."""
    async with echo_model.serve(folder) as model, serve_telegram() as messenger:
        service = ServeProcess(folder)
        service.settle(model, messenger, plugin=plugin, **more)
        try:
            yield ServeSetup(folder, service, messenger, model)
        finally:
            await service.kill()


def cpu(pid: int) -> float:
    """User and system CPU seconds so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def find_processes(word: str) -> Iterator[int]:
    """Processes whose command line contains this word."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (place / "cmdline").read_bytes() and int(place.name) != os.getpid():
                yield int(place.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


async def _wait_for_word(notifications: socket.socket, word: bytes) -> None:
    while not (await asyncio.get_running_loop().sock_recv(notifications, 4096)).startswith(word):
        pass
