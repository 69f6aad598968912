"""Conversations across restarts, kills, repeated messages and rate limits."""

import pytest

from tests.conformance.scripted_model import STORY, run
from tests.world.model_server import Call, Calls, Say


@pytest.mark.needs("repeats")
async def test_dedupe(surface, room, fake_model):
    fake_model.answers(Say("One."), Say("Two."), Say("Three."))
    first = await room.say("one")
    await room.sees("One.")
    await room.repeat(first)
    stopped = await room.say("/stop")
    await room.sees("One.", "Nothing is running.")
    await room.repeat(stopped)
    second = await room.say("two")
    await room.sees("One.", "Nothing is running.", "Two.")
    await surface.leave()
    await surface.left()
    await surface.start()
    for message in (first, stopped, second):
        await room.repeat(message)
    await room.say("three")
    await room.sees("One.", "Nothing is running.", "Two.", "Three.")
    assert fake_model.heard == ["one", "two", "three"]


async def test_restart(surface, room, fake_model):
    """It is stopped during an answer; where possible, people write while it is down."""
    fake_model.answers(story=STORY, second=Say("Two."), third=Say("Three."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await surface.leave()
    fake_model.release()
    if surface.can("absence"):
        await room.say("the second")
    await surface.left()
    await surface.start()
    seen = surface.restarted(STORY.text)
    if not surface.can("absence"):
        await room.sees(*seen)
        await room.say("the second")
    await room.sees(*seen, "Two.")
    await room.say("the third")
    await room.sees(*seen, "Two.", "Three.")
    assert [words for role, words in fake_model.spoken() if role == "user"] == [
        "tell me a story", "the second", "the third",
    ]  # fmt: skip


async def test_kill(surface, room, fake_model):
    """In a busy mode that does not stop the running turn."""
    fake_model.answers(story=STORY, second=Say("Two."), third=Say("Three."))
    await room.say("/busy queue")
    await room.shows("queue: ")
    queued = room.seen() if surface.lasts else []
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    fake_model.advance()
    await room.shows(STORY.half)  # an edit names its message
    await surface.kill()
    fake_model.release()
    if surface.can("absence"):
        await room.say("the second")
    await surface.start()
    seen = [*queued, *surface.resumed("tell me a story", STORY.text)]
    if not surface.can("absence"):
        await room.sees(*seen)
        await room.say("the second")
    await room.sees(*seen, "Two.")
    await room.say("the third")
    await room.sees(*seen, "Two.", "Three.")
    assert fake_model.heard == ["tell me a story", "tell me a story", "the second", "the third"]
    assert [words for role, words in fake_model.spoken() if role == "assistant"] == [STORY.text, "Two."]


async def test_kill_while_a_tool_runs(surface, room, fake_model, tmp_path):
    """Finished calls are not repeated, children do not survive, and the model learns that the result is
    unknown."""
    task = f"echo once >> {tmp_path}/done; echo $$ > {tmp_path}/pid; sleep 1000"
    (surface.workdir / "task").write_text(task)
    fake_model.answers(run("sh task"), Say("I was cut off."), Say("Yes."))
    await room.say("do it")
    await room.shows("Run sh task")
    await room.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    await surface.kill()
    await surface.gone((tmp_path / "pid").read_text().strip())
    await surface.start()
    await room.shows("I was cut off.")
    await room.say("really?")
    await room.shows("Yes.")
    assert room.seen()[-2:] == ["I was cut off.", "Yes."] and room.seen().count("I was cut off.") == 1
    assert (tmp_path / "done").read_text() == "once\n"
    assert fake_model.bodies[1]["messages"][-1]["role"] == "tool" and "unknown" in fake_model.heard[1]
    assert len(fake_model.requests) == 3


@pytest.mark.needs("absence")
async def test_kill_during_a_question(surface, room, fake_model):
    """An answer while the program is down counts for the question that the person saw."""
    command = "git push --force 2>/dev/null; touch pushed"
    (surface.workdir / "pushed").unlink(missing_ok=True)
    fake_model.answers(run(command), Say("So be it."), Say("You are welcome."))
    await room.say("push it")
    await room.shows(command)
    await surface.knows()
    await surface.kill()
    await room.say("yes")
    await surface.start()
    await room.shows("So be it.")
    assert (surface.workdir / "pushed").exists()
    await room.say("thanks")
    await room.shows("You are welcome.")
    assert len(fake_model.requests) == 3


@pytest.mark.needs("limits")
async def test_429(room, fake_model):
    """On sends, and on the edits that complete an answer."""
    fake_model.answers(Say("Good morning."), STORY, Say("Good night."))
    room.flood("send", 2)
    await room.say("hello")
    await room.sees("Good morning.")
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    room.flood("edit", 2)
    fake_model.release()
    await room.sees("Good morning.", STORY.text)
    await room.say("good night")
    await room.sees("Good morning.", STORY.text, "Good night.")
    assert fake_model.heard == ["hello", "tell me a story", "good night"]


async def test_kill_between_two_messages_of_a_turn(surface, room, fake_model, tmp_path):
    """An earlier text stays as it is, also if both were shown as drafts."""
    task = f"echo $$ > {tmp_path}/pid; until test -e {tmp_path}/go; do sleep 0.05; done"
    (surface.workdir / "task").write_text(task)
    call = Calls((Call("terminal", {"command": "sh task"}),), "First I look.", delay=0.35)
    fake_model.answers(call, STORY, Say("Good night."))
    await room.say("look, and tell me")
    await room.shows("First I look.")
    await room.until(lambda: (tmp_path / "pid").exists() and "First I look." in room.seen())
    await surface.knows()
    await surface.kill()
    await surface.start()
    await room.shows(STORY.begun)
    fake_model.release()
    await room.until(lambda: STORY.text in room.seen())
    await room.say("good night")
    await room.shows("Good night.")
    said = ["First I look.", STORY.text, "Good night."]
    assert [each for each in room.seen() if each in said] == said


@pytest.mark.needs("limits")
async def test_kill_before_the_answer_was_confirmed(surface, room, fake_model):
    """The answer may have arrived: it is there once, or twice and counted as uncertain."""
    fake_model.answers(hello=Say("Good morning."), night=Say("Good night."))
    room.lose("send")
    await room.say("hello")
    await room.sees("Good morning.")
    await surface.kill()
    await surface.start()
    await room.say("good night")
    twice = [] if surface.remembers else ["Good morning."]
    await room.sees("Good morning.", *twice, "Good night.")
    assert fake_model.heard == ["hello", "good night"] and await surface.doubted() == 1


@pytest.mark.needs("limits")
async def test_kill_before_the_first_draft_was_confirmed(surface, room, fake_model):
    """A draft may be left behind if its message is unknown; the answer is there once."""
    fake_model.answers(story=STORY, night=Say("Good night."))
    room.lose("send")
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await surface.kill()
    fake_model.release()
    await surface.start()
    await room.until(lambda: STORY.text in room.seen())
    await room.say("good night")
    seen = surface.resumed("tell me a story", STORY.text)
    stray = [] if surface.remembers else [f"{STORY.begun} …", *reversed(seen)]
    await room.sees(*(stray or seen), "Good night.")
    assert fake_model.heard == ["tell me a story", "tell me a story", "good night"]
    assert await surface.doubted() == (not surface.remembers)
