"""What the page, doctor and the command list of agents: their programs, and how many run."""

import json

from alipes.features.agents import doctor
from alipes.features.agents.endpoints import AgentEndpoints
from alipes.features.agents.feature import AgentsFeature
from alipes.features.agents.launch import find_command, prepare_launch
from alipes.features.agents.settings import AgentConfig
from tests.world.agent_harness import open_with_agent


async def test_the_page_lists_agents_with_those_that_run(tmp_path):
    async with open_with_agent(tmp_path, script=["hi"]) as agent:
        endpoints = AgentEndpoints(agent.app.features.get(AgentsFeature))

        async def listed():
            return json.loads((await endpoints.list(None)).body)

        (mine,) = (await listed())["agents"]
        assert (mine["model"], mine["installed"], mine.get("running", 0)) == ("agent/test", True, 0)
        await agent.say("say one")
        found = await listed()
        assert found["agents"][0]["running"] == 1
        assert {"claude", "codex", "gemini", "opencode", "qwen"} <= {each["name"] for each in found["known"]}


async def test_doctor_names_the_program_that_is_missing(tmp_path):
    async with open_with_agent(tmp_path) as agent:
        (found,) = await doctor.check(agent.app.settings, None)
        assert found.state == "ok"
        (tmp_path / "installed" / "agent").unlink()
        (found,) = await doctor.check(agent.app.settings, None)
        assert found.state == "wrong" and "was not found" in found.says


def test_the_command_of_a_preset_has_its_arguments_and_another_one_has_not():
    assert find_command("gemini").args == find_command("gemini", AgentConfig(command="gemini")).args == ("--acp",)
    assert find_command("gemini", AgentConfig(command="/opt/my-gemini")).args == ()
    assert find_command("gemini", AgentConfig(args=("--x",))).line == "gemini --x"
    assert find_command("nobody").program == ""


def test_a_launch_has_the_hosts_of_its_addresses_and_no_variables_of_other_agents(tmp_path):
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {"ANTHROPIC_BASE_URL": "https://models.example.org:8443/v1", "NOTE": "no address", "BAD": "http://[x"}
    config = AgentConfig(command=str(program), env=env)
    launch = prepare_launch("claude", config, folder=tmp_path / "agents", environ={"CLAUDECODE": "1", "LANG": "C"})
    assert launch.hosts[-1] == "models.example.org:8443" and "api.anthropic.com" in launch.hosts
    assert "CLAUDECODE" not in launch.env and launch.env["CLAUDE_CONFIG_DIR"] == launch.home
    assert f"{launch.home}/settings.json" in launch.protect


def test_opencode_cannot_write_its_settings_and_finds_what_it_would_write(tmp_path):
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    launch = prepare_launch("opencode", AgentConfig(command=str(program)), folder=tmp_path / "agents", environ={})
    assert f"{launch.home}/config/opencode" in launch.protect
    assert (tmp_path / "agents/opencode/home/config/opencode/.gitignore").exists()


async def test_long_explanations_of_commands_are_cut(tmp_path):
    async with open_with_agent(tmp_path, "wordy") as agent:
        await agent.say("say one")
        shown = (await agent.command("/agents test")).text
    line = next(each for each in shown.splitlines() if "/test:hello" in each)
    assert len(line) < 150 and "…" in line
