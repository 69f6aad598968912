"""What plugins may change in a turn: added context, a rewritten answer, an objection to ending."""

from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.tools.files.patch import patched_paths

MAX_OBJECTIONS = 3
_MARK = "Before you finish: "


def changed_files(said: tuple[Message, ...]) -> tuple[str, ...]:
    """The files the turn wrote, as the model named them, in order and without duplicates."""
    calls: dict[str, ToolCall] = {}
    paths: dict[str, None] = {}
    for message in said:
        calls.update((call.id, call) for call in message.calls)
        for part in message.parts:
            if isinstance(part, ToolResult) and part.outcome == "ok" and part.call_id in calls:
                paths.update(dict.fromkeys(_files_written(calls[part.call_id])))
    return tuple(paths)


def _files_written(call: ToolCall) -> list[str]:
    match call.name, call.args:
        case "write_file", {"path": str(path)}:
            return [path]
        case "patch", args:
            return patched_paths(args)
    return []


def objection(reason: str) -> Message:
    """The notice to the model when a plugin objects to ending the turn."""
    return Message("notice", (Text(f"{_MARK}{reason}"),))


def count_objections(said: tuple[Message, ...]) -> int:
    """How often plugins objected so far."""
    return sum(message.role == "notice" and message.text.startswith(_MARK) for message in said)


def with_text(message: Message, text: str) -> Message:
    """The message with another text."""
    others = tuple(part for part in message.parts if not isinstance(part, Text))
    return Message(message.role, (*others, Text(text)))


def with_context(history: tuple[Message, ...], since: int, context: str) -> tuple[Message, ...]:
    """The history with `context` added to the first user message from index `since` on."""
    for place in range(since, len(history)):
        if history[place].role == "user":
            apart = "\n\n" if history[place].text else ""  # some wires join the parts without a separator
            extended = Message("user", (*history[place].parts, Text(f"{apart}{context}")))
            return (*history[:place], extended, *history[place + 1 :])
    return history


class PluginOutputRewriter:
    """Lets plugins rewrite the output of shell commands."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def is_active(self) -> bool:
        """True inside a turn if a plugin has the hook."""
        return TURN.get() is not None and self._hooks.dispatcher.has_hooks(specs.terminal_output)

    async def rewrite(self, output: str, command: str, status: int | None) -> str | None:
        """The new text; None if it is unchanged."""
        text = await self._hooks.dispatcher.filter(
            specs.terminal_output, output, command=command, status=status, turn=TURN.get()
        )
        return None if text == output else text
