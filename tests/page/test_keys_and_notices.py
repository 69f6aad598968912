"""Keys, theme, text size, notifications, the count in the title, and the page as an installed program."""

import json

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.screen_steps import start_run
from tests.page.test_chat import send
from tests.world.model_server import Call, Calls, Say, Stall

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
PUSH = (Calls((Call("terminal", {"command": "git push --force origin main"}),)), Say("Pushed or not."))
HIDE = """() => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => window.isHidden });
  window.isHidden = true;
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SHOW = "() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }"
RECORD = (
    "window.noticed = []; window.Notification = class { static permission = 'granted'; "
    "static async requestPermission() { return 'granted'; } constructor(title, options) { noticed.push([title, options.body]); } };"
)


async def test_keys_start_search_write_copy_and_stop(site):
    async with site((Say("The answer."), Stall("on its way"))) as running:
        page = await running.log_in(permissions=["clipboard-read", "clipboard-write"])
        await send(page, "hello")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("The answer.")
        await page.get_by_role("log").focus()
        await page.keyboard.press("c")
        await expect(page.locator(".toast")).to_contain_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == "The answer."
        await page.keyboard.press("i")
        await expect(page.locator("textarea")).to_be_focused()
        await page.keyboard.press("n")
        await expect(page.locator("textarea")).to_have_value("n")
        await page.locator("textarea").fill("")
        await send(page, "more")
        await expect(page.locator("button.stop")).to_be_visible()
        await page.keyboard.press("Alt+s")
        await expect(page.get_by_text("Stopped.")).to_be_visible()
        await page.keyboard.press("Alt+n")
        await expect(page.get_by_role("heading", name="What should we work on?")).to_be_visible()
        await page.get_by_role("heading", level=1).click()
        await page.keyboard.press("/")
        await expect(page.get_by_role("searchbox", name="Words in any conversation")).to_be_focused()


async def test_an_approval_is_answered_by_a_key_that_no_typing_hits(site):
    async with site(PUSH) as running:
        page = await running.log_in()
        await send(page, "push it")
        await expect(page.locator(".question")).to_be_visible()
        await page.get_by_role("log").focus()
        await page.keyboard.press("d")
        await page.keyboard.press("a")
        await expect(page.locator(".question")).to_be_visible()
        await page.keyboard.press("Alt+d")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Pushed or not.")
        await expect(page.locator(".call")).to_have_attribute("data-outcome", "denied")


async def test_theme_text_size_and_single_keys_are_chosen_and_kept(site):
    async with site() as running:
        page = await running.log_in(color_scheme="light")
        await page.get_by_role("heading", level=1).click()
        await page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Appearance and keys")
        await expect(dialog).to_contain_text("Allow the open approval once")
        await dialog.get_by_label("Theme").select_option("Dark")
        await dialog.get_by_label("Text size").select_option("Large")
        await dialog.get_by_label("Single keys").select_option("Off")
        await page.keyboard.press("Escape")
        await page.reload()
        await expect(page.locator(".composer")).to_be_visible()
        assert await page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(22, 22, 21)"
        assert await page.evaluate("getComputedStyle(document.documentElement).fontSize") == "18px"
        await page.get_by_role("heading", level=1).click()
        await page.keyboard.press("?")
        await expect(dialog).to_have_count(0)


async def test_a_hidden_tab_counts_and_notifies_of_answers_and_questions(site):
    async with site((Say("Ready."), *PUSH)) as running:
        context = await running.open_context()
        await context.add_init_script(RECORD)
        page = await context.new_page()
        await page.goto(await running.link())
        await expect(page.locator(".composer")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.get_by_role("heading", level=1).click()
        await page.keyboard.press("?")
        await page.get_by_label("Notify me").check()
        await page.keyboard.press("Escape")
        await page.evaluate(HIDE)
        await start_run(page, "say when")
        await expect(page).to_have_title("(1) New conversation · alipes")
        await start_run(page, "push it")
        await expect(page).to_have_title("(2) New conversation · alipes")
        while await page.evaluate("noticed.length") < 2:
            pass
        asked = ["The agent waits for you", "One question is open."]
        assert await page.evaluate("noticed") == [["Answer: say when", "Ready."], asked]
        await page.evaluate(SHOW)
        await expect(page).to_have_title("(1) New conversation · alipes")


async def test_chromium_finds_the_page_installable(site):
    async with site() as running:
        page = await running.log_in()
        session = await page.context.new_cdp_session(page)
        manifest = await session.send("Page.getAppManifest")
        assert manifest["errors"] == []
        icons = json.loads(manifest["data"])["icons"]
        for icon in icons:
            answer = await page.request.get(f"{running.url}{icon['src']}")
            assert (answer.status, answer.headers["content-type"]) == (200, icon["type"])
        touch = await page.locator("link[rel=apple-touch-icon]").get_attribute("href")
        assert (await page.request.get(f"{running.url}{touch}")).status == 200
        found = await session.send("Page.getInstallabilityErrors")
        assert [each["errorId"] for each in found["installabilityErrors"]] in ([], ["in-incognito"])
