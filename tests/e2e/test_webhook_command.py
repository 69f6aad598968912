"""`alipes webhook` and a real `alipes serve`: made, used, looked at, removed."""

import json
import time

import httpx2
import pytest

from alipes.kernel.models import Secret
from alipes.web.webhooks import signed
from tests.e2e.program import Home
from tests.e2e.service import OWNER, Served, serving, settle
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(60)


async def test_a_webhook_is_used_by_who_has_its_secret_as_long_as_it_is_there(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer() as model:
        settle(home, model)
        async with serving(home) as served:
            made = await home.run("webhook", "add", "ci", "--prompt", "Sum up {body.text}")
            assert made.status == 0 and f"POST {served.address}/hooks/ci" in made.err
            tried = await home.run("webhook", "test", "ci", "--body", '{"text": "canary"}')
            assert tried.status == 0 and tried.out.startswith("202 ")
            assert json.loads(tried.out.partition(" ")[2])["run"]
            await model.asked(1)
            assert "> canary" in json.dumps(model.requests[-1].body)
            (listed,) = json.loads((await home.run("webhook", "list", "--json")).out)
            assert listed["taken"] == 1
            assert (await home.run("webhook", "remove", "ci")).status == 0
            assert (await home.run("webhook", "test", "ci")).status == 2


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


async def test_what_was_taken_is_answered_once_also_by_the_next_process(tmp_path):
    home = Home(tmp_path / "home")
    script = [Say("Good morning."), Stall(), Say("The disk is full.")]
    async with ModelServer(script) as model, TelegramServer() as telegram:
        settle(home, model, telegram)
        async with serving(home) as served:
            await served.ready()
            telegram.town.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "Good morning.")
            made = await home.run("webhook", "add", "disk", "-p", "Look", "--to", f"telegram:{OWNER}")
            secret = Secret(made.out.strip())
            assert await brought(served, secret) == (202, "accepted")
            await model.asked(2)
            served.process.kill()
        async with serving(home) as served:
            await telegram.shows(OWNER, "The disk is full.")
            assert await brought(served, secret) == (200, "duplicate")
            assert await served.left() == 0
        said = [kept.text for kept in telegram.town.mine(OWNER)]
        assert said == ["Good morning.", "The disk is full."]


async def brought(served: Served, secret: Secret) -> tuple[int, str]:
    async with httpx2.AsyncClient(base_url=served.address, trust_env=False) as client:
        headers = signed("standard", secret, "msg_1", b"{}", now=time.time())
        answer = await client.post("/hooks/disk", content=b"{}", headers=headers)
        return answer.status_code, answer.json()["status"]
