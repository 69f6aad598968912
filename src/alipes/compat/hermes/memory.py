"""Connects the memory provider of a Hermes plugin to native hooks."""

import asyncio
from typing import Any

from msgspec import structs

from alipes.compat.hermes import tools
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import LazyValue, PluginCallback
from alipes.compat.hermes.hook_arguments import final_text, model_of, platform_of
from alipes.compat.hermes.hooks import DECISION_TIMEOUT_S
from alipes.compat.hermes.openai_format import messages_to_wire
from alipes.compat.hermes.state import RecentMap, ToolEntry
from alipes.kernel.messages import Message
from alipes.kernel.ports import Request
from alipes.kernel.turns import Turn, Usage
from alipes.plugins.context import Context

TOOLSET = "memory"
HEADING = "Recalled from memory (not written by the user):"
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
        self._blocks: RecentMap[str, str] = RecentMap()
        self._transcripts: RecentMap[str, tuple[Message, ...]] = RecentMap(16)
        self._turns: RecentMap[str, int] = RecentMap()

    def attach(self) -> None:
        """Register its hooks and tools. Call it on the loop's thread."""
        hook = self._context.hook
        hook(self.turn_context, deadline=DECISION_TIMEOUT_S)
        hook(self.before_request, deadline=DECISION_TIMEOUT_S)
        for each in (self.turn_ended, self.session_left, self.session_reset, self.subagent_ended):
            hook(each, deadline=DECISION_TIMEOUT_S)
        self._register_tools()
        self._context.stack.push_async_callback(self._close)

    async def turn_context(self, context: str, turn: Turn) -> str | None:
        """Add what the provider recalls to the context of this turn."""
        if turn.inbound.origin is not None:  # a subagent
            return None
        query = turn.inbound.text
        number = (self._turns.get(turn.session) or 0) + 1
        self._turns[turn.session] = number
        facts = {"model": model_of(self._bridge, turn), "platform": platform_of(turn)}
        async with self._lane:
            await self._prepare(turn)
            await self._call("on_turn_start", number, query, session_id=turn.session, **facts)
            recalled = await self._call("prefetch", query, session_id=turn.session)
        if not isinstance(recalled, str) or not recalled.strip():
            return None
        text = f"{HEADING}\n{recalled}"
        return f"{context}\n\n{text}" if context else text

    async def before_request(self, request: Request, turn: Turn) -> Request | None:
        """Add its system prompt block, requested once per conversation so that the prompt stays the same."""
        if turn.inbound.origin is not None:
            return None
        block = self._blocks.get(turn.session)
        if block is None:
            async with self._lane:
                await self._prepare(turn)
                text = await self._call("system_prompt_block")
            block = self._blocks[turn.session] = text if isinstance(text, str) else ""
        if not block.strip():
            return None
        return structs.replace(request, system=f"{request.system}\n\n{block}".strip())

    async def turn_ended(self, turn: Turn, ending: str, said: tuple[Message, ...], usage: Usage | None) -> None:
        """Store answered turns in the background."""
        if turn.inbound.origin is not None:
            return
        transcript = self._transcripts[turn.session] = (*turn.history, *said)
        if ending == "answered" and not turn.inbound.notice:
            self._context.run(self._remember(turn, final_text(said), transcript), "storing a turn in memory")

    async def _remember(self, turn: Turn, answer: str, transcript: tuple[Message, ...]) -> None:
        words, session = turn.inbound.text, turn.session
        async with asyncio.timeout(DECISION_TIMEOUT_S), self._lane:
            await self._prepare(turn)
            text = LazyValue(lambda: messages_to_wire(transcript))
            await self._call("sync_turn", words, answer, session_id=session, messages=text)
            await self._call("queue_prefetch", words, session_id=session)

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
        method = getattr(self._provider, name, None)
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
