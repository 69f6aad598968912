"""Converts web pages to Markdown in child processes, which can be killed and are limited in memory."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.runtime.processes.child import Child, open_child
from alipes.runtime.processes.process_tree import OrphanGuard

PageKind: TypeAlias = Literal["html", "feed", "text"]
EXTRA = "web"
"""What converting needs."""
MAX_WORKERS = 2
IDLE_S = 60.0
"""Seconds after which a process without work is ended."""
CONVERT_TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 100_000_000


class ConvertedPage(Struct, frozen=True):
    text: str = ""
    title: str = ""
    note: str = ""
    """What the reader must know about it, such as pages that were left out."""
    error: str = ""
    """Why it could not be converted."""


class ConvertJob(Struct, frozen=True):
    kind: PageKind
    data: bytes
    charset: str = ""
    url: str = ""


class PageConverter:
    """An async context manager. A process converts one page at a time; it is started when it is needed."""

    def __init__(
        self,
        environment: Mapping[str, str],
        keeper: OrphanGuard | None = None,
        *,
        timeout_s: float = CONVERT_TIMEOUT_S,
        idle_s: float = IDLE_S,
        require: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`require`: installs an extra, or raises `ToolError`."""
        self._require = require
        self._environment, self._keeper, self._timeout_s, self._idle_s = environment, keeper, timeout_s, idle_s
        self._places = asyncio.Semaphore(MAX_WORKERS)
        self._idle: list[_Worker] = []
        self._group = asyncio.TaskGroup()
        self._workers: set[_Worker] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    def prepare(self) -> None:
        """Start a process if none is free, so that it has loaded its libraries when the page has arrived."""
        if not self._idle and len(self._workers) < MAX_WORKERS:
            self._idle.append(self._start())

    async def convert(self, job: ConvertJob) -> ConvertedPage:
        """Raises `ToolError` if it takes too long or cannot be converted. Cancelled, its process is killed."""
        if self._require is not None and job.kind != "text":
            await self._require(EXTRA)
        async with self._places:
            self._idle = [worker for worker in self._idle if worker.usable]
            worker = self._idle.pop() if self._idle else self._start()
            worker.busy = True
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await worker.convert(job)
            except TimeoutError as late:
                raise ToolError(f"it took longer than {self._timeout_s:.0f} s to convert") from late
            except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
                raise ToolError("it could not be converted: it needs too much memory, or is damaged") from error
            else:
                worker.busy = False
                self._idle.append(worker)
            finally:
                if worker.busy:
                    worker.end()
                    await worker.ended.wait()
        if answer.error:
            raise ToolError(answer.error)
        return answer

    def _start(self) -> "_Worker":
        worker = _Worker(self._idle_s)
        self._workers.add(worker)
        self._group.create_task(self._run(worker), name="page converter")
        return worker

    async def _run(self, worker: "_Worker") -> None:
        try:
            await worker.run(self._environment, self._keeper)
        finally:
            self._workers.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)


class _Worker:
    """One process. `run` owns it; the other methods are called by who uses it."""

    def __init__(self, idle_s: float) -> None:
        self.busy = False
        self.ended = asyncio.Event()
        self._stop, self._ready, self._idle_s = asyncio.Event(), asyncio.Event(), idle_s
        self._child: Child | None = None
        self._error: OSError | None = None
        self._rest = b""
        self._used_at = asyncio.get_running_loop().time()

    @property
    def usable(self) -> bool:
        exited = self._child is not None and self._child.returncode is not None
        return not (exited or self._stop.is_set() or self.ended.is_set())

    def end(self) -> None:
        self._stop.set()

    async def run(self, environment: Mapping[str, str], keeper: OrphanGuard | None) -> None:
        """Until `end` is called, or it had nothing to do for a while."""
        script = str(Path(__file__).with_name("convert_child.py"))
        argv = (sys.executable, "-P", script, "--prepare")
        try:
            async with open_child(argv, cwd="/", env=environment, link="pipes", keeper=keeper) as self._child:
                self._ready.set()
                await self._wait_for_end()
        except OSError as error:
            self._error = error
        finally:
            self._ready.set()
            self.ended.set()

    async def _wait_for_end(self) -> None:
        clock = asyncio.get_running_loop().time
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._stop.wait()
            except TimeoutError:
                if not self.busy and clock() >= self._used_at + self._idle_s:
                    self.end()  # from here on nobody takes it

    async def convert(self, job: ConvertJob) -> ConvertedPage:
        await self._ready.wait()
        if self._child is None or self._error is not None:
            raise self._error or OSError("the converter has ended")
        facts = {"kind": job.kind, "charset": job.charset, "url": job.url, "size": len(job.data)}
        head = json.dumps(facts).encode() + b"\n"
        for data in (head, job.data):
            if await self._child.input.write(data, CONVERT_TIMEOUT_S) < len(data):
                raise OSError("the converter does not read")
        answer = await self._read_answer(self._child)
        self._used_at = asyncio.get_running_loop().time()
        return answer

    async def _read_answer(self, child: Child) -> ConvertedPage:
        data = bytearray(self._rest)
        while b"\n" not in data[:20]:
            data += await self._read(child)
        size, _, rest = bytes(data).partition(b"\n")
        answer = bytearray(rest)
        if not 0 < int(size) < MAX_ANSWER_BYTES:
            raise ValueError("the converter's answer is too long")
        while len(answer) < int(size):
            answer += await self._read(child)
        self._rest = bytes(answer[int(size) :])
        return await asyncio.to_thread(_decode_answer, bytes(answer[: int(size)]))

    async def _read(self, child: Child) -> bytes:
        if piece := await child.read():
            return piece
        raise EOFError


def _decode_answer(data: bytes) -> ConvertedPage:
    return msgspec.json.decode(data, type=ConvertedPage)
