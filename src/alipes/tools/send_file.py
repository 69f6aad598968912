"""`send_file`: attaches a file to the conversation in a chat. Which files need approval is decided elsewhere."""

import asyncio
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.runtime.sandbox.policy import is_inside
from alipes.tools.boundary import FileBoundary, OpenedPath, reading, suggest_name
from alipes.tools.common import describe_file_type, make_schema

NO_CHATS = frozenset({"terminal", "web", "api", "cron", "plugin", "schedule"})
"""Platforms without a chat to send files to."""


class SendFileTool:
    spec = ToolSpec("send_file", "Attach a file to this chat.", make_schema("path", path="string"), media=True)

    def __init__(self, boundary: FileBoundary, outgoing: Path) -> None:
        """`outgoing`: the folder of files that tools make for chats."""
        self._boundary, self._outgoing = boundary, outgoing

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        real, sent = await asyncio.to_thread(self._prepare, str(args["path"]), act)
        return ToolOutput(f"Attached {real}", files=(sent,))

    def _prepare(self, path: str, act: ToolContext) -> tuple[str, str]:
        """The real path, and the file that is sent. Raises `ToolError` if it cannot or must not be sent."""
        with self._boundary.opened(path, act) as opened:
            named, outgoing = opened.path, os.path.realpath(self._outgoing)
            if opened.facts is None:
                raise ToolError(f"{named}: No such file or directory.{suggest_name(opened)}")
            if not stat.S_ISREG(opened.facts.st_mode):
                what = describe_file_type(opened.facts.st_mode)
                raise ToolError(f"{named} is {what}, not a file; pack it into an archive first")
            if self._boundary.is_withheld(opened):
                raise ToolError(f"{named} holds secrets and is never sent")
            if is_inside(opened.real, outgoing):
                return opened.real, opened.real
            ours = any(is_inside(opened.real, each) for each in self._boundary.places.own_folders)
            if ours or not is_inside(opened.real, os.path.realpath(act.workdir or os.getcwd())):
                raise ToolError(f"{named} is outside the working directory; copy it there first")
            try:
                return opened.real, self._copy(opened)
            except OSError as error:
                raise ToolError(f"{named} cannot be read: {error.strerror}") from error

    def _copy(self, opened: OpenedPath) -> str:
        """A copy of what was opened: it is sent later, and by then the name may lead elsewhere."""
        folder = self._outgoing / f"sent-{secrets.token_hex(6)}"
        folder.mkdir(parents=True, mode=0o700)
        copy = folder / opened.name
        with reading(opened) as source, open(copy, "xb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return str(copy)
