"""The text of an approval question, for every front end: all of the call, as it will run."""

import msgspec
from msgspec import Struct, structs

from alipes.kernel.formatting import format_count
from alipes.kernel.mcp import split_mcp_name
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import ApprovalAsked, ApprovalChoice

NETWORK = "network"
"""The name of a call that asks for a connection.

`host` and `port`; `command`, if it is known which one wants to connect; `keys`, if it may use the SSH keys; `group` and
`hosts`, if a yes covers other hosts too.
"""
SSH_AGENT = "ssh_agent"
"""The name of a call that asks to log in at `host` and `port` with the person's SSH agent."""
MCP_SAMPLING = "mcp_sampling"
"""The name of a call that asks whether an MCP server may ask a model: `server`."""
FILE_ACCESS = "file_access"
"""The name of a call that asks about a file outside of the project: `action`, `path`, and the `folder` that a longer
right covers."""
MEMORY = "memory"
"""The name of the tool that changes notes."""
AGENT_TOOL = "agent_tool"
"""The name of a call that another agent makes itself: its `title` and `kind`, its `command` or other `input`, and
`files`."""
OUTSIDE = "outside the sandbox, with your rights"
_MAIN_ARGUMENTS = {"command": "Run this command?", "code": "Run this code?"}
_FILE_VERBS = {FILE_ACCESS: "", "read_file": "Read", "write_file": "Write", "patch": "Change"}
"""How a question about a file begins; empty: with its `action`."""
_USUAL_PORTS = (80, 443)
_MESSAGE, _NOT_AN_OWNER = "a message from ", ", who is not an owner"
_INVISIBLE = {
    *map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)),
    *map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
}
"""Characters that count as printable and show nothing."""


class CallText(Struct, frozen=True):
    """What a person approves."""

    title: str
    """A question."""
    body: str
    """The command, the code, the hosts or the arguments; empty if the title says everything."""
    details: tuple[str, ...] = ()
    """Everything else that decides what happens, such as `folder: /home/ann/project`."""
    more: str = ""
    """What is shown on request only: all hosts of a group."""

    @property
    def text(self) -> str:
        """The body and the details, line by line."""
        return "\n".join(filter(None, (self.body, *self.details)))


def describe_question(asked: ApprovalAsked) -> CallText:
    """All of what is asked."""
    described = describe_call(asked.call, asked.workdir, asked.diff)
    files = (f"reads {reveal(asked.files)}",) if asked.files else ()
    once = (f"Only for this time: {reveal(asked.once)}.",) if asked.once else ()
    return structs.replace(described, details=(*described.details, *files, *once))


def list_reasons(asked: ApprovalAsked) -> list[str]:
    """Why it is asked, reason by reason, without what the question says itself: where a connection goes."""
    reasons = reveal(asked.reason).strip().rstrip(".").split("; ")
    if asked.call.name == NETWORK:
        reasons = [each.partition(". ")[2] if each.startswith("connects to ") else each for each in reasons]
    return [each for each in reasons if each]


def answers_to(asked: ApprovalAsked) -> tuple[ApprovalChoice, ...]:
    """What can be answered."""
    return ("once", "no") if asked.once else ("once", "session", "always", "no")


def describe_call(call: ToolCall, workdir: str = "", diff: str = "") -> CallText:
    """The whole call, with hidden characters made visible. `diff`: all that it would change, shown instead of its
    arguments."""
    if call.name == NETWORK:
        return _describe_connection(call.args)
    if call.name == SSH_AGENT:
        place = f" at {_format_host(call.args['host'])}:{call.args.get('port')}" if "host" in call.args else ""
        return CallText(f"Let this command use your SSH keys{place}?", "")
    if call.name == MEMORY:
        return _describe_note(call.args, diff)
    if call.name in _FILE_VERBS or (call.name == AGENT_TOOL and diff):
        return _describe_file(call, workdir, diff)
    if call.name == AGENT_TOOL and "command" not in call.args:
        return _describe_agent_call(call.args, workdir)
    if call.name == MCP_SAMPLING:
        return CallText(f"Let the MCP server {_format_value(call.args.get('server'))} ask a model, at your cost?", "")
    parts = split_mcp_name(call.name)
    main = "" if parts else next((name for name in _MAIN_ARGUMENTS if isinstance(call.args.get(name), str)), "")
    own = ("title", "kind", "files", "input") if call.name == AGENT_TOOL else ()
    others = tuple(_describe_argument(name, value) for name, value in call.args.items() if name not in (main, *own))
    folder = (f"folder: {reveal(workdir)}",) if workdir else ()
    if main:
        return CallText(_MAIN_ARGUMENTS[main], _format_value(call.args[main]), (*others, *folder))
    if parts is not None:
        return CallText(f"Allow {reveal(parts[1])} of the MCP server {reveal(parts[0])}?", "\n".join(others), folder)
    return CallText(f"Allow {reveal(call.name)}?", "\n".join(others), folder)


