"""An editor as a surface: the real program behind the client of the protocol package."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from acp import RequestError

from tests.conformance.surface import File, Room, Surface
from tests.world.editor_client import EditorClient, open_editor

OPTIONS = {"Yes": "once", "No": "no"}


class Editor(Surface):
    """One program for all rooms; after a restart, the editor loads the session of the last room."""

    name = "editor"
    longest = 0
    lasts = False
    cannot: ClassVar = {
        "groups": "an editor has one person at it",
        "threads": "a session is one conversation",
        "strangers": "who can start it may speak",
        "repeats": "a request does not come again",
        "edits": "what was sent is not changed",
        "limits": "the editor reads all that is written",
        "menus": "commands are completed as they are typed (tests/e2e/test_acp.py)",
        "files": "files come as resources, and images as images (tests/e2e/test_acp.py)",
        "absence": "nobody can type while it is not there",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = AsyncExitStack()
        self.session = ""
        self.client: EditorClient
        self.prompts: set[asyncio.Task[Any]] = set()
        self._process: asyncio.subprocess.Process

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        yield

    def settings(self) -> list[str]:
        return []

    async def start(self) -> None:
        self._stack = AsyncExitStack()
        self.client, self._process = await self._stack.enter_async_context(open_editor(self.home, cwd=self.workdir))
        if self.session:
            await self.client.agent.load_session(cwd=str(self.workdir), session_id=self.session, mcp_servers=[])

    async def leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def left(self) -> None:
        await self._process.wait()
        await self.end()

    async def kill(self) -> None:
        self._process.kill()
        await self.left()

    async def knows(self) -> None:
        return

    async def end(self) -> None:
        await self._stack.aclose()
        await asyncio.gather(*self.prompts, return_exceptions=True)

    async def room(self) -> "EditorThread":
        self.session = (await self.client.agent.new_session(cwd=str(self.workdir), mcp_servers=[])).session_id
        return EditorThread(self)

    def say(self, text: str) -> None:
        """Send a prompt without waiting for its end."""
        task = asyncio.create_task(self._say(text))
        self.prompts.add(task)
        task.add_done_callback(self.prompts.discard)

    async def _say(self, text: str) -> None:
        with suppress(RequestError, ConnectionError):
            await self.client.ask(self.session, text)
        self.client.changed.set()

    def stopped(self, partial: str) -> list[str]:
        return [partial, "Stopped."]

    def superseded(self, partial: str) -> list[str]:
        return [partial]

    def renewed(self, partial: str) -> list[str]:
        return [partial, "Started a new conversation. Stopped: the running turn."]

    def worked(self, command: str, output: str) -> list[str]:
        return [f"[completed] Run {command}\n```\n{output}\n```"]

    def consented(self, command: str, yes: bool) -> list[str]:
        if yes:
            return [f"[completed] Run {command}"]
        why = "it force-pushes, which can overwrite work on the remote (rule: git); denied by the user."
        return [f"[failed] Run {command}\n```\nNot run: {why} Do not try to work around this.\n```"]

    def restarted(self, answer: str) -> list[str]:
        return [answer]

    def resumed(self, words: str, answer: str) -> list[str]:
        return [answer]


class EditorThread(Room):
    def __init__(self, surface: Editor) -> None:
        self._surface = surface

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        self._surface.say(text)
        return ""

    async def press(self, label: str, *, who: str = "") -> None:
        client = self._surface.client
        await client.until(lambda: client.questions)
        client.questions.pop().chosen.set_result(OPTIONS[label])

    def seen(self) -> list[str]:
        return self._surface.client.thread(self._surface.session).seen()

    def rests(self) -> bool:
        return not self._surface.prompts

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._surface.client.until(fact)
