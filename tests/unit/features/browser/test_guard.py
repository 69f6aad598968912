"""The request guard: sites, rules, questions and time limits, without a browser."""

import asyncio

import pytest

from alipes.features.browser.guard import PageGuard, is_same_site, parse_place
from alipes.features.browser.report import describe_blocked
from alipes.runtime.http.egress import EgressRequest
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.sandbox.backend import CommandScope
from tests.world.environment import LIMIT_S
from tests.world.wait import until
from tests.world.web_pages import make_turn


class Rights:
    """Rules by host, and answers of a person by host."""

    def __init__(self, rules=(), answers=()):
        self.rules, self.answers, self.asked = dict(rules), dict(answers), []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def rule(self, request):
        return self.rules.get(request.host, "ask")

    async def decide(self, request):
        if self.rule(request) == "ask":
            self.asked.append(request.host)
            await self.may_answer.wait()
            return self.answers.get(request.host, f"{request.host} is not allowed.")
        return "" if self.rule(request) == "allow" else f"{request.host} is denied."


def scope(turn="t1"):
    return CommandScope("s1", "", make_turn(turn))


def connection(host, port=443):
    return EgressRequest(host, port, "tunnel", CommandScope("s1"))


def guard_for(rights, subresources="site"):
    return PageGuard(rights, AddressGuard(["10.1.1.1:8080"]), subresources)


@pytest.mark.parametrize(
    ("host", "document", "same"),
    [
        ("example.com", "example.com", True),
        ("static.example.com", "example.com", True),
        ("static.example.com", "www.example.com", True),
        ("example.com", "www.example.com", True),
        ("bad-example.com", "example.com", False),
        ("example.com.evil.net", "example.com", False),
        ("b.github.io", "a.github.io", False),
        ("example.com", "a.example.com", False),
        ("9.9.9.9", "9.9.9.9", True),
        ("1.9.9.9.9", "9.9.9.9", False),
    ],
)
def test_a_site_is_a_host_and_what_is_below_it(host, document, same):
    assert is_same_site(host, document) is same


def test_only_web_addresses_have_a_place():
    assert parse_place("HTTPS://Example.COM./x") == ("example.com", 443)
    assert parse_place("ws://[::1]:9/") == ("::1", 9)
    assert parse_place("http://0x7f000001/") == ("127.0.0.1", 80)
    assert parse_place("about:blank") is None and parse_place("data:text/html,x") is None
    for url in ("file:///etc/passwd", "chrome://settings", "view-source:http://x/", "ftp://x/", "http:///"):
        with pytest.raises(ValueError, match=r"."):
            parse_place(url)


async def test_private_addresses_are_refused_before_anybody_is_asked():
    rights = Rights(answers={"10.0.0.1": ""})
    guard = guard_for(rights)
    async with guard.act(scope(), 10):
        for url in ("http://10.0.0.1/", "http://169.254.169.254/", "http://[fd00::1]/", "http://127.1/"):
            assert "private network" in await guard.check(url, document=True)
            assert "private network" in await guard.check(url, document=False)
        assert await guard.check("http://10.1.1.1:8080/", document=True) != ""
    assert rights.asked == ["10.1.1.1"]


async def test_parts_of_a_page_follow_rules_then_the_site_and_nobody_is_asked():
    rights = Rights({"cdn.net": "allow", "ads.shop.com": "deny"}, {"www.shop.com": ""})
    guard = guard_for(rights)
    async with guard.act(scope(), 10):
        assert await guard.check("https://www.shop.com/", document=True) == ""
        assert await guard.check("https://cdn.net/a.js", document=False) == ""
        assert await guard.check("https://img.shop.com/a.png", document=False) == ""
        assert await guard.check("https://ads.shop.com/a.png", document=False) != ""
        assert await guard.check("https://other.net/", document=False) != ""
        assert await guard.check("https://img.shop.com:8443/", document=False) != ""
    assert rights.asked == ["www.shop.com"]
    (note,) = describe_blocked(guard.take_report())
    assert note.startswith("blocked 3 requests to ads.shop.com, other.net, img.shop.com; ")
    assert describe_blocked(guard.take_report()) == ()


