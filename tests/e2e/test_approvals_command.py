"""`alipes approvals` beside a running `alipes serve`: list, show, revoke."""

import json

import pytest

from tests.e2e.program import Home
from tests.torture.homes import open_service, write_home
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(90)
COMMAND = "git push --force; touch done"


def script(body):
    if not body.get("tools"):
        return Say("A title")
    called = body["messages"][-1]["role"] == "tool"
    return Say("Done.") if called else Calls((Call("terminal", {"command": COMMAND}, id="c1"),))


async def test_a_right_is_listed_shown_and_revoked_while_serve_runs(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(script) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_service(home) as (served, api):
            await run_once(api, "session")
            (listed,) = json.loads((await home.run("approvals", "--json")).out)
            assert (listed["choice"], listed["tool"]) == ("session", "terminal")
            shown = await home.run("approvals", "show", listed["id"][:6])
            assert shown.status == 0 and COMMAND in shown.out and f"folder: {tmp_path}" in shown.out
            assert listed["id"][:6] in (await home.run("approvals")).out
            revoked = await home.run("approvals", "revoke", listed["id"][:6])
            assert revoked.status == 0 and revoked.out.startswith("Revoked: git push --force")
            assert (await home.run("approvals", "revoke", listed["id"])).status == 1
            assert (await home.run("approvals")).out.startswith("No approvals")
            await run_once(api, "no")
            assert await served.left() == 0


async def test_wrong_use_is_reported(tmp_path):
    home = Home(tmp_path / "home")
    assert (await home.run("approvals", "revoke")).status == 2
    unknown = await home.run("approvals", "show", "abc")
    assert unknown.status == 2 and '"abc" is not the id of an approval.' in unknown.err
    none = await home.run("approvals", "revoke", "--all")
    assert (none.status, none.out) == (0, "Revoked 0 approvals.\n")


async def run_once(api, choice: str) -> None:
    """A run that asks once."""
    run = await api.begin("go", session="s")
    asked = 0
    async with api.listening(run) as listener:
        async for heard in listener:
            if heard.name == "approval_asked":
                asked += 1
                seen = await api.ask("POST", f"/runs/{run}/approval", {"choice": choice})
                assert seen.status_code == 202, seen.text
    assert asked == 1
