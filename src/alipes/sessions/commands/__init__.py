"""What a person types instead of a message, the same for every front end. It ends at the `Reply`."""

from alipes.sessions.commands.context import Action, Context, Copy, Document, Quit, Reply, Show
from alipes.sessions.commands.plugins import plugin_words
from alipes.sessions.commands.table import BY_NAME, COMMANDS, Command, Parsed, known_commands, parse, run

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
