"""Live runs in a real browser: restarts, lost networks, readers who scrolled up, several tabs."""

import asyncio
import json

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.test_chat import send
from tests.world.model_server import Say

pytestmark = [pytest.mark.deadline(180), pytest.mark.service("chromium")]
COUNTED = " ".join(f"word{number}" for number in range(60))


def count_words(body):
    """The same answer for every try, so that a repeated request says the same."""
    return Say(COUNTED, pieces=60, delay=0.05)


async def test_a_killed_server_that_returns_loses_and_doubles_no_character(site):
    async with site(count_words) as running:
        page = await running.log_in()
        await send(page, "count")
        await expect(page.locator(".live .body")).to_contain_text("word7")
        await running.stop()
        await expect(page.locator(".offline")).to_be_visible()
        await running.start()
        await expect(page.locator(".offline")).to_be_hidden()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text(COUNTED, timeout=30_000)
        await expect(page.locator(".msg.user .body")).to_have_text(["count"])
        await expect(page.locator(".live article")).to_have_count(0)


async def test_a_message_written_while_the_server_is_away_waits_and_is_sent_once(site):
    async with site(lambda body: Say(f"seen {len(body['messages'])}")) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".msg.assistant .body")).to_have_count(1)
        await running.stop()
        await send(page, "while away")
        await expect(page.locator(".msg.user.waiting .state")).to_contain_text("Waiting for the connection")
        await running.start()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(2)
        await expect(page.locator(".msg.user .body")).to_have_text(["first", "while away"])
        assert sum("while away" in json.dumps(body) for body in running.model.bodies) == 1


async def test_a_message_written_while_the_server_is_away_survives_a_reload_of_the_page(site):
    async with site(lambda body: Say("seen")) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".msg.assistant .body")).to_have_count(1)
        await page.reload()  # from now on the service worker has the page
        await expect(page.locator(".msg.assistant .body")).to_have_count(1)
        await running.stop()
        await send(page, "while away")
        await expect(page.locator(".msg.user.waiting")).to_be_visible()
        await page.reload()
        await expect(page.locator(".brand")).to_be_visible()
        await running.start()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(2)
        await expect(page.locator(".msg.user .body")).to_have_text(["first", "while away"])


async def test_a_tab_without_network_continues_when_it_is_back(site):
    async with site(count_words) as running:
        page = await running.log_in()
        await send(page, "count")
        await expect(page.locator(".live .body")).to_contain_text("word5")
        devtools = await page.context.new_cdp_session(page)
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        await devtools.send("Network.enable")
        await devtools.send("Network.emulateNetworkConditions", offline)
        await asyncio.sleep(1)
        await devtools.send(
            "Network.emulateNetworkConditions",
            {**offline, "offline": False, "downloadThroughput": -1, "uploadThroughput": -1},
        )
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text(COUNTED, timeout=30_000)
        await expect(page.locator(".msg.user .body")).to_have_count(1)


async def test_a_second_tab_shows_the_same_run_and_shares_the_stream_of_events(site):
    async with site(count_words) as running:
        page = await running.log_in()
        asked = []
        other = await page.context.new_page()
        other.on("request", lambda request: asked.append(request.url))
        await other.goto(f"{running.url}#/new")
        await expect(other.locator(".brand")).to_be_visible()
        await send(page, "count")
        await expect(other.locator(".conversation")).to_contain_text("count")
        await other.locator(".conversation").click()
        await expect(other.locator(".live .body")).to_contain_text("word9")
        for tab in (page, other):
            await expect(tab.locator(".sheets .msg.assistant .body")).to_have_text(COUNTED, timeout=30_000)
        assert not [url for url in asked if url.endswith("/v1/events")]


async def test_a_reader_who_scrolled_up_is_not_moved_and_one_at_the_end_stays_there(site):
    lines = "\n\n".join(f"Line {number} of a long answer." for number in range(80))
    replies = iter((Say(lines), Say(lines, pieces=80, delay=0.02), Say(lines)))
    async with site(lambda body: next(replies)) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(1)
        below = "(log) => log.scrollHeight - log.scrollTop - log.clientHeight"
        log = page.get_by_role("log")
        assert await log.evaluate(below) < 2
        await send(page, "second")
        await expect(page.locator(".live .body")).to_contain_text("Line 9 ")
        await log.hover()
        await page.mouse.wheel(0, -900)
        await expect(page.get_by_role("button", name="Latest")).to_be_visible()
        line = page.get_by_text("Line 70 of").first
        before = await line.bounding_box()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(2)
        after = await line.bounding_box()
        assert abs(before["y"] - after["y"]) < 1
        await page.get_by_role("button", name="Latest").click()
        assert await log.evaluate(below) < 2
        await send(page, "third")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(3)
        assert await log.evaluate(below) < 2


async def test_an_idle_page_makes_no_request(site):
    async with site((Say("hello"),)) as running:
        page = await running.log_in()
        await send(page, "hello")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(1)
        await page.wait_for_timeout(1500)
        made = len(running.requests)
        await page.wait_for_timeout(5000)
        assert running.requests[made:] == []
