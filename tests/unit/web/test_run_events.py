"""The events of a run: numbered, read on from where a listener was, also after a restart; never twice."""

import asyncio
from pathlib import Path

from alipes.kernel.messages import Message, Text, assistant, user
from alipes.kernel.turns import Retracted, Said, TextDelta, ToolProgress, TurnEnded, TurnStarted
from alipes.web.runs.events import END_ID, EventPosition, RunEventLog, parse_position, replay_events
from tests.unit.agent_harness import Hand, call, play
from tests.world.api_harness import StreamEvent, open_api


def read(frames: bytes) -> list[StreamEvent]:
    return [StreamEvent(each.split("\n")) for each in frames.decode().split("\n\n") if each]


def names(frames: bytes) -> list[str]:
    return [heard.name for heard in read(frames)]


def heard_all(chronicle: RunEventLog, since: EventPosition) -> list[StreamEvent]:
    first, since = chronicle.resume(since)
    return read(first + chronicle.read_after(since)[0])


def a_chronicle() -> RunEventLog:
    chronicle = RunEventLog()
    for event in (TurnStarted("t", "s"), Said(user("hi")), TextDelta("Hel"), TextDelta("lo")):
        chronicle.add(event)
    return chronicle


def test_messages_are_numbered_and_what_comes_between_is_numbered_within():
    ids = [heard.id for heard in heard_all(a_chronicle(), EventPosition())]
    assert ids[0] == "1" and [id.rsplit(".", 1)[0] for id in ids[1:]] == ["1.1", "1.2"]


def test_a_listener_reads_on_from_every_number():
    chronicle = a_chronicle()
    whole = heard_all(chronicle, EventPosition())
    for place, heard in enumerate(whole, 1):
        assert [each.id for each in heard_all(chronicle, parse_position(heard.id))] == [e.id for e in whole[place:]]


def test_pieces_are_not_reported_once_their_message_is():
    chronicle = a_chronicle()
    heard = heard_all(chronicle, EventPosition())
    chronicle.add(Said(assistant(Text("Hello"))))
    (rest,) = heard_all(chronicle, parse_position(heard[-2].id))
    assert (rest.name, rest.text, rest.id) == ("said", "Hello", "2")
    assert [each.name for each in heard_all(chronicle, EventPosition())] == ["said", "said"]


def test_what_is_begun_by_another_teller_is_taken_back():
    old, new = a_chronicle(), RunEventLog()
    last = heard_all(old, EventPosition())[-1]
    new.add(Said(user("hi")), old=True)
    assert [each.name for each in heard_all(new, parse_position(last.id))] == ["retracted"]
    new.add(TurnStarted("t", "s", 2))
    new.add(TextDelta("Good day"))
    assert [each.name for each in heard_all(new, parse_position(last.id))] == [
        "retracted",
        "turn_started",
        "text_delta",
    ]
    new.add(Said(assistant(Text("Good day"))))
    assert [each.text for each in heard_all(new, parse_position(last.id))] == ["Good day"]


def test_who_comes_in_the_middle_of_a_message_hears_no_half_of_it():
    chronicle = RunEventLog()
    chronicle.mid_message = True
    chronicle.add(Said(user("hi")), old=True)
    chronicle.add(TextDelta("lo"))
    chronicle.add(ToolProgress("c", "half"))
    assert [each.name for each in heard_all(chronicle, EventPosition())] == ["said", "tool_progress"]
    chronicle.add(Retracted("again"))
    chronicle.add(TextDelta("Hel"))
    assert [each.name for each in heard_all(chronicle, EventPosition())][-1] == "text_delta"


def test_what_is_no_number_of_ours_is_the_beginning():
    for number in ("", "x", "1.x", "-1", "1.2", "9" * 30, "1.2.xyz", "\n", "٣"):
        assert parse_position(number).said == 0, number
    assert heard_all(a_chronicle(), parse_position("7"))[0].id == "1"
    seen = replay_events([user("hi")], TurnEnded("t", "answered"), EventPosition(9))
    assert [heard.id for heard in read(seen)] == ["1", END_ID]


def test_the_journal_tells_a_run_that_is_over():
    said: list[Message] = [user("hi"), assistant(Text("Hello"))]
    seen = replay_events(said, TurnEnded("t", "answered"), parse_position("1.7.abc"))
    assert names(seen) == ["said", "turn_ended"] and read(seen)[0].id == "2"


async def test_everything_is_described_in_order_to_the_end(tmp_path: Path):
    async with open_api(tmp_path, play(call("c", "hand"), "All done.")) as api:
        run = await api.begin("go")
        async with api.listening(run) as listener:
            assert listener.response.headers["content-type"].startswith("text/event-stream")
            heard = await listener.rest()
    said = [each for each in heard if each.name == "said"]
    assert [each.id for each in said] == ["1", "2", "3", "4"]
    assert (heard[-1].name, heard[-1].id, heard[-1].data["ending"]) == ("turn_ended", END_ID, "answered")


