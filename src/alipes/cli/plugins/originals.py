"""The modules of Hermes Agent as plugins name them: which are the original's, and which work here."""

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module

ROOTS = (
    *("agent", "batch_runner", "cli", "cron", "gateway", "mcp_serve", "model_tools", "run_agent"),
    *("tools", "toolsets", "toolset_distributions", "trajectory_compressor", "tui_gateway"),
)
"""Top-level modules of the original, besides all that begin with `hermes_`."""


def is_original(name: str) -> bool:
    """Whether a dotted name begins in a module of the original."""
    root = name.partition(".")[0]
    return root in ROOTS or root.startswith("hermes_")


def is_supported(name: str) -> bool:
    """Whether the dotted name of a module, or of something in one, works here."""
    known = _names()
    if name in known or name.startswith("hermes_plugins."):
        return True
    module, _, last = name.rpartition(".")
    if module not in known:  # deeper, as in tools.registry.registry.register
        return bool(module) and is_supported(module)
    return last in known[module]


@cache
def _names() -> Mapping[str, Collection[str]]:
    """The compatible door's own table; loaded only for code that names the original."""
    names: Mapping[str, Collection[str]] = import_module("alipes.compat.hermes.names.table").NAMES
    return names
