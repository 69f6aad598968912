"""In whose course does this code run? The turn, and the plugin; both travel with the task."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from alipes.hooks.owners import Owner
from alipes.kernel.turns import Turn

TURN: ContextVar[Turn | None] = ContextVar("alipes_turn", default=None)
"""Set by the session that lives it."""
PLUGIN: ContextVar[Owner | None] = ContextVar("alipes_plugin", default=None)
"""Set around every call of plugin code."""


@contextmanager
def on_behalf_of(owner: Owner | None) -> Iterator[None]:
    """What runs inside is the plugin's doing; with None, the house's own again."""
    token = PLUGIN.set(owner)
    try:
        yield
    finally:
        PLUGIN.reset(token)