async def test_many_listeners_hear_the_same_and_one_who_left_reads_on(tmp_path: Path):
    go = asyncio.Event()
    async with open_api(tmp_path, play(("Hello", go, " world"))) as api:
        run = await api.begin("hi")
        async with api.listening(run) as first, api.listening(run) as second:
            before = await first.until("text_delta")
            assert (await second.until("text_delta")).id == before.id
        async with api.listening(run, before.id) as again:
            go.set()
            rest = await again.rest()
    pieces = "".join(each.text for each in rest if each.name == "text_delta")
    assert (before.text + pieces).split() == ["Hello", "world"]
    assert [each.text for each in rest if each.name == "said"] == ["Hello world"]


async def test_pieces_that_came_before_anyone_listened_are_reported(tmp_path: Path):
    begun, go = asyncio.Event(), asyncio.Event()

    class Sign:
        async def wait(self) -> None:
            begun.set()
            await go.wait()

    async with open_api(tmp_path, play(("Hello", Sign(), " world"))) as api:
        run = await api.begin("hi")
        await begun.wait()
        async with api.listening(run) as listener:
            assert (await listener.until("text_delta")).text == "Hello"
            go.set()
            await listener.rest()


async def test_a_run_that_is_over_is_reported_from_the_journal_and_its_end_once(tmp_path: Path):
    async with open_api(tmp_path, play("Hello.")) as api:
        run = await api.begin("hi")
        await api.finish(run)
        async with api.listening(run) as listener:
            heard = await listener.rest()
        assert [each.name for each in heard] == ["said", "said", "turn_ended"]
        over = await api.ask("GET", f"/runs/{run}/events", last_event_id=heard[-1].id)
        assert over.status_code == 204


async def test_a_listener_reads_on_after_a_restart_without_hearing_anything_twice(tmp_path: Path):
    hand = Hand("hand", effect="read")
    async with open_api(tmp_path, play(call("c", "hand"), ("Half an", asyncio.Event())), hand) as api:
        run = await api.begin("go")
        async with api.listening(run) as listener:
            last = await listener.until("text_delta")
            assert last.text and last.id.startswith("3.")
    async with open_api(tmp_path, play("A whole answer."), hand) as api:
        async with api.listening(run, last.id) as listener:
            rest = await listener.rest()
        seen = await api.look(run)
    kinds = [each.name for each in rest]
    assert kinds[-1] == "turn_ended" and kinds.count("said") == 1
    said = next(each for each in rest if each.name == "said")
    assert (said.id, said.text) == ("4", "A whole answer.")
    if "text_delta" in kinds:  # it was still being said when we came back
        assert kinds.index("retracted") < kinds.index("text_delta")
    assert (seen["attempts"], len(hand.ran)) == (2, 1)


async def test_streams_end_when_alipes_leaves_and_the_run_does_not(tmp_path: Path):
    async with open_api(tmp_path, play(("Half", asyncio.Event()))) as api:
        run = await api.begin("go")
        async with api.listening(run) as listener:
            await listener.until("text_delta")
            api.runs.disconnect_all()
            assert await listener.rest() == []
        assert (await api.look(run))["status"] == "running"


async def test_a_listener_that_leaves_does_not_end_the_run(tmp_path: Path):
    go = asyncio.Event()
    async with open_api(tmp_path, play(("One", go, " two"))) as api:
        run = await api.begin("go")
        async with api.listening(run) as listener:
            await listener.until("text_delta")
        go.set()
        assert (await api.finish(run))["text"] == "One two"


async def test_a_run_that_was_asked_to_ends_with_its_last_listener(tmp_path: Path):
    model = play(("One", asyncio.Event()))
    async with open_api(tmp_path, model) as api:
        run = await api.begin("go", on_disconnect="stop")
        async with api.listening(run) as first:
            async with api.listening(run) as second:
                await first.until("text_delta")
                await second.until("text_delta")
            assert (await api.look(run))["status"] == "running"
        async with api.house.sessions.follow(api.runs.find(run).inbound.address.key, run) as following:  # type: ignore[union-attr]
            events = [event async for event in following]
        assert events[-1].detail == "disconnected"  # type: ignore[union-attr]
        assert (await api.look(run))["status"] == "stopped" and model.living == 0


def test_listeners_at_the_same_position_share_the_bytes():
    log = RunEventLog()
    log.add(TextDelta("a"))
    first, position, _ = log.read_after(EventPosition())
    again, _, _ = log.read_after(EventPosition())
    assert first is again
    log.add(TextDelta("b"))
    more, _, _ = log.read_after(EventPosition())
    rest, _, _ = log.read_after(position)
    assert more.startswith(first) and more == first + rest
