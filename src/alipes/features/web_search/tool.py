"""The tools `web_search` and `web_extract`."""

from alipes.agent.builtin_tools import VisionModel
from alipes.features.web_search.feature import WebSearchFeature
from alipes.features.web_search.services import PageQuestions, SearchService
from alipes.features.web_search.web_extract import WebExtract
from alipes.features.web_search.web_search import WebSearch


def tools(feature: WebSearchFeature) -> tuple[WebSearch, WebExtract]:
    app, pages, network = feature.app, feature.pages, feature.app.network
    search = SearchService(
        app.settings, feature.plugins, scope=app.scope, rights=network.rights, counts=network.proxy.counts
    )
    return (
        WebSearch(search.choose, feature.numbers, search.describe_problem),
        WebExtract(
            feature.reader,
            feature.numbers,
            ask_model=PageQuestions(app.auxiliary).ask,
            ask_vision=VisionModel(app.auxiliary).ask,
            why_unavailable=pages.describe_problem,
        ),
    )
