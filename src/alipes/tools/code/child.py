"""What runs in the child of `execute_code`: the code, and stubs that ask the parent for tools.

Nothing of ours is imported here: it is handed to another Python as it stands.
"""

import json
import os
import socket
import sys
from typing import Any


class ToolError(Exception):
    """A tool did not do what it was asked."""


class _Line:
    """One question after the other, each with its answer."""

    def __init__(self, folder: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        here = os.getcwd()
        os.chdir(folder)  # its path may be longer than a socket's address has room for
        self._socket.connect("socket")
        os.chdir(here)
        self._file = self._socket.makefile("rwb")

    def ask(self, name: str, args: dict[str, Any]) -> str:
        given = {key: value for key, value in args.items() if value is not None}
        self._file.write(json.dumps({"tool": name, "args": given}).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise ToolError("nobody answers any more")
        answer = json.loads(line)
        if not answer["ok"]:
            raise ToolError(answer["text"])
        return str(answer["text"])


def main(folder: str) -> None:
    with open(os.path.join(folder, "tools.json"), encoding="utf-8") as file:
        tools = json.load(file)
    with open(os.path.join(folder, "code.py"), encoding="utf-8") as file:
        code = file.read()
    os.dup2(os.open(os.path.join(folder, "stderr"), os.O_WRONLY | os.O_CREAT, 0o600), 2)
    line = _Line(folder)
    scope: dict[str, Any] = {"__name__": "__main__", "ToolError": ToolError}
    for name, parameters in tools.items():
        scope[name] = _stub(line, name, parameters)
    sys.path[:0] = [os.getcwd()]
    exec(compile(code, "<code>", "exec"), scope)


def _stub(line: _Line, name: str, parameters: list[str]) -> Any:
    def call(*args: Any, **named: Any) -> str:
        if len(args) > len(parameters):
            raise TypeError(f"{name}() takes {', '.join(parameters)}")
        return line.ask(name, {**dict(zip(parameters, args, strict=False)), **named})

    call.__name__ = name
    call.__doc__ = f"{name}({', '.join(parameters)})"
    return call


if __name__ == "__main__":
    main(sys.argv[1])
