"""Hooks: every upload to a web page is asked about; the pages of a conversation are closed with it."""

import asyncio
import os
from contextlib import AsyncExitStack

from alipes.features.browser.feature import BrowserFeature
from alipes.features.browser.specs import UPLOAD
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.plugins.owner import CORE
from alipes.plugins.registration import HookOptions
from alipes.plugins.specs import Verdict
from alipes.tools.boundary import FileBoundary


class UploadApproval:
    """Asks about every upload to a web page."""

    def __init__(self, boundary: FileBoundary) -> None:
        self._boundary = boundary

    async def before_tool(self, call: ToolCall, turn: Turn) -> Verdict | None:
        """Hook: the question names the file that is opened now, which is the one that is sent."""
        if call.name != UPLOAD.name:
            return None
        try:
            path = await asyncio.to_thread(self._open, call, turn)
        except ToolError as error:
            return Verdict("deny", str(error))
        return Verdict("ask", f"it sends {path} to the web site {call.args.get('site')}")

    def _open(self, call: ToolCall, turn: Turn) -> str:
        """Keep the file open; returns its name, or where it is if a link leads there."""
        given, workdir = str(call.args.get("path")), turn.inbound.workdir
        opened = self._boundary.hold((turn.session, call.id), given, workdir)
        named = self._boundary.places.join(given, os.path.realpath(workdir or os.getcwd()))
        return given if opened.real == os.path.normpath(named) else opened.real


async def add_hooks(feature: BrowserFeature, _stack: AsyncExitStack) -> None:
    if feature.sessions is not None:  # the question is its own: the usual approval is not asked, too
        feature.app.hooks.add(CORE, UploadApproval(feature.app.boundary).before_tool, options=HookOptions(first=True))
        feature.app.add_hooks(feature.sessions.session_left)
