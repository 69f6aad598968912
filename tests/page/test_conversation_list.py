"""The list of conversations in a real browser: days, pins, folders, the archive, menus, several at once."""

import sqlite3
import time
from contextlib import closing

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.screen_steps import call, start_run
from tests.world.model_server import Say
from tests.world.page_site import PageSite

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
DAY_S = 86_400


async def fill(running: PageSite, page, *texts):
    """A conversation for each text, the first one the oldest."""
    for text in texts:
        run = await start_run(page, text)
        while (await call(page, "GET", f"runs/{run['id']}"))["status"] != "answered":
            pass


def titles(page):
    return page.locator(".conversation-title")


async def choose(page, title, entry):
    await page.locator(".conversations li", has_text=title).hover()
    await page.get_by_role("button", name=f"Menu of {title}").click()
    await page.get_by_role("menuitem", name=entry).click()


async def test_conversations_are_listed_by_day(site):
    async with site(lambda _body: Say("ok")) as running:
        page = await running.log_in()
        await fill(running, page, "old", "older", "new")
        with closing(sqlite3.connect(running.home.path / "alipes.db", timeout=30)) as db, db:
            sql = "UPDATE sessions SET updated = ? WHERE first_text = ?"
            db.execute(sql, (time.time() - DAY_S, "old"))
            db.execute(sql, (time.time() - 400 * DAY_S, "older"))
        await page.reload()
        await expect(titles(page)).to_have_text(["new", "old", "older"])
        heads = page.locator(".list-head")
        await expect(heads.first).to_have_text("Today")
        await expect(heads.nth(1)).to_have_text("Yesterday")
        await expect(heads).to_have_count(3)


async def test_a_row_is_pinned_renamed_filed_archived_and_deleted_by_its_menu(site):
    async with site(lambda _body: Say("ok")) as running:
        page = await running.log_in()
        await fill(running, page, "alpha", "beta", "gamma")
        await expect(titles(page)).to_have_text(["gamma", "beta", "alpha"])
        await choose(page, "alpha", "Pin")
        await expect(page.locator(".list-head")).to_have_text(["Pinned", "Today"])
        await expect(titles(page)).to_have_text(["alpha", "gamma", "beta"])
        await choose(page, "beta", "Rename")
        await page.get_by_role("textbox", name="Title").fill("better")
        await page.keyboard.press("Enter")
        await expect(titles(page)).to_have_text(["alpha", "gamma", "better"])
        await choose(page, "better", "Move to a folder")
        await page.get_by_role("combobox", name="Folder").fill("Work")
        await page.keyboard.press("Enter")
        await expect(page.locator(".conversation", has_text="better")).to_contain_text("Work")
        await choose(page, "gamma", "Archive")
        await expect(titles(page)).to_have_text(["alpha", "better"])
        which = page.get_by_label("Which conversations")
        await which.select_option("Folder: Work")
        await expect(titles(page)).to_have_text(["better"])
        await which.select_option("Archive")
        await expect(titles(page)).to_have_text(["gamma"])
        await choose(page, "gamma", "Take out of the archive")
        await expect(titles(page)).to_have_count(0)
        await which.select_option("Conversations")
        await choose(page, "gamma", "Delete")
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(titles(page)).to_have_text(["alpha", "better"])
        await page.reload()
        await expect(titles(page)).to_have_text(["alpha", "better"])


async def test_several_conversations_are_archived_at_once_and_taken_back(site):
    async with site(lambda _body: Say("ok")) as running:
        page = await running.log_in()
        await fill(running, page, "alpha", "beta", "gamma")
        await page.locator(".conversation", has_text="alpha").click(modifiers=["ControlOrMeta"])
        await page.locator(".conversation", has_text="gamma").click()
        chosen = page.get_by_role("toolbar", name="Selected conversations")
        await expect(chosen).to_contain_text("2 selected")
        await chosen.get_by_role("button", name="Archive").click()
        await expect(titles(page)).to_have_text(["beta"])
        await expect(chosen).to_have_count(0)
        await page.get_by_role("button", name="Undo").click()
        await expect(titles(page)).to_have_count(3)


async def test_the_menu_of_a_row_is_used_by_keyboard(site):
    async with site(lambda _body: Say("ok")) as running:
        page = await running.log_in()
        await fill(running, page, "alpha")
        await page.locator(".conversation").focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("menuitem", name="Pin")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Menu of alpha")).to_be_focused()


async def test_the_menu_of_a_row_fits_on_a_phone(site):
    async with site(lambda _body: Say("ok")) as running:
        page = await running.log_in(viewport={"width": 360, "height": 480}, has_touch=True, is_mobile=True)
        await fill(running, page, "alpha")
        await page.get_by_role("button", name="Open the menu").tap()
        await expect(page.get_by_role("button", name="Close the menu")).to_be_focused()
        await page.get_by_role("button", name="Menu of alpha").tap()
        box = await page.get_by_role("menu", name="Menu of alpha").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["y"] >= 0 and box["y"] + box["height"] <= 480


async def test_conversations_of_ask_and_keys_have_their_own_lists_and_unlisted_ones_none(site):
    async with site(lambda _body: Say("ok")) as running:
        page = await running.log_in()
        await fill(running, page, "mine", "asked", "called", "quiet")
        with closing(sqlite3.connect(running.home.path / "alipes.db", timeout=30)) as db, db:
            sql = "UPDATE sessions SET platform = ?, chat = ?, user_id = ? WHERE first_text = ?"
            place = (
                "UPDATE sessions SET address = json_object('platform', ?, 'chat', ?, 'user', ?) WHERE first_text = ?"
            )
            for platform, chat, user, text in (
                ("terminal", "ask-1", "", "asked"),
                ("api", "x", "ci", "called"),
                ("api", "y", "bot", "quiet"),
            ):
                db.execute(sql, (platform, chat, user, text))
                db.execute(place, (platform, chat, user, text))
            keys = "INSERT INTO api_keys (name, key_hash, scope, created, unlisted) VALUES (?, ?, 'run', 0, ?)"
            db.execute(keys, ("ci", b"1", 0))
            db.execute(keys, ("bot", b"2", 1))
        await page.reload()
        await expect(titles(page)).to_have_text(["mine"])
        which = page.get_by_label("Which conversations")
        await which.select_option("From alipes ask")
        await expect(titles(page)).to_have_text(["asked"])
        await which.select_option("From API keys")
        await expect(titles(page)).to_have_text(["called"])
        hits = (await call(page, "GET", "sessions/search?q=quiet"))["hits"]
        assert hits == []
