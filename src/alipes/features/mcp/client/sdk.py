"""The session with an MCP server by the official SDK. Imported with the first connection only."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, ValidationError

import alipes
from alipes.features.mcp.client.definitions import (
    McpError,
    Offer,
    PromptInfo,
    ResourceInfo,
    ServerInfo,
    SessionLost,
    ToolDefinition,
    clean_schema,
    clean_text,
)
from alipes.features.mcp.client.host import (
    Elicitation,
    McpHost,
    SamplingRequest,
    expand_home,
    sandbox_session,
    server_folder,
)
from alipes.features.mcp.client.http import HttpTransport, open_http
from alipes.features.mcp.client.masked import mask_model
from alipes.features.mcp.client.offer import list_offer
from alipes.features.mcp.client.results import decode_base64
from alipes.features.mcp.client.server_log import ServerLog
from alipes.features.mcp.client.stdio import open_stdio
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.errors import ConfigError, ProviderError, ToolError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Image, Json, Message, Text
from alipes.kernel.ports import ToolContext
from alipes.kernel.turns import Turn
from alipes.runtime.http.lent_clients import HttpError
from alipes.runtime.processes.child import Child
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.tasks import first_error

log = logging.getLogger(__name__)
T = TypeVar("T")
PROGRESS_EVERY_S = 0.1
NOBODY = types.ErrorData(code=types.INVALID_REQUEST, message="no conversation is waiting for this server")
_CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_FAILURES = (MCPError, HttpError, OSError, ValueError, RuntimeError, *_CLOSED)
"""What the SDK raises if a server misbehaves."""


class PendingCall:
    """A call whose answer is awaited; requests of the server are answered by its person."""

    def __init__(self, act: ToolContext | None, timeout: asyncio.Timeout | None = None) -> None:
        self.act, self._timeout = act, timeout
        self._questions: set[anyio.CancelScope] = set()
        self._shown_at = 0.0

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        now = asyncio.get_running_loop().time()
        is_last = total is not None and progress >= total
        if self.act is None or (now - self._shown_at < PROGRESS_EVERY_S and not is_last):
            return
        self._shown_at = now
        amount = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        await self.act.progress(f"{amount} {clean_text(message, 200)}".strip() + "\n")

    @contextmanager
    def person_is_asked(self) -> Iterator[anyio.CancelScope]:
        """The time of the call stops meanwhile, and the question is withdrawn if the call ends."""
        seconds = self._left()
        if self._timeout is not None:
            self._timeout.reschedule(None)
        with anyio.CancelScope() as scope:
            self._questions.add(scope)
            try:
                yield scope
            finally:
                self._questions.discard(scope)
                if self._timeout is not None and seconds is not None and not self._questions:
                    self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)

    def _left(self) -> float | None:
        until = None if self._timeout is None else self._timeout.when()
        return None if until is None else max(0.1, until - asyncio.get_running_loop().time())

    def end(self) -> None:
        for question in tuple(self._questions):
            question.cancel()
        self._timeout = None


class McpConnection:
    """An initialised session. Used only while its scope is open, from any task of the loop."""

    def __init__(self, name: str, config: McpServerConfig, host: McpHost, server_log: ServerLog) -> None:
        self.name, self.config = name, config
        self.folder = ""
        """The working directory, which is its root."""
        self.info = ServerInfo()
        self.offer = Offer()
        self.signal = asyncio.Event()
        """Set when the connection ended or the server's list of tools changed."""
        self.ended = ""
        """Why the connection ended by itself; empty while it works."""
        self.tools_changed = False
        self.host, self.log = host, server_log
        self.http: HttpTransport | None = None
        """None if it is a started server."""
        self._client: Client | None = None
        self._running: list[PendingCall] = []

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        return self.offer.tools

    @property
    def resources(self) -> tuple[ResourceInfo, ...]:
        return self.offer.resources

    @property
    def prompts(self) -> tuple[PromptInfo, ...]:
        return self.offer.prompts

    @property
    def client(self) -> Client:
        assert self._client is not None, "the session is not open"
        return self._client

    def use(self, client: Client) -> None:
        self._client = client

    def end(self, why: str) -> None:
        """Note that the connection does not work any longer. The first reason counts."""
        self.ended = self.ended or why or "the connection was closed"
        self.signal.set()

    async def call_tool(
        self, tool: str, args: Mapping[str, Json], act: ToolContext | None = None
    ) -> types.CallToolResult:
        """Call a tool. Raises `McpError`. If cancelled, the server gets `notifications/cancelled`."""
        try:
            async with asyncio.timeout(self.config.timeout) as timeout:
                call = PendingCall(act, timeout)
                self._running.append(call)
                try:
                    return await self._send(
                        self.client.call_tool(tool, dict(args), progress_callback=call.report_progress)
                    )
                finally:
                    self._running.remove(call)
                    call.end()
        except TimeoutError:
            raise _timeout_error(self, "; the call was cancelled") from None

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        return await self._limited(self.client.read_resource(uri))

    async def get_prompt(self, prompt: str, args: Mapping[str, str]) -> types.GetPromptResult:
        return await self._limited(self.client.get_prompt(prompt, dict(args)))

    async def ping(self) -> float:
        """Seconds until the server answered a list of tools. Raises `McpError`."""
        began = asyncio.get_running_loop().time()
        await self._limited(self.client.list_tools())
        return asyncio.get_running_loop().time() - began

    async def refresh(self) -> None:
        """List again what the server offers."""
        self.tools_changed = False
        self.offer = await self._limited(list_offer(self.client, self.log, self.host.mask))

    async def _limited(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.config.timeout):
                return await self._send(work)
        except TimeoutError:
            raise _timeout_error(self) from None

    async def _send(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except _FAILURES as error:
            if isinstance(error, TimeoutError):
                raise
            if _is_broken(error, self.info.transport):
                self.end(self.ended or _explain_refusal(self.http, error) or describe_error(error, self.host.mask))
            lost = isinstance(error, MCPError) and error.message == _SESSION_LOST[0]
            kind = SessionLost if lost else McpError
            why = self.ended or _explain_refusal(self.http, error) or describe_error(error, self.host.mask)
            raise kind(f"{self.name}: {why}") from error

    # --- what the server asks and reports

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.PromptListChangedNotification):
            self.tools_changed = True
            self.signal.set()

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else str(params.data)
        line = f"[{params.level}] {clean_text(self.host.mask(text), 1000)}"
        await self.log.add(line)
        if self._running and (act := self._running[-1].act) is not None and params.level not in ("debug", "info"):
            await act.progress(f"{line}\n")

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        asking = self._asking()  # an HTTP server serves several working directories
        folder = asking[1].inbound.workdir if asking is not None and self.config.url else ""
        folder = folder or self.folder
        root = types.Root(uri=FileUrl(f"file://{quote(folder)}"), name=folder.rpartition("/")[2])
        return types.ListRootsResult(roots=[root])

    def _asking(self) -> tuple[PendingCall, Turn] | None:
        """The latest call and its turn: the person who waits for this server."""
        found = next((call for call in reversed(self._running) if call.act is not None), None)
        return None if found is None or found.act is None else (found, found.act.turn)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        if (asking := self._asking()) is None or self.host.requests is None:
            return NOBODY
        params = mask_model(params, self.host.mask)
        request = SamplingRequest(
            clean_text(params.system_prompt, 20_000), tuple(map(_to_message, params.messages)), params.max_tokens
        )
        with asking[0].person_is_asked():
            try:
                reply = await self.host.requests.sample(self.name, asking[1], request)
            except (ToolError, ProviderError, ConfigError) as error:
                return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
            content = types.TextContent(type="text", text=reply.text)
            return types.CreateMessageResult(role="assistant", content=content, model=reply.model)
        return types.ErrorData(code=types.INVALID_REQUEST, message="the call was cancelled")

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        if (asking := self._asking()) is None or self.host.requests is None:
            return types.ElicitResult(action="cancel")
        question = _to_elicitation(mask_model(params, self.host.mask))
        with asking[0].person_is_asked():
            answer = await self.host.requests.elicit(self.name, asking[1], question)
            return types.ElicitResult(action=answer.action, content=answer.content)  # type: ignore[arg-type]
        return types.ElicitResult(action="cancel")

    async def listen(self) -> None:
        """Follow changes of the list of tools, where the protocol has a request for that."""
        has = self.client.server_capabilities
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or has.tools is None:
            return
        try:
            async with self.client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.tools_changed = True
                    self.signal.set()
        except (MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError):
            return


