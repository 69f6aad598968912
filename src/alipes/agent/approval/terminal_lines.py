"""Lines that are written to a process piece by piece: a shell runs them when they are complete."""

import re
from importlib import import_module

from msgspec import structs

from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn

MAX_PROCESSES = 200
MAX_OPEN_CHARS = 60_000


class TerminalLines:
    """By conversation and process, what was written and is not complete."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], str] = {}

    def complete(self, call: ToolCall, turn: Turn) -> ToolCall:
        """The call with the unfinished text before it, as a terminal would show it; other calls as they are."""
        match call.name, call.args:
            case "process", {"action": "write", "data": str(data)}:
                text = apply_line_editing(self._open.get(_key(call, turn), "") + data)
                return structs.replace(call, args={**call.args, "data": text})
        return call

    def keep(self, call: ToolCall, turn: Turn) -> None:
        """After the data of a completed call may be written: keep what is not finished."""
        match call.name, call.args:
            case "process", {"action": "write", "data": str(text)}:
                rest = text if _is_open(text) else text.rpartition("\n")[2]
                self._open.pop(_key(call, turn), None)
                if rest:
                    self._open[_key(call, turn)] = rest[-MAX_OPEN_CHARS:]
                if len(self._open) > MAX_PROCESSES:
                    del self._open[next(iter(self._open))]
            case "process", {"action": "kill" | "close"}:
                self._open.pop(_key(call, turn), None)


def apply_line_editing(text: str) -> str:
    """What a terminal makes of control characters: return, erase a character, erase the line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(_erase(re.split(r"[\x03\x15]", line)[-1]) for line in lines)


def _erase(line: str) -> str:
    shown: list[str] = []
    for char in line:
        if char not in "\x08\x7f":
            shown.append(char)
        elif shown:
            shown.pop()
    return "".join(shown)


def _is_open(text: str) -> bool:
    """True if a shell would wait for more lines, for example because of an open quote."""
    parser = import_module("alipes.agent.approval.shell.parser")
    try:
        parser.parse_commands(text, {})
    except parser.Unparsable:
        return True
    return False


def _key(call: ToolCall, turn: Turn) -> tuple[str, str]:
    return turn.session, str(call.args.get("session_id") or "")
