"""What HTTP clients leave behind when the loop they were born on is gone. It recognises; `guard` decides.

A client that nobody closed is collected at any moment, on any thread, and the vendor SDKs'
clients then start `aclose()` on whichever loop runs: it fails, because their sockets belong to a
loop that is closed. Nothing is lost by that, so the person must not be bothered with it.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, TracebackType
from typing import Any, TypeGuard

LIBRARIES = frozenset({"httpx", "httpx2", "openai", "anthropic"})
PLAIN = ("httpx", "httpx2")
"""Their `AsyncClient` has no finaliser, so dying it says nothing at all."""


def of_task(context: Mapping[str, Any]) -> str:
    """The type of the client whose closing failed, if a loop's context tells no more; else empty."""
    task = context.get("task") or context.get("future")
    error = context.get("exception")
    if not isinstance(task, asyncio.Task) or not _loop_is_closed(error):
        return ""
    code = getattr(task.get_coro(), "cr_code", None)
    if getattr(code, "co_name", "") not in ("aclose", "close"):
        return ""
    client = _owner(error.__traceback__, code)
    roots = {cls.__module__.partition(".")[0] for cls in type(client).__mro__}
    return _name(type(client)) if roots & LIBRARIES else ""


def of_finaliser(error: BaseException | None, where: object) -> str:
    """The finaliser's name, if the error it raised tells of a leftover and of no more; else empty."""
    if isinstance(error, ResourceWarning):
        return _name(where) if isinstance(where, FunctionType) else _name(type(where))
    if not isinstance(where, FunctionType) or where.__name__ != "__del__":
        return ""
    root = where.__module__.partition(".")[0]
    return _name(where) if root in LIBRARIES or (root == "asyncio" and _loop_is_closed(error)) else ""


@contextmanager
def naming(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note(type)` for each plain client that is collected without having been closed.

    Their class is given a finaliser, because nothing else can tell of them: when their sockets
    are collected, the client can no longer be found. Libraries loaded later are met at the next
    collection.
    """
    met: list[type] = []

    def dying(client: Any) -> None:
        # A client whose constructor failed has no such attribute.
        if not getattr(client, "is_closed", True):
            note(_name(type(client)))

    def meet(phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start" and len(met) < len(PLAIN):
            for library in PLAIN:
                client = getattr(sys.modules.get(library), "AsyncClient", None)
                if isinstance(client, type) and client not in met and "__del__" not in vars(client):
                    met.append(client)
                    client.__del__ = dying  # type: ignore[attr-defined]

    meet("start", {})
    gc.callbacks.append(meet)
    try:
        yield
    finally:
        gc.callbacks.remove(meet)
        for client in met:
            del client.__del__  # type: ignore[attr-defined]


def _loop_is_closed(error: object) -> TypeGuard[RuntimeError]:
    # asyncio and uvloop say it in the same words; our own loop runs, so it is another that is meant.
    return isinstance(error, RuntimeError) and error.args == ("Event loop is closed",)


def _owner(trace: TracebackType | None, code: object) -> object:
    """The `self` of the frame that ran `code`."""
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    return None


def _name(thing: type | FunctionType) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
