"""Program of the `execute_code` child: runs the code, with functions that call tools in the parent.

It runs in a separate Python process, so it must not import anything of alipes.
"""

import json
import os
import sys
from typing import Any

REQUESTS, ANSWERS = "requests", "answers"
"""Names of the pipes to and from the parent."""


class _ToolError(Exception):
    """A tool call failed. The code sees it as `ToolError`."""

    __qualname__ = "ToolError"


class _Connection:
    """Connection to the parent; one tool call at a time."""

    def __init__(self, folder: str) -> None:
        self._requests = os.fdopen(os.open(os.path.join(folder, REQUESTS), os.O_WRONLY), "wb")
        self._answers = os.fdopen(os.open(os.path.join(folder, ANSWERS), os.O_RDONLY), "rb")

    def call(self, name: str, args: dict[str, Any]) -> str:
        given = {key: value for key, value in args.items() if value is not None}
        self._requests.write(json.dumps({"tool": name, "args": given}).encode() + b"\n")
        self._requests.flush()
        line = self._answers.readline()
        if not line:
            raise _ToolError("the connection to alipes was closed")
        answer = json.loads(line)
        if not answer["ok"]:
            raise _ToolError(answer["text"])
        return str(answer["text"])


def main(folder: str) -> None:
    with open(os.path.join(folder, "tools.json"), encoding="utf-8") as file:
        tools = json.load(file)
    with open(os.path.join(folder, "code.py"), encoding="utf-8") as file:
        code = file.read()
    os.dup2(os.open(os.path.join(folder, "stderr"), os.O_WRONLY | os.O_CREAT, 0o600), 2)
    connection = _Connection(folder)
    scope: dict[str, Any] = {"__name__": "__main__", "ToolError": _ToolError}
    for name, parameters in tools.items():
        scope[name] = _make_stub(connection, name, parameters)
    sys.path[:0] = [os.getcwd()]
    exec(compile(code, "<code>", "exec"), scope)


def _make_stub(connection: _Connection, name: str, parameters: list[str]) -> Any:
    def call(*args: Any, **named: Any) -> str:
        if len(args) > len(parameters):
            raise TypeError(f"{name}() takes {', '.join(parameters)}")
        return connection.call(name, {**dict(zip(parameters, args, strict=False)), **named})

    call.__name__ = name
    call.__doc__ = f"{name}({', '.join(parameters)})"
    return call


if __name__ == "__main__":
    main(sys.argv[1])
