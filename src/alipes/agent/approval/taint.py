"""Records that a conversation has read untrusted text or secrets: what was always allowed is then asked again.

Untrusted are results of tools that say so (web, mail, MCP), messages of people who are not owners, mail and webhooks
(`Inbound.untrusted`), and files that were downloaded or attached. Ordinary files of the project are not.
"""

import asyncio
import hashlib
import os

from alipes.agent.approval.paths import Risk
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
_FILE_READERS = ("read_file", "search_files", "vision_analyze")
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

    async def after_tool(self, call: ToolCall, result: ToolResult, turn: Turn) -> None:
        """The hook to register."""
        if result.outcome == "denied":
            return
        tool = self._contributions.tools().get(call.name)
        if tool is not None and tool.spec.untrusted:
            hosts = tool.hosts_read(turn.session) if isinstance(tool, ReadsHosts) else ()
            for host in hosts:  # text from a host is no reason to ask again about that host
                await self._sources.add(turn, host_source(host), f"text from {host}")
            if not hosts:
                label = _describe_result(call)
                await self._sources.add(turn, _result_id(turn, call, label), label)
        elif label := await self._describe_file(call, turn.inbound.workdir):
            await self._sources.add(turn, label, label)

    async def record_secret(self, risk: Risk, turn: Turn, decision: ApprovalDecision) -> ApprovalDecision:
        """Record an approved read of secrets; returns the decision."""
        if risk.rule == "secret" and not denial_reason(decision):
            await self._sources.add(turn, f"secret: {risk.reason}", "a file with secrets")
        return decision

    async def _describe_file(self, call: ToolCall, workdir: str) -> str:
        """The untrusted file that the call names; empty if there is none. In commands and code only the folder of
        attachments is looked for."""
        for text in (call.args.get("command"), call.args.get("code")):
            if isinstance(text, str) and self._attachments in text:
                return "attached files"
        path = call.args.get("path")
        if not isinstance(path, str) or call.name not in _FILE_READERS:
            return ""
        try:
            return await asyncio.to_thread(
                describe_untrusted_file, str(self._places.resolve(path, workdir)), self._attachments
            )
        except (ToolError, ValueError):
            return ""  # the tool has reported it


def describe_untrusted_file(path: str, attachments: str) -> str:
    """A name for the file if it holds text of strangers: it is in the folder `attachments`, or was downloaded."""
    real, folder = os.path.realpath(path), os.path.realpath(attachments)
    if os.path.commonpath((real, folder)) == folder:
        return f"the attached file {reveal(os.path.basename(real))}"
    marked = any(_has_attribute(real, mark) for mark in MARKS)
    return f"the downloaded file {reveal(real)}" if marked else ""


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


def _has_attribute(path: str, name: str) -> bool:
    try:
        return bool(os.getxattr(path, name))
    except (OSError, AttributeError):  # not set, no such file, or a system without extended attributes
        return False
