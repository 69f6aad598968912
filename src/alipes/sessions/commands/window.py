"""Commands about what the model reads: what fills the context window, and a side question that leaves no trace."""

from alipes.agent.compaction.compaction import visible_messages
from alipes.agent.loop import Agent
from alipes.agent.tool_calls import visible_specs
from alipes.agent.transcript_repair import repair_messages
from alipes.kernel.formatting import format_columns
from alipes.kernel.messages import Message, ToolResult, count_chars, user
from alipes.kernel.ports import Request
from alipes.kernel.turns import Turn
from alipes.sessions.commands.context import CommandContext, CommandReply

EMPTY = "This conversation is empty."
SIDE_TASK = "btw"
SIDE_QUESTION = (
    "A side question, apart from the task. Answer it briefly from what you know and have seen; call no tool. "
    "The task continues without it:\n\n{}"
)
MAX_SIDE_TOKENS = 4096
ASSUMED_RATIO = 0.25
"""Tokens per character, before a call was measured."""


async def context_window(context: CommandContext, _args: str) -> CommandReply:
    """What fills the context window, by source."""
    turn = await _latest(context)
    if turn is None:
        return CommandReply(EMPTY)
    sizes = _sizes(await context.services.open_agent(turn), turn)
    total = sum(sizes.values())
    measured = await context.store.archive.context_tokens(turn.session)
    ratio = measured / total if measured and total else ASSUMED_RATIO
    window = await context.services.compactor.window_of(turn)
    rows = [
        (name, f"{round(size * ratio):>7,} tokens  {100 * size * ratio / (window or total * ratio):3.0f} %")
        for name, size in sizes.items()
        if size
    ]
    used = round(total * ratio)
    share = f"  {100 * used / window:3.0f} % of {window:,}" if window else ""
    rows.append(("together", f"{used:>7,} tokens{share}"))
    if window:
        rows.append(("free", f"{max(0, window - used):>7,} tokens"))
    note = "" if measured else "\nEstimated: no model call was measured yet."
    return CommandReply(f"{format_columns(rows)}{note}\n/compact makes room.")


def _sizes(agent: Agent, turn: Turn) -> dict[str, int]:
    """Characters by source."""
    sections = {name.replace("_", " "): len(text) for name, text in turn.prompt_sections.items()}
    messages = visible_messages(turn.history, turn.compaction)
    results = sum(count_chars((_only_results(each),)) for each in messages)
    return {
        "system prompt": max(0, len(agent.system(turn)) - sum(sections.values())),
        "tools": sum(spec.char_count for spec in visible_specs(agent.tools, turn.inbound)),
        **sections,
        "messages": count_chars(messages) - results,
        "tool results": results,
    }


def _only_results(message: Message) -> Message:
    return Message(message.role, tuple(part for part in message.parts if isinstance(part, ToolResult)))


async def ask_aside(context: CommandContext, args: str) -> CommandReply:
    """Answer a question from the current context, without adding it to the conversation."""
    if not args:
        return CommandReply("Usage: /btw QUESTION", failed=True)
    turn = await _latest(context)
    if turn is None:
        return CommandReply(f"{EMPTY} Just ask.", failed=True)
    agent, auxiliary = await context.services.open_agent(turn), context.services.auxiliary
    backend = await auxiliary.backend("", turn)
    messages = visible_messages(turn.history, turn.compaction)
    request = Request(
        model=backend.model,
        system=agent.system(turn),
        messages=(*messages, *repair_messages(messages), user(SIDE_QUESTION.format(args))),
        tools=() if backend.facts.tools is False else visible_specs(agent.tools, turn.inbound),
        max_tokens=min(MAX_SIDE_TOKENS, backend.facts.output or MAX_SIDE_TOKENS),
        effort=agent.effort,
        tool_choice="none",
    )
    reply = await auxiliary.send(request, backend, turn, task=SIDE_TASK)
    return CommandReply(reply.message.text.strip() or "The model gave no answer.")


async def _latest(context: CommandContext) -> Turn | None:
    """The conversation as its next call would begin; None if it is empty."""
    standing = await context.store.sessions.active(context.key)
    return None if standing is None else await context.services.compactor.store.latest(standing.session)