_SESSION_LOST = ("Session terminated", "Server returned an error response")
"""Messages of the SDK for HTTP 404 and other errors."""


def _is_broken(error: BaseException, transport: str) -> bool:
    """True if the connection must be opened again: the session is gone, or a proxy answers for the server."""
    if not isinstance(error, MCPError):
        return isinstance(error, _CLOSED)
    return error.code == types.CONNECTION_CLOSED or (transport == "http" and error.message in _SESSION_LOST)


def _explain_refusal(http: HttpTransport | None, error: BaseException) -> str:
    """What to do if the server no longer accepts our login or key; empty if the error has another reason."""
    if http is None or not isinstance(error, MCPError):
        return ""
    return http.refusal if error.message == _SESSION_LOST[1] else http.login_problem


def _timeout_error(connection: McpConnection, more: str = "") -> McpError:
    http = connection.http if connection.info.transport == "sse" else None
    if http is not None and (why := http.refusal):
        connection.end(why)  # the older transport does not pass on that a request was refused
        return McpError(f"{connection.name}: {why}")
    return McpError(f"{connection.name} did not answer within {connection.config.timeout:g} s{more}")


@asynccontextmanager
async def open_session(
    name: str, config: McpServerConfig, host: McpHost, *, workdir: str = "", turn: Turn | None = None
) -> AsyncIterator[McpConnection]:
    """See `open_connection`."""
    server_log = ServerLog(host.logs, name, host.mask)
    connection = McpConnection(name, config, host, server_log)
    connection.folder = server_folder(config, workdir)
    try:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(config.start_timeout):
                    await _connect(stack, connection, host, turn)
                    await connection.refresh()
            except TimeoutError:
                seconds = f"{config.start_timeout:g} s"
                raise McpError(f"{name} did not connect within {seconds}{_said(server_log)}") from None
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            group.start_soon(connection.listen)
            yield connection
    except McpError:
        raise
    except (*_FAILURES, ConfigError, ExceptionGroup) as error:
        cause = first_error(error)
        if not isinstance(cause, (*_FAILURES, ConfigError)):
            raise cause from error  # of the code that uses the connection: task groups have wrapped it
        why = connection.ended or describe_error(cause, host.mask)
        connection.end(why)
        raise McpError(f"{name}: {why}") from error


