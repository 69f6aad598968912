"""Every command, on a quiet session and while a turn runs."""

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from msgspec import structs

from alipes.kernel.api_keys import KeyRest
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_clock
from alipes.kernel.messages import Text, assistant
from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import ModelReply, SessionChanged, TurnEnded, Usage
from alipes.providers.registry import Backend, ModelChoice
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import CommandContext, CopyText, PutText, Quit, SendFile, ShowConversation
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.sessions.test_steer import Gate, call
from tests.world.commands import NoProcesses, core_commands, make_services
from tests.world.environment import LIMIT_S
from tests.world.session_harness import inbound, open_sessions

KEY = inbound("", "").address.key


class Shop:
    """Models by name; opening asks nobody."""

    def __init__(self):
        self.known = {"p/small": ModelFacts(window=1000), "p/big": ModelFacts()}

    async def open(self, name):
        if name not in self.known:
            raise ConfigError(f"No model is called {name!r}. Did you mean p/big?")
        return Backend(name, name.partition("/")[2], ScriptedProvider([]), self.known[name])

    def names(self):
        return tuple(self.known)

    async def list_names(self):
        return self.names()

    def key_variables(self, name):
        return ("A_KEY", "B_KEY") if name == "p/big" else ()

    def own_tools(self, name):
        return {}

    async def default(self):
        return ModelChoice("p/small", "from config.toml")


class Desk:
    """A person at a front end of one house."""

    def __init__(self, house, **more):
        self.house, self.count, self.name = house, 0, os.urandom(4).hex()
        given = {name: more.pop(name) for name in CommandContext.__struct_fields__ if name in more}
        self.context = CommandContext(inbound("", ""), make_services(house, Shop(), **more), **given)

    async def type(self, text):
        """Run a command as a front end does; its reply."""
        self.count += 1
        message = inbound(f"{self.name} typed {self.count}", text, workdir=self.context.inbound.workdir)
        parsed = commands.parse(text, self.context.contributions)
        assert parsed is not None
        return await commands.run(structs.replace(self.context, inbound=message), parsed)

    async def say(self, text):
        """Say something and wait for the end of its turn."""
        self.count += 1
        return await self.house.ask(inbound(f"{self.name} said {self.count}", text))

    async def ended(self, turn):
        async with self.house.sessions.follow(KEY, turn) as following:
            return [event async for event in following][-1]

    async def received(self):
        standing = await self.house.store.sessions.active(KEY)
        return [m.text for m in await self.house.store.archive.messages(standing.session) if m.text]


@asynccontextmanager
async def at_desk(home, *script, effort="", **more):
    async with open_sessions(home, ScriptedProvider(script), effort=effort) as house:
        yield Desk(house, **more)


@asynccontextmanager
async def at_work(home, *script, **more):
    """A desk in front of a turn inside its tool; desk, gate, provider and the turn's id."""
    gate, provider = Gate(), ScriptedProvider([call(), *script])
    async with open_sessions(home, provider, gate) as house:
        desk = Desk(house, **more)
        turn = await house.sessions.submit(inbound(f"{desk.name} first", "first"))
        await gate.running.wait()
        yield desk, gate, provider, turn


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("/stop", "stop", ""),
        ("  /STOP  ", "stop", ""),
        ("/queue  two\nlines ", "queue", "two\nlines"),
        ("/title\tx", "title", "x"),
        ("/stop it now", "stop", "it now"),
    ],
)
def test_a_text_whose_first_word_is_a_command_is_one(text, name, args):
    parsed = commands.parse(text, core_commands())
    assert (parsed.command.name, parsed.args) == (name, args)


@pytest.mark.parametrize(
    "text", ["", "/", "//stop", "stop", "/usr/bin/env", "/new/file.txt", "say /stop", "/ stop", "/tmp is full", "/1"]
)
def test_everything_else_is_said(text):
    assert commands.parse(text, core_commands()) is None


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("/sesions", "Unknown command /sesions. Did you mean /sessions?"),
        ("/mod", "Unknown command /mod. Did you mean /mode, /model or /moa?"),
        ("/xyzzy now", "Unknown command /xyzzy. /help lists all commands."),
    ],
)
async def test_an_unknown_command_is_answered_with_near_matches(tmp_path, text, reply):
    assert isinstance(commands.parse(text, core_commands()), commands.UnknownCommand)
    async with at_desk(tmp_path) as desk:
        assert ((answer := await desk.type(text)).text, answer.failed) == (reply, True)


