"""The long way through a turn, past every hook, and the ways it may end; for a scripted model in this process."""

from typing import Any

from alipes.kernel.errors import OutOfCredit, Transient
from alipes.testing import call, stall

DANGEROUS = "rm -rf /nowhere/at/all; echo gone"
"""Asked about, and harmless."""


def script_for(ending: str) -> list[Any]:
    """What the model says, up to the end of the turn, and `next` to the client that asks after it."""
    last = {"answered": "all done", "resumed": "all done", "failed": OutOfCredit("the budget is empty")}
    return [
        Transient("one moment", 0.01),
        call("delegate_task", goal="look around"),
        "I looked around",
        call("greet", name="Ada"),
        call("terminal", command=DANGEROUS),
        call("write_file", path="note.py", content="answer = 42\n"),
        "done, I think",
        last.get(ending) or call("ponder"),
        *["next"] * 3,
    ]


def endless_script() -> list[Any]:
    """Of a process that is killed while it waits for its first answer."""
    return [stall()]
