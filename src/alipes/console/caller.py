"""Refuses commands that only a person may run when a process of the agent runs them.

This is a second line of defence for tools on the host: in the sandbox, neither the home nor this process tree is
visible. It cannot stop a program that edits the files of the home itself.
"""

import sys

from alipes.config.paths import PROFILE_VARIABLE, Paths, all_homes, current_environ, find_home
from alipes.runtime.processes.ancestors import find_agent_ancestor

_READ_ACTIONS = {
    "config": ("show", "get", "why", "path"),
    "plugins": ("list", "doctor", "new"),
    "skills": ("list", "show", "check", "history"),
    "schedule": ("list", "show", "history"),
    "mcp": ("list", "serve"),
    "model": ("--live", "--all"),
    "completion": ("bash", "zsh", "fish", "models"),
}
"""The actions that the agent may run too, given as the first word; none is like the first."""
_OPEN_COMMANDS = ("ask", "doctor", "usage", "man")
"""Commands that the agent may run with any words; `ask` checks its options itself."""
_HELP = ("-h", "--help")


def is_for_people(command: str, argv: list[str]) -> bool:
    """True if only a person may run this built-in command."""
    if command in _OPEN_COMMANDS or argv[:1] in ([option] for option in _HELP):
        return False
    actions = _READ_ACTIONS.get(command)
    if actions is None:
        return True
    if command == "model":  # a name switches the model
        return not set(argv) <= set(actions)
    return bool(argv) and argv[0] not in actions


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


def describe_command(command: str, argv: list[str]) -> str:
    """The command and its action, for the message."""
    named = command in ("config", "mcp", "plugins", "serve", "sessions")
    action = argv[0] if named and argv and argv[0].isalpha() else ""
    return f"{command} {action}".strip()
