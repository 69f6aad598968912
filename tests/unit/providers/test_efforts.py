"""Reasoning levels are fitted to the model."""

import pytest

from alipes.agent.loop import Agent
from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import EFFORT_LEVELS, Notice
from alipes.providers.registry import Backend, catalog, fit_effort
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.session_harness import inbound, open_sessions


@pytest.mark.parametrize(
    ("wanted", "levels", "used"),
    [
        ("", ("low",), ""),
        ("high", None, "high"),
        ("max", None, "high"),
        ("off", None, "low"),
        ("xhigh", ("low", "medium", "high", "max"), "high"),
        ("minimal", ("off", "low"), "off"),
        ("minimal", ("low", "high"), "low"),
        ("medium", ("high", "low"), "low"),
        ("max", EFFORT_LEVELS, "max"),
    ],
)
def test_a_level_that_a_model_lacks_is_rounded_down_or_is_its_lowest(wanted, levels, used):
    assert fit_effort(wanted, ModelFacts(efforts=levels)) == used


def test_a_model_that_does_not_reason_gets_none():
    assert fit_effort("high", ModelFacts(reasoning=False)) == ""


def test_the_levels_of_the_catalog_are_known_ones():
    for name, facts in catalog().items():
        assert set(facts.efforts or ()) <= set(EFFORT_LEVELS), name


async def test_one_notice_says_that_a_level_is_replaced(tmp_path):
    class Models:
        async def open(self, name):
            return Backend(name, "m", provider, ModelFacts(efforts=("low", "medium")))

    provider = ScriptedProvider(["", "hi"])
    agent = Agent(Models(), "test/m", effort="max")
    async with open_sessions(tmp_path, provider, agent=lambda _turn: agent) as home:
        await home.ask(inbound("1", "hello"))
    assert [request.effort for request in provider.asked] == ["medium", "medium"]
    notices = [each.text for each in home.events if isinstance(each, Notice) and "effort" in each.text]
    assert notices == ["test/m has no effort max; using medium"]


def test_the_levels_of_models_that_refuse_others_are_known():
    assert fit_effort("minimal", catalog()["gemini/gemini-3.8-flash"]) == "low"
    assert fit_effort("max", catalog()["openai/gpt-6.1-sol"]) == "max"
    assert fit_effort("off", catalog()["openai/gpt-6.1-sol"]) == "low"
