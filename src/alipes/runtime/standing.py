"""Where the loop's thread stands: in a plugin's own code, or in the house's. It only looks."""

from collections.abc import Callable, Iterator
from itertools import dropwhile
from types import CodeType, FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_EDGES: set[CodeType] = set()
_FRAMES = 4
_HOUSE = "alipes"
_DELICATE = ("logging", "importlib", "_frozen_importlib", "_frozen_importlib_external")
"""Broken off in the middle, these leave behind a lock that nobody opens, or half a module."""
_DEBUGGERS = frozenset(("bdb", "pdb", "IPython", "pydevd", "_pydevd_bundle", "debugpy"))
"""Who stands there waits for a person."""


def edge(function: F) -> F:
    """Say of a function that it begins and ends a deed: what it calls meanwhile is the plugin's."""
    _EDGES.add(function.__code__)
    return function


def in_plugin(frame: FrameType | None, *, patiently: bool) -> bool:
    """May what stands at `frame` be broken off there? Only the plugin's own code, and what that calls; never
    the house's, also where the plugin called it. `patiently`: what is delicate, neither."""
    names: list[str] = []
    while frame is not None and frame.f_code not in _EDGES:
        names.append(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    if frame is None or not names:
        return False
    # Beyond the edge there may be a door of ours, which translates; then all is the plugin's.
    theirs = list(dropwhile(_HOUSE.__eq__, reversed(names)))
    if not theirs or _HOUSE in theirs or not _DEBUGGERS.isdisjoint(theirs):
        return False
    return not (patiently and (names[0] == "asyncio" or any(name in _DELICATE for name in theirs)))


def where(frame: FrameType | None) -> str:
    """The innermost frames, down to the first that is the house's."""
    return ", called from ".join(_told(frame))


def _told(frame: FrameType | None) -> Iterator[str]:
    for n in range(_FRAMES):
        if frame is None or (n and str(frame.f_globals.get("__name__")).partition(".")[0] == _HOUSE):
            return
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
