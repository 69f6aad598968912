"""An agent that misbehaves in every way: a sentence for the person, and no hang, traceback or escape."""

import json
import logging
import os
import shutil
import signal
import socket
from pathlib import Path

import msgspec
import pytest

from alipes.features.agents import program as programs
from alipes.features.agents import prompt as prompts
from alipes.kernel.turns import ApprovalAsked
from alipes.testing import open_agent
from alipes.tools import backends
from tests.world.agent_harness import agent_config, agents_of, notices, open_with_agent, program_of
from tests.world.environment import require
from tests.world.remote_tools import wait_until

KEY = "sk-of-a-person-1234567890"


@pytest.fixture(autouse=True)
def no_tracebacks(caplog):
    yield
    bad = [each for each in caplog.records if each.exc_info or each.levelno >= logging.ERROR]
    assert not bad, [each.getMessage() for each in bad]


@pytest.fixture
def sandbox(monkeypatch):
    require("bwrap")
    monkeypatch.setattr(backends, "SANDBOXES", ("bubblewrap",))
    return "sandbox"


@pytest.fixture(params=["host", "sandbox"])
def backend(request):
    return request.param if request.param == "host" else request.getfixturevalue("sandbox")


async def test_one_that_is_not_installed_names_how_to_install_it(tmp_path):
    async with open_with_agent(tmp_path, name="claude") as agent:
        shutil.rmtree(tmp_path / "installed")
        reply = await agent.say("say one")
    assert reply.ending == "failed"
    assert reply.detail.endswith("was not found. Install it: npm install -g @agentclientprotocol/claude-agent-acp")


async def test_lines_that_are_no_messages_are_skipped(tmp_path, backend):
    async with open_with_agent(tmp_path, "noise", backend=backend) as agent:
        assert (await agent.say("say one")).text == "one"


async def test_one_that_only_prints_text_is_given_up(tmp_path, backend):
    async with open_with_agent(tmp_path, "babble", backend=backend) as agent:
        reply = await agent.say("say one")
        assert reply.ending == "failed" and "is not the Agent Client Protocol" in reply.detail
        assert program_of(agent) is None


async def test_another_version_of_the_protocol_is_refused(tmp_path, backend):
    async with open_with_agent(tmp_path, "version=2", backend=backend) as agent:
        reply = await agent.say("say one")
    assert reply.ending == "failed" and "speaks version 2 of the protocol; alipes speaks 1" in reply.detail


async def test_one_that_is_not_logged_in_says_how(tmp_path, backend):
    async with open_with_agent(tmp_path, "auth", backend=backend) as agent:
        reply = await agent.say("say one")
    assert reply.ending == "failed" and "run `alipes agents login test` in a terminal" in reply.detail


async def test_one_that_dies_at_once_says_what_it_printed(tmp_path, backend):
    async with open_with_agent(tmp_path, "dies", backend=backend) as agent:
        reply = await agent.say("say one")
    assert reply.ending == "failed" and "exited with code 3: cannot find my settings" in reply.detail


async def test_death_in_the_middle_of_an_edit_is_reported_and_the_edit_unknown(tmp_path, backend):
    async with open_with_agent(tmp_path, backend=backend) as agent:
        reply = await agent.say("die")
        assert reply.ending == "failed" and "ended in the middle of its work: it exited with code 7" in reply.detail
        assert "whether this took effect is not known" in reply.result("agent_tool").text
        assert (agent.workdir / "half.txt").read_text() == "half"
        assert (await agent.say("say alive")).text == "alive"


async def test_one_that_died_once_continues(tmp_path, backend):
    async with open_with_agent(tmp_path, backend=backend) as agent:
        reply = await agent.say("die-once\nsay done")
    assert (reply.ending, reply.text) == ("answered", "done")


async def test_a_flood_is_cut_off(tmp_path, backend):
    async with open_with_agent(tmp_path, backend=backend) as agent:
        reply = await agent.say("flood 2000")
        assert reply.ending == "failed" and "far too much in one turn" in reply.detail
        assert (await agent.say("say calm")).text == "calm"


async def test_unknown_requests_and_updates_are_refused_or_ignored(tmp_path, backend):
    async with open_with_agent(tmp_path, backend=backend) as agent:
        reply = await agent.say("unknown\nsay ok")
    assert (reply.ending, reply.text) == ("answered", "[Method not found]ok")


async def test_two_messages_at_once_are_never_two_prompts_at_once(tmp_path):
    async with open_with_agent(tmp_path) as agent:
        first = await agent.start("child 0.3\nsay first")
        await agent.start("say second")
        reply = await first.reply()
        await agent.wait_until_idle()
        assert reply.ending == "answered" and "two prompts at once" not in str(reply.events)
        assert (await agent.say("say third")).text == "third" and len(agents_of(agent)._open) == 1


