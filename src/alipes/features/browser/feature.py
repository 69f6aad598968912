"""The browser: the model opens web pages, reads them and acts on them."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from alipes.features.feature import Feature

if TYPE_CHECKING:
    from alipes.features.browser.sessions import BrowserSessions


class BrowserFeature(Feature):
    name = "browser"
    parts = ("tool", "hooks", "doctor")
    tool_names = (
        *("browser_navigate", "browser_snapshot", "browser_click", "browser_type", "browser_press", "browser_select"),
        *("browser_scroll", "browser_back", "browser_screenshot", "browser_download", "browser_console"),
        "browser_upload",
    )
    sessions: "BrowserSessions | None" = None
    """None if it is switched off: then its modules are not imported."""

    async def open(self, stack: AsyncExitStack) -> None:
        settings, resources = self.app.settings, self.app.resources
        if settings.browser.enabled:
            from alipes.core.resources import tool_environment
            from alipes.features.browser.sessions import BrowserSessions

            network = resources.network
            sessions = BrowserSessions(
                *(settings.browser, network.rights, network.proxy.connector),
                environ=tool_environment(settings),
                folder=settings.paths.browser,
                keeper=resources.guard,
            )
            self.sessions = await stack.enter_async_context(sessions)
        await super().open(stack)
