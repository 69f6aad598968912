"""The gateway of each contestant on a loopback Bot API and a model without delay, measured from outside."""

import asyncio
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.world.serve_process import cpu, find_processes
from tests.world.telegram_control import TelegramProcess as Messenger
from tests.world.telegram_control import serve as serve_telegram
from tests.world.telegram_load import FIRST, token

from bench import echo_model
from bench.measure import descendants, p, wait_gone
from bench.rival_agents import Contestant, Place, Start
from bench.tls_proxy import open_front

CROWD = 64
WARM, STOPS = 10, 5
PATIENCE = 120.0
SETTLE = 3.0
"""Seconds between two measurements: a rival loses messages sent while it ends a turn."""
NAMES = {
    "ready": "gateway: start to first poll (s)",
    "idle": "gateway: memory before the first word (MB)",
    "opening": "gateway: first turn (s)",
    "warm": "gateway: warm turn, p50 (ms)",
    "rate": f"gateway: {CROWD} chats at once (turns/s)",
    "each": "gateway: the same, CPU per turn (ms)",
    "stop": "gateway: /stop to child gone, p50 (ms)",
    "kill": "gateway: kill -9 with three people waiting",
}


class Gateway:
    """The process of one contestant, its model and its messenger."""

    def __init__(self, place: Place, start: Start) -> None:
        assert place.messenger is not None
        self.place, self.messenger, self._start = place, place.messenger, start
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> float:
        """Start it; returns the seconds until its first poll."""
        began, before = time.monotonic(), (await self.messenger.call("state"))["polls"]
        (self.place.folder / "work").mkdir(exist_ok=True)
        with open(self.place.folder / "output", "ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._start.argv,
                env=self._start.env,
                cwd=self.place.folder / "work",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        async with asyncio.timeout(60):
            while (await self.messenger.call("state"))["polls"] == before:
                if self._process.returncode is not None:
                    raise RuntimeError((self.place.folder / "output").read_text()[-2000:])
                await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def kill(self) -> None:
        """Kill only the process itself, as the OOM killer does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def clear(self) -> None:
        await self.kill()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def cpu(self) -> float:
        return sum(cpu(pid) for pid in (self.pid, *descendants(self.pid)))

    def resident(self) -> float:
        pages = 0
        for pid in (self.pid, *descendants(self.pid)):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def open_gateway(contestant: Contestant) -> AsyncIterator[Gateway]:
    """Not started yet."""
    assert contestant.gateway is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with echo_model.serve(folder) as model, serve_telegram() as messenger:
            async with open_front(messenger.port, folder / "ca.pem") as front:
                place = Place(folder, model, messenger, front, folder / "ca.pem")
                gateway = Gateway(place, contestant.gateway(place))
                try:
                    yield gateway
                finally:
                    await gateway.clear()


async def measure(contestant: Contestant, crowds: tuple[int, ...]) -> dict[str, Any]:
    """Values by figure; `crowd` has, for each size, the p50 and p99 latency and the number answered."""
    found: dict[str, Any] = {}
    async with open_gateway(contestant) as gateway:
        try:
            found["ready"] = await gateway.start()
        except (RuntimeError, TimeoutError) as error:
            return dict.fromkeys(NAMES, f"does not start: {str(error)[-80:]}") | {"crowd": {}}
        await asyncio.sleep(SETTLE)
        found["idle"] = gateway.resident()
        found["opening"] = _median(await _talk(gateway.messenger, 1), 1)
        await asyncio.sleep(SETTLE)
        spent = [_median(await _talk(gateway.messenger, 1), 1) for _ in range(WARM)]
        found["warm"] = p(spent, 50) * 1000
        found |= await _crowds(gateway, crowds)
        await asyncio.sleep(SETTLE)
        found["stop"] = await _stops(gateway)
    found["kill"] = await _killed(contestant)
    return found


async def _talk(messenger: Messenger, chats: int) -> list[dict[str, float]]:
    await asyncio.sleep(0.3)  # for those that are still ending a turn
    seen: list[dict[str, float]] = await messenger.call("converse", chats=chats, turns=1, within=PATIENCE)
    return seen


def _median(seen: list[dict[str, float]], chats: int) -> float:
    return p([one["answered"] - one["asked"] for one in seen], 50) if len(seen) == chats else float("nan")


async def _crowds(gateway: Gateway, crowds: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"crowd": {}, "rate": "not measured", "each": "not measured"}
    await _talk(gateway.messenger, CROWD)  # warm up
    for chats in crowds:
        await asyncio.sleep(SETTLE)
        before = gateway.cpu()
        seen = await _talk(gateway.messenger, chats)
        await asyncio.sleep(SETTLE / 2)
        spent = [one["answered"] - one["asked"] for one in seen]
        point = {"answered": len(seen)}
        if seen:
            point |= {"p50": p(spent, 50), "p99": p(spent, 99)}
            seconds = max(one["answered"] for one in seen) - min(one["asked"] for one in seen)
            point["rate"] = len(seen) / seconds
        found["crowd"][str(chats)] = point
        if chats == CROWD and seen:
            found["rate"] = point["rate"] if len(seen) == chats else f"answers {len(seen)} of {chats}"
            found["each"] = (gateway.cpu() - before) / len(seen) * 1000
    return found


async def _stops(gateway: Gateway) -> float | str:
    """A /stop while a command runs."""
    rng, spent = random.Random(3), []
    for _ in range(STOPS):
        word = str(rng.randrange(10**7, 10**8))
        await gateway.messenger.call("say", text=f"run sleep {word}", chat=FIRST)
        pids = await _until(lambda word=word: list(find_processes(f"sleep\0{word}")) or list(find_processes(word)), 30)
        if not pids:
            return "the command is not run"
        await asyncio.sleep(0.3 + rng.random() * 0.2)
        ends = [wait_gone(pid) for pid in pids]
        said = time.time()
        await gateway.messenger.call("say", text="/stop", chat=FIRST)
        try:
            async with asyncio.timeout(30):
                spent.append(max([await end for end in ends]) - said)
        except TimeoutError:
            return "the child runs on"
        await asyncio.sleep(SETTLE / 2)
    return statistics.median(spent) * 1000


async def _killed(contestant: Contestant) -> str:
    """One person waits for a command, one for an answer, one writes while it is down; then it restarts."""
    word = str(random.Random(time.time()).randrange(10**7, 10**8))
    people = {FIRST: f"run sleep 6.{word}; echo", FIRST + 1: "slow", FIRST + 2: "echo"}
    async with open_gateway(contestant) as gateway:
        await gateway.start()
        await _talk(gateway.messenger, 3)
        await asyncio.sleep(SETTLE)
        for chat in (FIRST, FIRST + 1):
            await gateway.messenger.call("say", text=f"{people[chat]} {token(chat, 7)}", chat=chat)
        if not await _until(lambda: list(find_processes(word)), 30):
            return "the command is not run"
        await asyncio.sleep(1)
        await gateway.kill()
        await asyncio.sleep(1.5)
        left = bool(list(find_processes(f"sleep\0006.{word}")))
        await gateway.messenger.call("say", text=f"{people[FIRST + 2]} {token(FIRST + 2, 7)}", chat=FIRST + 2)
        again = time.time()
        await gateway.start()
        waiting = {chat: ("done with " if chat == FIRST else "") + token(chat, 7) for chat in people}
        while waiting and time.time() < again + 45:
            await asyncio.sleep(0.2)
            for one in await gateway.messenger.call("sent"):
                if waiting.get(one["chat"], "\0") in one["text"]:
                    del waiting[one["chat"]]
        seconds = time.time() - again
    lost = [("command", "stream", "while down")[chat - FIRST] for chat in waiting]
    seen = f"{len(lost)} lost ({', '.join(lost)})" if lost else f"0 lost, all answered in {seconds:.1f} s"
    return seen + ("; child left running" if left else "")


async def _until(fact: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (found := fact()) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return found
