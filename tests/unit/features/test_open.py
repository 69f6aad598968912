"""An app starts and answers without any of its features, and without all: only what it adds is missing."""

import asyncio

import pytest

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.features.all import FEATURES
from alipes.features.learning.feature import LearningFeature
from alipes.features.memory.feature import MemoryFeature
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.skills.feature import SkillsFeature
from alipes.features.webhooks.feature import WebhooksFeature
from alipes.testing.agent import Conversation
from alipes.testing.scripted_model import ScriptedModel
from tests.world.admin_harness import open_admin

NEEDED_BY = {
    MemoryFeature: (LearningFeature,),
    SkillsFeature: (LearningFeature, SchedulesFeature, WebhooksFeature),
    SchedulesFeature: (WebhooksFeature,),
}
"""What cannot be opened without it."""
LEFT_OUT = [*((kind, *NEEDED_BY.get(kind, ())) for kind in FEATURES), FEATURES]


def all_without(kinds):
    return tuple(kind for kind in FEATURES if kind not in kinds)


def named(kinds):
    return "-".join(kind.name for kind in kinds)


@pytest.mark.parametrize("without", LEFT_OUT, ids=named)
async def test_an_app_without_these_features_answers(tmp_path, without):
    (tmp_path / "config.toml").write_text('model = "scripted"\n')
    settings, model = load_settings(tmp_path, {}), ScriptedModel(["fine"])
    settings.paths.make()
    async with (
        open_app(settings, interactive=True, lent={"scripted": model}, features=all_without(without)) as app,
        asyncio.TaskGroup() as followers,
    ):
        agent = Conversation(app, model, followers, person="nobody", work=tmp_path)
        assert (await agent.say("hello")).text == "fine"
        listed = await agent.command("/help")
        assert not listed.failed
        assert [kind for kind in without if app.features.find(kind)] == []
        assert [name for kind in without for name in kind.tool_names if name in app.contributions.tools()] == []
        for command in (command for kind in without for command in kind.commands()):
            assert f"/{command.name} " not in listed.text
            with pytest.raises(ValueError, match="is not a command"):
                await agent.command(f"/{command.name}")


async def test_the_paths_of_a_feature_are_served_only_with_it(tmp_path):
    async with open_admin(tmp_path / "all") as api:
        paths = {kind: api.paths[kind.name] for kind in FEATURES if "endpoints" in kind.parts}
    for kind, own in paths.items():
        features = all_without((kind, *NEEDED_BY.get(kind, ())))
        async with open_admin(tmp_path / kind.name, features=features) as api:
            gone = own - {path for given in api.paths.values() for path in given}
            assert gone and own - gone <= {path for each in features for path in paths.get(each, ())}
            assert {await ask(api, path) for path in gone if "{" not in path} <= {404}


async def ask(api, path):
    return (await api.ask("GET", path.removeprefix("/v1"), by="root")).status_code
