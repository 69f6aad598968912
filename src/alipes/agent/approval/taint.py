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
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from alipes.agent.approval.risk import Risk
from alipes.agent.prompt import notes_file
from alipes.kernel.approvals import host_source, reveal
from alipes.kernel.conversations import ApprovalDecision, denial_reason
from alipes.kernel.errors import StoreError, ToolError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.mcp import mcp_source, split_mcp_name
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.ports import ReadsHosts
from alipes.kernel.turns import Turn
from alipes.plugins.registry import Contributions
from alipes.runtime.sandbox.project import project_root
from alipes.store.sql.approvals import UntrustedSourceStore
from alipes.tools.common import Places

if TYPE_CHECKING:
    from alipes.tools.shell.background import BackgroundProcess, BackgroundProcesses

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
        self,
        sources: UntrustedSourceStore,
        contributions: Contributions,
        places: Places,
        *,
        attachments: str,
        background: "BackgroundProcesses | None" = None,
    ) -> None:
        """`attachments`: the folder with files that people sent."""
        self._sources, self._contributions, self._places = sources, contributions, places
        self._attachments, self._background = os.path.realpath(attachments), background
        self._running: dict[tuple[str, str], tuple[Turn, float]] = {}
        """By turn and call, the commands that run, and since when."""
        if background is not None:
            background.add_end_hook(self.process_ended)

    async def before_tool(self, call: ToolCall, turn: Turn) -> None:
        """Hook: a command begins."""
        if call.name in _COMMANDS:
            self._running[turn.id, call.id] = turn, time.time()

    async def turn_ended(self, turn: Turn) -> None:
        """Hook: no call of the turn runs any longer."""
        for key in [key for key in self._running if key[0] == turn.id]:
            del self._running[key]

    async def turn_context(self, turn: Turn) -> None:
        """Hook: the instructions of the project are part of the prompt of a turn that begins."""
        file = notes_file(Path(turn.inbound.workdir)) if turn.inbound.workdir else None
        if file is not None and (label := await self.describe(str(file), turn.inbound.workdir, turn.session)):
            await self._sources.add(turn, label, label)

    async def process_ended(self, process: "BackgroundProcess") -> None:
        """A background process has ended."""
        turn = process.scope.turn
        with suppress(StoreError):  # the next use of the store reports it
            if turn is not None and await self._sources.list_read(turn):
                await self._record_command(process.scope.workdir, process.started)

    async def after_tool(self, call: ToolCall, result: ToolResult, turn: Turn, seconds: float = 0.0) -> None:
        """Hook: a call has ended."""
        self._running.pop((turn.id, call.id), None)
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
        elif label := await self._describe_file(call, result, turn):
            await self._sources.add(turn, label, label)

    async def _record_writes(self, call: ToolCall, result: ToolResult, turn: Turn, seconds: float) -> None:
        """The conversation has read text of strangers, which may be in what it writes. `seconds`: how long it took."""
        workdir, paths, given = turn.inbound.workdir, [*result.files], call.args.get("path")
        if call.name in _FILE_WRITERS and isinstance(given, str):
            paths.append(given)
        elif call.name in (*_COMMANDS, *_FILE_WRITERS) and workdir:
            await self._record_command(workdir, time.time() - seconds)
        for path in paths:
            try:
                real, changed = await asyncio.to_thread(mark_file, str(self._places.resolve(path, workdir)))
            except (ToolError, ValueError, OSError):
                continue  # the tool has reported it
            if changed:
                await self._sources.record_write(real, changed - SLACK_S, changed + SLACK_S)

    async def _record_command(self, workdir: str, began: float) -> None:
        """A command that may write text of strangers into its folder has run until now."""
        folder = await asyncio.to_thread(project_root, workdir, self._places.home, self._places.root)
        await self._sources.record_write(folder, began - SLACK_S, time.time() + SLACK_S)

    async def _record_running(self, reader: str) -> None:
        """The same for commands of other conversations that still run."""
        lasting = () if self._background is None else self._background.list_running()
        found = [(each.scope.turn, each.started) for each in lasting if each.scope.turn is not None]
        for turn, began in [*self._running.values(), *found]:
            if turn.session != reader and turn.inbound.workdir and await self._sources.list_read(turn):
                await self._record_command(turn.inbound.workdir, began)

    async def record_secret(self, risk: Risk, turn: Turn, decision: ApprovalDecision) -> ApprovalDecision:
        """Record an approved read of secrets; returns the decision."""
        if risk.rule == "secret" and not denial_reason(decision):
            await self._sources.add(turn, f"secret: {risk.reason}", "a file with secrets")
        return decision

    async def _describe_file(self, call: ToolCall, result: ToolResult, turn: Turn) -> str:
        """The untrusted file that the call has read; empty if there is none. In commands and code only the folder of
        attachments is looked for."""
        for text in (call.args.get("command"), call.args.get("code")):
            if isinstance(text, str) and self._attachments in text:
                return "attached files"
        for path in _read_paths(call, result):
            if label := await self.describe(path, turn.inbound.workdir, turn.session):
                return label
        return ""

    async def describe(self, path: str, workdir: str, session: str = "") -> str:
        """A name for a file that holds text of strangers; empty if it does not. `session`: the conversation that reads
        it."""
        try:
            place = str(self._places.resolve(path, workdir))
            if label := await asyncio.to_thread(describe_untrusted_file, place, self._attachments):
                return label
            await self._record_running(session)
            real, times = await asyncio.to_thread(_find_changes, place)
            return _describe_written(real) if await self._sources.was_written(real, times) else ""
        except (ToolError, ValueError, OSError):
            return ""  # the tool has reported it


def _read_paths(call: ToolCall, result: ToolResult) -> list[str]:
    """The file that the call names, or those whose lines a search has found."""
    if call.name not in _FILE_READERS:
        return []
    found: list[str] = import_module("alipes.agent.approval.files").named_files(call)
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
    real, times = _find_changes(path)
    try:
        os.setxattr(real, OWN_MARK, _written_mark(real))
    except (OSError, AttributeError):
        return real, max(times)
    return real, 0.0


def _find_changes(path: str) -> tuple[str, tuple[float, float]]:
    """The real path, and when the text was changed, as the file says, and when anything of the file was. A program can
    set the first; the second changes also when a file is moved, or gets another mode."""
    real = os.path.realpath(path)
    facts = os.stat(real)
    return real, (facts.st_mtime, facts.st_ctime)


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
