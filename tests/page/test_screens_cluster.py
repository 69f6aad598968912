"""The screen of a cluster: workers, waiting conversations, problems; absent on SQLite."""

import os
from pathlib import Path

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.samples import ANSWERS
from tests.page.screen_steps import show
from tests.page.test_screens_access import answer_sample, open_samples

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
KEPT_IN = os.environ.get("ALIPES_TEST_PICTURES", "")


async def test_the_screen_lists_workers_and_names_what_needs_attention(site, tmp_path):
    async with site() as running:
        page = await open_samples(running)
        await show(page, "cluster", "Cluster")
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(0)).to_contain_text("answers this page")
        await expect(rows.nth(0)).to_contain_text("telegram, schedules")
        await expect(page.locator(".checks")).to_contain_text("No worker leads platform slack.")
        await expect(page.locator(".checks")).to_contain_text("Worker c07755e1a2b4 has not renewed its lease for 2.4 s")
        await expect(page.locator("dl.facts").first).to_contain_text("12 (process ended), 3 (lease expired)")
        for name, width, theme in (("light", 1200, "light"), ("dark", 1200, "dark"), ("phone", 390, "light")):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.emulate_media(color_scheme=theme)
            await page.screenshot(path=Path(KEPT_IN or tmp_path) / f"cluster-{name}.png")


async def test_the_screen_is_offered_only_if_the_store_is_shared(site):
    async with site() as running:
        page = await running.log_in()
        await page.locator(".manage summary").click()
        await expect(page.locator(".side-link", has_text="Doctor")).to_be_visible()
        await expect(page.locator(".side-link", has_text="Cluster")).to_have_count(0)
        await show(page, "cluster", "Cluster")
        await expect(page.get_by_text("one SQLite file")).to_be_visible()

        async def answer(route):
            if route.request.url.endswith("/v1/key"):
                await route.fulfill(json=ANSWERS["key"] | {"clustered": True})
            else:
                await answer_sample(route)

        await page.route("**/v1/**", answer)
        await page.reload()
        await expect(page.locator(".side-link", has_text="Cluster")).to_be_visible()
