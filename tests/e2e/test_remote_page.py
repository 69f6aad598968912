"""The page of remote tools in a real browser."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

pytest.importorskip("websockets", reason="the example needs websockets (make test installs it)")
pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import async_playwright, expect

from tests.world.environment import require
from tests.world.page_site import ALONE, QUIET, reap_orphans
from tests.world.remote_tools import free_port, open_client, open_remote

pytestmark = [pytest.mark.deadline(60), pytest.mark.service("chromium")]


@pytest.fixture(autouse=True)
def chromium():
    """Required before anything is open: a skip raised inside a task group would be an error."""
    return require("chromium")


@asynccontextmanager
async def browsing(*, strict=True, **options):
    """A page in its own browser; in a strict test any console error fails."""
    program = require("chromium")
    async with reap_orphans(), async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=[*QUIET, *ALONE])
        try:
            page = await browser.new_page(**options)
            errors = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda said: said.type == "error" and errors.append(said.text))
            yield page
            assert not strict or errors == []
        finally:
            await browser.close()


@asynccontextmanager
async def connected(remote, **options):
    async with browsing(**options) as page:
        await page.goto(f"{remote.url}#token={remote.token}")
        await page.get_by_text("connected", exact=True).wait_for()
        await noted(page, "ask_on_page", "fails after 300 s")
        yield page


async def noted(page, tool, words):
    await page.locator(f"[data-tool={tool}] .note", has_text=words).wait_for()


async def latest(page, state):
    """Wait until the newest call is in that state."""
    card = page.locator("#calls > li").first
    await page.locator(f"#calls > li:first-child[data-state={state}]").wait_for()
    return await card.inner_text()


async def test_the_agent_calls_a_tool_of_the_page_and_the_page_shows_it(tmp_path):
    async with open_remote(tmp_path) as remote, connected(remote) as page:
        assert "token" not in page.url, "the address does not keep the token"
        heard = await remote.ask('!call page_color {"color": "rgb(0, 128, 128)"}')
        assert heard.text == "page_color (ok): the page is rgb(0, 128, 128) now"
        assert "answered" in await latest(page, "done")
        await expect(page.locator("header")).to_have_css("border-top-color", "rgb(0, 128, 128)")
        heard = await remote.ask('!call page_color {"color": "loud"}')
        assert heard.text == "page_color (failed): loud is not a CSS colour"
        assert "loud is not a CSS colour" in await latest(page, "failed")
        heard = await remote.ask('!call page_alert {"text": "<b>dinner</b>"}')
        assert heard.text == "page_alert (ok): it is shown"
        assert "<b>dinner</b>" in await latest(page, "done"), "text, never markup"


async def test_a_question_waits_for_an_answer_that_reaches_the_model(tmp_path):
    async with open_remote(tmp_path) as remote, connected(remote) as page:
        asking = asyncio.create_task(remote.ask('!call ask_on_page {"question": "Tea?"}'))
        assert "Tea?" in await latest(page, "running")
        await page.get_by_placeholder("Your answer").fill("yes, please")
        await page.get_by_role("button", name="Answer").click()
        heard = await asking
        assert heard.text == "ask_on_page (ok): yes, please"
        assert any("they are typing" in str(event) for event in heard)


async def test_a_stop_is_shown_at_once_and_disables_the_question(tmp_path):
    async with open_remote(tmp_path) as remote, connected(remote) as page:
        asking = asyncio.create_task(remote.ask('!call ask_on_page {"question": "Tea?"}'))
        await latest(page, "running")
        await remote.stop()
        shown = await latest(page, "cancelled")
        assert "user_stop" in shown
        assert (await asking).ending == "stopped"
        await expect(page.get_by_role("button", name="Answer")).to_have_count(0)
        assert await page.locator("#calls > li").count() == 1
        assert (await remote.ask("hello")).text == "You said: hello"


async def test_a_tool_can_be_switched_off_and_a_name_clash_is_shown(tmp_path):
    async with open_remote(tmp_path) as remote, connected(remote) as page:
        switch = page.locator("[data-tool=page_alert] input")
        await switch.uncheck()
        while "page_alert" in await remote.command("/remote"):
            await asyncio.sleep(0.01)
        async with open_client(remote, "page_alert", name="rival"):
            await switch.click()  # not `check`: it is unchecked again at once
            await noted(page, "page_alert", "rival has a tool page_alert already")
            assert not await switch.is_checked()
        await switch.check()
        await noted(page, "page_alert", "fails after 10 s")


async def test_a_wrong_token_is_reported_and_can_be_corrected(tmp_path):
    async with open_remote(tmp_path) as remote, browsing() as page:
        await page.goto(f"{remote.url}#token=wrong")
        await page.get_by_text("This is not the token that /remote shows.").wait_for()
        await page.get_by_label("Token").fill(remote.token)
        await page.get_by_role("button", name="Connect").click()
        await page.get_by_text("connected", exact=True).wait_for()
        await page.reload()
        await page.get_by_text("connected", exact=True).wait_for()
        assert remote.token not in await page.content()


async def test_a_lost_connection_is_reopened_with_its_tools(tmp_path):
    port = free_port()
    async with AsyncExitStack() as house:
        remote = await house.enter_async_context(open_remote(tmp_path, port=port))
        async with connected(remote, strict=False) as page:
            asking = asyncio.create_task(remote.ask('!call page_alert {"text": "going"}'))
            await latest(page, "done")
            await asking
            await house.aclose()
            await page.get_by_text("reconnecting").wait_for()
            async with open_remote(tmp_path, port=port) as remote:
                await noted(page, "ask_on_page", "fails after 300 s")
                heard = await remote.ask('!call page_alert {"text": "back"}')
                assert heard.text == "page_alert (ok): it is shown"
                assert "back" in await latest(page, "done")
