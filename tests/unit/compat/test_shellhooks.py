"""Shell hooks as real programs: told as JSON, obeyed where they decide, gone when they are not waited for."""

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

from alipes.compat.hermes.shell_hooks import (
    FILE,
    Consents,
    Surroundings,
    callback_of,
    decision,
    files_of,
    payload,
)
from alipes.config.environment import inherited
from alipes.config.settings_parts import ShellHook
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Address, Inbound
from alipes.plugins import specs
from alipes.plugins.attribution import TURN
from alipes.plugins.discovery import Found
from alipes.plugins.specs import Verdict
from alipes.testing import call
from tests.unit.compat.flat import open_flat
from tests.unit.compat.stage import CALL, TURN_HERE, Stage
from tests.world.polling import until

DESK = Inbound("1", Address("terminal", "desk"), "ada", "/hooks")


def script(folder, body, name="hook.sh"):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{dedent(body)}")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def agreed(home, *commands, event="pre_tool_call"):
    consents = Consents(home / FILE)
    for command in commands:
        consents.give(event, command)
    return Surroundings(consents, inherited())


def denied(why):
    return Verdict("deny", why)


@asynccontextmanager
async def hooked(home, **declared):
    """The hooks opened as the loader opens them, all of them allowed."""
    stage = Stage(home)
    hooks = {event: tuple(each) for event, each in declared.items()}
    stage.door.bridge.settings = structs.replace(stage.settings, hooks=hooks)
    for event, each in hooks.items():
        for hook in each:
            Consents(home / FILE).give(event, hook.command)
    async with stage.opened(Found("shell-hooks", "shell-hooks", None)):
        yield stage


async def rule(stage):
    return await stage.relay.decide(specs.before_tool, denied, call=CALL, turn=TURN_HERE)


async def test_a_hook_reads_what_happens_and_blocks_it(tmp_path):
    command = script(
        tmp_path, f"""cat > {tmp_path}/told; echo '{{"decision": "block", "reason": "not on Fridays"}}'"""
    )
    async with hooked(tmp_path, pre_tool_call=[ShellHook(command)]) as stage:
        assert await rule(stage) == Verdict("deny", "not on Fridays")
    told = json.loads((tmp_path / "told").read_text())
    assert told["hook_event_name"] == "pre_tool_call"
    assert (told["tool_name"], told["tool_input"]) == ("terminal", {"command": "ls"})
    assert told["session_id"] == "s1" and told["cwd"] and told["profile"] == "default"
    assert told["extra"]["tool_call_id"] == "c1"


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
    async with hooked(tmp_path, pre_tool_call=[ShellHook(script(tmp_path, body))]) as stage:
        assert await rule(stage) == ruling


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo Traceback; exit 1", "it ended with 1"),
        ("kill -9 $$", "it ended with"),
        ("sleep 30", "longer than 0.3 s"),
    ],
)
async def test_a_gate_that_breaks_is_closed_and_stays_so(tmp_path, body, why):
    hook = ShellHook(script(tmp_path, body), timeout=0.3)
    async with hooked(tmp_path, pre_tool_call=[hook]) as stage:
        for _ in range(4):  # more than three strikes: a gate is not taken away for being broken
            verdict = await rule(stage)
            assert verdict.ruling == "deny" and why in verdict.reason


async def test_a_program_that_is_not_there_closes_the_gate_with_a_sentence(tmp_path):
    async with hooked(tmp_path, pre_tool_call=[ShellHook("/nowhere/hook.sh")]) as stage:
        assert "/nowhere/hook.sh is not there" in (await rule(stage)).reason


async def test_a_matcher_says_which_tools_it_is_for(tmp_path):
    command = script(tmp_path, "exit 2")
    for matcher, blocks in {"terminal": True, "read_.*|terminal": True, "termin": False, "*": True}.items():
        async with hooked(tmp_path, pre_tool_call=[ShellHook(command, matcher)]) as stage:
            assert (await rule(stage) is not None) is blocks, matcher


async def test_a_matcher_says_nothing_about_moments_without_a_tool(tmp_path):
    command = script(tmp_path, """echo '{"context": "it is Friday"}'""")
    async with hooked(tmp_path, pre_llm_call=[ShellHook(command, "terminal")]) as stage:
        assert await stage.relay.filter(specs.turn_context, "", turn=TURN_HERE) == "it is Friday"


