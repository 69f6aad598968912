"""The browser's tools: those that act on pages, or their names and the reason while the browser is off."""

from collections.abc import Iterable

from alipes.features.browser.feature import BrowserFeature
from alipes.features.browser.specs import ALL, BrowserOffTool
from alipes.kernel.ports import Tool


def tools(feature: BrowserFeature) -> Iterable[Tool]:
    if feature.sessions is None:
        return map(BrowserOffTool, ALL)
    from alipes.features.browser.page_tools import browser_tools

    return browser_tools(feature.sessions, feature.app.boundary, feature.app.secrets)
