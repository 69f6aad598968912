"""Test kit for plugin authors: an agent with a scripted model, a manual clock, stops at every point, leak checks.

Names are imported on first use, so that a test that needs only the clock does not load the app.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alipes.testing.agent import Conversation, StopAttempt, every_stop, open_agent
    from alipes.testing.clock import Clock
    from alipes.testing.leaks import LeakCheck, LeakError, no_leaks, take_snapshot
    from alipes.testing.pytest_plugin import DeadlineExceeded, run_test
    from alipes.testing.replies import PendingReply, StopPoint, StopPoints, TurnReply
    from alipes.testing.scripted_model import ScriptedModel, Stall, call, results, slow_text, stall

_HOMES = {
    "clock": ("Clock",),
    "leaks": ("LeakCheck", "LeakError", "take_snapshot", "no_leaks"),
    "replies": ("StopPoint", "StopPoints", "TurnReply", "PendingReply"),
    "pytest_plugin": ("DeadlineExceeded", "run_test"),
    "scripted_model": ("ScriptedModel", "Stall", "call", "results", "slow_text", "stall"),
    "agent": ("Conversation", "StopAttempt", "every_stop", "open_agent"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["Clock", "Conversation", "DeadlineExceeded", "LeakCheck", "LeakError", "PendingReply", "ScriptedModel"]
__all__ += ["Stall", "StopAttempt", "StopPoint", "StopPoints", "TurnReply", "call", "every_stop", "no_leaks"]
__all__ += ["open_agent", "results", "run_test", "slow_text", "stall", "take_snapshot"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"alipes.testing has no {name}")
    return getattr(import_module(f"alipes.testing.{_MODULES[name]}"), name)
