"""Refuses commands that only a person may run when a process of the agent runs them.

This is a second line of defence for tools on the host: in the sandbox, neither the home nor this process tree is
visible. It cannot stop a program that edits the files of the home itself.
"""

import sys

from alipes.config.paths import PROFILE_VARIABLE, Paths, all_homes, current_environ, find_home
from alipes.runtime.processes.ancestors import find_agent_ancestor


def refuse_agent(what: str) -> bool:
    """True if an agent process started this one; then it says that `what` is refused. The exit status is 2."""
    agent = _find_agent()
    if agent is None:
        return False
    sys.stderr.write(
        f"alipes {what}: refused, because this was started by alipes itself (process {agent}). "
        "Run it in your own terminal.\n"
    )
    return True


def is_agent_child() -> bool:
    """True if an agent process started this one."""
    return _find_agent() is not None


def refuse_profile() -> bool:
    """True if a process of the agent names a profile: it works for the one whose home it was given."""
    return bool(current_environ().get(PROFILE_VARIABLE)) and refuse_agent("--profile")


def _find_agent() -> int | None:
    """An agent of any profile counts."""
    return find_agent_ancestor(*(Paths(home).run for home in all_homes(find_home())))


def refuse_conversation(*, trusted: bool, named: bool) -> bool:
    """True if an agent may not start this conversation: with all rights, or one that exists already."""
    if trusted:
        return refuse_agent("--yes")
    return named and refuse_agent("--session and --continue")