def test_aliases_run_their_command():
    names = {
        "exit": "quit",
        "q": "quit",
        "clear": "new",
        "compress": "compact",
        "ps": "jobs",
        "fork": "branch",
        "rename": "title",
    }
    assert {alias: commands.parse(f"/{alias}", core_commands()).command.name for alias in names} == names


def test_the_table_holds_what_was_promised():
    promised = (
        "help new stop status model effort compact context btw review retry continue undo redo rewind branch sessions resume title "
        "search queue steer busy jobs background moa copy export init diff setup plugins approvals permissions "
        "mode keys quit"
    )
    assert set(promised.split()) <= {command.name for command in commands.COMMANDS}
    listed = [command.name for command in commands.COMMANDS if command.group in commands.GROUPS]
    assert len(listed) == len(set(listed)) and set(promised.split()) <= set(listed)
    assert all(command.help and command.help[0].islower() for command in commands.COMMANDS)


async def test_help_shows_all_or_one(tmp_path):
    async with at_desk(tmp_path) as desk:
        lines = (await desk.type("/help")).text.splitlines()
        assert all(any(line.startswith(f"  /{each.name}") for line in lines) for each in commands.COMMANDS)
        assert {"Conversations", "Project"} <= set(lines) and "also /clear" in "\n".join(lines)
        assert (await desk.type("/help undo")).text.startswith("/undo [N]: undo")
        assert (await desk.type("/help /undo")).text.startswith("/undo [N]: ")
        wrong = await desk.type("/help und")
        assert wrong.failed and "Did you mean /undo?" in wrong.text


async def test_words_after_a_command_that_takes_none_are_not_swallowed(tmp_path):
    async with at_desk(tmp_path, "hi") as desk:
        await desk.say("hello")
        reply = await desk.type("/new idea: write a book")
        assert reply.failed and "takes no arguments" in reply.text
        assert await desk.received() == ["hello", "hi"]


async def test_quit_is_for_the_front_end_to_do(tmp_path):
    async with at_desk(tmp_path) as desk:
        assert (await desk.type("/quit")).action == Quit()


async def test_stop_says_when_nothing_runs(tmp_path):
    async with at_desk(tmp_path, "hi") as desk:
        assert (await desk.type("/stop")).text == "Nothing is running."
        await desk.say("hello")
        assert (await desk.type("/stop")).text == "Nothing is running."


async def test_stop_ends_what_is_running_and_keeps_what_is_queued(tmp_path):
    async with at_work(tmp_path, "two") as (desk, _, provider, turn):
        queued = (await desk.type("/queue second")).turns[0]
        said = (await desk.type("/stop")).text
        assert said == "Stopped. 1 queued message kept: /queue send to send it, /queue drop to discard."
        assert (await desk.ended(turn)).ending == "stopped"
        await desk.house.sessions.wait_idle()
        assert len(provider.asked) == 1
        assert (await desk.type("/queue send")).text == "Sent 1 message."
        assert (await desk.ended(queued)).ending == "answered"


async def test_queue_lists_the_messages_that_have_not_started(tmp_path):
    async with at_work(tmp_path) as (desk, _, _, turn):
        await desk.type("/queue second")
        await desk.type("/queue third")
        listed = (await desk.type("/queue")).text
        assert listed == "1  “second”\n2  “third”\n/queue drop discards all, /queue drop N one of them."
        await desk.type("/stop")
        await desk.ended(turn)
        listed = (await desk.type("/queue")).text
        assert listed.startswith("1  kept  “second”\n2  kept  “third”\n/queue send sends the kept messages, ")
        status = (await desk.type("/status")).text
        assert "nothing is running" in status and "“second” (kept), “third” (kept)" in status


