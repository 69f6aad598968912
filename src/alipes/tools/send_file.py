"""`send_file`: attaches a file to the conversation in a chat. Which files need approval is decided elsewhere."""

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.tools.common import Places, describe_file_type, make_schema, suggest_name

NO_CHATS = frozenset({"terminal", "web", "api", "cron", "plugin", "schedule"})
"""Platforms without a chat to send files to."""


class SendFileTool:
    spec = ToolSpec("send_file", "Attach a file to this chat.", make_schema("path", path="string"), media=True)

    def __init__(self, places: Places, outgoing: Path) -> None:
        """`outgoing`: the folder of files that tools make for chats."""
        self._places, self._outgoing = places, outgoing

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        path = self._places.resolve(str(args["path"]), act.workdir)
        real = await asyncio.to_thread(self._check, path, act.workdir)
        return ToolOutput(f"Attached {real}", files=(real,))

    def _check(self, path: Path, workdir: str) -> str:
        """The real path. Raises `ToolError` if the file cannot or must not be sent."""
        real = os.path.realpath(path)
        try:
            mode = os.stat(real).st_mode
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror}.{suggest_name(path)}") from error
        if not stat.S_ISREG(mode):
            raise ToolError(f"{path} is {describe_file_type(mode)}, not a file; pack it into an archive first")
        if self._places.is_withheld(real):
            raise ToolError(f"{path} holds secrets and is never sent")
        ours = any(Path(real).is_relative_to(each) for each in self._places.own_folders)
        inside = not ours and Path(real).is_relative_to(os.path.realpath(workdir or os.getcwd()))
        if not inside and not Path(real).is_relative_to(os.path.realpath(self._outgoing)):
            raise ToolError(f"{path} is outside the working directory; copy it there first")
        return real
