"""The HTTP API of the real `alipes serve`, with clients in this process and the model in another."""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.world import echo_model
from tests.world import model_wires as wires
from tests.world.model_replies import Say
from tests.world.model_server import ModelProcess as Model
from tests.world.serve_process import ServeProcess

from alipes.runtime.process_lock import find_holder
from alipes.runtime.process_setup import raise_file_limit
from bench.chat_stops import PLUGIN
from bench.measure import Row, bounded, p
from bench.plugins import SLOW_HOOKS

CLIENTS, TURNS = 64, 30
TOKENS = 200
ASKED = 500
COMPLETIONS, STREAMS = 60, 500
LISTENERS, RUNS = 5000, 100
WATCH = 35.0
"""Seconds for which idle listeners are watched: more than two heartbeats."""
STOPS = 100
KEY = "the-key-of-the-bench-0123456789"


class Caller:
    """One connection to the API, reused for all requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._length: int | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        self._send(method, path, body)
        head = await self._head()
        seen = await self._reader.readexactly(_length(head))
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
            raise SystemExit(f"{method} {path}: {head.decode()}{seen.decode()}")
        answer: dict[str, Any] = json.loads(seen)
        return answer

    async def listen(self, run: str) -> None:
        """Open its event stream, read by `next_event` or `rest`."""
        self._send("GET", f"/v1/runs/{run}/events")
        head = await self._head()
        assert head.startswith(b"HTTP/1.1 200"), head
        self._length = _length(head) if b"content-length" in head else None

    async def stream(self, path: str, body: Any) -> None:
        """Send a request with a streamed answer; returns with its first event, `rest` reads the others."""
        self._send("POST", path, body)
        head = await self._head()
        assert head.startswith(b"HTTP/1.1 200"), head
        self._length = None
        await self._reader.readuntil(b"data: ")

    async def received(self, word: bytes) -> None:
        await self._reader.readuntil(word)

    async def rest(self) -> None:
        """Read to the end of the live or recorded events."""
        if self._length is None:
            await self._reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            await self._reader.readexactly(self._length)

    def close(self) -> None:
        self._writer.close()

    def _send(self, method: str, path: str, body: Any = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {KEY}"]
        lines += [] if body is None else ["content-type: application/json", f"content-length: {len(data)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + data)

    async def _head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


class Api:
    def __init__(self, service: ServeProcess, model: Model) -> None:
        self.service, self.model = service, model
        found = find_holder(service.home / "run" / "serve.claim")
        assert found is not None
        host, _, port = found.address.removeprefix("http://").rpartition(":")
        self._place = host, int(port)

    async def caller(self) -> Caller:
        return Caller(*await asyncio.open_connection(*self._place, limit=2**20))


@asynccontextmanager
async def open_service(plugin: str = "", model: Model | None = None, *, settings: str = "") -> AsyncIterator[Api]:
    """`settings`: lines of `[api]`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            model = model or await stack.enter_async_context(echo_model.serve(folder))
            service = ServeProcess(folder)
            service.settle(model, None, plugin=plugin)
            with open(service.home / "config.toml", "a") as config:
                config.write(f"[api]\nrate = 0\n{settings}")
            (service.home / ".env").write_text(f"ALIPES_API_KEY={KEY}\n")
            (service.home / ".env").chmod(0o600)
            await service.start()
            try:
                yield Api(service, model)
            finally:
                await service.kill()


async def turns() -> list[Row]:
    """64 clients, each in its own session: start a run, read its events to the end, start the next."""
    async with open_service() as api:
        callers = [await api.caller() for _ in range(CLIENTS)]
        await _talk(callers, 3)
        cpu, began = api.service.cpu(), time.monotonic()
        await _talk(callers, TURNS)
        seconds, count = time.monotonic() - began, CLIENTS * TURNS
        each = (api.service.cpu() - cpu) / count * 1000
    reached = count / seconds
    return [
        Row(
            f"/v1/runs, {CLIENTS} clients, model without delay ({each:.1f} ms CPU each)",
            f"{reached:.1f} turns/s",
            "",
            "",
            ">= 200 turns/s",
            reached >= 200,
        )
    ]


async def _talk(callers: list[Caller], count: int) -> None:
    async def talk(number: int, caller: Caller) -> None:
        for turn in range(count):
            body = {"input": f"echo {number}-{turn}", "session": f"caller-{number}"}
            run = (await caller.ask("POST", "/v1/runs", body))["id"]
            await caller.listen(run)
            await caller.rest()

    async with asyncio.TaskGroup() as group:
        for number, caller in enumerate(callers):
            group.create_task(talk(number, caller))