async def test_queue_drop_discards_one_message_or_all(tmp_path):
    async with at_work(tmp_path) as (desk, _, _, turn):
        second = (await desk.type("/queue second")).turns[0]
        third = (await desk.type("/queue third")).turns[0]
        fourth = (await desk.type("/queue fourth")).turns[0]
        assert (await desk.type("/queue drop 2")).text == "Discarded “third”."
        wrong = await desk.type("/queue drop 7")
        assert wrong.failed and wrong.text == "There is no queued message 7. /queue lists them."
        assert (await desk.type("/queue drop")).text == "Discarded 2 messages."
        for each in (second, third, fourth):
            assert (await desk.ended(each)).detail == "dropped"
        assert (await desk.type("/queue drop")).text == "No messages are queued."
        assert (await desk.type("/queue send")).text == "There are no kept messages."
        assert await desk.house.sessions.unfinished(KEY) == (turn,)


async def test_queue_sends_a_text_that_begins_with_one_of_its_words(tmp_path):
    async with at_work(tmp_path) as (desk, _, _, _):
        assert (await desk.type("/queue send the report")).text == "Queued."
        assert (await desk.type("/queue drop 2 of them")).text == "Queued."
        waiting = await desk.house.store.sessions.unfinished(KEY)
        assert [each.text for each in waiting] == ["first", "send the report", "drop 2 of them"]


async def test_new_begins_another_conversation_also_while_a_turn_runs(tmp_path):
    async with at_work(tmp_path, "fresh") as (desk, _, provider, turn):
        await desk.type("/queue second")
        async with desk.house.sessions.watch(KEY) as events:
            reply = await desk.type("/new")
            event = (await anext(events)).event
            while not isinstance(event, SessionChanged):
                event = (await anext(events)).event
        assert reply.text == "Started a new conversation. Stopped: the running turn and 1 message in the queue."
        assert event.why == "new"
        assert (await desk.ended(turn)).detail == "reset"
        assert (await desk.say("third")).ending == "answered"
        assert [m.text for m in provider.asked[-1].messages] == ["third"]


async def test_new_before_anything_was_said_is_harmless_and_leaves_no_trace(tmp_path):
    async with at_desk(tmp_path) as desk:
        assert (await desk.type("/new")).text == "This conversation is already empty."
        await desk.type("/busy steer")
        await desk.type("/new")
        await desk.type("/new")
        assert (await desk.house.store.archive.facts()).sessions == 1, "only the one that continues"
        assert await desk.house.store.archive.sessions() == []
        assert (await desk.type("/busy")).text.startswith("queue: ")


class Making(NoProcesses):
    """One process."""

    def running(self, _session):
        return (SimpleNamespace(title="p1 (make)"),)


async def test_status_tells_how_things_stand(tmp_path):
    reply = ModelReply(assistant(Text("hi")), Usage(input=200, output=50, cost=0.0123))
    async with at_desk(tmp_path, reply, processes=Making()) as desk:
        fresh = dict(line.split(None, 1) for line in (await desk.type("/status")).text.splitlines())
        assert (fresh["model"], fresh["conversation"]) == ("p/small", "new")
        await desk.say("hello there")
        text = (await desk.type("/status")).text
        session = (await desk.house.store.sessions.active(KEY)).session
        assert f"conversation  {session[:6]} “hello there”, 1 turn, started just now" in text
        assert "now           nothing is running" in text and "waiting" not in text
        assert "context       250 of 1,000 tokens (25 %)" in text
        assert "cost          $0.0123" in text and "background    p1 (make)" in text


async def test_status_leaves_out_a_cost_without_prices(tmp_path):
    async with at_desk(tmp_path, "hi") as desk:
        await desk.say("hello there")
        text = (await desk.type("/status")).text
        assert "cost" not in text and "price" not in text


async def test_status_tells_what_is_running_for_how_long_and_what_is_queued(tmp_path):
    async with at_work(tmp_path) as (desk, _, _, _):
        await desk.type("/queue second")
        late = structs.replace(desk.context, clock=lambda: desk.later + 3725)
        desk.later = (await desk.house.store.sessions.unfinished(KEY))[0].started_at
        desk.context = late
        text = (await desk.type("/status")).text
        assert "working for 1 h 2 min on “first”" in text and "waiting       “second”" in text


async def test_status_says_when_the_window_is_not_known(tmp_path):
    async with at_desk(tmp_path, "hi") as desk:
        await desk.say("hello")
        await desk.type("/model p/big")
        assert "tokens; the context window of p/big is not known" in (await desk.type("/status")).text
        session = (await desk.house.store.sessions.active(KEY)).session
        await desk.house.store.sessions.configure(session, model="gone/away")
        assert "the context window of gone/away is not known" in (await desk.type("/status")).text


