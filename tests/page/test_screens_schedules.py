"""The schedules in a real browser: created with a preview, run, paused, edited, deleted."""

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.screen_steps import call, show
from tests.world.model_server import Say

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]


async def find_job(page):
    (job,) = (await call(page, "GET", "schedules"))["jobs"]
    return job


async def add_job(page, **more):
    job = {"when": "every weekday at 9", "prompt": "Send the news", "name": "news", "zone": "America/New_York"}
    return await call(page, "POST", "schedules", {**job, "deliver": ["none"], **more})


async def test_a_job_is_added_with_a_preview_of_its_times(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "schedules", "Schedules")
        await expect(page.get_by_text("No schedules")).to_be_visible()
        await page.get_by_role("button", name="New job").click()
        await page.get_by_label("Prompt").fill("Send the news")
        when = page.get_by_label("When")
        await when.fill("every fortnite")
        await expect(page.locator(".field-error")).not_to_be_empty()
        await when.fill("every weekday at 9")
        await expect(page.locator(".field-error")).to_have_count(0)
        await expect(page.locator(".preview .times li")).to_have_count(5)
        await page.get_by_label("Deliver the answer to").fill("none")
        await page.get_by_role("button", name="Add job").click()
        await expect(page.get_by_role("heading", name="Next times")).to_be_visible()
        job = await find_job(page)
    assert (job["prompt"], job["when"], job["deliver"]) == ("Send the news", "every weekday at 9", ["none"])


async def test_a_refused_job_keeps_what_was_typed_and_says_why(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "schedules", "Schedules")
        await page.get_by_role("button", name="New job").click()
        await page.get_by_label("Prompt").fill("Send the news")
        await page.get_by_label("When").fill("every weekday at 9")
        await page.get_by_label("Name", exact=True).fill("Bad Name")
        await page.get_by_role("button", name="Add job").click()
        await expect(page.locator("form > .field-error")).to_contain_text("is not a valid name of a job")
        await expect(page.get_by_label("Prompt")).to_have_value("Send the news")
        assert (await call(page, "GET", "schedules"))["jobs"] == []


async def test_a_job_is_run_and_its_history_leads_to_the_conversation(site):
    async with site((Say("Here are the news."),)) as running:
        page = await running.log_in()
        await add_job(page)
        await show(page, "schedules", "Schedules")
        await page.get_by_role("link", name="news").click()
        await expect(page.get_by_text("at 09:00, Monday to Friday").first).to_be_visible()
        await expect(page.get_by_role("table", name="Next times").get_by_role("row")).to_have_count(6)
        await page.get_by_role("button", name="Run now").click()
        history = page.get_by_role("table", name="Runs")
        await expect(history.get_by_text("ok", exact=True)).to_be_visible()
        await history.get_by_role("link", name="Open").click()
        await expect(page.get_by_text("Here are the news.").first).to_be_visible()


async def test_a_job_is_paused_resumed_edited_and_deleted(site):
    async with site() as running:
        page = await running.log_in()
        job = await add_job(page)
        await show(page, f"schedules/{job['id']}", "news")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert (await find_job(page))["state"] == "paused"
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_role("button", name="Pause")).to_be_visible()
        assert (await find_job(page))["state"] == "active"
        await page.get_by_role("button", name="Edit").click()
        await page.get_by_label("When").fill("every day at 7:30")
        await page.get_by_text("More options").click()
        await page.get_by_label("Budget of one run").fill("$0.50")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".facts").get_by_text("$0.50", exact=True)).to_be_visible()
        changed = await find_job(page)
        assert (changed["when"], changed["budget"], changed["prompt"]) == (
            "every day at 7:30",
            "$0.50",
            "Send the news",
        )
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert (await find_job(page))["id"] == job["id"]
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No schedules")).to_be_visible()
        assert (await call(page, "GET", "schedules"))["jobs"] == []
