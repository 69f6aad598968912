"""`alipes serve` under mixed load for a while: Telegram, Discord, the HTTP API; stops, failures, lost connections.

The load comes in laps. After each, there is no load until the service is idle, and it is measured from
outside: open files, threads, children, memory.
"""

import asyncio
import itertools
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct, field, structs

from alipes.runtime.process_lock import find_holder
from tests.world import discord_server, echo_model, object_counts, telegram_control
from tests.world.environment import LIMIT_S
from tests.world.serve_process import ServeProcess
from tests.world.telegram_load import FIRST, token

KEY = "the-key-of-the-soak-0123456789"
CHATS, CALLERS, POSTERS = 6, 3, 2
PATIENCE = LIMIT_S
VERBS = ("echo", "echo", "act", "slow", "fail", "stop run", "stop stall", "new")
"""Actions of people. `stop X`: start X and stop it."""


class Sample(Struct, frozen=True):
    """The idle service."""

    at: float
    fds: int
    threads: int
    children: int
    megabytes: float
    turns: float
    things: int = 0
    """Python objects; counted only on request."""
    held: int = 0
    """Objects of turns among them."""


class SoakResult(Struct):
    looks: list[Sample] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    """Actions and their counts."""
    unanswered: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Errors in the log, and output on standard error."""

    def did(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


async def soak(folder: Path, *, seconds: float, laps: int, seed: int, counted: bool = False) -> SoakResult:
    """`counted`: also collect garbage and count Python objects at each sample."""
    soaked = SoakResult()
    async with _open_setup(folder, plugin=object_counts.PLUGIN if counted else "") as town:
        load = _Load(town, random.Random(seed), soaked)
        soaked.looks.append(await town.look())
        end = time.monotonic() + seconds
        for number in range(laps):
            left = (end - time.monotonic()) / (laps - number)
            await load.lap(max(0.5, left - 1.0))  # no load in the remaining time
            soaked.looks.append(await town.look())
        soaked.complaints = town.complaints()
    return soaked


class _SoakSetup(Struct):
    service: ServeProcess
    telegram: telegram_control.TelegramProcess
    discord: discord_server.DiscordProcess
    http: httpx2.AsyncClient
    counted: bool

    async def look(self) -> Sample:
        """Measure once idle: the minimum over some seconds."""
        seen, calm = [self._now()], 0
        for _ in range(40):
            await asyncio.sleep(0.1)
            seen.append(self._now())
            calm = calm + 1 if seen[-1][:3] == seen[-2][:3] else 0
            if calm >= 8:
                break
        fds, threads, children = (min(each[n] for each in seen) for n in range(3))
        report = await self.service.metrics()
        turns = sum(value for name, value in report.items() if name.startswith("alipes_turns_total"))
        now = Sample(time.monotonic(), fds, threads, children, self.service.resident(), turns)
        if not self.counted:
            return now
        found = await object_counts.count(self.service)
        return structs.replace(now, things=found.things, held=found.turns)

    def _now(self) -> tuple[int, int, int]:
        place = Path(f"/proc/{self.service.pid}")
        children = [path.read_text().split() for path in place.glob("task/*/children")]
        return len(os.listdir(place / "fd")), len(os.listdir(place / "task")), sum(map(len, children))

    def complaints(self) -> list[str]:
        lines = (self.service.home.parent / "stderr").read_text().splitlines()
        for log in (self.service.home / "logs").glob("*.log"):
            lines += [line for line in log.read_text().splitlines() if " ERROR " in line]
        return lines


@asynccontextmanager
async def _open_setup(folder: Path, *, plugin: str = "") -> AsyncIterator[_SoakSetup]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(echo_model.serve(folder))
        telegram = await stack.enter_async_context(telegram_control.serve())
        discord = await stack.enter_async_context(discord_server.serve(folder))
        service = ServeProcess(folder)
        service.settle(model, telegram, plugin=plugin)
        stack.push_async_callback(service.kill)
        with open(service.home / "config.toml", "a") as settings:
            settings.write(f'[discord]\nbase_url = "{discord.base_url}"\nallow = ["*"]\nbusy = "queue"\n')
            settings.write("[api]\nrate = 0\n")
        with open(service.home / ".env", "a") as secrets:
            secrets.write(f"DISCORD_BOT_TOKEN={discord.token}\nALIPES_API_KEY={KEY}\n")
        await service.start()
        await telegram.call("polled")
        found = find_holder(service.home / "run" / "serve.claim")
        assert found is not None
        http = httpx2.AsyncClient(base_url=found.address, headers={"authorization": f"Bearer {KEY}"}, timeout=PATIENCE)
        client = await stack.enter_async_context(http)
        yield _SoakSetup(service, telegram, discord, client, bool(plugin))


class _Load:
    def __init__(self, town: _SoakSetup, dice: random.Random, soaked: SoakResult) -> None:
        self._town, self._dice, self._soaked = town, dice, soaked
        self._numbers = itertools.count(1)
        self._end = 0.0
        self._plans: dict[tuple[str, int], list[str]] = {}
        """Next actions by person: everybody does everything, in different orders."""

    async def lap(self, seconds: float) -> None:
        """One lap: everybody sends messages for so long, while something fails."""
        self._end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for n in range(CHATS):
                group.create_task(self._busy(self._chat, FIRST + n))
            for n in range(POSTERS):
                group.create_task(self._busy(self._post, n))
            for n in range(CALLERS):
                group.create_task(self._busy(self._call, n))
            group.create_task(self._trouble(seconds))

    async def _busy(self, one: Callable[[int, str, int], Awaitable[None]], who: int) -> None:
        while time.monotonic() < self._end:
            plan = self._plans.setdefault((one.__name__, who), [])
            plan += () if plan else self._dice.sample(VERBS, len(VERBS))
            what = plan.pop()
            self._soaked.did(what)
            try:
                async with asyncio.timeout(PATIENCE):
                    await one(who, what, next(self._numbers))
            except TimeoutError:
                self._soaked.unanswered.append(f"{one.__name__} {what} {who}")

    async def _chat(self, chat: int, what: str, number: int) -> None:
        say = self._town.telegram.call
        if what == "new":
            await say("say", text="/new", chat=chat)
        elif what.startswith("stop"):
            await say("say", text=_words(what, "x"), chat=chat)
            await asyncio.sleep(self._dice.random() * 0.6)
            await say("say", text="/stop", chat=chat)
        word = token(chat, number)
        plain = what if what in ("act", "slow") else "echo"
        if what == "fail":
            await say("say", text="fail on purpose", chat=chat)
        await say("say", text=f"{plain} {word}", chat=chat)
        await say("shows", chat=chat, text=word)

    async def _post(self, who: int, what: str, number: int) -> None:
        do, name = self._town.discord.do, f"person{who}"
        word = f"y{who}n{number}y"
        if what.startswith("stop"):
            await do("say", text=_words(what, "y"), who=name)
            await asyncio.sleep(0.2 + self._dice.random() * 0.4)
            await do("say", text="/stop", who=name)
        elif what in ("new", "fail"):
            await do("say", text="/new" if what == "new" else "fail on purpose", who=name)
        plain = what if what in ("act", "slow") else "echo"
        await do("say", text=f"{plain} {word}", who=name)
        while not any(word in text for text in await do("said", who=name)):
            await asyncio.sleep(0.1)

    async def _call(self, who: int, what: str, number: int) -> None:
        """Some read to the end, some disconnect, some stop the run."""
        http = self._town.http
        words = _words(what, "z") if what.startswith("stop") else f"{what} z{number}"
        body = {"input": words, "session": f"caller-{who}-{number % 5}"}
        begun = (await http.post("/v1/runs", json=body)).raise_for_status().json()
        run = begun["id"]
        async with http.stream("GET", f"/v1/runs/{run}/events") as events:
            leaves = not what.startswith("stop") and self._dice.random() < 0.2
            async for _ in events.aiter_lines():
                if what.startswith("stop"):
                    await asyncio.sleep(self._dice.random() * 0.2)
                    await http.post(f"/v1/runs/{run}/stop")
                    what = ""
                if leaves:
                    break
        if what == "new" and not leaves:  # otherwise conversations and memory grow
            (await http.delete(f"/v1/sessions/{begun['session']}")).raise_for_status()

    async def _trouble(self, seconds: float) -> None:
        """One fault in the first half of the lap, so that it is over at the end."""
        await asyncio.sleep(seconds * self._dice.random() * 0.5)
        telegram, discord = self._town.telegram, self._town.discord
        what = self._dice.choice(("poll", "flood", "fail", "down", "drop", "reconnect", "status"))
        self._soaked.did(f"trouble: {what}")
        match what:
            case "poll":
                with suppress(RuntimeError):  # no poll is waiting
                    await telegram.call("strike", does="drop")
            case "flood":
                await telegram.call("fault", does="flood", methods=["send"], retry_after=1)
            case "fail":
                await telegram.call("fault", does="fail", methods=["send", "edit"], times=2)
            case "down":
                await telegram.call("down")
                await asyncio.sleep(0.3)
                await telegram.call("up")
            case "drop":
                await discord.do("drop")
            case "reconnect":
                await discord.do("ask_to_reconnect")
            case "status":
                await discord.do("trouble", what="status", method="POST", path="/messages", status=502)


def _words(what: str, word: str) -> str:
    verb = what.removeprefix("stop ")
    return f"run sleep 60.{word.encode().hex()}" if verb == "run" else f"{verb} {word}"


def slope(points: list[tuple[float, float]]) -> float:
    """Per hour, by least squares."""
    count = len(points)
    middle, mean = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle) ** 2 for x, _ in points)
    return 3600 * sum((x - middle) * (y - mean) for x, y in points) / spread if spread else 0.0


def growth(values: list[float]) -> float:
    """The median of the last third minus that of the first."""
    third = max(1, len(values) // 3)
    return sorted(values[-third:])[third // 2] - sorted(values[:third])[third // 2]


def summarise(looks: list[Sample]) -> dict[str, tuple[float, float, float]]:
    """By measure: final value, growth, and slope per hour; the first third is warm-up."""
    kept = looks[max(1, len(looks) // 3) :]
    report: dict[str, tuple[float, float, float]] = {}
    for name in ("fds", "threads", "children", "megabytes", "things"):
        values: list[Any] = [getattr(each, name) for each in kept]
        report[name] = (
            values[-1], growth(values), slope([(each.at, getattr(each, name)) for each in kept])
        )  # fmt: skip
    return report