async def test_status_names_the_keys_of_the_provider_by_their_variables(tmp_path):
    async with at_desk(tmp_path, "hi") as desk:
        await desk.say("hello")
        assert "keys" not in (await desk.type("/status")).text
        await desk.type("/model p/big")
        store, session = desk.house.store, (await desk.house.store.sessions.active(KEY)).session
        await store.provider_keys.rest("p", KeyRest("A_KEY", "limit", desk.context.clock() + 3600))
        await store.provider_keys.count("p", "B_KEY", session, "big", Usage(1, 1))
        text = (await desk.type("/status")).text
        assert re.search(r"keys +A_KEY \(at its limit until .*\), B_KEY \(used\)", text)


async def test_status_tells_until_when_a_turn_waits_for_a_limit(tmp_path):
    async with at_work(tmp_path) as (desk, _, _, _):
        until = desk.context.clock() + 3600
        await desk.house.store.database.execute("UPDATE turns SET resume_at = ?", until)
        text = (await desk.type("/status")).text
        assert f"waits for a limit until {format_clock(until)}: “first”" in text


async def test_a_model_is_chosen_for_this_conversation_only(tmp_path):
    async with at_desk(tmp_path) as desk:
        shown = (await desk.type("/model")).text
        assert shown.startswith("Model: p/small (from config.toml)") and "Others: p/big." in shown
        assert (await desk.type("/model p/big")).text == "Switched to p/big."
        assert "chosen for this conversation" in (await desk.type("/model")).text
        wrong = await desk.type("/model p/bigg")
        assert wrong.failed and "Did you mean p/big?" in wrong.text
        assert (await desk.type("/model")).text.startswith("Model: p/big"), "the old one stays"
        assert (await desk.type("/model default")).text == "p/small is used again."
        await desk.type("/model p/big")
        await desk.say("x")
        await desk.type("/new")
        assert (await desk.type("/model")).text.startswith("Model: p/small")


async def test_a_model_chosen_while_a_turn_runs_answers_the_next_message(tmp_path):
    async with at_work(tmp_path, "one", "two") as (desk, gate, _, turn):
        assert "from the next message on" in (await desk.type("/model p/big")).text
        gate.open.set()
        assert (await desk.ended(turn)).ending == "answered"
        await desk.say("second")
        models = [spent.name for spent in await desk.house.store.archive.usage_by("model")]
        assert models == ["p/big", "test/m"]


async def test_undo_takes_back_turns(tmp_path):
    async with at_desk(tmp_path, "1", "2", "3") as desk:
        assert (await desk.type("/undo")).text == "Nothing to undo."
        for text in ("one", "two", "three"):
            await desk.say(text)
        undone = (await desk.type("/undo")).text
        assert undone == "Undone: “three”. /redo brings it back, /rollback reverts files."
        refused = await desk.type("/undo 5")
        assert refused.failed and refused.text == "Only 2 turns can be undone."
        assert await desk.received() == ["one", "1", "two", "2"]
        assert (await desk.type("/undo 2")).text.startswith("Undone: “two”, “one”.")
        for wrong in ("0", "-1", "x", "9999999999", "²"):
            assert (await desk.type(f"/undo {wrong}")).failed, wrong
        assert "three" in (await desk.type("/search three")).text


async def test_redo_brings_back_the_turns_of_the_last_undo(tmp_path):
    async with at_desk(tmp_path, "1", "2", "3", "4") as desk:
        for text in ("one", "two", "three"):
            await desk.say(text)
        everything = await desk.received()
        await desk.type("/undo")
        await desk.type("/undo 2")
        assert (await desk.type("/redo")).text == "Restored: “one”, “two”."
        assert (await desk.type("/redo")).text == "Restored: “three”."
        assert await desk.received() == everything
        assert (await desk.type("/redo")).text == "Nothing to redo."
        await desk.type("/undo")
        await desk.say("four")
        assert (await desk.type("/redo")).text == "Nothing to redo."


async def test_redo_after_a_retry_brings_back_the_second_answer(tmp_path):
    async with at_desk(tmp_path, "bad", "good") as desk:
        await desk.say("hello")
        await desk.ended((await desk.type("/retry")).turns[0])
        await desk.type("/undo")
        await desk.type("/redo")
        assert await desk.received() == ["hello", "good"]


