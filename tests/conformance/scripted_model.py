"""The scripted model behind a conversation: its requests, and answers that pause."""

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Any

from tests.world.model_http import Connection, HttpRequest
from tests.world.model_server import Call, Calls, ModelServer, Plan, Reply, Say
from tests.world.model_wires import cut


class ScriptedModel(ModelServer):
    """Answers in order; `answers` starts a new script and forgets earlier requests."""

    def __init__(self) -> None:
        super().__init__()
        self._steps, self._moved = 1, asyncio.Event()
        self.begun = ""
        """How much of a paused answer it has sent."""

    def answers(self, *replies: Reply, **by: Reply) -> None:
        """In order; or `by` a word in the person's last message, as often as it is asked."""
        assert not self.open_requests, "somebody of the last conversation still asks"
        self.script = Plan((), {word: (reply,) for word, reply in by.items()}) if by else replies
        self.requests.clear()
        self.left, self.begun = 0, ""
        self._steps, self._moved = 1, asyncio.Event()

    def advance(self, steps: int = 1) -> None:
        """Let a paused answer continue by one piece."""
        self._steps += steps
        self._moved.set()

    def release(self) -> None:
        """From now on no answer pauses."""
        self.advance(1000)

    @property
    def heard(self) -> list[str]:
        """The last message of each request."""
        return [_words(body["messages"][-1]["content"]) for body in self.bodies]

    def spoken(self, number: int = -1) -> list[tuple[str, str]]:
        """Roles and texts of a request, without the system prompt and tool calls."""
        messages = self.bodies[number]["messages"]
        seen = [(each["role"], _words(each.get("content"))) for each in messages if each["role"] != "system"]
        return [(role, words) for role, words in seen if words]

    async def serve(self, connection: Connection, request: HttpRequest) -> None:
        await super().serve(_Valve(connection, self), request)  # type: ignore[arg-type]

    async def pass_on(self, data: bytes) -> None:
        """Return when this may be sent."""
        while held := [each for each in self._replies() if _reached(each, data) >= self._steps]:
            self.begun = "".join(held[0].parts[: _reached(held[0], data)]) if isinstance(held[0], Held) else ""
            self._moved.clear()
            await self._moved.wait()
        self.begun = ""

    def _replies(self) -> Iterable[Reply]:
        match self.script:
            case tuple() as replies:
                return replies
            case Plan(replies, by):
                return chain(replies, *by.values())
        return ()


class _Valve:
    """A connection that asks before it sends."""

    def __init__(self, connection: Connection, fake_model: ScriptedModel) -> None:
        self._connection, self._mind = connection, fake_model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def send(self, data: bytes) -> None:
        await self._mind.pass_on(data)
        await self._connection.send(data)


class Held(Say, frozen=True):
    """Arrives in three pieces and pauses before the second and third until `ScriptedModel` continues it."""

    pieces: int = 3
    delay: float = 0.001

    @property
    def parts(self) -> list[str]:
        return cut(self.text, self.pieces)

    @property
    def begun(self) -> str:
        """The first piece."""
        return self.parts[0].rstrip()

    @property
    def half(self) -> str:
        """The text after one step."""
        return (self.parts[0] + self.parts[1]).rstrip()


STORY = Held("Once upon a time there stood a house.")
"""Split within words, so that no piece ends at a space."""


def _reached(reply: Reply, data: bytes) -> int:
    """Index of the piece; zero: the first, or none."""
    parts = reply.parts if isinstance(reply, Held) else []
    return next((number for number, part in enumerate(parts) if part.encode() in data), 0)


def run(command: str, text: str = "") -> Calls:
    """A tool call that runs a command."""
    return Calls((Call("terminal", {"command": command}),), text)


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part["type"] == "text")
