"""Changes that are no rows are announced, so that other pages fetch them again."""

import pytest

from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.versions import SkillChange, SkillFile
from tests.world.admin_harness import open_admin
from tests.world.plugin_sources import native

SKILL = b"---\nname: tea\ndescription: How to make tea.\n---\n\nBoil.\n"


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PATCH", "/settings", {"changes": {"serve.port": 9001}}, ("settings", "")),
        ("PATCH", "/settings/secrets", {"name": "MY_KEY", "value": "v" * 20}, ("settings", "")),
        ("POST", "/plugins/ways/enable", None, ("plugin", "ways")),
        ("PATCH", "/skills/tea", {"enabled": False}, ("skill", "tea")),
    ],
)
async def test_a_change_is_announced(tmp_path, method, path, body, expected):
    native(tmp_path / "home" / "plugins" / "ways")
    async with open_admin(tmp_path / "home") as api, api.app.store.changes.watch() as changes:
        api.app.features.get(SkillsFeature).skills.store.write(
            "tea", {"SKILL.md": SkillFile(SKILL)}, SkillChange("person")
        )
        await api.call(method, path, body)
        async for envelope in changes:
            if (envelope.event.kind, envelope.event.id) == expected:
                break
