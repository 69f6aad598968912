"""The owner writes into a Telegram chat from the API of a real `alipes serve`."""

import httpx2
import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(90)


async def test_an_admin_writes_into_a_telegram_chat_and_both_see_all(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("Hello."), Say("It rains.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("hi", chat=OWNER)
            await telegram.shows(OWNER, "Hello.")
            key = (await home.run("serve", "key")).out.strip()
            headers = {"authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(base_url=f"{served.address}/v1", headers=headers, trust_env=False) as api:
                (session,) = (await api.get("/sessions?platform=telegram")).json()["sessions"]
                assert session["origin"].startswith("Telegram · ") and session["current"]
                body = {"input": "What is the weather?", "session": session["id"]}
                started = await api.post("/runs", json=body, headers={"idempotency-key": "1"})
                assert started.status_code == 202, started.text
                again = await api.post("/runs", json=body, headers={"idempotency-key": "1"})
                assert again.json()["id"] == started.json()["id"]
                await telegram.shows(OWNER, "It rains.")
                said = (await api.get(f"/sessions/{session['id']}/messages")).json()["messages"]
            assert await served.left() == 0
    texts = [kept.text for kept in telegram.chats.mine(OWNER)]
    assert texts == ["Hello.", "Owner (API): What is the weather?", "It rains."]
    assert [(each["text"], each.get("sender"), each.get("via", "")) for each in said if each["role"] == "user"] == [
        ("hi", str(OWNER), ""),
        ("What is the weather?", "owner", "api"),
    ]