async def test_context_is_added_for_the_model_and_observers_decide_nothing(tmp_path):
    status = script(tmp_path, """echo '{"context": "it is Friday"}'""", "status.sh")
    log = script(tmp_path, f'cat >> {tmp_path}/log; echo \'{{"decision": "block"}}\'', "log.sh")
    hooks = {"pre_llm_call": [ShellHook(status)], "post_tool_call": [ShellHook(log)]}
    async with hooked(tmp_path, **hooks) as stage:
        assert await stage.relay.filter(specs.turn_context, "", turn=TURN_HERE) == "it is Friday"
        result = ToolResult("c1", "a b")
        known = {"call": CALL, "result": result, "turn": TURN_HERE, "seconds": 0.25, "error": None}
        await stage.relay.tell(specs.after_tool, **known)
    told = json.loads((tmp_path / "log").read_text())
    assert told["extra"]["status"] == "ok" and told["extra"]["duration_ms"] == 250


async def test_on_a_real_turn_a_hook_keeps_a_command_from_running(tmp_path):
    command = script(tmp_path, """echo '{"decision": "block", "reason": "not here"}'""")
    async with open_flat(tmp_path, [call("terminal", command="touch made"), "so be it"]) as flat:
        bridge = flat.stage.door.bridge
        hooks = {"pre_tool_call": (ShellHook(command, "terminal"),)}
        bridge.settings = structs.replace(bridge.settings, hooks=hooks)
        Consents(bridge.settings.home / FILE).give("pre_tool_call", command)
        async with flat.stage.opened(Found("shell-hooks", "shell-hooks", None)):
            answer, end = await flat.say("make it")
    assert (answer, end.ending) == ("so be it", "answered")
    assert "not here" in str(flat.model.requests[-1].messages[-1])


async def test_declared_in_the_file_and_allowed_in_the_terminal_a_hook_works_on_the_whole_app(tmp_path):
    command = script(tmp_path, """echo '{"decision": "block", "reason": "not here"}'""")
    lines = [call("terminal", command="true"), "one", call("terminal", command="true"), "two"]
    hooks = {"pre_tool_call": [{"command": command, "matcher": "terminal", "timeout": 5}]}
    async with open_flat(tmp_path, lines, config={"hooks": hooks}) as flat:
        await flat.say("before")
        assert "not here" not in str(flat.model.requests[-1].messages[-1])
        assert (await flat.command("/hooks")).text == f"1  not allowed  pre_tool_call for terminal: {command}"
        assert (await flat.command("/hooks allow 1")).text.startswith("1  allowed")
        await flat.say("after")
        assert "not here" in str(flat.model.requests[-1].messages[-1])


# --- consent


async def test_without_consent_nothing_runs_and_that_is_said_once(tmp_path, caplog):
    command = script(tmp_path, f"touch {tmp_path}/ran")
    callback = callback_of(
        "pre_tool_call", ShellHook(command), Surroundings(Consents(tmp_path / FILE), inherited())
    )
    assert await callback(tool_name="terminal") is None
    assert await callback(tool_name="terminal") is None
    assert not (tmp_path / "ran").exists()
    assert caplog.text.count("is not run: nobody has allowed it as it is now") == 1


async def test_consent_counts_for_the_event_the_command_and_the_file_as_it_was(tmp_path):
    command = script(tmp_path, "exit 2")
    around = agreed(tmp_path, command)
    assert await callback_of("pre_tool_call", ShellHook(command), around)() is not None
    assert await callback_of("pre_verify", ShellHook(command), around)() is None
    assert await callback_of("pre_tool_call", ShellHook(f"{command} --more"), around)() is None
    later = time.time() + 10
    os.utime(command, (later, later))
    assert await callback_of("pre_tool_call", ShellHook(command), around)() is None


def test_the_file_that_counts_is_the_one_the_command_names(tmp_path):
    command = script(tmp_path, "", "my hook.sh")
    assert list(files_of(f"'{command}' --fast")) == [command]
    assert list(files_of(f"python3 '{command}'")) == [command]  # and not python itself
    assert files_of("jq -c .") == {}


