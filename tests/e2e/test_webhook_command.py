"""`alipes webhook` and a real `alipes serve`: made, used, looked at, removed."""

import json

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, serving, settle
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(60)


async def test_a_webhook_is_added_tried_listed_and_removed(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer() as model:
        settle(home, model)
        assert "There are no webhooks" in (await home.run("webhook")).out
        assert (await home.run("webhook", "test", "ci")).status == 2, "nobody serves"
        async with serving(home) as served:
            made = await home.run("webhook", "add", "ci", "--prompt", "Sum up {body.text}")
            assert made.status == 0 and made.out.startswith("whsec_")
            assert f"POST {served.address}/hooks/ci" in made.err
            tried = await home.run("webhook", "test", "ci", "--body", '{"text": "canary"}')
            assert tried.status == 0 and tried.out.startswith("202 ")
            run = json.loads(tried.out.partition(" ")[2])["run"]
            assert run
            (listed,) = json.loads((await home.run("webhook", "list", "--json")).out)
            assert listed["taken"] == 1 and listed["webhook"]["name"] == "ci" and "secret" not in listed
            shown = (await home.run("webhook")).out
            assert "Sum up {body.text}" in shown and made.out.strip() not in shown
            await model.asked(1)
            assert "> canary" in json.dumps(model.requests[-1].body)
            assert (await home.run("webhook", "remove", "ci")).status == 0
            assert (await home.run("webhook", "test", "ci")).status == 2
        for words in (
            ("add", "ci"),
            ("add", "No Name", "-p", "x"),
            ("add", "ci", "-p", "x", "--to", "nowhere"),
            ("remove", "ci"),
            ("do",),
        ):
            assert (await home.run("webhook", *words)).status == 2
        own = await home.run(
            "webhook", "add", "gh", "-p", "x", "--style", "github", "--secret", stdin=b"short\n"
        )
        assert own.status == 2
        chosen = b"a-secret-of-the-sender\n"
        own = await home.run("webhook", "add", "gh", "-p", "x", "--style", "github", "--secret", stdin=chosen)
        assert own.out.encode() == chosen


async def test_the_answer_reaches_the_chat_and_nobody_has_to_be_asked_on_the_way(tmp_path):
    home = Home(tmp_path / "home")
    dangerous = Calls((Call("terminal", {"command": "sudo rm -rf /nonexistent"}),))
    script = [Say("Good morning."), dangerous, Say("The disk is full.")]
    async with ModelServer(script) as model, TelegramServer() as telegram:
        settle(home, model, telegram)
        async with serving(home) as served:
            await served.ready()
            telegram.town.say("hello", chat=OWNER)  # a bot may not be the first to write
            await telegram.shows(OWNER, "Good morning.")
            made = await home.run("webhook", "add", "disk", "-p", "Look", "--to", f"telegram:{OWNER}")
            assert made.status == 0, made.err
            assert (await home.run("webhook", "test", "disk")).status == 0
            await telegram.shows(OWNER, "The disk is full.")
            assert await served.left() == 0
        said = [kept.text for kept in telegram.town.mine(OWNER)]
        assert said == ["Good morning.", "The disk is full."], "and nothing else"
        assert "nobody is here to allow it" in json.dumps(model.requests[-1].body)
