"""The book that the recorder writes in."""

import asyncio
import json
import os
import threading

from hermes_constants import get_hermes_home

HOME = get_hermes_home()
LOCK = threading.Lock()


def note(what, seen):
    """One line, whole, any client that else writes at the same time."""
    try:
        on_loop = asyncio.get_running_loop() is not None
    except RuntimeError:
        on_loop = False
    line = {"what": what, "keys": sorted(seen), "received": seen, "loop": on_loop, "pid": os.getpid()}
    with LOCK, open(HOME / "seen.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line, default=str) + "\n")
