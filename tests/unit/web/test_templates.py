"""Prompt templates and commands over the API."""

import pytest

from alipes.plugins.registry import PromptTemplate
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.api_harness import open_api
from tests.world.commands import core_commands

GREET = PromptTemplate("greet", "greet.md", "Greet $1. !`id`", "Greet somebody", "NAME", model="a/c")
OFFERS = core_commands(lambda: {"greet": GREET, "user:greet": GREET})


async def test_a_template_is_listed_and_expanded(tmp_path):
    provider = ScriptedProvider(["hello"])
    async with open_api(tmp_path, provider, contributions=OFFERS) as api:
        listed = (await api.ask("GET", "/templates")).json()
        assert listed["templates"] == [
            {"name": "greet", "hint": "NAME", "description": "Greet somebody", "project": False}
        ]
        run = await api.finish(await api.begin("/greet Ann"))
        assert (run["status"], run["text"]) == ("answered", "hello")
    assert provider.asked[0].messages[-1].text == "Greet Ann. !`id`"


@pytest.mark.parametrize(
    ("input", "detail"),
    [("/gret Ann", "Unknown command /gret. Did you mean /greet?"), ("/stop", "/stop is not available here.")],
)
async def test_other_commands_are_refused_and_not_sent_to_the_model(tmp_path, input, detail):
    provider = ScriptedProvider([])
    async with open_api(tmp_path, provider, contributions=OFFERS) as api:
        answer = await api.ask("POST", "/runs", {"input": input})
        assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (400, "command", detail)
    assert not provider.asked


async def test_a_path_is_a_message(tmp_path):
    provider = ScriptedProvider(["fine"])
    async with open_api(tmp_path, provider, contributions=OFFERS) as api:
        await api.finish(await api.begin("/etc/hosts is what?"))
    assert provider.asked[0].messages[-1].text == "/etc/hosts is what?"
