"""`alipes webhook` with a real `alipes serve`: create, use, list, remove."""

import asyncio
import json
import time

import httpx2
import pytest

from alipes.features.webhooks.routes import sign_delivery
from alipes.kernel.models import Secret
from tests.e2e.program import Home
from tests.e2e.service import OWNER, ServeProcess, open_serve, write_settings
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(60)


async def test_a_webhook_needs_its_secret_and_works_until_it_is_removed(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer() as model:
        write_settings(home, model)
        async with open_serve(home) as served:
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


async def test_a_webhook_without_a_prompt_starts_the_job_that_names_it(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("It is the disk.")]) as model:
        write_settings(home, model)
        async with open_serve(home):
            made = await home.run("webhook", "add", "alarms")
            assert made.status == 0 and "It only starts jobs" in made.err
            job = ("--name", "alarm", "--to", "files")
            assert (
                await home.run("schedule", "add", "on webhook alarms", "What is it? {body.alarm}", *job)
            ).status == 0
            tried = await home.run("webhook", "test", "alarms", "--body", '{"alarm": "canary"}')
            assert json.loads(tried.out.partition(" ")[2]) == {"status": "accepted", "jobs": ["alarm"]}
            await model.asked(1)
            assert "> canary" in json.dumps(model.requests[-1].body)
            listed = (await home.run("webhook", "list")).out
            assert "alarm" in listed.splitlines()[1].split()
            removed = await home.run("webhook", "remove", "alarms")
            assert "Jobs that it no longer starts: alarm." in removed.out
            folder = home.path / "schedules" / "alarm"
            async with asyncio.timeout(LIMIT_S):
                while not (files := await asyncio.to_thread(lambda: list(folder.glob("*.md")))):
                    await asyncio.sleep(0.05)
        assert [file.read_text() for file in files] == ["It is the disk.\n"]


async def test_the_answer_of_a_webhook_reaches_the_chat(tmp_path):
    home = Home(tmp_path / "home")
    dangerous = Calls((Call("terminal", {"command": "sudo rm -rf /nonexistent"}),))
    script = [Say("Good morning."), dangerous, Say("The disk is full.")]
    async with ModelServer(script) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("hello", chat=OWNER)  # a bot may not write first
            await telegram.shows(OWNER, "Good morning.")
            made = await home.run(
                "webhook", "add", "disk", "-p", "Look", "--to", f"telegram:{OWNER}", "--tools", "terminal"
            )
            assert made.status == 0, made.err
            assert (await home.run("webhook", "test", "disk")).status == 0
            await telegram.shows(OWNER, "The disk is full.")
            assert await served.left() == 0
        said = [kept.text for kept in telegram.chats.mine(OWNER)]
        assert said == ["Good morning.", "The disk is full."], "and nothing else"
        assert "nobody is available to approve it" in json.dumps(model.requests[-1].body)


async def test_an_accepted_webhook_is_answered_once_also_after_a_restart(tmp_path):
    home = Home(tmp_path / "home")
    script = [Say("Good morning."), Stall(), Say("The disk is full.")]
    async with ModelServer(script) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "Good morning.")
            made = await home.run("webhook", "add", "disk", "-p", "Look", "--to", f"telegram:{OWNER}")
            secret = Secret(made.out.strip())
            assert await brought(served, secret) == (202, "accepted")
            await model.asked(2)
            served.process.kill()
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "The disk is full.")
            assert await brought(served, secret) == (200, "duplicate")
            assert await served.left() == 0
        said = [kept.text for kept in telegram.chats.mine(OWNER)]
        assert said == ["Good morning.", "The disk is full."]


async def brought(served: ServeProcess, secret: Secret) -> tuple[int, str]:
    async with httpx2.AsyncClient(base_url=served.address, trust_env=False) as client:
        headers = sign_delivery("standard", secret, "msg_1", b"{}", now=time.time())
        answer = await client.post("/hooks/disk", content=b"{}", headers=headers)
        return answer.status_code, answer.json()["status"]
