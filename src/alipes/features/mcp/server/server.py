"""The MCP server over the conversation tools, with the official SDK. Imported when the first client connects."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from sse_starlette import sse

from alipes import __version__
from alipes.features.mcp.server.texts import ARGUMENTS, MARKDOWN, SCHEME, ConversationTexts
from alipes.features.mcp.server.tools import ConversationTool, ConversationTools, ToolAnswer, ToolRequest
from alipes.kernel.errors import AlipesError
from alipes.web.endpoint import Caller, HttpProblem, problem_from_error

SESSION_IDLE_S = 1800.0
MAX_SESSIONS = 200
"""HTTP sessions that are open at the same time."""
INSTRUCTIONS = (
    "alipes is a personal agent with tools of its own. Use ask for a question or a task, and pass the conversation's "
    "id to continue. Approvals belong to a person."
)
Identify: TypeAlias = Callable[[ServerRequestContext[Any]], tuple[Caller, Callable[[], Awaitable[None]]]]
"""Who sent a request, and the check that a person did."""


class MessageLines(Protocol):
    """JSON-RPC messages over standard input and output."""

    async def receive(self) -> dict[str, Any] | None: ...

    async def send(self, message: dict[str, Any]) -> None: ...


def make_server(tools: ConversationTools, identify: Identify) -> Server[Any]:
    """The server; its tools are those that the caller of a request may use."""

    async def list_tools(
        context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        caller, _ = identify(context)
        return types.ListToolsResult(tools=[_to_wire(tool) for tool in tools.for_caller(caller)])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        caller, check_person = identify(context)

        async def report(count: int, words: str) -> None:
            await context.session.report_progress(count, None, words)

        request = ToolRequest(caller, report, check_person)
        answer = await tools.call(params.name, params.arguments or {}, request)
        if answer is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}")
        return _to_result(answer)

    texts = _TextHandlers(tools.texts, identify)
    return Server(
        "alipes",
        version=__version__,
        title="alipes",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=texts.list_resources,
        on_list_resource_templates=texts.list_resource_templates,
        on_read_resource=texts.read_resource,
        on_list_prompts=texts.list_prompts,
        on_get_prompt=texts.get_prompt,
    )


class _TextHandlers:
    """Answers requests for resources and prompts."""

    def __init__(self, texts: ConversationTexts, identify: Identify) -> None:
        self._texts, self._identify = texts, identify

    async def list_resources(
        self, context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with _problems_as_errors():
            listed = await self._texts.conversations(self._identify(context)[0])
        resources = [
            types.Resource(
                uri=each.uri, name=each.title, title=each.title, description=each.description, mime_type=MARKDOWN
            )
            for each in listed
        ]
        return types.ListResourcesResult(resources=resources)

    async def list_resource_templates(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="conversation", uri_template=f"{SCHEME}{{id}}", description="A conversation", mime_type=MARKDOWN
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        with _problems_as_errors():
            text = await self._texts.read(self._identify(context)[0], params.uri)
        contents = types.TextResourceContents(uri=params.uri, mime_type=MARKDOWN, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(
        self, context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        with _problems_as_errors():
            found = self._texts.templates(self._identify(context)[0])
        prompts = [
            types.Prompt(
                name=each.name,
                description=each.description,
                arguments=[types.PromptArgument(name=ARGUMENTS, description=each.hint, required=False)],
            )
            for each in found
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(
        self, context: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        given = (params.arguments or {}).get(ARGUMENTS, "")
        with _problems_as_errors():
            text = await self._texts.fill(self._identify(context)[0], params.name, given)
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])


@contextmanager
def _problems_as_errors() -> Iterator[None]:
    try:
        yield
    except AlipesError as error:
        raise MCPError(types.INVALID_PARAMS, problem_from_error(error).detail) from error
    except HttpProblem as problem:
        raise MCPError(types.INVALID_PARAMS, problem.detail) from problem


def make_manager(server: Server[Any], *, max_body: int) -> StreamableHTTPSessionManager:
    """Sessions over HTTP. Host and Origin are checked before, for all endpoints."""
    # Otherwise the SSE library polls for the end of uvicorn, in a task without an owner; we cut streams ourselves.
    sse._get_shutdown_state().watcher_started = True
    return StreamableHTTPSessionManager(
        server, session_idle_timeout=SESSION_IDLE_S, max_request_body_size=max_body, max_sessions=MAX_SESSIONS
    )


async def serve_lines(server: Server[Any], lines: MessageLines) -> None:
    """Serve one client over standard input and output, until it closes its end."""
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_client = anyio.create_memory_object_stream[SessionMessage](0)
    async with asyncio.TaskGroup() as group:
        group.create_task(_read(lines, to_server), name="mcp input")
        group.create_task(_write(lines, to_client), name="mcp output")
        async with incoming, outgoing:
            await server.run(incoming, outgoing, server.create_initialization_options())


async def _read(lines: MessageLines, to_server: Any) -> None:
    async with to_server:
        while (message := await lines.receive()) is not None:
            try:
                parsed = types.jsonrpc_message_adapter.validate_python(message, by_name=False)
            except ValidationError as error:
                await to_server.send(error)
            else:
                await to_server.send(SessionMessage(parsed))


async def _write(lines: MessageLines, to_client: Any) -> None:
    async with to_client:
        async for sent in to_client:
            await lines.send(sent.message.model_dump(by_alias=True, exclude_unset=True, mode="json"))


def _to_wire(tool: ConversationTool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads, destructive_hint=not tool.reads, open_world_hint=not tool.reads
    )
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


def _to_result(answer: ToolAnswer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=answer.text)], structured_content=answer.data, is_error=answer.failed
    )
