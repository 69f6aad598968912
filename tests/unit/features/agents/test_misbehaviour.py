"""An agent that misbehaves in every way: a sentence for the person, and no hang, traceback or escape."""

import logging
import shutil
import socket
from pathlib import Path

import pytest

from alipes.tools import backends
from tests.world.agent_harness import agents_of, open_with_agent, program_of
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
