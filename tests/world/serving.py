"""`alipes serve` as one process, its messenger and its model as two others. What happens there is the caller's."""

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

from alipes.runtime.process_lock import holder
from tests.world import parrot
from tests.world.environment import LIMIT_S, environment
from tests.world.model_server import Served as Model
from tests.world.telegram_control import Served as Messenger
from tests.world.telegram_control import serve as serve_telegram

PLUGIN = "trial"


class Service:
    """One home; `start` and `kill` it as often as you like. Where it is left running, it is killed."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.process: asyncio.subprocess.Process | None = None
        self._folder, self._starts = folder, 0

    def settle(self, model: Model, messenger: Messenger | None, *, plugin: str = "", **more: object) -> None:
        """Write its settings; `plugin` is the source of one. `more` joins `[telegram]`, in TOML."""
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
        """Until it says that it is ready; the seconds that took."""
        self._starts += 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(self._folder / f"notify{self._starts}"))
            told.setblocking(False)
            began = time.monotonic()
            with open(self._folder / "stderr", "ab") as errors:
                self.process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "alipes", "serve", "--port", "0"),
                    env=self._environment(str(told.getsockname())),
                    cwd=self.work,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=errors,
                )
            ready = asyncio.create_task(_heard(told, b"READY=1"))
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
        """As by the kernel: no last word."""
        await self._end(signal.SIGKILL)

    async def leave(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            process.send_signal(how)
            await process.wait()

    async def metrics(self) -> dict[str, float]:
        """What `/metrics` tells now, by name and labels."""
        found = holder(self.home / "run" / "serve.claim")
        assert found is not None, "nobody serves"
        host, _, port = found.address.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(
                f"GET /metrics HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n".encode()
            )
            page = (await reader.read()).decode()
        finally:
            writer.close()
        pairs = (
            line.rpartition(" ") for line in page.partition("\r\n\r\n")[2].splitlines() if line[:1] != "#"
        )
        return {name: float(value) for name, _, value in pairs if name}

    def cpu(self) -> float:
        return cpu(self.pid)

    def resident(self) -> float:
        """Megabytes, without its children."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class World(Struct):
    """The three."""

    folder: Path
    service: Service
    messenger: Messenger
    model: Model


@asynccontextmanager
async def open_world(folder: Path, *, plugin: str = "", **more: object) -> AsyncIterator[World]:
    """Not started yet. `more`: lines of `[telegram]`."""
    async with parrot.serve(folder) as model, serve_telegram() as messenger:
        service = Service(folder)
        service.settle(model, messenger, plugin=plugin, **more)
        try:
            yield World(folder, service, messenger, model)
        finally:
            await service.kill()


def cpu(pid: int) -> float:
    """User and system seconds so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running(word: str) -> Iterator[int]:
    """Processes whose command line has this word."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (place / "cmdline").read_bytes() and int(place.name) != os.getpid():
                yield int(place.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


async def _heard(told: socket.socket, word: bytes) -> None:
    while not (await asyncio.get_running_loop().sock_recv(told, 4096)).startswith(word):
        pass