async def test_rewind_puts_the_message_back(tmp_path):
    async with at_desk(tmp_path, "1", "2") as desk:
        await desk.say("one")
        await desk.say("two\nlines")
        assert (await desk.type("/rewind")).action == PutText("two\nlines")
        assert await desk.received() == ["one", "1"]
        assert (await desk.type("/rewind 7")).failed


async def test_continue_resumes_a_stopped_turn_only(tmp_path):
    async with at_work(tmp_path, "done") as (desk, _, provider, turn):
        assert "running" in (await desk.type("/continue")).text
        await desk.type("/stop")
        assert (await desk.ended(turn)).ending == "stopped"
        reply = await desk.type("/continue")
        assert (await desk.ended(reply.turns[0])).ending == "answered"
        assert provider.asked[-1].messages[-1].text == "Continue where you stopped."
        assert (await desk.type("/continue")).text.startswith("Nothing to continue")


async def test_effort_is_kept_with_the_conversation(tmp_path):
    async with at_desk(tmp_path, effort="low") as desk:
        assert (await desk.type("/effort")).text.startswith("Effort: low.")
        assert (await desk.type("/effort high")).text.startswith("high: ")
        assert (await desk.house.store.sessions.active(KEY)).effort == "high"
        assert (await desk.type("/effort default")).text.startswith("low: ")
        assert (await desk.type("/effort huge")).failed


async def test_init_sends_a_request_for_the_notes_file(tmp_path):
    async with at_desk(tmp_path, "done") as desk:
        reply = await desk.type("/init mention the linter")
        assert (await desk.ended(reply.turns[0])).ending == "answered"
        asked = (await desk.received())[0]
        assert "AGENTS.md" in asked and asked.endswith("mention the linter")


async def test_undo_stops_the_turn_that_runs(tmp_path):
    async with at_work(tmp_path, "hello") as (desk, _, provider, turn):
        assert (await desk.type("/undo")).text.startswith("Undone: “first”.")
        assert (await desk.ended(turn)).ending == "stopped"
        await desk.say("hi")
        assert [m.text for m in provider.asked[-1].messages] == ["hi"]


async def test_retry_asks_the_last_message_again(tmp_path):
    async with at_desk(tmp_path, "bad", "good") as desk:
        assert (await desk.type("/retry")).text == "Nothing to retry."
        await desk.say("hello")
        reply = await desk.type("/retry")
        assert reply.text == "Retrying: “hello”"
        assert (await desk.ended(reply.turns[0])).ending == "answered"
        assert await desk.received() == ["hello", "good"]


async def test_retry_stops_the_turn_that_runs_and_steers_again_what_was_steered(tmp_path):
    async with at_work(tmp_path, call(2), "good") as (desk, gate, _, turn):
        gate.running.clear()
        await desk.type("/steer second")
        gate.open.set()
        await gate.running.wait()
        assert await desk.received() == ["first", "second"]
        reply = await desk.type("/retry")
        assert len(reply.turns) == 2
        assert (await desk.ended(turn)).ending == "stopped"
        assert (await desk.ended(reply.turns[0])).ending == "answered"
        assert (await desk.ended(reply.turns[1])).ending == "steered"
        assert await desk.received() == ["first", "second", "good"]


async def test_a_branch_leaves_the_original_as_it_is(tmp_path):
    async with at_desk(tmp_path, "1", "2", "3") as desk:
        assert (await desk.type("/branch")).failed
        await desk.say("one")
        trunk = (await desk.house.store.sessions.active(KEY)).session
        reply = await desk.type("/branch another way")
        assert f"/resume {trunk[:6]} to go back" in reply.text
        await desk.say("two")
        assert await desk.received() == ["one", "1", "two", "2"]
        assert "“another way”" in (await desk.type("/status")).text
        assert f"a branch of {trunk[:6]}" in (await desk.type("/status")).text
        back = await desk.type(f"/resume {trunk[:6]}")
        assert back.text == "Resumed “one”, 2 messages." and back.action == ShowConversation(trunk)
        assert await desk.received() == ["one", "1"]