async def test_a_path_outside_of_the_project_is_not_there(tmp_path, sandbox):
    async with open_with_agent(tmp_path, backend=sandbox, person="no") as agent:
        (tmp_path / "home" / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        (tmp_path / "outside.txt").write_text("of somebody else")
        reply = await agent.say(f"open {tmp_path}/home/.env\nopen {tmp_path}/outside.txt\nopen /etc/shadow")
        assert reply.text == "[FileNotFoundError][FileNotFoundError][]" and KEY not in str(reply.events)
        reply = await agent.say(f"read {tmp_path}/home/.env\nwrite {tmp_path}/outside.txt mine\nread ../../x\0y")
        assert KEY not in str(reply.events) and (tmp_path / "outside.txt").read_text() == "of somebody else"


async def test_it_sees_no_key_of_ours(tmp_path, sandbox, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDECODE", "CODEX_HOME"):
        monkeypatch.setenv(name, KEY)
    async with open_with_agent(tmp_path, backend=sandbox) as agent:
        reply = await agent.say("environment")
    assert "XDG_CONFIG_HOME" in reply.text
    assert not [each for each in reply.text.split() if each.startswith(("OPENAI", "ANTHROPIC", "CLAUDE", "CODEX"))]


@pytest.mark.parametrize("path", ["settings.json", "hooks/evil.sh", "plugins/evil.json", "CLAUDE.md"])
async def test_it_cannot_plant_settings_or_hooks(path, tmp_path, sandbox):
    async with open_with_agent(tmp_path, backend=sandbox, name="claude") as agent:
        reply = await agent.say(f"plant {path} evil\nplant notes.txt fine")
        home = tmp_path / "home" / "agents" / "claude" / "home"
        assert reply.text == "[OSError][planted]" and (home / "notes.txt").read_text() == "fine"
        assert not (home / path).exists() or "evil" not in (home / path).read_text()


async def test_it_connects_to_no_other_machine_and_to_nothing_on_this_one(tmp_path, sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with open_with_agent(tmp_path, backend=sandbox, person="no") as agent:
            reply = await agent.say(f"connect 127.0.0.1:{server.getsockname()[1]}\nconnect 192.0.2.1:443")
    assert "connected" not in reply.text and reply.text.count("]") == 2


async def test_nothing_of_it_is_left_when_it_is_given_up(tmp_path, sandbox):
    async with open_with_agent(tmp_path, backend=sandbox) as agent:
        await agent.start("child 3611")
        await wait_until(lambda: _running("sleep\0003611\0"))
    await wait_until(lambda: not _running("sleep\0003611\0"))
    assert not _running(str(tmp_path / "installed" / "agent"))


def _running(text: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


async def test_its_folder_is_there_and_writable_where_the_home_of_alipes_is_hidden(tmp_path, sandbox, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # as if started in the home directory, which contains that of alipes
    async with open_with_agent(tmp_path, backend=sandbox, name="gemini") as agent:
        (tmp_path / "home" / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        orders = ["plant .gemini/notes.txt fine", "plant .gemini/settings.json evil", f"open {tmp_path}/home/.env"]
        reply = await agent.say("\n".join(orders), workdir=str(tmp_path))
    assert reply.text == "[planted][OSError][FileNotFoundError]"


# More of it


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "boom"},
        {"error": {"code": "x", "message": 7, "data": ["y"]}},
        {"error": {"code": -32603, "message": "Internal error", "data": {"details": "the model is busy"}}},
        {"error": None},
        {"result": "done"},
        {"result": {"stopReason": "banana"}},
        {
            "result": {
                "stopReason": "end_turn",
                "usage": {"inputTokens": -5, "outputTokens": 10**30, "totalTokens": "x"},
            }
        },
        {"result": None},
        {},
    ],
    ids=str,
)
async def test_an_answer_that_is_none_ends_the_turn(answer, tmp_path):
    async with open_with_agent(tmp_path) as agent:
        reply = await agent.say(f"end {json.dumps(answer)}")
        assert reply.ending in ("failed", "answered") and (reply.detail or reply.text)
        await agent.command("/new")
        assert (await agent.say("say calm")).text == "calm"


async def test_answers_to_nobody_are_dropped(tmp_path):
    async with open_with_agent(tmp_path) as agent:
        assert (await agent.say("answers\nsay ok")).text == "ok"


async def test_odd_values_are_shown_and_stored(tmp_path):
    async with open_with_agent(tmp_path) as agent:
        reply = await agent.say("odd\nsay  after")
        assert reply.ending == "answered" and reply.text.endswith("odd after")
        stored = await agent.app.store.archive.turn(reply.end.turn)
        assert len(msgspec.json.encode([call.args for said in stored.said for call in said.calls])) < 200_000


async def test_a_flood_of_changes_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "MAX_CHANGE_CHARS", 20_000_000)
    async with open_with_agent(tmp_path) as agent:
        reply = await agent.say("flood-files 50")
        assert reply.ending == "failed" and "far too much in one turn" in reply.detail
        assert (await agent.say("say calm")).text == "calm"


async def test_a_flood_of_requests_is_refused(tmp_path):
    async with open_with_agent(tmp_path) as agent:
        await agent.start("flood-requests 2000")
        await wait_until(lambda: program_of(agent) is not None and program_of(agent).prompt is not None)
        stopped = await agent.stop()
        assert stopped.ending == "stopped"
        assert (await agent.say("say calm")).text == "calm"


async def test_one_that_closes_its_output_is_given_up(tmp_path, backend):
    async with open_with_agent(tmp_path, backend=backend) as agent:
        reply = await agent.say("mute")
        assert reply.ending == "failed" and "it closed the connection" in reply.detail
        assert program_of(agent).ended
        assert (await agent.say("say alive")).text == "alive"


async def test_one_that_never_answers_can_be_stopped_and_is_given_up(tmp_path, monkeypatch):
    async with open_with_agent(tmp_path, "silent") as agent:
        await agent.start("say one")
        await wait_until(lambda: _running(str(tmp_path / "installed" / "agent")))
        assert (await agent.stop()).ending == "stopped"
        await wait_until(lambda: not _running(str(tmp_path / "installed" / "agent")))
        monkeypatch.setattr(programs, "START_TIMEOUT_S", 0.2)
        reply = await agent.say("say one")
    assert reply.ending == "failed" and "did not answer within 0.2 s" in reply.detail


async def test_one_that_does_not_read_is_ended_by_a_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "STOP_GRACE_S", 0.05)
    async with open_with_agent(tmp_path) as agent:
        await agent.say("say one")
        program = program_of(agent)
        os.kill(program._child.pid, signal.SIGSTOP)
        await agent.start("say " + "long " * 100_000)
        await wait_until(lambda: program.prompt is not None)
        assert (await agent.stop()).ending == "stopped"
        reply = await agent.say("say alive")
        assert (reply.text, reply.detail) == ("alive", "") and program_of(agent) is not program


async def test_a_login_that_does_not_help_is_not_repeated(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / ".env").write_text(f"OWN_KEY={KEY}\n")
    (tmp_path / "home" / ".env").chmod(0o600)
    config = agent_config(tmp_path, "auth-load", name="codex")
    config["agents"]["codex"]["env"]["CODEX_API_KEY"] = "${OWN_KEY}"
    for _ in range(2):  # the second time it has a session to load
        async with open_agent(config=config, home=tmp_path / "home") as agent:
            reply = await agent.say("say one")
            assert reply.text == "one"
    assert "cannot open its old session" in notices(reply)[0]
    config["agents"]["codex"]["args"] = ["auth"]
    async with open_agent(config=config, home=tmp_path / "home") as agent:
        reply = await agent.say("say one")
    assert reply.ending == "failed" and "run `alipes agents login codex` in a terminal" in reply.detail


@pytest.mark.parametrize("mode", ["ask", "edits", "all"])
async def test_it_cannot_have_us_plant_settings_or_read_secrets(mode, tmp_path, sandbox):
    async with open_with_agent(
        tmp_path, backend=sandbox, name="claude", person="no", approvals={"mode": mode}
    ) as agent:
        home = tmp_path / "home" / "agents" / "claude" / "home"
        (tmp_path / "home" / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        orders = [f"write {home}/settings.json evil", f"write {home}/hooks/evil.sh evil", f"read {tmp_path}/home/.env"]
        orders += [f"run cp /etc/hostname {home}/hooks/x; cat {tmp_path}/home/.env", f"write {tmp_path}/home/.env x"]
        reply = await agent.say("\n".join(orders))
        assert KEY not in str(reply.events) and (home / "settings.json").read_text() == "{}"
        assert not list((home / "hooks").iterdir()) and KEY in (tmp_path / "home" / ".env").read_text()


async def test_a_link_out_of_the_project_is_followed_by_nobody(tmp_path, sandbox):
    async with open_with_agent(tmp_path, backend=sandbox, person="no", approvals={"mode": "edits"}) as agent:
        outside = tmp_path / "outside.txt"
        outside.write_text("of somebody else")
        (agent.workdir / "link").symlink_to(tmp_path)
        reply = await agent.say("edit link/outside.txt mine\nread link/../../../../etc/shadow")
        assert reply.ending == "answered" and outside.read_text() == "of somebody else"
        assert "outside.txt" in str(reply.of(ApprovalAsked)[0]) and "root:" not in str(reply.events)
