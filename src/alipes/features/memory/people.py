"""Connects the memory to sessions: questions about changes, and showing them to the people they concern."""

from msgspec import structs

from alipes.core.app import App
from alipes.features.memory.change import MemoryChange
from alipes.features.memory.files import MemoryFiles
from alipes.features.memory.memory import Memory
from alipes.features.memory.recall import MemoryRecall
from alipes.features.memory.service import MemoryService, format_announcement
from alipes.features.memory.store import MemoryStore
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Envelope, Notice, PermissionMode, Turn
from alipes.sessions.sessions import Sessions
from alipes.store.sql.store import Store


def make_memory_service(app: App) -> MemoryService:
    config, paths, store = app.settings.memory, app.settings.paths, app.store
    files = MemoryFiles(paths.memory, paths.memory_lock)
    memory = Memory(config, files, store.tables(MemoryStore), mask=app.secrets)
    people = MemoryPeople(store, app.sessions, notify_chats=config.notify)
    recall = MemoryRecall(app.contributions, config, app.resources.tasks)
    return MemoryService(memory, recall, people, proposals=store.proposals, sources=store.sources)


class MemoryPeople:
    """The people for whom turns change notes."""

    def __init__(self, store: Store, sessions: Sessions, *, notify_chats: bool) -> None:
        self._store, self._sessions, self._notify_chats = store, sessions, notify_chats

    async def mode(self, turn: Turn) -> PermissionMode:
        return await self._sessions.permissions.of_turn(turn)

    async def ask(self, call: ToolCall, reason: str, turn: Turn, diff: str) -> ApprovalDecision:
        return await self._sessions.questions.ask_approval(call, reason, turn, diff=diff)

    async def announce(self, turn: Turn, change: MemoryChange) -> None:
        """Show a change in the conversation it is for. A chat gets a message, in front of the answer."""
        origin, text = turn.inbound.origin, format_announcement(change)
        place = turn.inbound.address if origin is None else origin.address
        self._store.bus.publish(Envelope(place.key, turn.id if origin is None else origin.turn, Notice(text)))
        if self._notify_chats:
            await self._send_to_chat(turn, place, text, f"memory:{change.number}")

    async def nudge(self, turn: Turn, text: str, id: str) -> None:
        """Show a line after the turn has ended."""
        self._store.bus.publish(Envelope(turn.key, "", Notice(text)))
        await self._send_to_chat(turn, turn.inbound.address, text, f"proposal:{id}")

    async def _send_to_chat(self, turn: Turn, place: Address, text: str, id: str) -> None:
        there = structs.replace(turn, inbound=structs.replace(turn.inbound, address=place))
        outbound = self._sessions.defaults.outbound(there, Notice(text))
        if outbound:
            messages = (structs.replace(each, id=id, notice=True) for each in outbound)
            await self._store.outbox.enqueue(*messages)