async def test_public_subresources_can_be_allowed_but_not_what_is_denied():
    guard = guard_for(Rights({"ads.net": "deny"}), "public")
    async with guard.act(scope(), 10):
        assert await guard.check("https://other.net/", document=False) == ""
        assert await guard.check("https://ads.net/", document=False) != ""
        assert "private" in await guard.check("http://192.168.0.1/", document=False)


async def test_what_was_approved_is_approved_in_that_turn_only():
    rights = Rights(answers={"shop.com": ""})
    guard = guard_for(rights)
    async with guard.act(scope("t1"), 10):
        await guard.check("https://shop.com/", document=True)
    async with guard.act(scope("t1"), 10):
        assert guard.is_approved("https://shop.com/other") and guard.is_approved("about:blank")
        assert await guard.decide(connection("shop.com")) == ""
    async with guard.act(scope("t2"), 10):
        assert not guard.is_approved("https://shop.com/") and not guard.is_approved("file:///x")
        assert await guard.check("https://img.shop.com/", document=False) != ""


async def test_the_proxy_learns_what_a_connection_is_for():
    rights = Rights(answers={"next.com": ""})
    guard = guard_for(rights)
    async with guard.act(scope(), 10), asyncio.TaskGroup() as group:
        document = group.create_task(guard.decide(connection("next.com")))
        resource = group.create_task(guard.decide(connection("ads.com")))
        await asyncio.sleep(0)
        guard.report_request("https://next.com/", document=True)
        guard.report_request("https://ads.com/pixel", document=False)
        guard.report_request("data:,x", document=False)
        guard.report_request("nonsense", document=False)
        assert await document == "" and "another site" in await resource
    assert rights.asked == ["next.com"]


async def test_a_connection_that_no_page_asked_for_is_refused_and_not_counted(monkeypatch):
    monkeypatch.setattr("alipes.features.browser.guard.CLASSIFY_S", 0.05)
    guard = guard_for(Rights())
    async with guard.act(scope(), 10):
        assert "another site" in await guard.decide(connection("preconnect.com"))
    assert guard.take_report().blocked == ()


async def test_the_time_in_which_a_person_is_asked_does_not_count():
    rights = Rights(answers={"shop.com": ""})
    rights.may_answer.clear()
    guard = guard_for(rights)
    async with guard.act(scope(), LIMIT_S), asyncio.TaskGroup() as group:
        asking = group.create_task(guard.check("https://shop.com/", document=True))
        waiting = group.create_task(guard.wait_for_answers())
        await until(lambda: guard._asking)
        assert not asking.done() and guard._deadline.when() is None
        rights.may_answer.set()
        assert await asking == ""
        await waiting
        assert guard._deadline.when() is not None
    with pytest.raises(TimeoutError):
        async with guard.act(scope(), 0.01):
            await asyncio.Event().wait()


async def test_one_act_asks_about_a_few_hosts_only():
    rights = Rights(answers=dict.fromkeys((f"h{n}.com" for n in range(9)), ""))
    guard = guard_for(rights)
    async with guard.act(scope(), 10):
        answers = [await guard.check(f"https://h{number}.com/", document=True) for number in range(9)]
    assert answers[:5] == [""] * 5 and all("more than 5 other hosts" in each for each in answers[5:])
    assert len(rights.asked) == 5


async def test_between_acts_nobody_is_asked():
    rights = Rights({"known.com": "allow"}, {"shop.com": ""})
    guard = guard_for(rights)
    assert "by itself" in await guard.check("https://shop.com/", document=True)
    assert await guard.check("https://known.com/", document=True) == ""
    assert rights.asked == []
    assert guard.take_report().documents == ("The page tried to open shop.com:443 by itself, which was not allowed.",)
