"""`alipes agents`: add, list, test, log in to and remove other agents, and `alipes ask` with one."""

import json

import pytest

from tests.e2e.program import Home
from tests.world.agent_harness import write_agent


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_an_agent_is_added_tried_used_and_removed(home, tmp_path):
    program, folder = str(write_agent(tmp_path)), home.path / "agents" / "mine" / "home"
    own = f"ACP_TEST_HOME={folder}"
    added = await home.run("agents", "add", "mine", "--env", own, "--mode", "plan", "--", program, "noise")
    assert added.status == 0 and "alipes agents login mine" in added.out
    tried = await home.run("agents", "test", "mine")
    assert (tried.status, tried.err) == (0, "")
    assert "continues old sessions: yes" in tried.out and "mode: ask (of ask, plan, yolo)" in tried.out
    report = json.loads((await home.run("agents", "test", "mine", "--json")).out)
    assert report["name"] == "mine" and report["images"] is True and report["commands"] == ["hello"]
    listed = json.loads((await home.run("agents", "--json")).out)
    mine, claude = (next(each for each in listed if each["name"] == name) for name in ("mine", "claude"))
    assert (mine["state"], mine["command"]) == ("ready", f"{program} noise")
    assert (claude["state"], claude["install"]) == (
        "can be added",
        "npm install -g @agentclientprotocol/claude-agent-acp",
    )
    asked = await home.run("ask", "--model", "agent/mine", "--yes", "say Hello.")
    assert (asked.status, asked.out.strip()) == (0, "Hello.")
    removed = await home.run("agents", "remove", "mine", "--yes")
    assert removed.status == 0 and not folder.exists()
    assert "mine" not in (home.path / "config.toml").read_text()


async def test_a_preset_keeps_its_arguments_and_takes_keys_from_the_environment(home):
    added = await home.run("agents", "add", "gemini", "--env", "GEMINI_API_KEY", GEMINI_API_KEY="of-a-person-123456")
    assert added.status == 0 and "Install it: npm install -g @google/gemini-cli" in added.out
    config = (home.path / "config.toml").read_text()
    assert 'GEMINI_API_KEY = "${GEMINI_API_KEY}"' in config and "123456" not in config
    (home.path / "config.toml").write_text("")
    await home.run("agents", "add", "qwen")
    listed = json.loads((await home.run("agents", "list", "--json")).out)
    assert next(each for each in listed if each["name"] == "qwen")["command"] == "qwen --acp"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "mine"), "give its command after --"),
        (("add", "mine", "--env", "KEY=sk-1234567890abcdef", "--", "x"), "contains a secret"),
        (("test", "mine"), "There is no agent mine."),
        (("remove", "clade"), "There is no agent clade."),
        (("login",), "takes one NAME"),
        (("fly", "x"), "unknown action: fly"),
    ],
)
async def test_mistakes_are_explained(words, said, home):
    done = await home.run("agents", *words)
    assert done.status == 2 and said in done.err, (done.out, done.err)


async def test_one_that_does_not_work_says_why(home, tmp_path):
    program = str(write_agent(tmp_path))
    await home.run("agents", "add", "mine", "--", program, "dies")
    tried = await home.run("agents", "test", "mine")
    assert tried.status == 1 and tried.err == "mine: it exited with code 3: cannot find my settings\n"
    logged_in = await home.run("agents", "login", "mine")
    assert logged_in.status == 2 and "A login needs a terminal." in logged_in.err
    checked = await home.run("doctor")
    assert f"mine: {program}" in checked.out


async def test_a_start_without_agents_imports_nothing_of_them(home):
    done = await home.run("ask", "--model", "test/scripted", "hi", PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip() for line in done.err.splitlines() if line.startswith("import time:")}
    assert "alipes.features.agents.feature" in loaded and "acp" not in loaded and "pydantic" not in loaded
    ours = {each for each in loaded if each.startswith("alipes.features.agents.")}
    assert ours == {"alipes.features.agents.feature", "alipes.features.agents.settings"}
