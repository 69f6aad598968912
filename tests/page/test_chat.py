"""The chat in a real browser: sending, streaming, stopping, drafts, commands."""

import re

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.world.model_server import Call, Calls, Fail, Say

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
SLOW = Say("one two three four five six seven eight nine ten", pieces=10, delay=0.2)


async def send(page, text):
    """Type a message and press Enter."""
    await page.locator("textarea").fill(text)
    await page.locator("textarea").press("Enter")


async def test_a_first_message_makes_a_conversation_and_shows_its_answer(site):
    async with site((Say("**Hello** from the model."),)) as running:
        page = await running.log_in()
        await send(page, "Good morning")
        answer = page.locator(".msg.assistant .body")
        await expect(answer).to_have_text("Hello from the model.")
        await expect(answer.locator("strong")).to_have_text("Hello")
        await expect(page.locator(".msg.user .body")).to_have_text("Good morning")
        await expect(page).to_have_url(re.compile(r"#/c/[0-9a-f]{12}$"))
        await expect(page.locator(".conversation[aria-current]")).to_contain_text("Good morning")
        await page.reload()
        await expect(answer).to_have_text("Hello from the model.")
        await expect(page.locator(".msg.user .body")).to_have_text("Good morning")
