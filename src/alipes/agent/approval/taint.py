"""Records that a conversation has read untrusted text or secrets: what was always allowed is then asked again.

Untrusted are results of tools that say so (web, mail, MCP), messages of people who are not owners, mail and webhooks
(`Inbound.untrusted`), and files that were downloaded or attached. Ordinary files of the project are not, unless a
conversation that had read such text wrote them: its file tools mark what they write, and a command covers the files of
its folder that were changed while it ran. What commands read, and what programs copy elsewhere, is not followed.
"""

import asyncio
import hashlib
import os
import re
import time

from alipes.agent.approval.risk import Risk
from alipes.kernel.approvals import host_source, reveal
from alipes.kernel.conversations import ApprovalDecision, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.mcp import mcp_source, split_mcp_name
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.ports import ReadsHosts
from alipes.kernel.turns import Turn
from alipes.plugins.registry import Contributions
from alipes.store.sql.approvals import UntrustedSourceStore
from alipes.tools.common import Places

MARKS = ("user.alipes.untrusted", "user.xdg.origin.url")
"""Extended attributes of files with text of strangers: set by hand, and by programs that download files."""
OWN_MARK = MARKS[0]
_WRITTEN_AT = b"written "
"""With the time of the last change behind it: the mark of a file that alipes wrote ends when it is changed."""
SLACK_S = 0.05
"""Clocks of file systems are a little behind."""
_FILE_WRITERS = ("write_file", "patch")
_COMMANDS = ("terminal", "execute_code", "process")
_FILE_READERS = ("read_file", "search_files", "vision_analyze")
_FOUND_LINE = r"\d+[:-] |--$|\["
"""Lines in the result of a search that are no name of a file."""
MAX_SEARCHED = 200
"""Files of a search that are looked at: more than it returns matches by default."""
_DESCRIBING = ("url", "urls", "query", "path", "command", "name")
"""Arguments that say what a tool has read."""


class TaintTracker:
    """Stores what was read before the model sees it, so it is known after a restart as well."""

    def __init__(
        self, sources: UntrustedSourceStore, contributions: Contributions, places: Places, *, attachments: str
    ) -> None:
        """`attachments`: the folder with files that people sent."""
        self._sources, self._contributions, self._places = sources, contributions, places
        self._attachments = os.path.realpath(attachments)

    async def after_tool(self, call: ToolCall, result: ToolResult, turn: Turn, seconds: float = 0.0) -> None:
        """The hook to register."""
        if result.outcome == "denied":
            return
        await self._record_read(call, result, turn)
        may_write = call.name in (*_FILE_WRITERS, *_COMMANDS) or result.files
        if may_write and await self._sources.list_read(turn):
            await self._record_writes(call, result, turn, seconds)

    async def _record_read(self, call: ToolCall, result: ToolResult, turn: Turn) -> None:
        tool = self._contributions.tools().get(call.name)
        if tool is not None and tool.spec.untrusted:
            hosts = tool.hosts_read(turn.session) if isinstance(tool, ReadsHosts) else ()
            for host in hosts:  # text from a host is no reason to ask again about that host
                await self._sources.add(turn, host_source(host), f"text from {host}")
            if not hosts:
                label = _describe_result(call)
                await self._sources.add(turn, _result_id(turn, call, label), label)
        elif label := await self._describe_file(call, result, turn.inbound.workdir):
            await self._sources.add(turn, label, label)

    async def _record_writes(self, call: ToolCall, result: ToolResult, turn: Turn, seconds: float) -> None:
        """The conversation has read text of strangers, which may be in what it writes. `seconds`: how long it took."""
        workdir, paths, given = turn.inbound.workdir, [*result.files], call.args.get("path")
        if call.name in _FILE_WRITERS and isinstance(given, str):
            paths.append(given)
        elif call.name in (*_COMMANDS, *_FILE_WRITERS) and workdir:
            now, folder = time.time(), await asyncio.to_thread(find_work_tree, workdir)
            await self._sources.record_write(folder, now - seconds - SLACK_S, now + SLACK_S)
        for path in paths:
            try:
                real, changed = await asyncio.to_thread(mark_file, str(self._places.resolve(path, workdir)))
            except (ToolError, ValueError, OSError):
                continue  # the tool has reported it
            if changed:
                await self._sources.record_write(real, changed - SLACK_S, changed + SLACK_S)

    async def record_secret(self, risk: Risk, turn: Turn, decision: ApprovalDecision) -> ApprovalDecision:
        """Record an approved read of secrets; returns the decision."""
        if risk.rule == "secret" and not denial_reason(decision):
            await self._sources.add(turn, f"secret: {risk.reason}", "a file with secrets")
        return decision

    async def _describe_file(self, call: ToolCall, result: ToolResult, workdir: str) -> str:
        """The untrusted file that the call has read; empty if there is none. In commands and code only the folder of
        attachments is looked for."""
        for text in (call.args.get("command"), call.args.get("code")):
            if isinstance(text, str) and self._attachments in text:
                return "attached files"
        for path in _read_paths(call, result):
            try:
                place = str(self._places.resolve(path, workdir))
                label = await asyncio.to_thread(describe_untrusted_file, place, self._attachments)
                real, changed = await asyncio.to_thread(_find_change, place)
                if not label and await self._sources.was_written(real, changed):
                    label = _describe_written(real)
            except (ToolError, ValueError, OSError):
                continue  # the tool has reported it
            if label:
                return label
        return ""


