"""The ports between packages. Each has a contract suite in `tests/contract`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, ToolResult, WebSource
from alipes.kernel.turns import Delta, Effort, Event, Turn

Emit: TypeAlias = Callable[[Event], Awaitable[None]]
CheckStop: TypeAlias = Callable[[], Awaitable[None]]
"""Awaited before every action; does not return if the turn was stopped."""


class ToolSpec(Struct, frozen=True, dict=True):
    name: str
    description: str
    schema: dict[str, Json]
    effect: Literal["read", "write"] = "write"
    """`read` tools run in parallel and are repeated after a crash; `write` tools are not."""
    untrusted: bool = False
    """Its results are text of strangers (web, mail, MCP): they are marked, and the turn counts as tainted."""
    media: bool = False
    """It makes files for the user: those in `ToolOutput.files` are sent to the chat."""

    @cached_property
    def char_count(self) -> int:
        """How much of the context window the tool takes."""
        return len(self.name) + len(self.description) + len(str(self.schema))


class Request(Struct, frozen=True):
    """One model request, independent of any wire format."""

    model: str
    """The model's name at its provider, without the provider prefix."""
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    effort: Effort = ""
    """Empty: the model's default."""
    session: str = ""
    """A stable id of the conversation, for providers that route their prompt cache by it."""
    extra: dict[str, Json] = {}
    """Merged into the JSON body, by plugins that know the provider; the operator's settings take precedence."""
    tool_choice: Literal["auto", "none"] = "auto"
    """`none`: the tools are listed because the transcript uses them, but none may be called."""
    output_schema: dict[str, Json] = {}
    """The JSON schema that the final answer must match, for wires that enforce one; the system prompt has it too."""

    @property
    def fixed_chars(self) -> int:
        """Characters of the system prompt and tools, which compaction cannot reduce."""
        return len(self.system) + sum(spec.char_count for spec in self.tools)


class Provider(Protocol):
    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send the request once. Raise `ProviderError` kinds only; do not retry.

        A context manager, because a half-read stream must be closed by the turn that opened it, not by the
        garbage collector. Leaving it early closes its connection at once; reading it to the end keeps the
        connection for the next request.
        """


class ToolContext(Protocol):
    """What a running tool knows about its call."""

    call_id: str
    session: str
    workdir: str
    turn: Turn

    async def progress(self, text: str) -> None:
        """Show `text` to people who watch; the model does not see it."""

    async def run_tool(self, name: str, args: Mapping[str, Json]) -> ToolResult:
        """Run another tool on behalf of this call, with the same approvals and events."""


class ToolOutput(Struct, frozen=True):
    """A tool result with images for the model, or files for the user."""

    text: str
    images: tuple[Image, ...] = ()
    files: tuple[str, ...] = ()
    """Absolute paths; ignored unless the tool's spec says `media`."""
    sources: tuple[WebSource, ...] = ()
    """The web pages it was made from; those that an answer cites, or that were read, are listed below it."""


@runtime_checkable
class MayBeUnavailable(Protocol):
    """A built-in tool that cannot always be used."""

    def why_unavailable(self) -> str:
        """Why it cannot be used now and what to do, as a sentence; empty if it can. Called for every turn, so it must
        be fast."""


@runtime_checkable
class ReadsHosts(Protocol):
    """A tool that knows from which hosts the untrusted text of its results is."""

    def hosts_read(self, session: str) -> tuple[str, ...]:
        """The hosts whose text the last result in this conversation contained."""


@runtime_checkable
class CanPrepare(Protocol):
    """A built-in tool that can start what a call needs while the model is still writing the call."""

    def prepare_call(self, turn: Turn) -> None:
        """Begin in the background. It must be fast; the call may never come."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        """Run it. Raise `ToolError` with a message for the model; when cancelled, leave nothing running."""
