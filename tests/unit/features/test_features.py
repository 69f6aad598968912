"""An app without some of its features starts and answers."""

import pytest

from alipes.app import open_app, open_for_checks
from alipes.config.loader import load_settings
from alipes.features.all import FEATURES
from alipes.features.browser.feature import BrowserFeature
from alipes.features.openai.feature import OpenAiFeature
from alipes.features.subagents.feature import SubagentsFeature
from alipes.features.usage.feature import UsageFeature
from alipes.features.web_search.feature import WebSearchFeature
from alipes.kernel.turns import Address, Inbound, TurnEnded
from alipes.testing.scripted_provider import ScriptedProvider

INDEPENDENT = (BrowserFeature, OpenAiFeature, SubagentsFeature, UsageFeature, WebSearchFeature)
"""No other feature and no part of the core needs them."""
TOOLS = {"browser_navigate", "delegate_task", "web_extract", "web_search"}


def without(*left_out):
    return tuple(each for each in FEATURES if each not in left_out)


@pytest.mark.parametrize("features", [without(*INDEPENDENT), *map(without, INDEPENDENT)])
async def test_an_app_without_a_feature_starts_and_answers(tmp_path, features):
    (tmp_path / "config.toml").write_text('model = "scripted"\n')
    provider = ScriptedProvider(["hello"])
    async with open_app(load_settings(tmp_path, {}), lent={"scripted": provider}, features=features) as app:
        async with app.sessions.ask(Inbound("1", Address("test", "me"), "me", "hi")) as following:
            *_, last = [event async for event in following]
        assert isinstance(last, TurnEnded) and last.ending == "answered"
        assert {type(each) for each in app.features} == set(features)


async def test_the_tools_of_a_feature_are_listed_only_with_it(tmp_path):
    settings = load_settings(tmp_path, {})
    async with open_for_checks(settings) as app:
        assert set(app.contributions.groups()) >= TOOLS
    async with open_for_checks(settings, features=without(*INDEPENDENT)) as app:
        assert not TOOLS & set(app.contributions.groups())
