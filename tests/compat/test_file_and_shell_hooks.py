"""File hooks and shell hooks of the original: put into the home, reported of what happens, from every surface."""

import json
import shutil
from pathlib import Path

import pytest

from alipes.kernel.errors import OutOfCredit
from alipes.kernel.turns import Notice
from alipes.testing import call, open_agent, stall
from tests.compat.chat_harness import open_chat
from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(60)
SCRIBE = Path(__file__).parent / "hooks" / "scribe"


@pytest.fixture
def seen(home):
    """The file hook lies in the home; what it was sent so far."""
    shutil.copytree(SCRIBE, home / "hooks" / "scribe")

    def lines():
        file = home / "reported.txt"
        return file.read_text().splitlines() if file.exists() else []

    return lines


async def test_a_file_hook_is_notified_of_every_ending_with_its_status(home, seen):
    waits = [stall(), stall()]
    script = ["one", OutOfCredit("no"), (waits[0], "never"), (waits[1], "never")]
    async with open_agent(home=home, model=script) as agent:
        await agent.say("answered")
        await agent.say("failed")
        running = await agent.start("stopped")
        await waits[0].reached.wait()
        await agent.command("/stop")
        await running
        await agent.start("cut off")
        await waits[1].reached.wait()
    assert [line for line in seen() if line.startswith(("session", "agent:start", "agent:end", "command"))] == [
        *("session:start", "agent:start", "agent:end answered"),
        *("agent:start", "agent:end failed"),
        *("agent:start", "command:stop", "agent:end stopped"),
        *("agent:start", "agent:end suspended", "session:end shutdown"),
    ]
    assert seen().count("agent:step") == 4


async def test_a_file_hook_is_notified_of_a_new_conversation(home, seen):
    async with open_agent(home=home, model=["one", "two"]) as agent:
        await agent.say("first")
        await agent.command("/new")
        await agent.say("second")
    order = [line for line in seen() if line.startswith(("session", "command"))]
    ends = [*("session:start", "command:new", "session:end reset", "session:reset reset")]
    assert sorted(order) == sorted([*ends, "session:start", "session:end shutdown"])
    assert order.index("session:end reset") < order.index("session:reset reset")


async def test_a_file_hook_hears_the_gateway_start_and_commands_in_a_chat(home, seen):
    async with open_chat(home, ["one"]) as chat:
        assert seen() == ["gateway:startup"]
        await chat.say("hello")
        await chat.until("one")
        await chat.say("/status")
        await chat.until(lambda: "command:status" in seen())


async def test_a_file_hook_hears_commands_while_a_turn_runs_at_a_real_terminal(home, seen):
    async with ModelServer([Stall("Once upon"), Say("fine")]) as server:
        Home(home).use(server)
        async with TerminalProcess.of(Home(home)) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once upon")
            terminal.type("/usage" + ENTER)
            await terminal.until(lambda: "command:usage" in seen())
            assert "agent:end" not in " ".join(seen())
            terminal.type("/stop" + ENTER)
            await terminal.until(lambda: "agent:end stopped" in seen())
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
    assert seen()[-1] == "session:end shutdown"


async def test_a_file_hook_that_raises_disturbs_nobody(home, caplog):
    folder = home / "hooks" / "clumsy"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text('name: clumsy\nevents: ["agent:*"]\n')
    (folder / "handler.py").write_text("def handle(event_type, context):\n    raise RuntimeError(event_type)\n")
    async with open_agent(home=home, model=["one"]) as agent:
        assert (await agent.say("hello")).text == "one"
    assert "plugin clumsy failed" in caplog.text


GATE = """#!/bin/sh
cat > "$(dirname "$0")/asked.json"
echo '{"decision": "block", "reason": "not on a Sunday"}'
"""