def _describe_agent_call(args: dict[str, Json], workdir: str) -> CallText:
    given = args.get("input")
    lines = [_describe_argument(name, value) for name, value in (given if isinstance(given, dict) else {}).items()]
    folder = (f"folder: {reveal(workdir)}",) if workdir else ()
    return CallText(f"Allow this: {reveal(str(args.get('title')))}?", "\n".join(lines), folder)


def _describe_argument(name: str, value: Json) -> str:
    return OUTSIDE if (name, value) == ("outside", True) else f"{name}: {_format_value(value)}"


def _describe_file(call: ToolCall, workdir: str, diff: str) -> CallText:
    folder = (f"folder: {reveal(workdir)}",) if workdir else ()
    path, covered = call.args.get("path"), call.args.get("folder")
    if diff and call.name != FILE_ACCESS:
        several = diff.count("\n+++ ") + diff.startswith("+++ ") > 1
        return CallText(f"Change {'these files' if several else 'this file'}?", reveal(diff), folder)
    verb = _FILE_VERBS.get(call.name) or str(call.args.get("action")).capitalize()
    if not isinstance(path, str) or not path:
        others = tuple(f"{name}: {_format_value(value)}" for name, value in call.args.items())
        return CallText("Change files?", "\n".join(others), folder)
    if call.name == FILE_ACCESS:
        wider = "this file" if covered == path else f"all of {_format_value(covered)}"
        return CallText(f"{verb} {reveal(path)}?", reveal(diff), (f"session, always: {wider}",))
    others = tuple(f"{name}: {_format_value(value)}" for name, value in call.args.items() if name != "path")
    return CallText(f"{verb} {reveal(path)}?", "\n".join(others), folder)


def _describe_note(args: dict[str, Json], diff: str) -> CallText:
    asks = {"add": "Save this note?", "replace": "Change this note?", "remove": "Remove this note?"}
    title = asks.get(str(args.get("action")), "Allow memory?")
    others = tuple(f"{name}: {_format_value(value)}" for name, value in args.items() if name != "action")
    return CallText(title, reveal(diff) if diff else "\n".join(others))


def host_source(host: str) -> str:
    """The name under which text from a host is recorded as read."""
    return f"host: {host}"


def message_source(name: str) -> str:
    """The name under which a message of somebody who is not an owner is recorded as read."""
    return f"{_MESSAGE}{reveal(name)}{_NOT_AN_OWNER}"


def is_message_source(source: str) -> bool:
    return source.startswith(_MESSAGE) and source.endswith(_NOT_AN_OWNER)


def _describe_connection(args: dict[str, Json]) -> CallText:
    command, port, place = args.get("command"), args.get("port"), _format_host(args.get("host"))
    details = (f"Asked by: {_format_value(command)}",) if command else ()
    if args.get("keys"):
        return CallText(f"Allow a connection to {place}:{port}? It may use your SSH keys.", "", details)
    if "group" in args:
        found = args.get("hosts")
        hosts = found if isinstance(found, list) else []
        if not args.get("host"):  # asked by an earlier version
            place = f"one of {len(hosts)}"
        group = f"{_format_value(args['group'])}, {format_count(len(hosts), 'host')}"
        return CallText(f"Allow a connection to {place} ({group})?", "", details, "\n".join(map(_format_host, hosts)))
    details = (*details, f"port: {port}") if port not in (None, *_USUAL_PORTS) else details
    return CallText(f"Allow a connection to {place}?", "", details)


def _format_host(host: Json) -> str:
    """A name in other scripts may look like another name: its letters are shown as numbers."""
    return "".join(char if char.isascii() else f"<U+{ord(char):04X}>" for char in _format_value(host))


def _format_value(value: Json) -> str:
    return reveal(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def reveal(text: str) -> str:
    """The text with control, bidirectional, zero-width and other hidden characters as `<U+202E>`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_visible(char) else f"<U+{ord(char):04X}>" for char in text)


def _is_visible(char: str) -> bool:
    return char in "\n\t" or (char.isprintable() and char not in _INVISIBLE)
