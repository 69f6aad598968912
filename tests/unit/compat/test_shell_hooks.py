"""Shell hooks as real programs: reported as JSON, obeyed where they decide, gone when they are not waited for."""

import asyncio
import json
import os
import stat
import time
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec import structs

from alipes.compat.hermes.shell_hooks import FILE, HookConsents, ShellHookRunner, decision, files_of, payload
from alipes.config.environment import process_environment
from alipes.config.settings import ShellHook
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Address, Inbound
from alipes.plugins import specs
from alipes.plugins.discovery import DiscoveredPlugin
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.specs import Verdict
from alipes.testing import call
from tests.unit.compat.agent_harness import open_harness
from tests.unit.compat.plugin_harness import CALL, TURN_HERE, PluginHarness
from tests.world.wait import until

DESK = Inbound("1", Address("terminal", "desk"), "ada", "/hooks")


def script(folder, body, name="hook.sh"):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{dedent(body)}")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def agreed(home, *commands, event="pre_tool_call"):
    consents = HookConsents(home / FILE)
    for command in commands:
        consents.allow(event, command)
    return ShellHookRunner(consents, process_environment())


def denied(why):
    return Verdict("deny", why)


@asynccontextmanager
async def hooked(home, **declared):
    """The hooks opened as the loader opens them, all of them allowed."""
    harness = PluginHarness(home)
    hooks = {event: tuple(each) for event, each in declared.items()}
    harness.door.bridge.settings = structs.replace(harness.settings, hooks=hooks)
    for event, each in hooks.items():
        for hook in each:
            HookConsents(home / FILE).allow(event, hook.command)
    async with harness.opened(DiscoveredPlugin("shell-hooks", "shell-hooks", None)):
        yield harness


async def rule(harness):
    return await harness.dispatcher.decide(specs.before_tool, denied, call=CALL, turn=TURN_HERE)


async def test_a_hook_reads_what_happens_and_blocks_it(tmp_path):
    command = script(
        tmp_path, f"""cat > {tmp_path}/reported; echo '{{"decision": "block", "reason": "not on Fridays"}}'"""
    )
    async with hooked(tmp_path, pre_tool_call=[ShellHook(command)]) as harness:
        assert await rule(harness) == Verdict("deny", "not on Fridays")
    seen = json.loads((tmp_path / "reported").read_text())
    assert seen["hook_event_name"] == "pre_tool_call"
    assert (seen["tool_name"], seen["tool_input"]) == ("terminal", {"command": "ls"})
    assert seen["session_id"] == "s1" and seen["cwd"] and seen["profile"] == "default"
    assert seen["extra"]["tool_call_id"] == "c1"


@pytest.mark.parametrize(
    ("body", "ruling"),
    [
        ("""echo '{"action": "block", "message": "no"}'""", Verdict("deny", "no")),
        ("""echo 'rm is not for you' >&2; exit 2""", Verdict("deny", "rm is not for you")),
        ("""echo '{"action": "approve", "message": "sure?"}'""", Verdict("ask", "sure?")),
        ("""echo '{}'""", None),
        ("exit 0", None),
        ("echo all is well", None),
    ],
)
async def test_what_a_hook_answers_is_what_becomes_of_the_call(tmp_path, body, ruling):
    async with hooked(tmp_path, pre_tool_call=[ShellHook(script(tmp_path, body))]) as harness:
        assert await rule(harness) == ruling


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo Traceback; exit 1", "it exited with 1"),
        ("kill -9 $$", "it exited with"),
        ("sleep 30", "timed out after 0.3 s"),
    ],
)
async def test_a_gate_that_breaks_is_closed_and_stays_so(tmp_path, body, why):
    hook = ShellHook(script(tmp_path, body), timeout=0.3)
    async with hooked(tmp_path, pre_tool_call=[hook]) as harness:
        for _ in range(4):  # more than three strikes: a gate is not taken away for being broken
            verdict = await rule(harness)
            assert verdict.ruling == "deny" and why in verdict.reason


async def test_a_program_that_is_not_there_closes_the_gate_with_a_sentence(tmp_path):
    async with hooked(tmp_path, pre_tool_call=[ShellHook("/nowhere/hook.sh")]) as harness:
        assert "/nowhere/hook.sh does not exist" in (await rule(harness)).reason


async def test_a_matcher_says_which_tools_it_is_for(tmp_path):
    command = script(tmp_path, "exit 2")
    for matcher, blocks in {"terminal": True, "read_.*|terminal": True, "termin": False, "*": True}.items():
        async with hooked(tmp_path, pre_tool_call=[ShellHook(command, matcher)]) as harness:
            assert (await rule(harness) is not None) is blocks, matcher


async def test_a_matcher_says_nothing_about_moments_without_a_tool(tmp_path):
    command = script(tmp_path, """echo '{"context": "it is Friday"}'""")
    async with hooked(tmp_path, pre_llm_call=[ShellHook(command, "terminal")]) as harness:
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "it is Friday"