async def test_branching_while_a_turn_runs_ends_it_and_shares_what_was_finished(tmp_path):
    async with at_work(tmp_path, "1", call(2), "3") as (desk, gate, _, turn):
        gate.running.clear()
        gate.open.set()
        await desk.ended(turn)
        second = (await desk.type("/queue second")).turns[0]
        await gate.running.wait()
        assert "Stopped: the running turn." in (await desk.type("/branch")).text
        assert (await desk.ended(second)).ending == "stopped"
        await desk.say("third")
        assert await desk.received() == ["first", "1", "third", "3"]


async def test_resume_finds_a_conversation_by_title_and_says_what_it_cannot(tmp_path):
    async with at_desk(tmp_path, "1", "2") as desk:
        await desk.say("one")
        await desk.type("/title The Roof")
        assert "is the current conversation" in (await desk.type("/resume the roof")).text
        await desk.type("/new")
        await desk.say("two")
        assert (await desk.type("/resume")).failed
        wrong = await desk.type("/resume nobody")
        assert wrong.failed and "nobody" in wrong.text
        assert (await desk.type("/resume the roof")).text == "Resumed “The Roof”, 2 messages."


async def test_sessions_are_listed_with_the_one_here_marked(tmp_path):
    async with at_desk(tmp_path, "1", "2") as desk:
        assert (await desk.type("/sessions")).text == "No conversations yet."
        await desk.say("mend the roof")
        await desk.type("/new")
        await desk.say("bake bread")
        first, second, hint = (await desk.type("/sessions")).text.splitlines()
        assert first.startswith("* ") and first.endswith("just now  bake bread")
        assert second.startswith("  ") and second.endswith("mend the roof") and "/resume" in hint
        assert "bake" not in (await desk.type("/sessions ROOF")).text
        assert (await desk.type("/sessions cake")).text == "No conversation matches “cake”."


async def test_a_title_is_shown_and_set(tmp_path):
    async with at_desk(tmp_path, "1") as desk:
        assert "no title yet" in (await desk.type("/title")).text
        await desk.type("/mode plan")  # opens the conversation
        assert "no title yet" in (await desk.type("/title")).text
        await desk.type("/mode ask")
        await desk.say("mend the roof")
        assert (await desk.type("/title")).text == ("This conversation has no title; it starts with “mend the roof”.")
        await desk.type("/title  Roof ")
        assert (await desk.type("/title")).text == "This conversation has the title “Roof”."


async def test_search_finds_what_was_said_anywhere(tmp_path):
    async with at_desk(tmp_path, "with tar and shingles") as desk:
        await desk.say("mend the roof")
        await desk.type("/new")
        found = (await desk.type("/search shingles")).text
        assert "mend the roof" in found and "with tar and [shingles]" in found
        assert (await desk.type("/search mortar")).text == "No matches for “mortar”."
        assert (await desk.type("/search")).failed


async def test_queue_and_steer_work_whether_or_not_a_turn_runs(tmp_path):
    async with at_desk(tmp_path, "1", "2") as desk:
        assert (await desk.type("/queue")).text.startswith("No messages are queued.")
        assert (await desk.type("/steer")).failed
        for word in ("queue", "steer"):
            reply = await desk.type(f"/{word} hello")
            assert reply.text == "" and (await desk.ended(reply.turns[0])).ending == "answered"
    async with at_work(tmp_path, "done", "later") as (desk, gate, provider, turn):
        queued, steered = await desk.type("/queue later"), await desk.type("/steer now")
        assert (queued.text, steered.text) == ("Queued.", "Sent to the running turn.")
        gate.open.set()
        assert isinstance(await desk.ended(turn), TurnEnded)
        assert (await desk.ended(steered.turns[0])).ending == "steered"
        assert (await desk.ended(queued.turns[0])).ending == "answered"
        assert [m.text for m in provider.asked[1].messages][-1] == "now"


async def test_a_command_that_comes_twice_is_done_once(tmp_path):
    async with at_desk(tmp_path, "1") as desk:
        first = await desk.type("/queue hello")
        desk.count -= 1
        assert first.turns and (await desk.type("/queue hello")).turns == ()


async def test_the_busy_mode_is_shown_and_set(tmp_path):
    async with at_desk(tmp_path) as desk:
        assert (await desk.type("/busy")).text.startswith("queue: messages you send while it works wait for their turn")
        assert (await desk.type("/busy Steer")).text.startswith("steer: ")
        assert (await desk.type("/busy")).text.startswith("steer: ")
        wrong = await desk.type("/busy ster")
        assert wrong.failed
        assert wrong.text == "Unknown mode “ster”. Use interrupt, queue or steer. Did you mean steer?"


