"""Conversations with several people and rooms: access, mentions, and the menu."""

import pytest

from tests.conformance.scripted_model import STORY, run
from tests.world.model_server import Say

MENU = {"new", "stop", "status", "model", "busy", "queue", "steer", "resume", "undo", "retry", "help", "approve", "deny",
        "sethome", "pair", "platforms", "restart"}  # fmt: skip


@pytest.mark.needs("strangers")
async def test_unauthorised(surface, room, fake_model):
    """A stranger gets a code once and reaches nobody; others do not notice."""
    elsewhere = await surface.stranger()
    fake_model.answers(STORY, Say("Here I am."))
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    for text in ("hello?", "/stop", "/restart", "/pair AAAA-BBBB owner", "hello?"):
        await elsewhere.say(text)
    await elsewhere.shows("You don't have access yet. Your pairing code is ")
    fake_model.release()
    await room.sees(STORY.text)
    await room.say("are you there?")
    await room.sees(STORY.text, "Here I am.")
    assert len(elsewhere.seen()) == 1
    assert fake_model.heard == ["tell me a story", "are you there?"]


@pytest.mark.needs("strangers", "groups")
async def test_unauthorised_in_a_group(surface, fake_model):
    """Also while it is busy, and while a question is open."""
    room, us = await surface.group(), surface.mention
    mark = surface.workdir / "pushed"
    mark.unlink(missing_ok=True)
    command = "git push --force 2>/dev/null; touch pushed"
    fake_model.answers(STORY, run(command), Say("So be it."))
    await room.say(f"{us} tell us a story", who="ada")
    await room.shows(STORY.begun)
    for text in (f"{us} another one", f"{us} /stop", "/stop", f"{us} /new"):
        await room.say(text, who="stranger")
    fake_model.release()
    await room.sees(STORY.text)
    await room.say(f"{us} push it", who="ada")
    await room.shows("git push --force")
    await room.press("Yes", who="stranger")
    await room.say(f"{us} yes", who="stranger")
    await room.say("yes", who="stranger")
    await room.press("No", who="ada")
    await room.shows("So be it.")
    assert room.seen() == [STORY.text, *surface.consented(command, False), "So be it."] and not mark.exists()
    assert len(fake_model.requests) == 3 and "stranger" not in str(fake_model.bodies).lower()


@pytest.mark.needs("groups")
async def test_group_mention(surface, fake_model):
    room, us = await surface.group(), surface.mention
    fake_model.answers(Say("A bird."), Say("Also a bird."))
    await room.say("look at that", who="ada")
    first = await room.say(f"{us} what is it?", who="ada")
    await room.sees("A bird.")
    await room.say("nice", who="grace")
    second = await room.say(f"{us} and this?", who="grace")
    await room.sees("A bird.", "Also a bird.")
    assert room.answers() == [first, second]
    said = [("user", "Ada: what is it?"), ("assistant", "A bird."), ("user", "Grace: and this?")]
    assert fake_model.spoken(1) == said and len(fake_model.requests) == 2


@pytest.mark.needs("threads")
async def test_thread(surface, fake_model):
    group, us = await surface.group(), surface.mention
    plans, songs = await surface.thread(group, "plans"), await surface.thread(group, "songs")
    fake_model.answers(STORY, Say("A song."), Say("A plan."))
    await plans.say(f"{us} tell us", who="ada")
    await plans.shows(STORY.begun)
    await songs.say(f"{us} sing", who="ada")
    await songs.sees("A song.")
    fake_model.release()
    await plans.sees(STORY.text)
    await plans.say(f"{us} and then?", who="grace")
    await plans.sees(STORY.text, "A plan.")
    assert songs.seen() == ["A song."] and not group.seen()
    assert fake_model.spoken(1) == [("user", "Ada: sing")]
    said = [("user", "Ada: tell us"), ("assistant", STORY.text), ("user", "Grace: and then?")]
    assert fake_model.spoken(2) == said and len(fake_model.requests) == 3


@pytest.mark.needs("menus")
async def test_command_menu(surface, room, fake_model):
    assert set(surface.commands()) >= MENU
    fake_model.answers(STORY, Say("Here I am."))
    await room.choose("status")
    await room.shows("nothing is running")
    await room.say("tell me a story")
    await room.shows(STORY.begun)
    await room.choose("stop")
    await fake_model.closed_early()
    await room.say("are you there?")
    await room.shows("Here I am.")
    assert room.seen()[1:] == [*surface.stopped(STORY.begun), "Here I am."]
    assert fake_model.heard == ["tell me a story", "are you there?"]