async def test_context_is_added_for_the_model_and_observers_decide_nothing(tmp_path):
    status = script(tmp_path, """echo '{"context": "it is Friday"}'""", "status.sh")
    log = script(tmp_path, f'cat >> {tmp_path}/log; echo \'{{"decision": "block"}}\'', "log.sh")
    hooks = {"pre_llm_call": [ShellHook(status)], "post_tool_call": [ShellHook(log)]}
    async with hooked(tmp_path, **hooks) as harness:
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "it is Friday"
        result = ToolResult("c1", "a b")
        known = {"call": CALL, "result": result, "turn": TURN_HERE, "seconds": 0.25, "error": None}
        await harness.dispatcher.notify(specs.after_tool, **known)
    seen = json.loads((tmp_path / "log").read_text())
    assert seen["extra"]["status"] == "ok" and seen["extra"]["duration_ms"] == 250


async def test_on_a_real_turn_a_hook_keeps_a_command_from_running(tmp_path):
    command = script(tmp_path, """echo '{"decision": "block", "reason": "not here"}'""")
    async with open_harness(tmp_path, [call("terminal", command="touch made"), "so be it"]) as agent:
        bridge = agent.harness.door.bridge
        hooks = {"pre_tool_call": (ShellHook(command, "terminal"),)}
        bridge.settings = structs.replace(bridge.settings, hooks=hooks)
        HookConsents(bridge.settings.home / FILE).allow("pre_tool_call", command)
        async with agent.harness.opened(DiscoveredPlugin("shell-hooks", "shell-hooks", None)):
            answer, end = await agent.say("make it")
    assert (answer, end.ending) == ("so be it", "answered")
    assert "not here" in str(agent.model.requests[-1].messages[-1])


async def test_declared_in_the_file_and_allowed_in_the_terminal_a_hook_works_on_the_whole_app(tmp_path):
    command = script(tmp_path, """echo '{"decision": "block", "reason": "not here"}'""")
    lines = [call("terminal", command="true"), "one", call("terminal", command="true"), "two"]
    hooks = {"pre_tool_call": [{"command": command, "matcher": "terminal", "timeout": 5}]}
    async with open_harness(tmp_path, lines, config={"hooks": hooks}) as agent:
        await agent.say("before")
        assert "not here" not in str(agent.model.requests[-1].messages[-1])
        assert (await agent.command("/hooks")).text == f"1  not allowed  pre_tool_call for terminal: {command}"
        assert (await agent.command("/hooks allow 1")).text.startswith("1  allowed")
        await agent.say("after")
        assert "not here" in str(agent.model.requests[-1].messages[-1])


# --- consent


async def test_without_consent_nothing_runs_and_that_is_said_once(tmp_path, caplog):
    command = script(tmp_path, f"touch {tmp_path}/ran")
    runner = ShellHookRunner(HookConsents(tmp_path / FILE), process_environment())
    callback = runner.callback("pre_tool_call", ShellHook(command))
    assert await callback(tool_name="terminal") is None
    assert await callback(tool_name="terminal") is None
    assert not (tmp_path / "ran").exists()
    assert caplog.text.count("is not run: it is not allowed in its current state") == 1


async def test_consent_counts_for_the_event_the_command_and_the_file_as_it_was(tmp_path):
    command = script(tmp_path, "exit 2")
    around = agreed(tmp_path, command)
    assert await around.callback("pre_tool_call", ShellHook(command))() is not None
    assert await around.callback("pre_verify", ShellHook(command))() is None
    assert await around.callback("pre_tool_call", ShellHook(f"{command} --more"))() is None
    later = time.time() + 10
    os.utime(command, (later, later))
    assert await around.callback("pre_tool_call", ShellHook(command))() is None


def test_the_file_that_counts_is_the_one_the_command_names(tmp_path):
    command = script(tmp_path, "", "my hook.sh")
    assert list(files_of(f"'{command}' --fast")) == [command]
    assert list(files_of(f"python3 '{command}'")) == [command]  # and not python itself
    assert files_of("jq -c .") == {}


def test_a_consent_is_kept_for_the_next_start_and_can_be_withdrawn(tmp_path):
    HookConsents(tmp_path / FILE).allow("pre_tool_call", "jq .")
    HookConsents(tmp_path / FILE).allow("pre_tool_call", "jq .")
    again = HookConsents(tmp_path / FILE)
    assert again.is_allowed("pre_tool_call", "jq .")
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    assert again.revoke("jq .") == 1 and not again.is_allowed("pre_tool_call", "jq .")
    assert again.revoke("jq .") == 0