def _read_paths(call: ToolCall, result: ToolResult) -> list[str]:
    """The file that the call names, or those whose lines a search has found."""
    path = call.args.get("path")
    if call.name not in _FILE_READERS:
        return []
    found = [path] if isinstance(path, str) else []
    if call.name == "search_files" and (call.args.get("output_mode") or "content") == "content":
        names = (line for line in result.text.splitlines() if line and not re.match(_FOUND_LINE, line))
        found += list(dict.fromkeys(names))[:MAX_SEARCHED]
    return found


def describe_untrusted_file(path: str, attachments: str) -> str:
    """A name for the file if it holds text of strangers: it is in the folder `attachments`, or was downloaded."""
    real, folder = os.path.realpath(path), os.path.realpath(attachments)
    if os.path.commonpath((real, folder)) == folder:
        return f"the attached file {reveal(os.path.basename(real))}"
    values = {mark: _read_attribute(real, mark) for mark in (OWN_MARK, *MARKS)}
    if (written := values[OWN_MARK]).startswith(_WRITTEN_AT):
        return _describe_written(real) if written == _written_mark(real) else ""
    return f"the downloaded file {reveal(real)}" if any(values.values()) else ""


def mark_file(path: str) -> tuple[str, float]:
    """Mark a file that was written after text of strangers was read; returns its real path.

    Where the file system keeps no marks, also when the file was changed, for a row; else 0. Raises OSError.
    """
    real, changed = _find_change(path)
    try:
        os.setxattr(real, OWN_MARK, _written_mark(real))
    except (OSError, AttributeError):
        return real, changed
    return real, 0.0


def _find_change(path: str) -> tuple[str, float]:
    real = os.path.realpath(path)
    return real, os.stat(real).st_ctime


def find_work_tree(workdir: str) -> str:
    """The work tree of git that contains a folder, all of which commands may change; else the folder."""
    folder = real = os.path.realpath(workdir)
    while not os.path.exists(os.path.join(folder, ".git")):
        if folder in ("/", os.path.expanduser("~")):
            return real
        folder = os.path.dirname(folder)
    return folder


def _written_mark(path: str) -> bytes:
    return _WRITTEN_AT + str(os.stat(path).st_mtime_ns).encode()


def _describe_written(path: str) -> str:
    return f"the file {reveal(path)}, written after untrusted text was read"


def _result_id(turn: Turn, call: ToolCall, label: str) -> str:
    """Different for every result, although some models use the same call id again."""
    digest = hashlib.sha256(f"{turn.id} {call.id} {label}".encode(errors="replace")).hexdigest()[:16]
    parts = split_mcp_name(call.name)
    return f"{mcp_source(parts[0])}{digest}" if parts is not None else digest


def _describe_result(call: ToolCall) -> str:
    """Such as `the result of web_extract (https://example.org)`."""
    values = [call.args[name] for name in _DESCRIBING if call.args.get(name)]
    detail = f" ({format_excerpt(reveal(str(values[0])))[1:-1]})" if values else ""
    return f"the result of {call.name}{detail}"


def _read_attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except (OSError, AttributeError):  # not set, no such file, or a system without extended attributes
        return b""
