"""Conversations in a real browser: the list, older messages, links to messages, and what the menu does."""

import re

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.test_chat import send
from tests.world.model_server import Say

pytestmark = [pytest.mark.deadline(180), pytest.mark.service("chromium")]
TURNS = 70
SEND = """async ([session, count]) => {
  const headers = {"content-type": "application/json", "x-alipes-page": localStorage["alipes.secret"]};
  for (let number = 1; number <= count; number++) {
    const body = JSON.stringify({input: `question ${number}`, session, busy: "queue"});
    const run = await (await fetch("v1/runs", {method: "POST", headers, body})).json();
    await (await fetch(`v1/runs/${run.id}/events`, {headers})).text();
  }
  return (await (await fetch(`v1/sessions/${session}`, {headers})).json()).id;
}"""


async def fill(running, page):
    """A conversation with `TURNS` turns; returns its id."""
    return await page.evaluate(SEND, ["many", TURNS])


def answer(body):
    asked = [each["content"] for each in body["messages"] if each["role"] == "user"]
    return Say(f"Answer to {asked[-1]}. " + "More words follow. " * 20)


async def test_older_messages_are_loaded_while_scrolling_up_and_the_reader_is_not_moved(site):
    async with site(answer) as running:
        page = await running.log_in()
        await page.goto(f"{running.url}#/c/{await fill(running, page)}")
        await expect(page.get_by_role("log").get_by_text(f"question {TURNS}", exact=True)).to_be_visible()
        await expect(page.get_by_role("log").get_by_text("question 1", exact=True)).to_have_count(0)
        log = page.get_by_role("log")
        moved = await log.evaluate(
            """async (log) => {
              let worst = 0;
              const first = () => log.querySelector(".msg.user .body").textContent === "question 1";
              for (let step = 0; step < 2000 && !first(); step++) {
                const seen = [...log.querySelectorAll("article")].find((each) => each.getBoundingClientRect().top > 200);
                const before = seen.getBoundingClientRect().top;
                const wanted = Math.min(60, log.scrollTop);
                log.scrollTop -= wanted;
                await new Promise(requestAnimationFrame);
                worst = Math.max(worst, Math.abs(seen.getBoundingClientRect().top - before - wanted));
              }
              return worst;
            }"""
        )
        assert moved < 2
        await log.evaluate("(log) => { log.scrollTop = 0; }")
        await expect(page.get_by_role("log").get_by_text("question 1", exact=True)).to_be_visible()
        await expect(page.locator(".msg.user")).to_have_count(TURNS)


async def test_a_link_to_a_message_opens_it_and_the_latest_is_one_click_away(site):
    async with site(answer) as running:
        page = await running.log_in()
        id = await fill(running, page)
        await page.goto(f"{running.url}#/c/{id}/m/1")
        await expect(page.get_by_role("log").get_by_text("question 1", exact=True)).to_be_in_viewport()
        await expect(page.get_by_role("log").get_by_text(f"question {TURNS}", exact=True)).to_have_count(0)
        await page.get_by_role("button", name="Latest").click()
        await expect(page.get_by_role("log").get_by_text(f"question {TURNS}", exact=True)).to_be_in_viewport()


async def test_the_menu_renames_undoes_branches_and_deletes(site):
    async with site(answer) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await send(page, "second")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(2)

        async def choose(name):
            await page.get_by_role("button", name="Conversation menu").click()
            await page.get_by_role("menuitem", name=name).click()

        await choose("Rename")
        await page.get_by_label("Title").fill("A better title")
        await page.get_by_label("Title").press("Enter")
        await expect(page.locator(".conversation-title")).to_have_text("A better title")
        await choose("Undo the last turn")
        await expect(page.locator(".msg.user .body")).to_have_text(["first"])
        original = page.url
        await choose("Branch")
        await expect(page).not_to_have_url(original)
        await expect(page.locator(".msg.user .body")).to_have_text(["first"])
        await choose("Delete")
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page).to_have_url(re.compile("#/new$"))
        await expect(page.locator(".conversation")).to_have_count(1)


async def test_model_permission_mode_and_effort_are_kept_for_the_conversation(site):
    async with site(answer) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.get_by_label("Permission mode").select_option("plan")
        await page.get_by_label("Thinking effort").select_option("high")
        await page.get_by_label("Model").focus()
        await expect(page.get_by_label("Model").locator("option[value='test/scripted']")).to_have_count(1)
        await page.get_by_label("Model").select_option("test/scripted")
        await expect(page.get_by_label("Model")).to_have_value("test/scripted")
        await page.reload()
        await expect(page.get_by_label("Permission mode")).to_have_value("plan")
        await expect(page.get_by_label("Thinking effort")).to_have_value("high")
        await expect(page.get_by_label("Model")).to_have_value("test/scripted")


async def test_a_command_is_completed_and_its_reply_shown(site):
    async with site(answer) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.locator("textarea").press_sequentially("/statu")
        await expect(page.get_by_role("option", name="/status")).to_be_visible()
        await page.locator("textarea").press("Tab")
        await expect(page.locator("textarea")).to_have_value("/status ")
        await page.locator("textarea").press("Enter")
        await expect(page.locator(".reply")).to_contain_text("scripted")


async def test_the_whole_chat_works_on_a_narrow_phone(site):
    async with site(answer) as running:
        page = await running.log_in(viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True)
        await page.locator("textarea").fill("hello\nthere")
        await page.locator("textarea").press("Enter")
        await expect(page.locator("textarea")).to_have_value(re.compile("hello"))
        await page.get_by_role("button", name="Send").tap()
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.get_by_role("button", name="Open the menu").tap()
        await expect(page.locator(".conversation")).to_be_in_viewport()
        await page.locator(".conversation").tap()
        await expect(page.locator(".conversation")).not_to_be_in_viewport()
        assert await page.evaluate("document.documentElement.scrollWidth") == 320