def test_a_consent_is_kept_for_the_next_start_and_can_be_withdrawn(tmp_path):
    Consents(tmp_path / FILE).give("pre_tool_call", "jq .")
    Consents(tmp_path / FILE).give("pre_tool_call", "jq .")
    again = Consents(tmp_path / FILE)
    assert again.given("pre_tool_call", "jq .")
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    assert again.withdraw("jq .") == 1 and not again.given("pre_tool_call", "jq .")
    assert again.withdraw("jq .") == 0


async def test_a_file_of_consents_that_was_broken_is_no_consent(tmp_path):
    (tmp_path / FILE).write_text('{"approvals": 7}')
    with pytest.raises(ConfigError, match="say again what may run"):
        Consents(tmp_path / FILE).given("pre_tool_call", "x")
    around = Surroundings(Consents(tmp_path / FILE), inherited())
    ruling = await callback_of("pre_tool_call", ShellHook("true"), around)(tool_name="terminal")
    assert ruling["action"] == "block" and "say again what may run" in ruling["message"]
    assert await callback_of("post_tool_call", ShellHook("true"), around)(tool_name="terminal") is None


async def test_the_command_shows_the_hooks_and_takes_the_word_of_who_sits_here(tmp_path):
    first, second = script(tmp_path, "", "one.sh"), script(tmp_path, "", "two.sh")
    stage = Stage(tmp_path)
    hooks = {"pre_tool_call": (ShellHook(first, "terminal"), ShellHook(second))}
    stage.door.bridge.settings = structs.replace(stage.settings, hooks=hooks)
    async with stage.opened(Found("shell-hooks", "shell-hooks", None)):
        (offer,) = [each for each in stage.offers.of(stage.owner) if each.name == "hooks"]
        listed = await offer.act("", DESK)
        assert listed.splitlines() == [
            f"1  not allowed  pre_tool_call for terminal: {first}",
            f"2  not allowed  pre_tool_call: {second}",
        ]
        far = structs.replace(DESK, address=Address("telegram", "9"))
        assert "in its own terminal" in await offer.act("allow 1", far)
        assert "Which one?" in await offer.act("allow 7", DESK)
        assert "1  allowed" in await offer.act("allow 1", DESK)
        assert "2  allowed" in await offer.act("allow all", DESK)
        assert "1  not allowed" in await offer.act("revoke 1", DESK)
        assert Consents(tmp_path / FILE).given("pre_tool_call", second)


# --- processes


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_hook_that_is_not_waited_for_any_more_dies_with_all_it_started(tmp_path):
    pids = tmp_path / "pids"
    command = script(
        tmp_path,
        f"trap '' TERM\nsetsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 60' &\necho $$ >> {pids}\nsleep 60",
    )
    callback = callback_of("pre_tool_call", ShellHook(command), agreed(tmp_path, command))
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
    assert (await callback_of("pre_tool_call", ShellHook(deaf), around)(**much))["message"] == "deaf"
    assert await callback_of("pre_tool_call", ShellHook(loud), around)(**much) is None


async def test_a_hook_runs_in_the_folder_of_the_turn_with_the_home_in_its_environment(tmp_path):
    (work := tmp_path / "work").mkdir()
    command = script(
        tmp_path, f'pwd > {tmp_path}/where; echo "$HERMES_HOME $ALIPES_HOME" >> {tmp_path}/where'
    )
    token = TURN.set(
        structs.replace(TURN_HERE, inbound=structs.replace(TURN_HERE.inbound, workdir=str(work)))
    )
    try:
        async with hooked(tmp_path, pre_tool_call=[ShellHook(command)]) as stage:
            await rule(stage)
    finally:
        TURN.reset(token)
    assert (tmp_path / "where").read_text().split() == [str(work), str(tmp_path), str(tmp_path)]


def test_what_json_has_no_word_for_is_told_as_text():
    told = json.loads(payload("on_session_end", {"path": Path("/x"), "completed": True}))
    assert told["extra"] == {"path": "/x", "completed": True}
    assert told["tool_name"] is None and told["tool_input"] is None


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
    assert "[[hooks.pre_tool_cal]]: there is no such hook. Did you mean pre_tool_call" in caplog.text
