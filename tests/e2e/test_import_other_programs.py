"""Conversations of every program, imported with `alipes import`, are continued with every API."""

import json

import pytest

from tests.e2e.program import Home
from tests.world.imports import copy_home
from tests.world.model_calls import WIRES
from tests.world.model_server import ModelServer, Say

pytestmark = pytest.mark.deadline(240)
SAMPLES = {
    "openclaw": ("openclaw", "openclaw_2026_5"),
    "nanobot": ("nanobot",),
    "claude-code": ("claude_code",),
    "codex": ("codex",),
    "pi": ("pi",),
}


@pytest.mark.parametrize("api", WIRES)
async def test_every_conversation_can_be_continued_with_every_api(tmp_path, api):
    home = Home(tmp_path / "home")
    async with ModelServer([Say(f"Answer {number}.") for number in range(40)]) as model:
        home.use(model)
        text = (home.path / "config.toml").read_text()
        text = text.replace('"openai-chat"', f'"{api}"').replace(model.url("openai-chat"), model.url(api))
        (home.path / "config.toml").write_text(text)
        for program, names in SAMPLES.items():
            for name in names:
                source = copy_home(name, tmp_path) / (".claude" if program == "claude-code" else "")
                done = await home.run("import", program, str(source), "--yes", "--only", "conversations")
                assert done.status == 0, done.out + done.err
        listed = json.loads((await home.run("sessions", "list", "--json")).out)
        assert len(listed) == 4 + 2 + 2 + 3 + 4 + 4
        for number, each in enumerate(listed):
            done = await home.run("ask", "--resume", each["id"], "Go on.")
            assert (done.status, done.out.strip()) == (0, f"Answer {number}."), done.err


async def test_the_plan_of_each_program_is_shown_and_writes_nothing(tmp_path):
    home = Home(tmp_path / "home")
    for program, names in SAMPLES.items():
        source = copy_home(names[0], tmp_path) / (".claude" if program == "claude-code" else "")
        done = await home.run("import", program, str(source), "--dry-run")
        assert (done.status, done.err) == (0, "")
        assert "conversations, new:" in done.out
    assert not home.path.exists()