async def _connect(stack: AsyncExitStack, connection: McpConnection, host: McpHost, turn: Turn | None) -> None:
    config = connection.config
    if config.command:
        streams = open_stdio(
            _open_child(connection, host, turn),
            connection.log,
            lambda why: connection.end(_explain_exit(why, connection)),
        )
        await _enter(stack, connection, streams, "stdio")
        return
    transport = await _try_http(stack, connection, host, "http")
    if transport is not None:  # the older transport, for servers that do not accept requests at their URL
        await _try_http(stack, connection, host, "sse", status=transport.last_status)


async def _try_http(
    stack: AsyncExitStack, connection: McpConnection, host: McpHost, kind: str, *, status: int = 0
) -> HttpTransport | None:
    """Connect by one kind of transport. Returns it if the server seems to know the other kind only.

    `status`: the HTTP error of an earlier try, which is then the reason.
    """
    config = connection.config
    auth = host.auth_for(connection.name, config) if host.auth_for is not None else None
    transport = None
    try:
        async with AsyncExitStack() as attempt:
            transport = await attempt.enter_async_context(open_http(connection.name, config, host.clients, auth))
            await _enter(attempt, connection, transport.open_streams(kind), kind)
            connection.http = transport
            stack.push_async_exit(attempt.pop_all())
            return None
    except (*_FAILURES, ExceptionGroup) as error:
        if not isinstance(cause := first_error(error), _FAILURES) or transport is None:
            raise
        connection.ended = ""
        if kind == "http" and transport.may_be_sse:
            return transport
        status = status or transport.last_status
        why = transport.refusal or (f"it answered HTTP {status}" if status >= 400 else describe_error(cause, host.mask))
        raise McpError(f"{connection.name}: {why}") from error


async def _enter(stack: AsyncExitStack, connection: McpConnection, streams: Any, transport: str) -> None:
    watched = _watch(streams, connection)
    handles_requests = connection.host.requests is not None
    client = Client(
        watched,
        cache=None,
        client_info=types.Implementation(name="alipes", version=alipes.__version__),
        sampling_callback=connection.sample if handles_requests else None,
        elicitation_callback=connection.elicit if handles_requests else None,
        list_roots_callback=connection.list_roots,
        logging_callback=connection.on_log,
        log_level="info",
        message_handler=connection.on_message,
    )
    await stack.enter_async_context(client)
    # Checking results against a schema of the server would let its regular expressions block the loop.
    setattr(client.session, "validate_tool_result", _accept_result)  # noqa: B010
    connection.use(client)
    known, mask = client.server_info, connection.host.mask
    connection.info = ServerInfo(
        clean_text(mask(known.name) if known else "", 100),
        clean_text(mask(known.version) if known else "", 50),
        client.protocol_version,
        transport,
        clean_text(mask(client.instructions or ""), 4_000),
    )


