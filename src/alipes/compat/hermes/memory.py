"""Connects the memory provider of a Hermes plugin to the port for memory plugins; see features/memory/recall.py."""

import asyncio
from typing import Any

from alipes.compat.hermes import tools
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import LazyValue, PluginCallback
from alipes.compat.hermes.hook_arguments import model_of, platform_of
from alipes.compat.hermes.hooks import DECISION_TIMEOUT_S
from alipes.compat.hermes.openai_format import messages_to_wire
from alipes.compat.hermes.state import RecentMap, ToolEntry
from alipes.features.memory.change import OWNER, memory_scope
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Message
from alipes.kernel.turns import Turn
from alipes.plugins.context import Context

TOOLSET = "memory"
SHUTDOWN_TIMEOUT_S = 2.0
"""Seconds for the provider's shutdown when the plugin is closed."""


class AttachedMemory:
    """Calls the provider one call at a time, and announces every change of conversation first."""

    def __init__(self, bridge: Bridge, context: Context, provider: Any) -> None:
        self._bridge, self._context, self._provider = bridge, context, provider
        self.name = str(getattr(provider, "name", "") or context.name)
        self.owner = context.owner
        self._lane = asyncio.Lock()
        self._session = ""
        """The provider's current conversation; empty until it is initialized."""
        self._closed = False
        self._transcripts: RecentMap[str, tuple[Message, ...]] = RecentMap(16)
        self._turns: RecentMap[str, int] = RecentMap()

    def attach(self) -> None:
        """Register its hooks and tools. Call it on the loop's thread."""
        hook = self._context.hook
        for each in (self.turn_ended, self.session_left, self.session_reset, self.subagent_ended):
            hook(each, deadline=DECISION_TIMEOUT_S)
        self._register_tools()
        self._context.stack.push_async_callback(self._close)

    def is_available(self) -> bool:
        """False once the plugin is closed."""
        return not self._closed

    async def recall(self, message: str, turn: Turn) -> str:
        """What the provider knows about the message."""
        if not _is_owners(turn):
            return ""
        number = (self._turns.get(turn.session) or 0) + 1
        self._turns[turn.session] = number
        facts = {"model": model_of(self._bridge, turn), "platform": platform_of(turn)}
        async with self._lane:
            await self._prepare(turn)
            await self._call("on_turn_start", number, message, session_id=turn.session, **facts)
            recalled = await self._call("prefetch", message, session_id=turn.session)
        return recalled if isinstance(recalled, str) else ""

    async def prompt_block(self, turn: Turn) -> str:
        if not _is_owners(turn):
            return ""
        async with self._lane:
            await self._prepare(turn)
            text = await self._call("system_prompt_block")
        return text if isinstance(text, str) else ""

    async def remember(self, message: str, answer: str, messages: tuple[Message, ...], turn: Turn) -> None:
        """Store an answered turn, and let the provider look up what the next one may need."""
        if not _is_owners(turn):
            return
        async with self._lane:
            await self._prepare(turn)
            text = LazyValue(lambda: messages_to_wire(messages))
            await self._call("sync_turn", message, answer, session_id=turn.session, messages=text)
            await self._call("queue_prefetch", message, session_id=turn.session)

    async def note_changed(self, action: str, target: str, content: str, turn: Turn) -> None:
        if not _is_owners(turn):
            return
        async with self._lane:
            await self._prepare(turn)
            await self._call("on_memory_write", action, target, content)

    async def turn_ended(self, turn: Turn, said: tuple[Message, ...]) -> None:
        """Keep the transcript for the end of the conversation."""
        if turn.inbound.origin is None:
            self._transcripts[turn.session] = (*turn.history, *said)

    async def session_left(self, session: str) -> None:
        transcript = self._transcripts.get(session)
        if transcript is not None:
            async with self._lane:
                await self._call("on_session_end", messages_to_wire(transcript))

    async def session_reset(self, session: str, reason: str, predecessor: str) -> None:
        async with self._lane:
            if self._session:
                await self._switch(session, predecessor, reset=reason == "reset")

    async def subagent_ended(self, goal: str, summary: str, session: str) -> None:
        async with self._lane:
            await self._call("on_delegation", goal, summary, child_session_id=session)

    async def _prepare(self, turn: Turn) -> None:
        """Prepare it for the turn's conversation. The lane must be held."""
        if not self._session:
            await self._call(
                "initialize",
                turn.session,
                hermes_home=str(self._bridge.home),
                platform=platform_of(turn),
                agent_context="primary",
                agent_identity=self._bridge.profile_name,
                user_id=turn.inbound.sender,
            )
            self._session = turn.session
            self._register_tools()  # some know their tools only now
        elif self._session != turn.session:
            await self._switch(turn.session, self._session, reset=False)

    async def _switch(self, session: str, before: str, *, reset: bool) -> None:
        await self._call("on_session_switch", session, parent_session_id=before, reset=reset)
        self._session = session

    async def _call(self, name: str, *given: Any, **offered: Any) -> Any:
        method = None if self._closed else getattr(self._provider, name, None)
        return None if method is None else await self._bridge.run(PluginCallback(method), *given, **offered)

    def _register_tools(self) -> None:
        for declared in self._provider.get_tool_schemas() or ():
            schema = dict(declared.get("function", declared))
            registered = self._bridge.tools.get(str(schema["name"]))
            if registered is None or registered.owner is not self.owner:
                tools.register_tool(self._bridge, self._context, self._tool(schema))

    def _tool(self, schema: dict[str, Any]) -> ToolEntry:
        name = str(schema["name"])

        async def handler(args: dict[str, Any], **keywords: Any) -> Any:
            turn = self._bridge.host.current_turn()
            if turn is not None and not _is_owners(turn):
                raise ToolError("not run: this memory is for the owner of this home only")
            async with self._lane:
                if turn is not None:
                    await self._prepare(turn)
                return await self._call("handle_tool_call", name, args, **keywords)

        return ToolEntry(
            owner=self._context.owner,
            name=name,
            toolset=TOOLSET,
            schema=schema,
            handler=handler,
            is_async=True,
            effect="read" if tools.is_read_only(schema) else "write",
        )

    async def _close(self) -> None:
        if self._bridge.memory is self:
            self._bridge.memory = None
        if self._session:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S), self._lane:
                await self._call("shutdown")
        self._closed = True


def _is_owners(turn: Turn) -> bool:
    """A Hermes provider knows one person only, so it must not see or tell others anything."""
    return memory_scope(turn.inbound) == OWNER
