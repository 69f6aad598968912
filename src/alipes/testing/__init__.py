"""The test kit: a house to talk to, a model that follows a script, time by hand, stops, leaks.

Each name is loaded when it is first asked for, so that a test which only wants the clock pays for no house.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alipes.testing.agent import Conversation, open_agent
    from alipes.testing.clock import Clock
    from alipes.testing.every_stop import Attempt, every_stop
    from alipes.testing.leaks import LeakCheck, Leaked, census, no_leaks
    from alipes.testing.pytest_plugin import Late, run_test
    from alipes.testing.replies import Point, Points, Reply, Running
    from alipes.testing.scripted_model import Model, Stall, call, results, slowly, stall

_HOMES = {
    "clock": ("Clock",),
    "every_stop": (
        "Attempt",
        "every_stop",
    ),
    "leaks": (
        "LeakCheck",
        "Leaked",
        "census",
        "no_leaks",
    ),
    "replies": (
        "Point",
        "Points",
        "Reply",
        "Running",
    ),
    "pytest_plugin": (
        "Late",
        "run_test",
    ),
    "scripted_model": (
        "Model",
        "Stall",
        "call",
        "results",
        "slowly",
        "stall",
    ),
    "agent": (
        "Conversation",
        "open_agent",
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Attempt",
    "Clock",
    "Conversation",
    "Late",
    "LeakCheck",
    "Leaked",
    "Model",
    "Point",
    "Points",
    "Reply",
    "Running",
    "Stall",
    "call",
    "census",
    "every_stop",
    "no_leaks",
    "open_agent",
    "results",
    "run_test",
    "slowly",
    "stall",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"alipes.testing has no {name}")
    return getattr(import_module(f"alipes.testing.{_MODULES[name]}"), name)
