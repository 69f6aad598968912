"""Conversations as resources and templates as prompts, for MCP clients. Knows no protocol."""

from msgspec import Struct

from alipes.core.app import App
from alipes.kernel.turns import Address, Inbound
from alipes.plugins.registry import PromptTemplate
from alipes.store import export
from alipes.store.sql.api_runs import ApiSession, SessionQuery
from alipes.web.endpoint import PLATFORM, Caller, HttpProblem
from alipes.web.runs.lookup import find_session, visible_scope
from alipes.web.templates import expand_input

SCHEME = "alipes://conversations/"
MARKDOWN = "text/markdown"
MAX_LISTED = 100
ARGUMENTS = "arguments"
"""The one argument of a prompt: everything after the name of its template."""


class ListedConversation(Struct, frozen=True):
    uri: str
    title: str
    description: str


class ConversationTexts:
    def __init__(self, app: App) -> None:
        self._app = app

    async def conversations(self, caller: Caller) -> list[ListedConversation]:
        """The latest conversations that the caller may see."""
        _require(caller, "read")
        found = await self._app.store.api_runs.sessions(visible_scope(caller).owner, SessionQuery(MAX_LISTED))
        return [_to_listed(row) for row in found]

    async def read(self, caller: Caller, uri: str) -> str:
        """A conversation as Markdown. Raises `HttpProblem`."""
        _require(caller, "read")
        if not uri.startswith(SCHEME):
            raise HttpProblem(404, f"no resource {uri!r}: conversations are {SCHEME}ID", code="not_found")
        row = await find_session(self._app.store.api_runs, caller, uri.removeprefix(SCHEME))
        return export.to_markdown(await self._app.store.archive.export(row.id))

    def templates(self, caller: Caller) -> tuple[PromptTemplate, ...]:
        _require(caller, "read")
        return self._app.contributions.templates()

    async def fill(self, caller: Caller, name: str, arguments: str) -> str:
        """The prompt that a template makes. Raises `HttpProblem`."""
        _require(caller, "run")
        if all(each.name != name for each in self._app.contributions.templates()):
            raise HttpProblem(404, f"no prompt {name!r}", code="not_found")
        text = f"/{name} {arguments}".strip()
        inbound = Inbound("", Address(PLATFORM, "mcp-prompt", user=caller.name), caller.name, text)
        return (await expand_input(self._app, inbound)).text


def _require(caller: Caller, scope: str) -> None:
    if not caller.may(scope):  # type: ignore[arg-type]  # a literal
        raise HttpProblem(403, f"this key lacks the scope {scope}", code="scope")


def _to_listed(row: ApiSession) -> ListedConversation:
    title = row.title or row.address.chat
    return ListedConversation(f"{SCHEME}{row.id}", title, f"A conversation on {row.address.platform}")
