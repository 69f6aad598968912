"""Login of browsers over a real server and store: codes, the two halves, expiry, revocation, names, proxies."""

import asyncio
import os
import re
import sqlite3
import sys
import time

import pytest

from alipes.runtime.processes.child import open_child
from alipes.store.sql.browsers import CODE_VALID_S, IDLE_S, MAX_CODES
from alipes.web import router
from alipes.web.auth import FREE_ATTEMPTS
from tests.world.page_harness import open_page


async def test_a_code_logs_one_browser_in_once(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client, page.client() as other:
        code = (await page.browsers.add_code("admin")).code
        answer = await client.post("/page/login", json={"code": code})
        assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
        assert answer.json().keys() == {"secret", "name", "scope", "expires"}
        assert abs(answer.json()["expires"] - time.time() - IDLE_S) < 60
        again = await other.post("/page/login", json={"code": code})
        assert (again.status_code, again.json()["code"]) == (403, "login_code")
        assert "alipes page" in again.json()["detail"] and "set-cookie" not in again.headers


async def test_of_two_browsers_with_the_same_code_at_the_same_time_one_is_let_through(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client:
        code = (await page.browsers.add_code("admin")).code
        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(client.post("/page/login", json={"code": code})) for _ in range(5)]
        assert sorted(each.result().status_code for each in tries) == [200, 403, 403, 403, 403]


async def test_a_code_expires_after_five_minutes(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client:
        code = (await page.browsers.add_code("admin")).code
        page.skipped_s = CODE_VALID_S + 1
        assert (await client.post("/page/login", json={"code": code})).json()["code"] == "login_code"
        assert CODE_VALID_S == 300


async def test_both_halves_together_are_a_caller_that_sees_everything(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as client:
        assert (await client.get("/v1/key")).json() == {"name": "page", "scopes": ["read", "run", "admin"]}
        assert (await client.get("/v1/things")).status_code == 200
        (call,) = page.room.calls
        assert call.caller.sees_all and call.caller.browser and call.caller.scopes == {"admin"}


async def test_either_half_alone_is_refused(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as client, page.client() as stranger:
        secret = client.headers.pop("x-alipes-page")
        cookie_alone = await client.get("/v1/things")
        secret_alone = await stranger.get("/v1/things", headers={"x-alipes-page": secret})
        for answer in (cookie_alone, secret_alone):
            assert (answer.status_code, answer.json()["code"]) == (401, "not_logged_in")
            assert "alipes page" in answer.json()["detail"]


async def test_halves_of_two_browsers_do_not_fit_together(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as one, page.browser() as two:
        answer = await one.get("/v1/things", headers={"x-alipes-page": two.headers["x-alipes-page"]})
        assert answer.status_code == 401


@pytest.mark.parametrize("secret", ["", ".", "x", "x.y", "é", "a" * 5000, "' OR 1=1 --.x"])
async def test_a_wrong_secret_is_refused(tmp_path, secret):
    async with open_page(tmp_path) as page, page.browser() as client:
        assert (await client.get("/v1/things", headers={"x-alipes-page": secret.encode()})).status_code == 401


async def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client:
        code = await page.browsers.add_code("admin")
        answer = await client.post("/page/login", json={"code": code.code})
        name, *rest = answer.headers["set-cookie"].split("; ")
        assert re.fullmatch(r"alipes_page_[0-9a-f]{8}=[\w-]{43}", name)
        assert {each.lower() for each in rest} == {"httponly", "samesite=strict", "path=/", "max-age=34560000"}


async def test_two_homes_on_one_host_have_cookies_of_their_own(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    async with open_page(tmp_path / "a") as one, open_page(tmp_path / "b") as two:
        assert one.logins.cookie != two.logins.cookie


async def test_nothing_that_logs_in_is_stored(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client:
        waiting, used = (await page.browsers.add_code("admin")).code, (await page.browsers.add_code("admin")).code
        secret = (await client.post("/page/login", json={"code": used})).json()["secret"]
        cookie = client.cookies[page.logins.cookie]
    with sqlite3.connect(tmp_path / "alipes.db") as db:
        rows = [*db.execute("SELECT * FROM browsers"), *db.execute("SELECT * FROM login_codes")]
    db.close()
    held = (waiting, used, cookie, secret, secret.partition(".")[2])
    assert not [each for each in held for row in rows if each in row or each.encode() in row]
    assert [len(value) for row in rows for value in row if isinstance(value, bytes)] == [32, 32, 32]


async def test_a_browser_that_may_only_read_changes_nothing(tmp_path):
    async with open_page(tmp_path) as page, page.browser("read") as client:
        assert (await client.get("/v1/things")).status_code == 200
        assert (await client.get("/v1/key")).json()["scopes"] == ["read"]
        for method, path in (("POST", "/v1/things"), ("POST", "/v1/browsers"), ("DELETE", "/v1/browsers/x")):
            answer = await client.request(method, path, json={"text": "x"})
            assert (answer.status_code, answer.json()["code"]) == (403, "scope")
            assert "may only read" in answer.json()["detail"]


async def test_browsers_are_listed_with_the_one_that_asks(tmp_path):
    linux = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36"
    async with open_page(tmp_path) as page, page.browser("read") as reader:
        async with page.browser(
            **{"user-agent": linux, "sec-ch-ua": '"Chromium";v="150", "Not A(Brand";v="24"'}
        ) as one:
            listed = (await one.get("/v1/browsers")).json()["browsers"]
            assert {(each["name"], each["scope"], each.get("current", False)) for each in listed} == {
                ("Chromium on Linux", "admin", True),
                ("Unknown browser", "read", False),
            }
            assert all(each["expires"] == each["last_seen"] + IDLE_S for each in listed)
        assert len((await reader.get("/v1/browsers")).json()["browsers"]) == 2


async def test_a_key_without_the_scope_admin_does_not_see_browsers(tmp_path):
    async with open_page(tmp_path) as page, page.client(authorization="Bearer key-runner") as client:
        assert (await client.get("/v1/browsers")).status_code == 403
        assert (await client.post("/v1/browsers", json={})).status_code == 403


async def test_a_revoked_browser_is_refused_at_once(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as one, page.browser() as two:
        (id,) = [each["id"] for each in (await one.get("/v1/browsers")).json()["browsers"] if not each.get("current")]
        assert (await one.delete(f"/v1/browsers/{id}")).status_code == 204
        assert (await two.get("/v1/things")).json()["code"] == "not_logged_in"
        assert (await one.get("/v1/things")).status_code == 200
        assert (await one.delete(f"/v1/browsers/{id}")).status_code == 404


async def test_an_open_stream_ends_when_its_browser_is_revoked(tmp_path, monkeypatch):
    monkeypatch.setattr(router, "BROWSER_CHECK_INTERVAL_S", 0.01)
    async with open_page(tmp_path) as page, page.browser() as client:
        async with client.stream("GET", "/v1/stream") as stream:
            parts = stream.aiter_raw()
            assert await anext(parts) == b"data: one\n\n"
            (browser,) = await page.browsers.all()
            await page.browsers.revoke(browser.id)
            with pytest.raises(Exception, match=r"(?i)peer closed|incomplete|terminated"):
                await anext(parts)


async def test_logging_out_revokes_and_removes_the_cookie(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as client:
        answer = await client.post("/page/logout")
        assert answer.status_code == 204 and "Max-Age=0" in answer.headers["set-cookie"]
        assert (await page.browsers.all(), (await client.get("/v1/things")).status_code) == ((), 401)
        assert (await client.post("/page/logout")).json()["code"] == "not_logged_in"


async def test_a_browser_expires_after_thirty_days_without_use(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as client:
        page.skipped_s = IDLE_S - 3600
        assert (await client.get("/v1/things")).status_code == 200
        page.skipped_s += IDLE_S - 3600
        assert (await client.get("/v1/things")).status_code == 200
        page.skipped_s += IDLE_S + 1
        assert (await client.get("/v1/things")).json()["code"] == "not_logged_in"
        assert await page.browsers.all() == () and IDLE_S == 30 * 86_400


async def test_a_second_login_of_the_same_browser_replaces_the_first(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as client:
        await page.log_in(client)
        assert len(await page.browsers.all()) == 1


async def test_a_link_for_another_browser_is_made_by_one_that_is_logged_in(tmp_path):
    async with open_page(tmp_path) as page, page.browser() as client, page.client() as phone:
        answer = await client.post("/v1/browsers", json={"scope": "read", "name": "my\nphone <b>"})
        assert answer.status_code == 201
        made = answer.json()
        assert made["link"] == f"{page.url}/#login={made['code']}"
        login = await phone.post("/page/login", json={"code": made["code"]})
        assert (login.json()["name"], login.json()["scope"]) == ("my phone <b>", "read")


async def test_wrong_codes_are_delayed_like_wrong_keys(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client:
        waited = []

        async def sleep(seconds):
            waited.append(seconds)

        page.keys.delay._sleep = sleep
        for _ in range(FREE_ATTEMPTS + 2):
            assert (await client.post("/page/login", json={"code": "wrong"})).status_code == 403
        await client.get("/v1/things", headers={"x-alipes-page": "wrong"})
        assert waited == [0.1, 0.2, 0.4] and page.keys.delay.total == FREE_ATTEMPTS + 3


async def test_unused_codes_do_not_pile_up(tmp_path):
    async with open_page(tmp_path) as page, page.client() as client:
        codes = [await page.browsers.add_code("read") for _ in range(MAX_CODES + 5)]
        assert (await client.post("/page/login", json={"code": codes[0].code})).status_code == 403
        assert (await client.post("/page/login", json={"code": codes[-1].code})).status_code == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"content": b"{}", "headers": {"content-type": "application/json"}}, 422),
        ({"content": b'{"code": 1}', "headers": {"content-type": "application/json"}}, 422),
        ({"content": b"\xff", "headers": {"content-type": "application/json"}}, 422),
        ({"content": b'{"code": "x"}', "headers": {"content-type": "text/plain"}}, 415),
        ({"data": {"code": "x"}}, 415),
        ({"json": {"code": "x" * 5000}}, 413),
        ({"content": b'{"code": "\\ud800"}', "headers": {"content-type": "application/json"}}, 422),
    ],
)
async def test_a_malformed_login_is_refused(tmp_path, sent, status):
    async with open_page(tmp_path) as page, page.client() as client:
        assert (await client.post("/page/login", **sent)).status_code == status
        assert (await client.get("/page/login")).status_code == 405


ASK = """
import json, sys, urllib.error, urllib.request
url, body, *headers = sys.argv[1:]
data = body.encode() if body else None
request = urllib.request.Request(url, data=data, headers=dict(each.split("=", 1) for each in headers))
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


async def ask_as_child(url: str, body: str, *headers: str) -> str:
    """What a child of this process, which also serves, is answered."""
    said = b""
    async with open_child([sys.executable, "-c", ASK, url, body, *headers], cwd="/", env={"PATH": os.defpath}) as child:
        while piece := await child.read():
            said += piece
    return said.decode()


async def test_a_process_of_the_agent_cannot_log_in_with_a_code_that_it_found(tmp_path):
    async with open_page(tmp_path, run=tmp_path / "run") as page:
        code = (await page.browsers.add_code("admin")).code
        said = await ask_as_child(f"{page.url}/page/login", f'{{"code": "{code}"}}', "content-type=application/json")
        assert said.startswith("403") and "own_child" in said and await page.browsers.all() == ()


async def test_a_process_of_the_agent_cannot_use_both_halves_of_a_browser(tmp_path):
    async with open_page(tmp_path, run=tmp_path / "run") as page:
        login = await page.browsers.log_in((await page.browsers.add_code("admin")).code, "stolen")
        halves = (f"x-alipes-page={login.secret}", f"cookie={page.logins.cookie}={login.cookie}")
        said = await ask_as_child(f"{page.url}/v1/things", "", *halves)
        assert said.startswith("403") and "may not act as a person" in said and page.room.calls == []


async def test_the_agent_itself_cannot_log_in(tmp_path):
    async with open_page(tmp_path, run=tmp_path / "run") as page, page.client() as client:
        code = (await page.browsers.add_code("admin")).code
        assert (await client.post("/page/login", json={"code": code})).json()["code"] == "own_child"


FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-prefix": "/agent", "x-forwarded-for": "203.0.113.9, 127.0.0.1"}


async def test_headers_of_a_proxy_are_ignored_unless_it_is_trusted(tmp_path):
    async with open_page(tmp_path) as page, page.client(**FORWARDED) as client:
        code = await page.browsers.add_code("admin")
        answer = await client.post("/page/login", json={"code": code.code})
        assert "Path=/;" in answer.headers["set-cookie"] and "Secure" not in answer.headers["set-cookie"]


async def test_headers_of_a_trusted_proxy_count(tmp_path):
    async with open_page(tmp_path, trusted=("127.0.0.0/8",)) as page, page.client(**FORWARDED) as client:
        code = await page.browsers.add_code("admin")
        answer = await client.post("/page/login", json={"code": code.code})
        assert "Path=/agent/;" in answer.headers["set-cookie"] and "Secure" in answer.headers["set-cookie"]
        await client.post("/page/login", json={"code": "wrong"})
        assert list(page.keys.delay._peers) == ["203.0.113.9"]


@pytest.mark.parametrize("prefix", ["//evil.example", "/a b", "/a;secure", "evil", "/a/../..", "/\r\nx"])
async def test_a_strange_prefix_of_a_trusted_proxy_is_ignored_or_harmless(tmp_path, prefix):
    async with open_page(tmp_path, trusted=("127.0.0.1",)) as page, page.client() as client:
        code = await page.browsers.add_code("admin")
        headers = {"x-forwarded-prefix": prefix.replace("\r\n", " ")}
        answer = await client.post("/page/login", json={"code": code.code}, headers=headers)
        path = re.search(r"Path=([^;]*)", answer.headers["set-cookie"])[1]
        assert path in ("/", "/a/../../")


async def test_the_configured_address_decides_links_and_cookies(tmp_path):
    address = "https://agent.example.com/agent"
    hosts = {"hosts": frozenset({"agent.example.com"}), "page": "https://agent.example.com"}
    async with open_page(tmp_path, address=address, **hosts) as page, page.browser() as local:
        made = (await local.post("/v1/browsers", json={})).json()
        assert made["link"].startswith(f"{address}/#login=")
        through_proxy = {"host": "agent.example.com", "origin": "https://agent.example.com"}
        without_host = {"origin": "https://agent.example.com"}
        for headers in (through_proxy, without_host):
            code = (await page.browsers.add_code("admin")).code
            async with page.client(**headers) as client:
                answer = await client.post("/page/login", json={"code": code})
                assert "Path=/agent/;" in answer.headers["set-cookie"] and "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 Chrome/150.0.0.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/150.0.0.0 Safari/537.36 Edg/150.0",
            "Edge on Windows",
        ),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.5 Safari/605.1.15", "Safari on macOS"),
        ("curl/8.5", "Unknown browser"),
        ("<script>alert(1)</script>", "Unknown browser"),
    ],
)
async def test_a_browser_is_named_in_plain_words(tmp_path, agent, name):
    async with open_page(tmp_path) as page, page.client(**{"user-agent": agent}) as client:
        assert (await page.log_in(client))["name"] == name
