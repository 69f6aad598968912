"""Conversations on every surface: texts, growing and long answers, tools, questions, files, edits."""

import pytest

from tests.conformance.scripted_model import STORY, run
from tests.conformance.surface import File
from tests.world.model_server import Call, Calls, Say
from tests.world.web_site import open_web_site

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def test_text(room, fake_model):
    fake_model.answers(Say("Good morning."), Say("You said hello."))
    await room.say("hello")
    await room.sees("Good morning.")
    await room.say("what did I say?")
    await room.sees("Good morning.", "You said hello.")
    assert fake_model.spoken(0) == [("user", "hello")]
    assert fake_model.spoken(1) == [("user", "hello"), ("assistant", "Good morning."), ("user", "what did I say?")]


@pytest.mark.needs("drafts")
async def test_stream(room, fake_model):
    fake_model.answers(STORY, Say("It was."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    assert len(room.seen()) == 1 and STORY.parts[1] not in room.seen()[0]
    fake_model.advance()
    await room.shows(STORY.half)
    assert len(room.seen()) == 1 and STORY.parts[2] not in room.seen()[0]
    fake_model.release()
    await room.sees(STORY.text)
    await room.say("was it?")
    await room.sees(STORY.text, "It was.")
    assert fake_model.heard == ["tell me a story", "was it?"]


async def test_tool(surface, room, fake_model, tmp_path):
    task = f"until test -e {tmp_path}/go; do sleep 0.05; done; echo once | tee -a {tmp_path}/done"
    (surface.workdir / "task").write_text(task)
    fake_model.answers(run("sh task"), Say("It ran."))
    await room.say("run it")
    await room.shows("Run sh task")
    (tmp_path / "go").touch()
    await room.sees(*surface.worked("sh task", "once"), "It ran.")
    assert (tmp_path / "done").read_text() == "once\n"
    assert fake_model.bodies[1]["messages"][-1]["role"] == "tool" and "once" in fake_model.heard[1]
    assert len(fake_model.requests) == 2


@pytest.mark.parametrize("yes", [True, False], ids=["yes", "no"])
async def test_approval(surface, room, fake_model, yes):
    mark = surface.workdir / "pushed"
    command = "git push --force 2>/dev/null; touch pushed"
    mark.unlink(missing_ok=True)
    fake_model.answers(run(command), Say("So be it."), Say("You are welcome."))
    await room.say("push it")
    await room.shows(command)
    assert len(fake_model.requests) == 1 and not mark.exists()
    await room.press("Yes" if yes else "No")
    await room.sees(*surface.consented(command, yes), "So be it.")
    assert mark.exists() is yes
    assert ("denied by the user" in fake_model.heard[1]) is not yes
    await room.say("thanks")
    await room.sees(*surface.consented(command, yes), "So be it.", "You are welcome.")
    assert len(fake_model.requests) == 3


async def test_sources(room, fake_model):
    async with open_web_site() as site:
        fake_model.answers(Calls((Call("web_extract", {"urls": [site.url()]}),)), Say("Larks sing [1]."), Say("Yes."))
        await room.say("what do larks do?")
        await room.shows("Sources:")  # the address alone may also be in the result of the tool
        await room.shows(site.url())  # IRC sends line by line
        seen = " ".join("\n".join(room.seen()).split())
        places = [seen.rfind(part) for part in ("Larks sing [1].", "Sources:", "[1] Larks of Vienna: ", site.url())]
        assert -1 < places[0] < places[1] < places[2] < places[3], seen
        await room.say("really?")
        await room.shows("Yes.")


async def test_long_answer(surface, room, fake_model):
    parts = [f"Part {number}: " + "all of it is here, in its place. " * 8 for number in range(40)]
    text = "\n\n".join(part.strip() for part in parts)
    fake_model.answers(Say(text, pieces=50), Say("It is."))
    await room.say("tell me everything")
    await room.until(lambda: "".join(room.seen()).count("Part ") >= 40)
    await room.say("is that all?")
    await room.shows("It is.")
    *seen, last = room.seen()
    assert (" ".join("\n\n".join(seen).split()), last) == (" ".join(text.split()), "It is.")
    if surface.longest:
        assert len(seen) == -(-len(text) // surface.longest) or len(seen) == -(-len(text) // surface.longest) + 1
        assert all(len(each) <= surface.longest and each.startswith("Part ") for each in seen)
    assert fake_model.heard == ["tell me everything", "is that all?"]


@pytest.mark.needs("files")
async def test_attachment(surface, room, fake_model):
    report = surface.workdir / "report.csv"
    write = Calls((Call("write_file", {"path": str(report), "content": "a;b\n"}),))
    fake_model.answers(Say("A white dot."), Say("It has one line."), write, Say(f"Here it is.\n\nMEDIA:{report}"))
    await room.say("what is this?", file=File("dot.png", "image/png", PNG))
    await room.sees("A white dot.")
    await room.say("and this?", file=File("notes.txt", "text/plain", b"one line\n"))
    await room.sees("A white dot.", "It has one line.")
    await room.say("send me the report")
    await room.until(lambda: room.files() and room.seen()[:3] == ["A white dot.", "It has one line.", "Here it is."])
    assert room.files() == [("report.csv", b"a;b\n")]
    image = [part for part in fake_model.bodies[0]["messages"][-1]["content"] if part["type"] == "image_url"]
    assert len(image) == 1 and image[0]["image_url"]["url"].startswith("data:image/png;base64,")
    words = fake_model.heard[1]
    assert words.startswith("and this?") and "notes.txt" in words
    path = words.rpartition(" saved at ")[2].rstrip("]")
    with open(path, "rb") as saved:
        assert saved.read() == b"one line\n"
    assert len(fake_model.requests) == 4


@pytest.mark.needs("edits")
async def test_edit(room, fake_model):
    """An answered message is asked again; a waiting one is changed before it is answered."""
    fake_model.answers(Say("Rain."), Say("Sun."), STORY, Say("Snow."))
    first = await room.say("the weather in Pris?")
    await room.sees("Rain.")
    await room.change(first, "the weather in Paris?")
    await room.sees("Rain.", "Sun.")
    await room.say("/busy queue")
    await room.shows("queue: ")
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    waiting = await room.say("the weather in Rme?")
    await room.change(waiting, "the weather in Rome?")
    await room.say("/status")
    await room.shows("“the weather in Rome?”")
    fake_model.release()
    await room.shows("Snow.")
    answers = ["Rain.", "Sun.", STORY.text, "Snow."]
    assert [each for each in room.seen() if each in answers] == answers
    assert fake_model.heard == [
        "the weather in Pris?", "edited: the weather in Paris?", "tell me a story", "the weather in Rome?",
    ]  # fmt: skip


async def test_resume(room, fake_model):
    fake_model.answers(Say("A good name."), Say("I do not know."), Say("Ada."))
    await room.say("I am called Ada")
    await room.sees("A good name.")
    await room.say("/title Names")
    await room.shows("Title: “Names”")
    await room.say("/new")
    await room.shows("Started a new conversation.")
    await room.say("who am I?")
    await room.shows("I do not know.")
    await room.say("/resume Names")
    await room.shows("Resumed “Names”, 2 messages.")
    await room.say("and now?")
    await room.shows("Ada.")
    assert fake_model.spoken(1) == [("user", "who am I?")]
    assert fake_model.spoken(2) == [("user", "I am called Ada"), ("assistant", "A good name."), ("user", "and now?")]
    assert len(fake_model.requests) == 3