class TimedModel:
    """A model in this process that records when it sent its first token."""

    def __init__(self) -> None:
        self.sent, self.heard = 0.0, asyncio.Event()
        self._frames = wires.frames(echo_model.API, Say("one two three", pieces=3), model="parrot")

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(n for n, each in enumerate(self._frames) if b'"content":"o' in each)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                kind = b"content-type: text/event-stream\r\ntransfer-encoding: chunked"
                writer.write(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % kind)
                for frame in self._frames[:first]:
                    writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                frame = self._frames[first]
                if b'"tools"' in body:  # not an auxiliary request, as for a title
                    await self.heard.wait()  # until a client listens
                    self.heard.clear()
                    self.sent = time.monotonic()
                writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                await asyncio.sleep(0.01)
                for frame in self._frames[first + 1 :]:
                    writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def first_byte() -> list[Row]:
    """From the first token of the model to its first byte at a client."""
    timed, late = TimedModel(), []
    async with await asyncio.start_server(timed.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with open_service(model=Model(port, Path("none"), None)) as api:
            caller = await api.caller()
            for turn in range(TOKENS + 5):
                await caller.listen(await _begin(caller, f"echo {turn}", turn))
                await caller.received(b'"role":"user"')
                await asyncio.sleep(0.02)
                timed.heard.set()
                await caller.received(b"event: text_delta")
                late.append((time.monotonic() - timed.sent) * 1000)
                await caller.rest()
            caller.close()
    late = late[5:]
    spread = f"p90 {p(late, 90):.2f}, p99 {p(late, 99):.2f}"
    return [bounded(f"model's first token to first SSE byte, p50 ({spread})", p(late, 50), 3, "ms")]


async def kept_connection() -> list[Row]:
    """`/health`, asked again and again on one connection."""
    async with open_service() as api:
        caller, waits = await api.caller(), []
        for _ in range(ASKED + 5):
            began = time.monotonic()
            await caller.ask("GET", "/health")
            waits.append((time.monotonic() - began) * 1000)
        caller.close()
    waits = waits[5:]
    spread = f"p90 {p(waits, 90):.2f}, p99 {p(waits, 99):.2f}"
    return [bounded(f"/health on a kept connection, p50 ({spread})", p(waits, 50), 1, "ms")]


async def kept_turn() -> list[Row]:
    """Chat completions one after the other on one connection, without the time that the model reports."""
    async with open_service() as api:
        caller, waits = await api.caller(), []
        for turn in range(COMPLETIONS + 5):
            if turn == 5:
                await asyncio.sleep(0.3)
                before, cpu = len(api.model.log_lines("answered")), api.service.cpu()
            began = time.monotonic()
            await caller.ask("POST", "/v1/chat/completions", _completion(f"echo {turn}"))
            waits.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.03)
        cpu = (api.service.cpu() - cpu) / COMPLETIONS * 1000
        caller.close()
        asked, answered = api.model.log_lines("request")[before:], api.model.log_lines("answered")[before:]
    own = [(after["time"] - since["came"]) * 1000 for since, after in zip(asked, answered, strict=True)]
    beyond = [wait - spent for wait, spent in zip(waits[5:], own, strict=True)]
    spread = f"p90 {p(beyond, 90):.2f}, {cpu:.1f} ms CPU each"
    return [bounded(f"chat completion on a kept connection beyond the model, p50 ({spread})", p(beyond, 50), 2.5, "ms")]


async def burst() -> list[Row]:
    """Many streamed chat completions start at the same moment while one client polls `/health`."""
    raise_file_limit()
    async with open_service(settings="max_runs = 0\nmax_runs_per_key = 0\n") as api:
        poller, waits = await api.caller(), list[float]()
        streams = [await api.caller() for _ in range(STREAMS)]
        first = list[float]()

        async def stream(caller: Caller, number: int) -> None:
            began = time.monotonic()
            await caller.stream("/v1/chat/completions", {**_completion(f"drip 40 {number}"), "stream": True})
            first.append((time.monotonic() - began) * 1000)
            await caller.rest()

        async with asyncio.TaskGroup() as group:
            work = [group.create_task(stream(caller, number)) for number, caller in enumerate(streams)]
            while not all(task.done() for task in work):
                began = time.monotonic()
                await poller.ask("GET", "/health")
                waits.append((time.monotonic() - began) * 1000)
                await asyncio.sleep(0.005)
        for caller in (poller, *streams):
            caller.close()
    what = f"/health while {STREAMS} streams start at once, longest of {len(waits)}"
    spread = f"p50 {p(waits, 50):.1f}, p99 {p(waits, 99):.1f}; last first byte after {max(first):.0f} ms"
    return [bounded(f"{what} ({spread})", max(waits), 100, "ms")]


