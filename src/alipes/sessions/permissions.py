"""Permission modes: what a conversation may do without asking. Stored per conversation, and read at each use."""

from typing import Literal, get_args

from alipes.agent.plan import PlanAnswer
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Envelope, ModeChanged, PermissionMode, Turn
from alipes.plugins.registry import Contributions
from alipes.store.sql.store import Store

MODES: dict[PermissionMode, str] = {
    "ask": "asks before risky calls",
    "edits": "never asks about edits, not even CI and hook files",
    "plan": "only reads; ends with a plan for you to accept",
    "all": "asks nothing; a few things stay forbidden",
}
"""By mode, what it means."""
_CYCLE: dict[PermissionMode, PermissionMode] = {"ask": "edits", "edits": "plan", "plan": "ask", "all": "ask"}
_YES = frozenset(("y", "yes", "ok", "okay", "accept", "go", "go ahead"))
_NO = frozenset(("n", "no", "nope", "stop", "cancel"))
ACCEPT_QUESTION = "Accept this plan?"
ACCEPT_WITH_EDITS, ACCEPT, REJECT = "Yes, and edit without asking", "Yes", "No"


class PermissionModes:
    """The modes of conversations, with a default for those without one."""

    def __init__(self, store: Store, default: PermissionMode = "ask") -> None:
        self._sessions, self._bus, self.default = store.sessions, store.bus, default

    async def of_key(self, key: str) -> PermissionMode:
        """The mode of the active conversation."""
        standing = await self._sessions.active(key)
        return (standing.permission_mode if standing is not None else "") or self.default

    async def of_turn(self, turn: Turn, *, since_claim: bool = False) -> PermissionMode:
        """The mode at this moment. A subagent has that of the conversation it works for; what somebody else than an
        owner wrote gets no rights from it. `since_claim`: what was read with the turn still holds."""
        inbound = turn.inbound
        if inbound.trusted:
            return "all"
        chosen = turn.claimed_mode if since_claim and inbound.origin is None and not inbound.permission_mode else None
        if chosen is None:
            session = inbound.origin.session if inbound.origin is not None else turn.session
            chosen = await self._sessions.permission_mode(session)
        mode = chosen or self.default
        return "ask" if inbound.untrusted and mode in ("edits", "all") else mode

    async def choose(self, address: Address, mode: PermissionMode) -> None:
        """Set the mode of the active conversation, which is created if needed."""
        standing = await self._sessions.open(address)
        await self.set_mode(address.key, standing.session, mode)

    async def set_mode(self, key: str, session: str, mode: PermissionMode | Literal[""]) -> None:
        """Set the mode of a conversation; empty: the default."""
        await self._sessions.configure(session, permission_mode=mode)
        self._bus.publish(Envelope(key, "", ModeChanged(mode or self.default)))

    async def begin_turn(self, turn: Turn) -> None:
        """Apply the mode that came with the message, once."""
        mode = turn.inbound.permission_mode
        if mode and turn.attempt == 1 and turn.inbound.origin is None:
            await self.set_mode(turn.key, turn.session, mode)

    async def accept_plan(self, turn: Turn, answer: str) -> PlanAnswer:
        """Act on the answer to `ACCEPT_QUESTION`. Acceptance ends plan mode."""
        words = answer.strip()
        if words == ACCEPT_WITH_EDITS:
            await self.set_mode(turn.key, turn.session, "edits")
            return PlanAnswer(accepted=True)
        if words.rstrip(".!").lower() in _YES:
            await self.set_mode(turn.key, turn.session, "ask")
            return PlanAnswer(accepted=True)
        return PlanAnswer(wish="" if words.rstrip(".!").lower() in _NO else words)


async def cycle_mode(store: Store, key: str, default: PermissionMode = "ask") -> PermissionMode:
    """Switch to the next mode, for one key: ask, edits, plan. `all` is never reached this way."""
    modes = PermissionModes(store, default)
    mode = _CYCLE[await modes.of_key(key)]
    standing = await store.sessions.active(key)
    await modes.choose(standing.address if standing is not None else _address_of(key), mode)
    return mode


def _address_of(key: str) -> Address:
    """The address of a conversation that has no thread and no user of its own, as in a terminal."""
    platform, chat_type, chat = (
        part.replace("%3A", ":").replace("%25", "%") for part in key.removeprefix("agent:main:").split(":")
    )
    return Address(platform, chat, chat_type)


def parse_mode(text: str) -> PermissionMode | None:
    return next((mode for mode in get_args(PermissionMode) if mode == text.strip().lower()), None)


class TurnPermissions:
    """What the approval hook asks: the mode of a turn, and whether a tool changes something."""

    def __init__(self, modes: PermissionModes, contributions: Contributions) -> None:
        self._modes, self._contributions = modes, contributions

    async def mode(self, turn: Turn) -> PermissionMode:
        return await self._modes.of_turn(turn)

    def effect(self, call: ToolCall) -> Literal["read", "write"]:
        tool = self._contributions.tools().get(call.name)
        return "write" if tool is None else tool.spec.effect
