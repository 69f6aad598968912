"""Hooks: every upload to a web page is asked about; the pages of a conversation are closed with it."""

from contextlib import AsyncExitStack

from alipes.features.browser.feature import BrowserFeature
from alipes.features.browser.specs import UPLOAD
from alipes.kernel.messages import ToolCall
from alipes.plugins.owner import CORE
from alipes.plugins.registration import HookOptions
from alipes.plugins.specs import Verdict


class UploadApproval:
    """Asks about every upload to a web page."""

    async def before_tool(self, call: ToolCall) -> Verdict | None:
        if call.name != UPLOAD.name:
            return None
        return Verdict("ask", f"it sends {call.args.get('path')} to the web site {call.args.get('site')}")


async def add_hooks(feature: BrowserFeature, _stack: AsyncExitStack) -> None:
    if feature.sessions is not None:  # the question is its own: the usual approval is not asked, too
        feature.app.hooks.add(CORE, UploadApproval().before_tool, options=HookOptions(first=True))
        feature.app.add_hooks(feature.sessions.session_left)