def _completion(text: str) -> dict[str, Any]:
    return {"model": "test/parrot", "messages": [{"role": "user", "content": text}]}


async def listeners() -> list[Row]:
    """Many clients listen to silent runs while one polls `/health`."""
    raise_file_limit()
    async with open_service() as api:
        first = await api.caller()
        runs = []
        for number in range(RUNS):
            body = {"input": f"stall {number}", "session": f"s{number}"}
            runs.append((await first.ask("POST", "/v1/runs", body))["id"])
        before = api.service.resident()
        callers = []
        for number in range(LISTENERS):
            callers.append(await api.caller())
            await callers[-1].listen(runs[number % RUNS])
        await asyncio.sleep(1)
        first = await api.caller()  # an idle connection is closed after some seconds
        marks = await api.service.metrics()
        waits, peak, until = [], 0.0, time.monotonic() + WATCH
        while time.monotonic() < until:
            began = time.monotonic()
            await first.ask("GET", "/health")
            waits.append((time.monotonic() - began) * 1000)
            peak = max(peak, api.service.resident())
            await asyncio.sleep(0.02)
        after = await api.service.metrics()
        for caller in callers:
            caller.close()
    name = "alipes_loop_lag_seconds"
    looks = after[f"{name}_count"] - marks[f"{name}_count"]
    within = after[f'{name}_bucket{{le="0.05"}}'] - marks[f'{name}_bucket{{le="0.05"}}']
    return [
        bounded(f"{LISTENERS} idle SSE listeners to {RUNS} runs, resident ({before:.0f} MB before)", peak, 250, "MB"),
        Row(
            f"the same, looks at the loop within 50 ms, of {looks:.0f} (/health p99 {p(waits, 99):.0f} ms)",
            f"{within / looks * 100:.1f} %",
            "",
            "",
            ">= 99 %",
            within / looks >= 0.99,
        ),
    ]


async def stops() -> list[Row]:
    """A stop over HTTP at a random moment: time until the tool is cancelled, or a stuck stream closed."""
    return [*await _stops(PLUGIN, ""), *await _stops(PLUGIN + SLOW_HOOKS, ", ten slow hooks")]


async def _stops(plugin: str, hooks: str) -> list[Row]:
    rng, tools, streams = random.Random(7), [], []
    async with open_service(plugin=plugin) as api:
        notes = api.service.work / "notes"
        caller, listener = await api.caller(), await api.caller()
        for number in range(STOPS):
            run = await _begin(caller, "use remote", number)
            await listener.listen(run)
            await listener.received(b"event: tool_started")
            stopped = await _stop(caller, run, rng)
            await listener.rest()
            tools.append((_read_times(notes, "cancelled")[-1] - stopped) * 1000)
            run = await _begin(caller, f"stall {number}", number)
            await listener.listen(run)
            await listener.received(b"event: text_delta")
            closed = len(api.model.log_lines("left"))
            stopped = await _stop(caller, run, rng)
            await listener.rest()
            while len(left := api.model.log_lines("left")) == closed:
                await asyncio.sleep(0.002)
            streams.append((float(left[-1]["time"]) - stopped) * 1000)
    return [
        bounded(f"stop over HTTP to {what}{hooks}, p99 of {STOPS} (p50 {p(late, 50):.1f})", p(late, 99), 50, "ms")
        for what, late in (("tool cancelled", tools), ("the model's connection closed", streams))
    ]


async def _begin(caller: Caller, words: str, number: int) -> str:
    seen = await caller.ask("POST", "/v1/runs", {"input": words, "session": f"s{number % 10}"})
    return str(seen["id"])


async def _stop(caller: Caller, run: str, rng: random.Random) -> float:
    await asyncio.sleep(rng.random() * 0.05)
    said = time.time()
    await caller.ask("POST", f"/v1/runs/{run}/stop")
    return said


def _read_times(notes: Path, what: str) -> list[float]:
    lines = notes.read_text().split("\n")[:-1] if notes.exists() else []
    return [float(line.split()[1]) for line in lines if line.startswith(what)]
