"""Web search: the model searches the web and reads pages."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from alipes.features.feature import Feature

if TYPE_CHECKING:
    from alipes.features.web_search.page_reader import PageReader
    from alipes.features.web_search.services import PageService, SearchPlugins
    from alipes.features.web_search.source_numbers import SourceNumbers


class WebSearchFeature(Feature):
    name = "web_search"
    parts = ("tool", "hooks", "doctor")
    tool_names = ("web_search", "web_extract")
    numbers: "SourceNumbers"
    plugins: "SearchPlugins"
    pages: "PageService"
    reader: "PageReader"

    async def open(self, stack: AsyncExitStack) -> None:
        from alipes.features.web_search.services import PageService, SearchPlugins, open_reader
        from alipes.features.web_search.source_numbers import SourceNumbers

        settings = self.app.settings
        self.numbers = SourceNumbers()
        self.plugins = SearchPlugins(self.app.contributions, settings.web.timeout)
        self.pages = PageService(settings, self.plugins, self.app.extras.is_installed)
        self.reader = await stack.enter_async_context(open_reader(self.app, self.pages))
        await super().open(stack)
