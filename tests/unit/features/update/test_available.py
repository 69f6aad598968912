from alipes.config.loader import load_settings
from alipes.features.update import available
from alipes.features.update.feature import UpdateFeature
from alipes.testing import open_agent
from tests.world.alipes_versions import build_wheel


def test_nothing_looks_for_versions_unless_a_person_wants_it(tmp_path):
    assert load_settings(tmp_path, {}).update.check is False


async def test_a_newer_version_is_named_at_the_start_after_a_look(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    build_wheel(wheels, "99.0")
    async with open_agent(config={"update": {"check": True, "source": str(wheels)}}) as agent:
        await available.look(agent.app)
        assert "alipes 99.0 is available: `alipes update`." in await agent.app.notes()


async def test_without_the_setting_the_start_says_nothing_of_versions():
    async with open_agent() as agent:
        assert isinstance(agent.app.features.get(UpdateFeature), UpdateFeature)
        assert not [note for note in await agent.app.notes() if "version" in note or "available" in note]