async def test_copy_gives_answers_from_the_last_one_on(tmp_path):
    async with at_desk(tmp_path, "first answer", "second answer") as desk:
        assert (await desk.type("/copy")).failed
        await desk.say("one")
        await desk.say("two")
        assert (await desk.type("/copy")).action == CopyText("second answer")
        assert (await desk.type("/copy 2")).action == CopyText("first answer")
        assert (await desk.type("/copy 3")).text == "There are only 2 answers here."
        assert (await desk.type("/copy x")).failed and (await desk.type("/copy 0")).failed


async def test_export_writes_a_file_and_replaces_none_unasked(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    async with at_desk(tmp_path / "home", "hi") as desk:
        desk.context = structs.replace(desk.context, inbound=inbound("", "", workdir=str(folder)))
        assert (await desk.type("/export")).failed
        await desk.say("Hello, World / etc.")
        session = (await desk.house.store.sessions.active(KEY)).session
        usual = folder / f"hello-world-etc-{session[:6]}.md"
        assert (await desk.type("/export")).text == f"Written to {usual}."
        assert usual.read_text().startswith("# Hello, World / etc.")
        again = await desk.type("/export")
        assert again.failed and "already exists" in again.text
        usual.write_text("precious")
        assert (await desk.type(f"/export {usual.name}")).failed and usual.read_text() == "precious"
        assert not (await desk.type(f"/export {usual.name} --force")).failed
        assert usual.read_text() != "precious"
        await desk.type("/export talk of today.json")
        assert json.loads((folder / "talk of today.json").read_text())["format"] == "alipes.session/1"
        (folder / "sub").mkdir()
        await desk.type("/export sub")
        assert (folder / "sub" / usual.name).exists()
        lost = await desk.type("/export nowhere/x.md")
        assert lost.failed and "could not be written" in lost.text
        assert (await desk.type("/export a\0b")).failed


async def test_export_gives_a_document_where_the_person_is_elsewhere(tmp_path):
    async with at_desk(tmp_path, "hi", local_files=False) as desk:
        await desk.say("hello")
        action = (await desk.type("/export ../../etc/talk.json")).action
        assert isinstance(action, SendFile) and action.name == "talk.json"
        assert json.loads(action.text)["turns"]


async def test_every_command_answers_at_once_while_a_turn_runs(tmp_path):
    """None waits for the turn, and none but those that say so ends it."""
    ending = {"new", "stop", "undo", "rewind", "retry", "branch", "resume", "quit", "init", "review"}
    async with at_work(tmp_path, "done", "queued") as (desk, gate, _, turn):
        for command in commands.COMMANDS:
            if command.name in ending:
                continue
            args = {"search": "first", "queue": "later", "steer": "now", "title": "T", "export": f"{tmp_path}/x.md"}
            async with asyncio.timeout(LIMIT_S):
                reply = await desk.type(f"/{command.name} {args.get(command.name, '')}")
            assert reply.text or reply.action, command.name
            assert (await desk.house.store.archive.turn(turn)).ending is None, command.name
        gate.open.set()
        assert (await desk.ended(turn)).ending == "answered"


OTHER = """
import asyncio, sys
from pathlib import Path
from tests.unit.sessions.test_commands import at_work

async def main(home):
    async with at_work(Path(home), "done") as (desk, gate, provider, turn):
        print(turn, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.deadline(60)
@pytest.mark.parametrize("command", ["/stop", "/new", "/undo", "/retry"])
async def test_commands_reach_a_turn_in_another_process(tmp_path, command):
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OTHER,
        str(tmp_path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": "src:."},
    )
    try:
        turn = (await child.stdout.readline()).decode().strip()
        async with at_desk(tmp_path) as desk, desk.house.sessions.follow(KEY, turn) as following:
            reply = await desk.type(command)
            end = [event async for event in following][-1]
            assert (end.turn, end.ending) == (turn, "stopped") and not reply.failed
            if command == "/retry":
                assert (await desk.ended(reply.turns[0])).ending == "answered"
    finally:
        child.send_signal(signal.SIGKILL)
        await child.wait()
