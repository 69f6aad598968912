"""Restarts at random moments and frozen tabs in a real browser: no character is lost or doubled."""

import asyncio
import os
import random

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.test_chat import send
from tests.page.test_chat_live import COUNTED, count_words

TRIALS = int(os.environ.get("ALIPES_TORTURE_TRIALS", "0")) // 10 or 3
FROZEN_S = 60.0 if "ALIPES_TORTURE_TRIALS" in os.environ else 3.0
pytestmark = [pytest.mark.deadline(120 + 20 * TRIALS), pytest.mark.service("chromium")]


@pytest.mark.parametrize("seed", [int(os.environ.get("ALIPES_TORTURE_SEED", "1"))])
async def test_servers_killed_at_random_moments_lose_and_double_no_character(site, seed):
    chance = random.Random(seed)
    async with site(count_words) as running:
        page = await running.log_in()
        for trial in range(1, TRIALS + 1):
            asked = [f"count {number}" for number in range(1, trial + 1)]
            await send(page, asked[-1])
            await asyncio.sleep(chance.uniform(0, 3.5))  # the answer takes three seconds
            await running.stop()
            await running.start()
            answers = page.locator(".sheets .msg.assistant .body")
            await expect(answers).to_have_text([COUNTED] * trial, timeout=60_000)
            await expect(page.locator(".msg.user .body")).to_have_text(asked)
            await expect(page.locator(".live article")).to_have_count(0)


async def test_a_tab_that_was_frozen_shows_the_whole_answer_when_it_is_woken(site):
    async with site(count_words) as running:
        page = await running.log_in()
        await send(page, "count")
        await expect(page.locator(".live .body")).to_contain_text("word5")
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
        await asyncio.sleep(FROZEN_S)
        await devtools.send("Page.setWebLifecycleState", {"state": "active"})
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text(COUNTED, timeout=30_000)
        await expect(page.locator(".live article")).to_have_count(0)
