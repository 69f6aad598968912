"""Data of one API key is not visible to another key, on any route."""

import httpx2
import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve, write_settings
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer

pytestmark = pytest.mark.deadline(60)
SECRET = "the canary in the cellar"
SCOPES = {"bob": "run", "eve": "run", "root": "admin"}


class Caller:
    """A caller with an API key."""

    def __init__(self, client: httpx2.AsyncClient, key: str) -> None:
        self._client, self._headers = client, {"authorization": f"Bearer {key}"}

    async def get(self, path: str) -> httpx2.Response:
        return await self._client.get(path, headers=self._headers)

    async def post(self, path: str, body: object = None) -> httpx2.Response:
        return await self._client.post(path, headers=self._headers, json=body)


async def made(home: Home, name: str) -> str:
    return (await home.run("serve", "key", "add", name, "--scope", SCOPES[name])).out.strip()


async def test_a_key_without_admin_cannot_read_data_of_other_keys(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda _body: Say("noted")) as model:
        write_settings(home, model)
        assert (await home.run("ask", "--session", "mine", SECRET)).status == 0
        async with open_serve(home) as served, httpx2.AsyncClient(base_url=served.address, trust_env=False) as client:
            bob, eve, root = [Caller(client, await made(home, name)) for name in SCOPES]
            run, response, plans = await said(bob)
            await reads(run, response, plans, bob=bob, eve=eve, root=root)
            for path, body in (
                (f"/v1/runs/{run}/stop", None),
                (f"/v1/runs/{run}/steer", {"input": "x"}),
                (f"/v1/runs/{run}/approval", {"choice": "once"}),
                (f"/v1/runs/{run}/reply", {"text": "x"}),
                (f"/v1/sessions/{plans}/fork", {}),
                ("/v1/runs", {"input": "What is planned?", "session": plans}),
                ("/v1/responses", {"input": "x", "model": "alipes", "previous_response_id": response}),
            ):
                answer = await eve.post(path, body)
                assert answer.status_code in (400, 404) and SECRET not in answer.text, path
            # The same name is another conversation under another key.
            assert (await eve.post("/v1/runs", {"input": "x", "session": "plans"})).status_code == 202
            assert SECRET not in (await eve.get("/v1/sessions/plans/messages")).text
            everyones = (await root.get("/v1/sessions")).json()["sessions"]
            assert {"terminal", "api"} <= {each["platform"] for each in everyones}
            assert SECRET not in str([request.body for request in model.requests[3:]])


async def said(bob: Caller) -> tuple[str, str, str]:
    """A run, a response and the session of the run that contains the secret."""
    run = (await bob.post("/v1/runs", {"input": SECRET, "session": "plans"})).json()["id"]
    assert "turn_ended" in (await bob.get(f"/v1/runs/{run}/events")).text
    response = (await bob.post("/v1/responses", {"input": SECRET, "model": "alipes"})).json()["id"]
    found = (await bob.get("/v1/sessions")).json()["sessions"]
    return run, response, next(each["id"] for each in found if each["name"] == "plans")


async def reads(run: str, response: str, plans: str, *, bob: Caller, eve: Caller, root: Caller) -> None:
    for path in (
        f"/v1/runs/{run}",
        f"/v1/runs/{run}/events",
        f"/v1/responses/{response}",
        *(f"/v1/sessions/{plans}{rest}" for rest in ("", "/messages", "/export", "/export/markdown")),
    ):
        other = await eve.get(path)
        assert (await bob.get(path)).status_code == 200, path
        assert other.status_code == 404 and SECRET not in other.text, path
        assert path.startswith("/v1/responses") or (await root.get(path)).status_code == 200, path
    for path in ("/v1/sessions", "/v1/sessions/search?q=canary", "/v1/sessions?q=canary"):
        assert SECRET not in (await eve.get(path)).text, path
        assert "canary" in (await root.get(path)).text, path
