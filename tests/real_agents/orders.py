"""The script of the model: it does what the last order in a message says, with the tools that the program offers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.world.model_replies import Call, Calls, Reply, Say
from tests.world.model_validation import steps

RESTARTED = "alipes was restarted"
MARK = "[order "
LATER = "mcp__alipes__"
"""Start of the names of our tools at programs that look for tools before they can use them."""


class Orders:
    """`[order say TEXT]`, `[order edit FILE]`, `[order run COMMAND]`, `[order use TOOL JSON]`."""

    def __init__(self, api: str, workdir: Path) -> None:
        self._api, self._workdir = api, workdir

    def __call__(self, body: dict[str, Any]) -> Reply:
        offered = dict(list_tools(body))
        order, said = self._find_order(body)
        name, _, rest = order.partition(" ")
        if len(offered) <= 1 or not order:  # a question aside, such as one about a title
            return Say('{"title": "A title"}')
        if name == "say":
            return Say(rest, pieces=10, delay=0.5)
        search = next((each for each in ("ToolSearch", "tool_search") if each in offered), "")
        deferred = name == "use" and bool(search)
        if said > deferred:
            return Say(f"done with {name}")
        tool, _, words = rest.partition(" ")
        if deferred and not said:
            return Calls((Call(search, {"query": f"select:{LATER}{tool}"}),))
        call = self._make_call(name, rest, offered) if name != "use" else use_tool(tool, json.loads(words), offered)
        return Say(f"no tool for {order} in {sorted(offered)}") if call is None else Calls((call,))

    def _find_order(self, body: dict[str, Any]) -> tuple[str, int]:
        """The last order, and how many answers of the model there are since."""
        order, said = "", 0
        for kind, text in steps(self._api, body):
            if kind == "user" and MARK in text:
                order, said = text.rpartition(MARK)[2].rpartition("]")[0], 0
                order = "say I went on after the restart." if RESTARTED in text else order
            said += kind == "assistant"
        return order, said

    def _make_call(self, name: str, rest: str, offered: dict[str, str]) -> Call | None:
        if name == "run":
            return run_command(rest, offered)
        path, text = str(self._workdir / rest), "a new line\n"
        for tool, key in (("Write", "file_path"), ("write_file", "file_path"), ("write", "filePath")):
            if tool in offered:
                return Call(tool, {key: path, "content": text})
        patch = f"*** Begin Patch\n*** Add File: {rest}\n+a new line\n*** End Patch"
        return run_command(f"apply_patch <<'EOF'\n{patch}\nEOF", offered)


def run_command(command: str, offered: dict[str, str]) -> Call | None:
    about = {"command": command, "description": "a command"}
    for tool, args in (
        ("Bash", about | {"timeout": 600_000}),
        ("run_shell_command", about | {"is_background": False}),
        ("bash", about | {"timeout": 600_000}),
        ("exec_command", {"cmd": command, "yield_time_ms": 30_000}),
    ):
        if tool in offered:
            return Call(tool, args)
    return None


def use_tool(tool: str, args: dict[str, object], offered: dict[str, str]) -> Call | None:
    """A tool of ours, by the name that the program gives it."""
    if "tool_call" in offered:
        return Call("tool_call", {"name": f"{LATER}{tool}", "arguments": args})
    if "ToolSearch" in offered:
        return Call(f"{LATER}{tool}", args)
    for name, namespace in offered.items():
        if "alipes" in namespace + name and name.endswith(tool):
            return Call(name, args, namespace=namespace)
    return None


def list_tools(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The tools that a program offers, each with its namespace."""
    for each in body.get("tools") or ():
        namespace = each["name"] if each.get("type") == "namespace" else ""
        inner = each.get("functionDeclarations") or each.get("tools") or (each.get("function") or each,)
        yield from ((one["name"], namespace) for one in inner if "name" in one)
