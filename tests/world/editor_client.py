"""An editor: the client of the protocol package over real pipes, and what its person sees."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, connect_to_agent, text_block
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    Implementation,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from tests.e2e.program import Home
from tests.world.environment import LIMIT_S

MAX_LINE = 50_000_000


class Question:
    """An open permission request."""

    def __init__(self, call: ToolCallUpdate, options: list[PermissionOption]) -> None:
        self.call, self.options = call, options
        self.chosen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def text(self) -> str:
        return "\n".join(_content_text(each) for each in self.call.content or ())


class Thread:
    """One session as the editor shows it: texts and tool calls, oldest first."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.blocks: dict[str, str] = {}
        self.thoughts: dict[str, str] = {}
        self.users: list[str] = []
        self.calls: dict[str, dict[str, Any]] = {}
        self.commands: list[str] = []
        self.plan: list[tuple[str, str]] = []
        self.mode = ""
        self.options: dict[str, str] = {}
        self.title = ""

    def add(self, update: Any) -> None:
        self.updates.append(update)
        match update.session_update:
            case "agent_message_chunk":
                self.blocks[update.message_id] = self.blocks.get(update.message_id, "") + update.content.text
            case "agent_thought_chunk":
                self.thoughts[update.message_id] = self.thoughts.get(update.message_id, "") + update.content.text
            case "user_message_chunk":
                self.users.append(getattr(update.content, "text", "(image)"))
            case "tool_call" | "tool_call_update":
                fields = {name: getattr(update, name) for name in ("title", "kind", "status", "content", "locations")}
                known = self.calls.setdefault(update.tool_call_id, {})
                known.update({name: value for name, value in fields.items() if value is not None})
                self.blocks[update.tool_call_id] = _call_text(known)
            case "available_commands_update":
                self.commands = [each.name for each in update.available_commands]
            case "plan":
                self.plan = [(each.content, each.status) for each in update.entries]
            case "current_mode_update":
                self.mode = update.current_mode_id
            case "config_option_update":
                self.options = {each.id: each.current_value for each in update.config_options}
            case "session_info_update":
                self.title = update.title

    def seen(self) -> list[str]:
        return [text for text in (block.strip() for block in self.blocks.values()) if text]


class EditorClient:
    """What the package asks of a client; `connected` starts the program."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.questions: list[Question] = []
        self.forms: list[Any] = []
        self.answer = ""
        """The answer to every form."""
        self.agent: Any = None
        self.changed = asyncio.Event()

    def thread(self, session: str) -> Thread:
        return self.threads.setdefault(session, Thread())

    async def until(self, fact: Callable[[], Any]) -> None:
        """Return when it holds; checked after each message of the agent."""
        async with asyncio.timeout(LIMIT_S):
            while not fact():
                self.changed.clear()
                try:
                    async with asyncio.timeout(0.1):  # files and processes change unseen
                        await self.changed.wait()
                except TimeoutError:
                    continue

    async def ask(self, session: str, *blocks: Any) -> PromptResponse:
        """Send a prompt and return its result."""
        prompt = [text_block(each) if isinstance(each, str) else each for each in blocks]
        response: PromptResponse = await self.agent.prompt(session_id=session, prompt=prompt)
        return response

    # The methods of the protocol.

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.thread(session_id).add(update)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        question = Question(tool_call, options)
        self.questions.append(question)
        self.changed.set()
        chosen = await question.chosen
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> AcceptElicitationResponse:
        self.forms.append((message, mode))
        return AcceptElicitationResponse(action="accept", content={"answer": self.answer})

    def on_connect(self, conn: Any) -> None:
        self.agent = conn


@asynccontextmanager
async def open_editor(
    home: Home, *words: str, able: ClientCapabilities | None = None, cwd: Path | None = None, name: str = "tests"
) -> AsyncIterator[tuple[EditorClient, asyncio.subprocess.Process]]:
    """An editor that started `alipes acp WORDS`, after the handshake."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", "acp", *words),
        env=home.environ(),
        cwd=cwd or home.path.parent,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_LINE,
    )
    client, info = EditorClient(), Implementation(name=name, version="1") if name else None
    connection = connect_to_agent(client, process.stdin, process.stdout, use_unstable_protocol=True)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(LIMIT_S):
            await connection.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=able, client_info=info)
        yield client, process
    finally:
        await connection.close()
        if process.returncode is None and process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                _, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        assert b"Traceback" not in errors, errors.decode()


def _call_text(call: dict[str, Any]) -> str:
    shown = "\n".join(_content_text(each) for each in call.get("content") or ())
    return f"[{call.get('status')}] {call.get('title')}\n{shown}".strip()


def _content_text(content: Any) -> str:
    if content.type == "diff":
        return f"{content.path}: {content.old_text!r} -> {content.new_text!r}"
    return (
        getattr(content.content, "text", "(image)")
        if content.type == "content"
        else f"(terminal {content.terminal_id})"
    )
