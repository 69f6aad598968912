"""Lists what a server offers, with clean texts."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp import Client, MCPError

from alipes.features.mcp.client.definitions import (
    MAX_TOOLS,
    Offer,
    PromptInfo,
    ResourceInfo,
    ToolDefinition,
    clean_schema,
    clean_text,
)
from alipes.features.mcp.client.masked import mask_model
from alipes.features.mcp.client.server_log import ServerLog

MAX_PAGES = 20
MAX_LISTED = 200
"""Resources and prompts that are listed."""
MAX_TOOL_NAME_CHARS = 200


async def list_offer(client: Client, log: ServerLog, mask: Callable[[str], str]) -> Offer:
    """All tools, resources and prompts, as far as the server declares them. Tools that cannot be used are logged.

    `mask` removes secrets.
    """
    has = client.server_capabilities
    tools = await _list_pages(client.list_tools, "tools", MAX_TOOLS) if has.tools else []
    prompts = await _list_pages(client.list_prompts, "prompts", MAX_LISTED) if has.prompts else []
    resources = await _list_pages(client.list_resources, "resources", MAX_LISTED) if has.resources else []
    return Offer(
        tuple(await _clean_tools([mask_model(each, mask) for each in tools], log)),
        tuple(_to_resource(mask_model(each, mask)) for each in resources),
        tuple(_to_prompt(mask_model(each, mask)) for each in prompts),
        has_resources=has.resources is not None,
    )


async def _list_pages(load: Callable[..., Awaitable[Any]], what: str, most: int) -> list[Any]:
    found, cursor = list[Any](), None
    for _ in range(MAX_PAGES):
        try:
            page = await load(cursor=cursor)
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND:
                raise
            break  # it declares what it does not have
        found += getattr(page, what)
        cursor = page.next_cursor
        if cursor is None or len(found) >= most:
            break
    return found[:most]


async def _clean_tools(tools: list[types.Tool], log: ServerLog) -> list[ToolDefinition]:
    found = dict[str, ToolDefinition]()
    for tool in tools:
        try:
            if not tool.name.strip() or len(tool.name) > MAX_TOOL_NAME_CHARS or tool.name in found:
                raise ValueError("its name is empty, too long or used twice")
            schema = clean_schema(tool.input_schema)
        except ValueError as error:
            await log.add(f"[ignored] the tool {tool.name[:80]!r}: {error}")
            continue
        notes = tool.annotations
        title = tool.title or (notes.title if notes is not None else None)
        found[tool.name] = ToolDefinition(
            tool.name,
            clean_text(tool.description) or clean_text(title) or clean_text(tool.name, 100),
            schema,
            read_only=notes is not None and notes.read_only_hint is True,
            title=clean_text(title, 100),
        )
    return [*found.values()]


def _to_resource(given: types.Resource) -> ResourceInfo:
    name, description = clean_text(given.title or given.name, 200), clean_text(given.description, 400)
    return ResourceInfo(str(given.uri), name, description, clean_text(given.mime_type, 100))


def _to_prompt(given: types.Prompt) -> PromptInfo:
    arguments = tuple((clean_text(each.name, 60), each.required is True) for each in given.arguments or ())
    return PromptInfo(given.name, clean_text(given.description or given.title, 300), arguments)
