"""Hooks: pages are forgotten with their conversation, and their numbers with the turn."""

from contextlib import AsyncExitStack

from alipes.features.web_search.feature import WebSearchFeature


async def add_hooks(feature: WebSearchFeature, _stack: AsyncExitStack) -> None:
    feature.app.add_hooks(feature.numbers.turn_ended, feature.reader.session_left)
