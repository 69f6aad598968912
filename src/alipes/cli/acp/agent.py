"""The agent that an editor talks to: sessions, prompts, modes and choices."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from acp import RequestError
from acp.agent.connection import AgentSideConnection
from acp.interfaces import Agent, Client
from acp.schema import (
    AuthenticateResponse,
    CloseSessionResponse,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    ResumeSessionResponse,
    SessionInfo,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from msgspec import structs

from alipes.app import open_app
from alipes.cli.acp.command import EditorOptions
from alipes.cli.acp.content import ContentBlock
from alipes.cli.acp.handshake import EditorFeatures, initialize_result
from alipes.cli.acp.mcp_servers import use_editor_servers
from alipes.cli.acp.session import INTERNAL_ERROR, INVALID_PARAMS, EditorSession
from alipes.config.settings import Settings
from alipes.console.inbound import PLATFORM, activate_conversation, new_address
from alipes.console.line_input import JsonLines
from alipes.core.app import App
from alipes.kernel.errors import AlipesError, SessionError
from alipes.kernel.turns import Address, Inbound
from alipes.store.ports.search import SearchScope

log = logging.getLogger(__name__)
LISTED = 50
"""Conversations in one page of the list."""
NOT_FOUND = -32002
NO_FOLDER = os.devnull
"""Nothing works there: interrupted turns are resumed when the editor opens their conversation."""
P = ParamSpec("P")
T = TypeVar("T")


async def serve_editor(lines: JsonLines, settings: Settings, options: EditorOptions, features: EditorFeatures) -> None:
    """Serve until the editor closes its end. Running turns are suspended then."""
    log.info("serving the editor %s", features.name or "(no name)")
    settings = structs.replace(settings, mcp=structs.replace(settings.mcp, in_conversations=True))
    async with open_app(settings, interactive=True, workdir=NO_FOLDER) as app, asyncio.TaskGroup() as group:
        agent = EditorAgent(app, options, features, group)
        transport = _EditorTransport(lines, agent)
        connection = AgentSideConnection(cast(Agent, agent), transport, listening=False, use_unstable_protocol=True)
        try:
            await connection.listen()
        finally:
            agent.close()
            await connection.close()


def report_errors(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """An error of alipes as an error of the protocol."""

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except SessionError as error:
            raise RequestError(NOT_FOUND, str(error)) from error
        except AlipesError as error:
            raise RequestError(INTERNAL_ERROR, str(error)) from error

    return run


class EditorAgent:
    """The methods that the protocol names; each has the parameters of its request."""

    def __init__(self, app: App, options: EditorOptions, features: EditorFeatures, group: asyncio.TaskGroup) -> None:
        self._app, self._options, self._features, self._group = app, options, features, group
        self._client: Client
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    def on_result(self, result: object) -> None:
        """Called after a result was sent: from now on, the editor knows the id of a new session."""
        if isinstance(result, dict) and (session := self._sessions.get(str(result.get("sessionId")))) is not None:
            session.announced.set()

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def initialize(self, protocol_version: int, **_others: Any) -> InitializeResponse:
        """Answered before (see handshake.py); a second one gets the same answer."""
        return InitializeResponse.model_validate(initialize_result())

    async def authenticate(self, method_id: str, **_others: Any) -> AuthenticateResponse:
        raise RequestError(INVALID_PARAMS, "no login is needed; choose a model with `alipes setup` in a terminal")

    @report_errors
    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_others: Any) -> NewSessionResponse:
        session = await self._open_session(new_address(), cwd, mcp_servers)
        if self._options.mode:
            await session.choices.choose_mode(self._options.mode)
        if self._options.model:
            await session.choices.choose("model", self._options.model)
        modes, options = await session.choices.modes(), await session.choices.options()
        return NewSessionResponse(session_id=session.id, modes=modes, config_options=options)

    @report_errors
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_others: Any
    ) -> LoadSessionResponse:
        session = await self._reopen(session_id, cwd, mcp_servers)
        await session.replay(session_id)
        session.announced.set()
        await session.resume_interrupted()
        modes, options = await session.choices.modes(), await session.choices.options()
        return LoadSessionResponse(modes=modes, config_options=options)

    @report_errors
    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_others: Any
    ) -> ResumeSessionResponse:
        session = await self._reopen(session_id, cwd, mcp_servers)
        session.announced.set()
        await session.resume_interrupted()
        modes, options = await session.choices.modes(), await session.choices.options()
        return ResumeSessionResponse(modes=modes, config_options=options)

    @report_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_others: Any
    ) -> ListSessionsResponse:
        """Conversations of editors and terminals, latest first."""
        if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 10):
            raise RequestError(INVALID_PARAMS, "unknown cursor; start again without one")
        first = int(cursor or 0)
        found = await self._app.store.archive.sessions(first + LISTED + 1, scope=SearchScope(workdir=cwd or ""))
        page = found[first : first + LISTED]
        sessions = [
            SessionInfo(
                session_id=facts.id,
                cwd=facts.workdir,
                title=facts.title or None,
                updated_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts.updated)),
            )
            for facts in page
            if facts.address.platform == PLATFORM and facts.workdir
        ]
        more = str(first + LISTED) if len(found) > first + LISTED else None
        return ListSessionsResponse(sessions=sessions, next_cursor=more)

    @report_errors
    async def close_session(self, session_id: str, **_others: Any) -> CloseSessionResponse:
        """Stop the running turn, and forget the session here; the conversation is kept."""
        session = self._find(session_id)
        await session.stop()
        del self._sessions[session_id]
        self._tasks.pop(session_id).cancel()
        await use_editor_servers(self._app, session.key, [])
        return CloseSessionResponse()

    @report_errors
    async def set_session_mode(self, session_id: str, mode_id: str, **_others: Any) -> SetSessionModeResponse:
        await self._find(session_id).choices.choose_mode(mode_id)
        return SetSessionModeResponse()

    @report_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_others: Any
    ) -> SetSessionConfigOptionResponse:
        choices = self._find(session_id).choices
        await choices.choose(config_id, value)
        return SetSessionConfigOptionResponse(config_options=await choices.options())

    @report_errors
    async def prompt(self, session_id: str, prompt: list[ContentBlock], **_others: Any) -> PromptResponse:
        return await self._find(session_id).prompt(prompt)

    @report_errors
    async def cancel(self, session_id: str, **_others: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            await session.stop()

    def _find(self, id: str) -> EditorSession:
        if (session := self._sessions.get(id)) is None:
            raise RequestError(NOT_FOUND, f"session {id} is not open; use session/load first")
        return session

    async def _reopen(self, id: str, cwd: str, mcp_servers: list[Any] | None) -> EditorSession:
        if (open_here := self._sessions.pop(id, None)) is not None:  # loaded again: start over
            self._tasks.pop(open_here.id).cancel()
        facts = await self._app.store.archive.resolve(id)
        if facts.id != id:
            raise RequestError(NOT_FOUND, f"there is no conversation {id}")
        address = await activate_conversation(self._app, facts)
        return await self._open_session(address, cwd, mcp_servers)

    async def _open_session(self, address: Address, cwd: str, mcp_servers: list[Any] | None) -> EditorSession:
        workdir = await asyncio.to_thread(_check_folder, cwd)
        standing = await self._app.store.sessions.open(address)
        inbound = Inbound("", address, "owner", "", workdir=workdir, owner=True)
        session = EditorSession(standing.session, inbound, app=self._app, client=self._client, features=self._features)
        unusable = await use_editor_servers(self._app, session.key, mcp_servers or [])
        self._sessions[session.id] = session
        self._tasks[session.id] = self._group.create_task(_run(session, unusable))
        return session


async def _run(session: EditorSession, unusable: tuple[str, ...]) -> None:
    if unusable:
        await session.announced.wait()
        names = ", ".join(unusable)
        await session.panel.say(f"*MCP servers of the editor that cannot be used, by their kind: {names}.*\n\n")
    await session.run()


def _check_folder(cwd: str) -> str:
    if not os.path.isabs(cwd) or not os.path.isdir(cwd):
        raise RequestError(INVALID_PARAMS, f"cwd must be the absolute path of a folder, not {cwd!r}")
    return os.path.normpath(cwd)


class _EditorTransport:
    """The transport of the protocol package; tells the agent which results were sent."""

    def __init__(self, lines: JsonLines, agent: EditorAgent) -> None:
        self._lines, self._agent = lines, agent

    async def receive(self) -> dict[str, Any] | None:
        return await self._lines.receive()

    async def send(self, message: dict[str, Any]) -> None:
        await self._lines.send(message)
        self._agent.on_result(message.get("result"))

    async def close(self) -> None:
        await self._lines.close()
