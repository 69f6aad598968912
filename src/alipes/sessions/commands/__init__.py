"""What a person types instead of a message, the same for every front end. It ends at the `Reply`."""

from alipes.sessions.commands.context import Action, Context, Copy, Document, Quit, Reply, Show
from alipes.sessions.commands.registry import BY_NAME, COMMANDS, Command, Parsed, known_commands, parse, run
from alipes.sessions.commands.status import plugin_words

__all__ = [
    "Action",
    "BY_NAME",
    "COMMANDS",
    "Command",
    "Context",
    "Copy",
    "Document",
    "Parsed",
    "Quit",
    "Reply",
    "Show",
    "known_commands",
    "parse",
    "plugin_words",
    "run",
]
