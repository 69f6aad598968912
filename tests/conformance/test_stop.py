"""Conversations during a running turn: stop, new, and the busy modes."""

from tests.conformance.scripted_model import STORY, run
from tests.conformance.surface import Room
from tests.world.model_server import Say


async def waiting(room: Room, what: str) -> None:
    """Return when the message was accepted, as /status shows."""
    while not any(what in each for each in room.seen()):
        before = sum("busy mode" in each for each in room.seen())
        await room.say("/status")
        await room.until(lambda before=before: sum("busy mode" in each for each in room.seen()) > before)


async def test_stop(surface, room, fake_model, tmp_path):
    """A command with a stubborn child; an answer in progress; the next message."""
    task = f"setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; sleep 1000' & sleep 1000"
    (surface.workdir / "task").write_text(task)
    fake_model.answers(run("sh task"), Say("Here I am."))
    await room.say("run it")
    await room.shows("Run sh task")
    await room.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    await room.say("/stop")
    await room.shows("Stopping.")
    pid = (tmp_path / "pid").read_text().strip()
    await surface.gone(pid)
    await room.say("are you there?")
    await room.shows("Here I am.")
    assert room.seen().count("Here I am.") == room.seen().count("Stopping.") == 1
    assert fake_model.heard[1] == "are you there?" and len(fake_model.requests) == 2


async def test_stop_twice(surface, room, fake_model):
    fake_model.answers(STORY, Say("Here I am."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await room.say("/stop")
    await room.say("/stop")
    await fake_model.closed_early()
    await room.until(lambda: sum(each in ("Stopping.", "Nothing is running.") for each in room.seen()) == 2)
    await room.say("are you there?")
    await room.shows("Here I am.")
    seen = room.seen()
    assert "Stopping." in seen and seen[-1] == "Here I am."
    assert [each for each in seen if STORY.begun in each] == [
        each for each in surface.stopped(STORY.begun) if STORY.begun in each
    ]
    assert fake_model.heard == ["tell me a story", "are you there?"] and fake_model.left == 1


async def test_stop_while_it_answers(surface, room, fake_model):
    fake_model.answers(STORY, Say("Here I am."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await room.say("/stop")
    await fake_model.closed_early()
    await room.sees(*surface.stopped(STORY.begun))
    await room.say("are you there?")
    await room.sees(*surface.stopped(STORY.begun), "Here I am.")
    assert fake_model.heard == ["tell me a story", "are you there?"]


async def test_new_while_running(surface, room, fake_model):
    fake_model.answers(STORY, Say("Nothing at all."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await room.say("/new")
    await fake_model.closed_early()
    await room.sees(*surface.renewed(STORY.begun))
    await room.say("what was that?")
    await room.sees(*surface.renewed(STORY.begun), "Nothing at all.")
    assert len(fake_model.requests) == 2 and fake_model.spoken(1) == [("user", "what was that?")]


async def test_busy_interrupt(surface, room, fake_model):
    fake_model.answers(STORY, Say("Better."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await room.say("a better one")
    await fake_model.closed_early()
    await room.sees(*surface.superseded(STORY.begun), "Better.")
    assert fake_model.heard == ["tell me a story", "a better one"]


async def test_busy_queue(room, fake_model):
    answers = [STORY.text, "Two.", "Three."]
    fake_model.answers(STORY, Say("Two."), Say("Three."))
    await room.say("/busy queue")
    await room.shows("queue: ")
    await room.say("one")
    await room.shows(STORY.begun)
    await room.say("two")
    await room.say("three")
    await waiting(room, "“two”, “three”")
    assert len(fake_model.requests) == 1
    fake_model.release()
    await room.shows("Three.")
    assert [each for each in room.seen() if each in answers] == answers
    assert fake_model.heard == ["one", "two", "three"]


async def test_busy_steer(surface, room, fake_model, tmp_path):
    (surface.workdir / "task").write_text(f"until test -e {tmp_path}/go; do sleep 0.05; done")
    fake_model.answers(run("sh task"), Say("Both are done."), Say("Welcome."))
    await room.say("/busy steer")
    await room.shows("steer: ")
    await room.say("do this")
    await room.shows("Run sh task")
    await room.say("and that")
    await waiting(room, "“and that”")
    (tmp_path / "go").touch()
    await room.shows("Both are done.")
    await room.say("thanks")
    await room.shows("Welcome.")
    assert room.seen()[-2:] == ["Both are done.", "Welcome."]
    assert fake_model.heard[1:] == ["and that", "thanks"] and len(fake_model.requests) == 3
    said = [words for role, words in fake_model.spoken(2) if role != "tool"]
    assert said == ["do this", "and that", "Both are done.", "thanks"]
