"""Events of turns as updates of an editor's session."""

import os

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    ImageContentBlock,
    PlanEntry,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UnstructuredCommandInput,
    UsageUpdate,
    UserMessageChunk,
)

from alipes.cli.acp.handshake import EditorFeatures
from alipes.cli.acp.tool_calls import EditorCall, image_block, text_block
from alipes.console.render import format_ending, format_resumption, format_retraction
from alipes.kernel.attachments import collapse_attachments
from alipes.kernel.messages import Image, Message, Thinking, ToolCall, ToolResult
from alipes.kernel.turns import (
    ApprovalAsked,
    Event,
    Notice,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnParked,
    TurnStarted,
)
from alipes.plugins.registry import Contributions
from alipes.sessions.commands import registry as commands
from alipes.tools.todo import TodoItems

Update = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
PLAN_TOOL = "todo"
"""Shown as the plan, not as a tool call."""


class EventTranslator:
    """Translates the events of one conversation, in their order."""

    def __init__(self, workdir: str, features: EditorFeatures) -> None:
        self._workdir, self._features = workdir, features
        self._calls: dict[str, EditorCall] = {}
        """Those that run or wait for approval."""
        self._asked: dict[str, ToolCall] = {}
        """Calls of the model that have not started."""
        self._text: dict[str, str] = {}
        """By turn, the text of the current message that was sent so far."""
        self._numbers: dict[str, int] = {}
        """By turn, how many messages it has begun."""
        self._thought: set[str] = set()
        """Turns whose current message had thinking."""
        self._retrying: set[str] = set()
        """Turns whose retry was shown."""
        self._expected: list[str] = []
        self._own: set[str] = set()

    def expect(self, text: str) -> None:
        """The editor shows this message already, because it was typed there."""
        self._expected.append(text)

    def claim(self, turn: str) -> None:
        """The turn answers a prompt of the editor, which reports its ending."""
        self._own.add(turn)

    def release(self, turn: str) -> None:
        """The prompt was answered before its turn."""
        self._own.discard(turn)

    def translate(self, turn: str, event: Event) -> list[Update]:
        """The updates for an event."""
        match event:
            case TextDelta(text):
                self._text[turn] = self._text.get(turn, "") + text
                return [say(text, self._message_id(turn))]
            case ThinkingDelta(text):
                self._thought.add(turn)
                return [think(text, self._message_id(turn))]
            case Said(message):
                self._retrying.discard(turn)
                return self._said(turn, message)
            case ToolStarted() | ToolProgress() | ToolFinished() | ApprovalAsked():
                return self._on_call(turn, event)
            case Retracted(reason):
                partial = self._text.pop(turn, "")
                return [say(f"\n\n*{format_retraction(reason)}*\n\n")] if partial else []
            case Notice(live=True) if turn in self._retrying:
                return []  # one line, as it cannot be updated
            case Notice(text) | TurnParked(text=text):
                (self._retrying.add if isinstance(event, Notice) and event.live else self._retrying.discard)(turn)
                return [think(f"{text}\n")]
            case TurnStarted() if line := format_resumption(event):
                return [think(f"{line}\n")]
            case TurnEnded():
                return self._ended(event)
        return []

    def _said(self, turn: str, message: Message) -> list[Update]:
        if message.role == "user":
            return self._show_user(message)
        if message.role == "assistant":
            return self._complete(turn, message)
        updates: list[Update] = []
        for part in message.parts:
            if isinstance(part, ToolResult) and (call := self._asked.get(part.call_id)) is not None:
                updates += self._finish(call, part)
        return updates

    def _show_user(self, message: Message) -> list[Update]:
        if message.text in self._expected:
            self._expected.remove(message.text)
            return []
        blocks: list[TextContentBlock | ImageContentBlock] = []
        if message.text:
            blocks.append(text_block(collapse_attachments(message.text)))
        blocks += [image_block(part) for part in message.parts if isinstance(part, Image)]
        return [UserMessageChunk(session_update="user_message_chunk", content=block) for block in blocks]

    def _complete(self, turn: str, message: Message) -> list[Update]:
        """The message is complete: send what was missing from the stream."""
        sent, thought = self._text.pop(turn, ""), turn in self._thought
        self._thought.discard(turn)
        self._asked.update((call.id, call) for call in message.calls)
        id, updates = self._message_id(turn), list[Update]()
        self._numbers[turn] = self._numbers.get(turn, 0) + 1
        if not thought:
            updates += [think(part.text, id) for part in message.parts if isinstance(part, Thinking) and part.text]
        if message.text.startswith(sent):
            updates += [say(message.text[len(sent) :], id)] if len(message.text) > len(sent) else []
        elif message.text.strip() != sent.strip():
            updates.append(say(f"\n\n*part of the stream was lost; here is the whole answer:*\n\n{message.text}"))
        return updates

    def _message_id(self, turn: str) -> str:
        return f"{turn or 'history'}.{self._numbers.get(turn, 0)}"

    def _on_call(self, turn: str, event: ToolStarted | ToolProgress | ToolFinished | ApprovalAsked) -> list[Update]:
        match event:
            case ApprovalAsked(call=call) if call.id and call.id not in self._calls and call.name != PLAN_TOOL:
                return [self._open(turn, call).start(pending=True)]
            case ToolStarted(call) if call.name != PLAN_TOOL:
                known = self._calls.get(call.id)
                return [self._open(turn, call).start() if known is None else known.run()]
            case ToolProgress(id, text) if (running := self._calls.get(id)) is not None:
                update = running.progress(text)
                return [] if update is None else [update]
            case ToolFinished(call, result):
                return self._finish(call, result)
        return []

    def _finish(self, call: ToolCall, result: ToolResult) -> list[Update]:
        self._asked.pop(call.id, None)
        if call.name == PLAN_TOOL:
            return []
        known = self._calls.pop(call.id, None)
        updates: list[Update] = []
        if known is None:
            known = EditorCall(call, "", self._workdir, self._features)
            updates.append(known.start())
        return [*updates, *known.finish(result)]

    def _open(self, turn: str, call: ToolCall) -> EditorCall:
        opened = self._calls[call.id] = EditorCall(call, turn, self._workdir, self._features)
        return opened

    def _ended(self, end: TurnEnded) -> list[Update]:
        self._text.pop(end.turn, None)
        self._numbers.pop(end.turn, None)
        self._thought.discard(end.turn)
        left = [id for id, each in self._calls.items() if each.turn == end.turn]
        updates: list[Update] = [self._calls.pop(id).abandon() for id in left]
        line = "" if end.turn in self._own else format_ending(end)
        self._own.discard(end.turn)
        return [*updates, say(f"\n\n*{line}*\n")] if line else updates


def say(text: str, id: str = "") -> AgentMessageChunk:
    """A part of the message `id`; without one, a message of its own."""
    id = id or os.urandom(6).hex()
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text), message_id=id)


def think(text: str, id: str = "") -> AgentThoughtChunk:
    id = id or os.urandom(6).hex()
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text), message_id=id)


def plan_update(items: TodoItems) -> AgentPlanUpdate:
    """The todo list. Cancelled items are left out: the protocol has no such state."""
    entries = [
        PlanEntry(content=item.content, priority="medium", status=item.status)
        for item in items
        if item.status != "cancelled"
    ]
    return AgentPlanUpdate(session_update="plan", entries=entries)


def commands_update(contributions: Contributions) -> AvailableCommandsUpdate:
    """The commands that work in an editor."""
    known = [each for each in commands.known_commands(contributions) if each.in_editors]
    listed = [
        AvailableCommand(
            name=each.name,
            description=each.help,
            input=AvailableCommandInput(UnstructuredCommandInput(hint=each.hint)) if each.hint else None,
        )
        for each in known
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=listed)
