"""The slash commands, the same in every front end."""

from alipes.sessions.commands.context import (
    Action,
    CommandContext,
    CommandReply,
    CopyText,
    Quit,
    SendFile,
    ShowConversation,
)
from alipes.sessions.commands.registry import BY_NAME, COMMANDS, Command, Parsed, known_commands, parse, run
from alipes.sessions.commands.status import plugin_words

__all__ = [
    "Action",
    "BY_NAME",
    "COMMANDS",
    "Command",
    "CommandContext",
    "CopyText",
    "SendFile",
    "Parsed",
    "Quit",
    "CommandReply",
    "ShowConversation",
    "known_commands",
    "parse",
    "plugin_words",
    "run",
]
