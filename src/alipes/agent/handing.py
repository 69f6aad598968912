"""Tools that whoever asked runs themselves: shown to the model, and their calls handed over unrun."""

from collections.abc import Mapping

from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.ports import Tool, ToolSpec
from alipes.kernel.turns import Inbound

HANDED = "(handed over: whoever asked runs this call)"


def shown(tools: Mapping[str, Tool], inbound: Inbound) -> tuple[ToolSpec, ...]:
    """What the model may call. Where both have a tool of one name, it is theirs."""
    theirs = tuple(ToolSpec(each.name, each.description, each.schema) for each in inbound.offered)
    names = {each.name for each in theirs}
    return (*(tool.spec for name, tool in tools.items() if name not in names), *theirs)


def handed(calls: tuple[ToolCall, ...], inbound: Inbound) -> dict[str, ToolResult]:
    """By id, what calls of their tools are answered with here."""
    names = {each.name for each in inbound.offered}
    return {call.id: ToolResult(call.id, HANDED) for call in calls if call.name in names}


def ends_here(message: Message) -> bool:
    """Were some of the calls that this answers handed over? Then the next word is not the model's."""
    results = (part for part in message.parts if isinstance(part, ToolResult))
    return any(result.text == HANDED for result in results)
