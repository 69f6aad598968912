"""What plugins may say to a turn: context beside its messages, other words for them, not yet."""

from collections.abc import Callable

from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.plugins import specs
from alipes.plugins.attribution import TURN
from alipes.plugins.dispatch import Hooks
from alipes.tools.files.patch import touched
from alipes.tools.shell.terminal import Rewrite

MAX_TIMES = 3
_MARK = "Before you finish: "


def changed(said: tuple[Message, ...]) -> tuple[str, ...]:
    """The files that the turn wrote, as the model named them, in order and each once."""
    calls: dict[str, ToolCall] = {}
    paths: dict[str, None] = {}
    for message in said:
        calls.update((call.id, call) for call in message.calls)
        for part in message.parts:
            if isinstance(part, ToolResult) and part.outcome == "ok" and part.call_id in calls:
                paths.update(dict.fromkeys(_written(calls[part.call_id])))
    return tuple(paths)


def _written(call: ToolCall) -> list[str]:
    match call.name, call.args:
        case "write_file", {"path": str(path)}:
            return [path]
        case "patch", args:
            return touched(args)
    return []


def objection(reason: str) -> Message:
    """What the model is told when a plugin will not have the turn end yet."""
    return Message("notice", (Text(f"{_MARK}{reason}"),))


def objections(said: tuple[Message, ...]) -> int:
    """How often the turn was sent back so far."""
    return sum(message.role == "notice" and message.text.startswith(_MARK) for message in said)


def reworded(message: Message, text: str) -> Message:
    """The message with other words, and all else it had."""
    others = tuple(part for part in message.parts if not isinstance(part, Text))
    return Message(message.role, (*others, Text(text)))


def with_context(history: tuple[Message, ...], since: int, context: str) -> tuple[Message, ...]:
    """The history with `context` beside the first thing a person said from place `since` on."""
    for place in range(since, len(history)):
        if history[place].role == "user":
            apart = "\n\n" if history[place].text else ""  # a wire may write the parts one after the other
            told = Message("user", (*history[place].parts, Text(f"{apart}{context}")))
            return (*history[:place], told, *history[place + 1 :])
    return history


def rewriting(hooks: Hooks) -> Callable[[], Rewrite | None]:
    """Who has a say in what a shell command printed: plugins, if any listen at the time."""

    def rewriting_now() -> Rewrite | None:
        relay, turn = hooks.relay, TURN.get()
        if turn is None or not relay.listens(specs.terminal_output):
            return None

        async def rewrite(output: str, command: str, status: int | None) -> str | None:
            words = await relay.filter(
                specs.terminal_output, output, command=command, status=status, turn=turn
            )
            return None if words == output else words

        return rewrite

    return rewriting_now
