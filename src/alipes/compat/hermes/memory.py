"""A memory provider of a Hermes plugin, at the moments of the house. What it remembers is its own affair."""

import asyncio
from typing import Any

from msgspec import structs

from alipes.compat.hermes import tools
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import Fit, Later
from alipes.compat.hermes.hook_arguments import final_words, model_of, platform_of
from alipes.compat.hermes.hooks import PATIENT
from alipes.compat.hermes.openai_format import messages_of
from alipes.compat.hermes.state import Recent, ToolEntry
from alipes.kernel.messages import Message
from alipes.kernel.ports import Request
from alipes.kernel.turns import Turn, Usage
from alipes.plugins.context import Context

TOOLSET = "memory"
HEADING = "Recalled from memory; not the person's words:"
LAST_WORDS = 2.0
"""Seconds that what is still to be remembered may take when the plugin is closed."""


class Memory:
    """Calls the provider one at a time, and tells it first whenever another conversation is meant."""

    def __init__(self, bridge: Bridge, context: Context, provider: Any) -> None:
        self._bridge, self._context, self._provider = bridge, context, provider
        self.name = str(getattr(provider, "name", "") or context.name)
        self.owner = context.owner
        self._lane = asyncio.Lock()
        self._session = ""
        """The conversation it takes itself to be in; empty until it was initialized."""
        self._blocks: Recent[str, str] = Recent()
        self._talks: Recent[str, tuple[Message, ...]] = Recent(16)
        self._turns: Recent[str, int] = Recent()

    def attach(self) -> None:
        """Register its hooks and tools; on the loop's thread."""
        hook = self._context.hook
        hook(self.turn_context, deadline=PATIENT)
        hook(self.before_request, deadline=PATIENT)
        for each in (self.turn_ended, self.session_left, self.session_reset, self.subagent_ended):
            hook(each, deadline=PATIENT)
        self._offer_tools()
        self._context.stack.push_async_callback(self._close)

    async def turn_context(self, context: str, turn: Turn) -> str | None:
        """What it recalls for this turn, told beside the person's message."""
        if turn.inbound.origin is not None:  # it works for a conversation, and is none
            return None
        query = turn.inbound.text
        number = (self._turns.get(turn.session) or 0) + 1
        self._turns[turn.session] = number
        facts = {"model": model_of(self._bridge, turn), "platform": platform_of(turn)}
        async with self._lane:
            await self._enter(turn)
            await self._call("on_turn_start", number, query, session_id=turn.session, **facts)
            recalled = await self._call("prefetch", query, session_id=turn.session)
        if not isinstance(recalled, str) or not recalled.strip():
            return None
        told = f"{HEADING}\n{recalled}"
        return f"{context}\n\n{told}" if context else told

    async def before_request(self, request: Request, turn: Turn) -> Request | None:
        """Its part of the system prompt, asked for once per conversation: the prompt stays the same."""
        if turn.inbound.origin is not None:
            return None
        block = self._blocks.get(turn.session)
        if block is None:
            async with self._lane:
                await self._enter(turn)
                told = await self._call("system_prompt_block")
            block = self._blocks[turn.session] = told if isinstance(told, str) else ""
        if not block.strip():
            return None
        return structs.replace(request, system=f"{request.system}\n\n{block}".strip())

    async def turn_ended(
        self, turn: Turn, ending: str, said: tuple[Message, ...], usage: Usage | None
    ) -> None:
        """Only what a person was answered is remembered; and nobody waits until it is."""
        if turn.inbound.origin is not None:
            return
        talk = self._talks[turn.session] = (*turn.history, *said)
        if ending == "answered" and not turn.inbound.notice:
            self._context.run(self._remember(turn, final_words(said), talk), "remembering a turn")

    async def _remember(self, turn: Turn, answer: str, talk: tuple[Message, ...]) -> None:
        words, session = turn.inbound.text, turn.session
        async with asyncio.timeout(PATIENT), self._lane:
            await self._enter(turn)
            told = Later(lambda: messages_of(talk))
            await self._call("sync_turn", words, answer, session_id=session, messages=told)
            await self._call("queue_prefetch", words, session_id=session)

    async def session_left(self, session: str) -> None:
        talk = self._talks.get(session)
        if talk is not None:
            async with self._lane:
                await self._call("on_session_end", messages_of(talk))

    async def session_reset(self, session: str, reason: str, predecessor: str) -> None:
        async with self._lane:
            if self._session:
                await self._switch(session, predecessor, reset=reason == "reset")

    async def subagent_ended(self, goal: str, summary: str, session: str) -> None:
        async with self._lane:
            await self._call("on_delegation", goal, summary, child_session_id=session)

    async def _enter(self, turn: Turn) -> None:
        """Make it ready for the turn's conversation; the lane is ours."""
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
            self._offer_tools()  # some know theirs only now
        elif self._session != turn.session:
            await self._switch(turn.session, self._session, reset=False)

    async def _switch(self, session: str, before: str, *, reset: bool) -> None:
        await self._call("on_session_switch", session, parent_session_id=before, reset=reset)
        self._session = session

    async def _call(self, name: str, *given: Any, **offered: Any) -> Any:
        method = getattr(self._provider, name, None)
        return None if method is None else await self._bridge.run(Fit(method), *given, **offered)

    def _offer_tools(self) -> None:
        for told in self._provider.get_tool_schemas() or ():
            schema = dict(told.get("function", told))
            known = self._bridge.tools.get(str(schema["name"]))
            if known is None or known.owner is not self.owner:
                tools.offer(self._bridge, self._context, self._tool(schema))

    def _tool(self, schema: dict[str, Any]) -> ToolEntry:
        name = str(schema["name"])

        async def handler(args: dict[str, Any], **keywords: Any) -> Any:
            turn = self._bridge.host.living()
            async with self._lane:
                if turn is not None:
                    await self._enter(turn)
                return await self._call("handle_tool_call", name, args, **keywords)

        return ToolEntry(
            owner=self._context.owner,
            name=name,
            toolset=TOOLSET,
            schema=schema,
            handler=handler,
            is_async=True,
            effect="read" if tools.reads_only(schema) else "write",
        )

    async def _close(self) -> None:
        if self._bridge.memory is self:
            self._bridge.memory = None
        if self._session:
            async with asyncio.timeout(LAST_WORDS), self._lane:
                await self._call("shutdown")