async def _accept_result(_name: str, _result: types.CallToolResult) -> None:
    return None


@asynccontextmanager
async def _watch(streams: Any, connection: McpConnection) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (incoming, outgoing):
        yield _WatchedStream(incoming, connection.end), outgoing


class _WatchedStream:
    """Messages of a server; says when they end."""

    def __init__(self, stream: Any, on_end: Callable[[str], None]) -> None:
        self._stream, self._on_end = stream, on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            asyncio.get_running_loop().call_soon(self._on_end, "")  # after a better reason, if there is one
            raise

    async def __aenter__(self) -> "_WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


@asynccontextmanager
async def _open_child(connection: McpConnection, host: McpHost, turn: Turn | None) -> AsyncIterator[Child]:
    config = connection.config
    folder = connection.folder
    session = sandbox_session(connection.name, folder)
    scope = CommandScope(session, folder, turn, write=tuple(map(expand_home, config.write)))
    argv, env = (config.command, *config.args), {**host.environment, **config.env}
    try:
        async with host.backend.open(argv, scope, cwd=folder, env=env, link="streams") as child:
            yield child
    except FileNotFoundError as error:
        raise McpError(f"{connection.name}: the command {config.command} was not found") from error
    finally:
        if host.network is not None:
            await host.network.close(session)


def _explain_exit(why: str, connection: McpConnection) -> str:
    """Why a server ended; if the sandbox did not show it a file of its command line, which one and what to do."""
    host, said = connection.host, "\n".join(connection.log.last_lines)
    if not host.backend.contains:
        return why
    hidden = find_hidden(why, said, connection.config, connection.folder, host.environment.get("PATH"))
    if not hidden:
        return why
    elsewhere = "install it outside of /tmp, or " if is_inside(hidden, "/tmp") else ""
    return f"{why}. The sandbox hides {hidden}: {elsewhere}add its folder to `write`"


def find_hidden(why: str, said: str, config: McpServerConfig, folder: str, path: str | None = None) -> str:
    """A file that is on this machine, and that a server in the sandbox did not find; empty if there is none."""
    if why.startswith("it exited with code 127"):
        found = shutil.which(expand_home(config.command), path=path)
        return os.path.realpath(os.path.join(folder, found)) if found is not None else ""
    files = (os.path.join(folder, expand_home(word)) for word in config.args if word)
    return next((file for file in files if file in said and os.path.exists(file)), "")


def _said(server_log: ServerLog) -> str:
    return f": {format_excerpt(server_log.last_lines[-1], 200)[1:-1]}" if server_log.last_lines else ""


def describe_error(error: BaseException, mask: Callable[[str], str]) -> str:
    """An error of the SDK as the end of a sentence, without secrets."""
    match error:
        case MCPError():
            return f"it answered: {clean_text(mask(error.message), 500)}"
        case anyio.BrokenResourceError() | anyio.ClosedResourceError():
            return "the connection was closed"
        case ValidationError():
            first = error.errors()[0]
            place, why = ".".join(map(str, first["loc"])), clean_text(mask(first["msg"]), 200)
            return f"it sent an invalid answer ({mask(place)}: {why})"
        case HttpError():
            return f"it cannot be reached ({mask(str(error)) or type(error).__name__})"
    return clean_text(mask(f"{error}") or type(error).__name__, 500)


def _to_message(given: types.SamplingMessage) -> Message:
    parts = list[Text | Image]()
    for part in given.content_as_list:
        if isinstance(part, types.TextContent):
            parts.append(Text(part.text))
        elif isinstance(part, types.ImageContent):
            parts.append(Image(part.mime_type, decode_base64(part.data)))
        else:
            parts.append(Text(f"[{part.type} is not supported]"))
    return Message(given.role, tuple(parts))


def _to_elicitation(params: types.ElicitRequestParams) -> Elicitation:
    message = clean_text(params.message, 2_000)
    if isinstance(params, types.ElicitRequestURLParams):
        return Elicitation(message, url=clean_text(params.url, 2_000))
    schema = clean_schema(params.requested_schema)
    fields, required = schema.get("properties"), schema.get("required")
    return Elicitation(
        message,
        {name: each for name, each in fields.items() if isinstance(each, dict)} if isinstance(fields, dict) else {},
        tuple(map(str, required)) if isinstance(required, list) else (),
    )