async def test_a_file_of_consents_that_was_broken_is_no_consent(tmp_path):
    (tmp_path / FILE).write_text('{"approvals": 7}')
    with pytest.raises(ConfigError, match="allow your shell hooks again"):
        HookConsents(tmp_path / FILE).is_allowed("pre_tool_call", "x")
    around = ShellHookRunner(HookConsents(tmp_path / FILE), process_environment())
    ruling = await around.callback("pre_tool_call", ShellHook("true"))(tool_name="terminal")
    assert ruling["action"] == "block" and "allow your shell hooks again" in ruling["message"]
    assert await around.callback("post_tool_call", ShellHook("true"))(tool_name="terminal") is None


async def test_the_command_shows_the_hooks_and_takes_the_word_of_who_sits_here(tmp_path):
    first, second = script(tmp_path, "", "one.sh"), script(tmp_path, "", "two.sh")
    harness = PluginHarness(tmp_path)
    hooks = {"pre_tool_call": (ShellHook(first, "terminal"), ShellHook(second))}
    harness.door.bridge.settings = structs.replace(harness.settings, hooks=hooks)
    async with harness.opened(DiscoveredPlugin("shell-hooks", "shell-hooks", None)):
        (offer,) = [each for each in harness.contributions.by_owner(harness.owner) if each.name == "hooks"]
        listed = await offer.act("", DESK)
        assert listed.splitlines() == [
            f"1  not allowed  pre_tool_call for terminal: {first}",
            f"2  not allowed  pre_tool_call: {second}",
        ]
        far = structs.replace(DESK, address=Address("telegram", "9"))
        assert "Use the terminal of this machine" in await offer.act("allow 1", far)
        assert "Usage: /hooks allow N" in await offer.act("allow 7", DESK)
        assert "1  allowed" in await offer.act("allow 1", DESK)
        assert "2  allowed" in await offer.act("allow all", DESK)
        assert "1  not allowed" in await offer.act("revoke 1", DESK)
        assert HookConsents(tmp_path / FILE).is_allowed("pre_tool_call", second)


# --- processes


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_hook_that_is_not_waited_for_any_longer_dies_with_all_it_started(tmp_path):
    pids = tmp_path / "pids"
    command = script(
        tmp_path,
        f"trap '' TERM\nsetsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 60' &\necho $$ >> {pids}\nsleep 60",
    )
    callback = agreed(tmp_path, command).callback("pre_tool_call", ShellHook(command))
    waiting = asyncio.create_task(callback(tool_name="terminal"))
    await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not any(alive(pid) for pid in pids.read_text().split())


async def test_a_hook_that_reads_nothing_and_one_that_says_much_are_no_trouble(tmp_path):
    deaf = script(tmp_path, """exec 0<&-; echo '{"action": "block", "message": "deaf"}'""", "deaf.sh")
    loud = script(tmp_path, "cat > /dev/null; head -c 3000000 /dev/zero", "loud.sh")
    around = agreed(tmp_path, deaf, loud)
    much = {"tool_name": "terminal", "args": {"text": "x" * 500_000}}
    assert (await around.callback("pre_tool_call", ShellHook(deaf))(**much))["message"] == "deaf"
    assert await around.callback("pre_tool_call", ShellHook(loud))(**much) is None


async def test_a_hook_runs_in_the_folder_of_the_turn_with_the_home_in_its_environment(tmp_path):
    (work := tmp_path / "work").mkdir()
    command = script(tmp_path, f'pwd > {tmp_path}/where; echo "$HERMES_HOME $ALIPES_HOME" >> {tmp_path}/where')
    token = TURN.set(structs.replace(TURN_HERE, inbound=structs.replace(TURN_HERE.inbound, workdir=str(work))))
    try:
        async with hooked(tmp_path, pre_tool_call=[ShellHook(command)]) as harness:
            await rule(harness)
    finally:
        TURN.reset(token)
    assert (tmp_path / "where").read_text().split() == [str(work), str(tmp_path), str(tmp_path)]


def test_what_json_has_no_word_for_is_reported_as_text():
    seen = json.loads(payload("on_session_end", {"path": Path("/x"), "completed": True}))
    assert seen["extra"] == {"path": "/x", "completed": True}
    assert seen["tool_name"] is None and seen["tool_input"] is None


def test_answers_mean_something_only_where_the_contract_says_so():
    assert decision("post_tool_call", {"decision": "block", "reason": "x"}) is None
    assert decision("pre_tool_call", {"context": "x"}) is None
    assert decision("pre_verify", {"decision": "block", "reason": "run the tests"}) == {
        "action": "continue",
        "message": "run the tests",
    }
    assert decision("pre_llm_call", {"context": ["a"]}) == {"context": '["a"]'}


async def test_a_hook_nobody_knows_is_named_with_what_was_meant(tmp_path, caplog):
    async with hooked(tmp_path, pre_tool_cal=[ShellHook("true")]):
        pass
    assert "[[hooks.pre_tool_cal]]: unknown hook. Did you mean pre_tool_call" in caplog.text
