"""People and pairing over HTTP."""

import re

import pytest

from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from alipes.store.sql.people import PairingRequest
from tests.world.admin_harness import open_admin

ANN = Address("telegram", "7", user="7")


async def request_code(api, name="Ann", person="7"):
    """Ask for access; returns the code that was sent to the person."""
    sent = []

    def message(code):
        sent.append(code)
        return Outbound(f"code:{person}", ANN, f"code {code}")

    assert await api.app.store.people.request_pairing(PairingRequest("telegram", person, name, ANN), message)
    return sent[0]


async def test_a_request_is_listed_without_its_code_and_approved_with_it(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        code = await request_code(api)
        listed = await api.get("/people")
        (asked,) = listed["requests"]
        assert (asked["platform"], asked["user"], asked["name"]) == ("telegram", "7", "Ann")
        assert code not in str(listed) and asked["expires"] > asked["asked"]
        person = await api.call("POST", "/people/pair", {"code": code.lower()})
        assert (person["id"], person["role"]) == ("telegram:7", "owner"), "the first one is the owner"
        after = await api.get("/people")
    assert after["requests"] == [] and [each["id"] for each in after["people"]] == ["telegram:7"]


async def test_the_second_person_is_a_user_unless_a_role_is_given(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/people/pair", {"code": await request_code(api)})
        second = await api.call("POST", "/people/pair", {"code": await request_code(api, "Bob", "8")})
        third = await api.call("POST", "/people/pair", {"code": await request_code(api, "Eve", "9"), "role": "owner"})
    assert (second["role"], third["role"]) == ("user", "owner")


async def test_a_wrong_code_is_refused_with_what_to_do(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        refused = await api.call("POST", "/people/pair", {"code": "AAAA-BBBB"}, status=422)
        assert "request a new one" in refused["detail"]
        for _ in range(4):
            await api.call("POST", "/people/pair", {"code": "AAAA-BBBB"}, status=422)
        assert re.search(
            r"try again in \d+ min", (await api.call("POST", "/people/pair", {"code": "X"}, status=422))["detail"]
        )


async def test_a_role_is_changed_and_access_taken_away(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/people/pair", {"code": await request_code(api)})
        assert (await api.call("PATCH", "/people/telegram:7", {"role": "user"}))["role"] == "user"
        await api.call("PATCH", "/people/telegram:7", {"role": "king"}, status=422)
        await api.call("DELETE", "/people/telegram:7", status=204)
        assert await api.app.store.people.role("telegram", "7") is None
        assert "is not paired" in (await api.call("DELETE", "/people/telegram:7", status=404))["detail"]


async def test_people_of_the_settings_are_shown_and_changed_only_there(tmp_path):
    async with open_admin(tmp_path / "home", "[telegram]\nallow = [5]\nowners = [6]\n") as api:
        people = {each["id"]: each for each in (await api.get("/people"))["people"]}
        assert {id: each["role"] for id, each in people.items()} == {"telegram:5": "user", "telegram:6": "owner"}
        assert all(each["settings"] for each in people.values())
        assert "telegram.allow" in (await api.call("DELETE", "/people/telegram:5", status=409))["detail"]


@pytest.mark.parametrize("by", ["page", "ann", "reader"])
async def test_only_an_admin_may_pair(tmp_path, by):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/people/pair", {"code": await request_code(api)}, by=by, status=403)
        await api.get("/people", by=by, status=200 if by == "page" else 403)