@pytest.fixture
def gate(home):
    """A program that will have nothing done, and the settings that name it."""
    file = home / "gate.sh"
    file.write_text(GATE)
    file.chmod(0o755)
    return {"hooks": {"pre_tool_call": [{"command": str(file), "matcher": "terminal"}]}}


async def test_a_shell_hook_runs_once_a_person_allowed_it_and_again_when_its_file_changed(home, gate):
    script = [call("terminal", command="echo hi"), "oh"] * 4
    async with open_agent(home=home, model=script, config=gate, person="trusts") as agent:
        agent.address = agent.address.__class__("terminal", "desk")
        first = await agent.say("do it")
        assert first.result("terminal").outcome == "ok", "nobody allowed it yet"
        assert [each.text for each in first.of(Notice) if "/hooks allow N" in each.text]
        assert "not allowed  pre_tool_call for terminal" in (await agent.command("/hooks")).text
        assert "1  allowed" in (await agent.command("/hooks allow 1")).text
        result = (await agent.say("do it")).result("terminal")
        assert (result.outcome, result.text) == ("denied", "not on a Sunday")
        asked = json.loads((home / "asked.json").read_text())
        assert (asked["hook_event_name"], asked["tool_name"]) == ("pre_tool_call", "terminal")
        assert asked["tool_input"] == {"command": "echo hi"} and asked["session_id"]
        assert {"cwd", "extra"} <= set(asked) and asked["extra"]["tool_call_id"]
        (home / "gate.sh").write_text(GATE.replace("Sunday", "Monday"))
        assert (await agent.say("do it")).result("terminal").outcome == "ok", "it is another program now"
        await agent.command("/hooks allow all")
        assert (await agent.say("do it")).result("terminal").text == "not on a Monday"


async def test_nobody_in_a_chat_may_say_what_is_running_on_this_machine(home, gate):
    async with open_chat(home, ["one"], config=gate) as chat:
        await chat.say("/hooks allow 1")
        await chat.until("Use the terminal of this machine")


async def test_a_shell_hook_may_add_context_and_a_broken_gate_is_closed(home):
    for name, words in {"context.sh": """echo '{"context": "it rains"}'""", "broken.sh": "exit 7"}.items():
        (home / name).write_text(f"#!/bin/sh\ncat > /dev/null\n{words}\n")
        (home / name).chmod(0o755)
    hooks = {
        "pre_llm_call": [{"command": str(home / "context.sh")}],
        "pre_tool_call": [{"command": str(home / "broken.sh"), "timeout": 5}],
    }
    script = [call("terminal", command="echo hi"), "oh"]
    async with open_agent(home=home, model=script, config={"hooks": hooks}, person="trusts") as agent:
        agent.address = agent.address.__class__("terminal", "desk")
        await agent.command("/hooks allow all")
        reply = await agent.say("do it")
        assert agent.model.requests[0].messages[-1].text == "do it\n\nit rains"
        assert reply.result("terminal").outcome == "denied" and "failed" in reply.result("terminal").text


async def test_consent_at_a_real_terminal(home, gate):
    run = Calls((Call("terminal", {"command": "echo hi"}),))
    async with ModelServer([run, Say("Done."), run, Say("Not done.")]) as server:
        Home(home).use(server)
        with (home / "config.toml").open("a") as config:
            config.write(f"[[hooks.pre_tool_call]]\ncommand = {str(home / 'gate.sh')!r}\n")
        async with TerminalProcess.of(Home(home), size=(160, 40)) as terminal:
            terminal.type("do it" + ENTER)
            await terminal.until("Done.")
            words = " ".join(terminal.text.split())
            assert "for pre_tool_call is not run" in words and "/hooks allow N" in words, "they are reported how"
            terminal.type("/hooks allow 1" + ENTER)
            await terminal.until("1  allowed")
            terminal.type("do it" + ENTER)
            await terminal.until("Not done.")
    assert server.bodies[-1]["messages"][-1]["content"].startswith("not on a Sunday")
