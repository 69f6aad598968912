"""Every screen for everyone: axe in both themes, 320 pixels, the keyboard alone, readers, the palette, errors."""

import asyncio
import json

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import Page, Route, expect

from tests.page.samples import ANSWERS, SCREENS
from tests.page.screen_steps import call, show, start_run
from tests.world.environment import SERVICES
from tests.world.model_server import Say

pytestmark = [pytest.mark.deadline(300), pytest.mark.service("chromium")]
AXE = SERVICES / "node_modules" / "axe-core" / "axe.min.js"
CHECK = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`).join(" | ")}`);
}"""


EDGES = """(name) => {
  const box = document.querySelector(name).getBoundingClientRect();
  return [box.left, box.right].map(Math.round);
}"""
CUT_RINGS = """async () => {
  const cut = [];
  for (const each of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")) {
    each.focus({ focusVisible: true });
    each.scrollIntoView({ block: "nearest", inline: "nearest" });
    const style = getComputedStyle(each);
    if (document.activeElement !== each || style.outlineStyle === "none" || !each.checkVisibility()) continue;
    const reach = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
    const box = each.getBoundingClientRect();
    if (box.width < 2) continue;
    for (let around = each.parentElement; around && around !== document.body; around = around.parentElement) {
      const its = getComputedStyle(around);
      if (its.overflowX === "visible" && !/paint|strict|content/.test(its.contain)) continue;
      const edge = around.getBoundingClientRect();
      if (box.left - reach < edge.left - 0.6 || box.right + reach > edge.left + around.clientLeft + around.clientWidth + 0.6) {
        cut.push(`${each.tagName} ${each.className} ${each.textContent.slice(0, 30)} in ${around.className}`);
        break;
      }
    }
  }
  return cut;
}"""
"""Elements whose ring does not fit into what is around them, at the sides: there nothing can be scrolled."""


async def answer_sample(route: Route) -> None:
    path = route.request.url.partition("/v1/")[2].partition("?")[0]
    if path in ("events", "log/stream"):
        await route.fulfill(content_type="text/event-stream", body=": ok\n\n")
    else:
        await route.fulfill(json=ANSWERS.get(path, {}))


async def open_samples(running, **options) -> Page:
    """A page that shows the example answers."""
    page = await running.log_in(**options)
    await page.route("**/v1/**", answer_sample)
    await page.reload()
    return page


async def open_screen(page, address):
    await show(page, address, SCREENS[address])
    if address == "doctor":
        await page.get_by_role("button", name="Run the checks").click()
        await expect(page.locator(".checks").first).to_be_visible()
    await expect(page.locator(".spinner")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_serious_on_any_screen(site, theme):
    if not AXE.exists():
        pytest.skip("axe-core is not installed (make services)")
    async with site() as running:
        page = await open_samples(running, color_scheme=theme, reduced_motion="reduce")
        await page.evaluate(AXE.read_text())
        found = {}
        for address in SCREENS:
            await open_screen(page, address)
            found[address] = await page.evaluate(CHECK)
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("combobox", name="Go to")).to_be_visible()
        found["palette"] = await page.evaluate(CHECK)
    assert {address: problems for address, problems in found.items() if problems} == {}


async def test_no_screen_scrolls_sideways_at_320_pixels(site):
    async with site() as running:
        page = await open_samples(running)
        await page.set_viewport_size({"width": 320, "height": 640})
        wide = {}
        for address in SCREENS:
            await open_screen(page, address)
            width = "document.documentElement.scrollWidth, document.querySelector('.screen').scrollWidth"
            wide[address] = await page.evaluate(f"Math.max({width})")
        assert {address: width for address, width in wide.items() if width > 320} == {}
        await page.get_by_role("button", name="Open the menu").click()
        await expect(page.get_by_role("link", name="Inbox")).to_be_visible()


async def test_no_screen_is_shown_before_its_styles(site):
    async with site() as running:
        page = await running.log_in(service_workers="block")
        release = asyncio.Event()

        async def hold(route):
            await release.wait()
            await route.continue_()

        await page.route("**/screens.css", hold)
        async with page.expect_response("**/screens/doctor.js"):
            await page.evaluate("location.hash = '#/doctor'")
        async with page.expect_response("**/screens/search.js"):
            await page.evaluate("location.hash = '#/search'")
        await page.evaluate("fetch('sw.js').then((answer) => answer.text())")
        await expect(page.locator(".page")).to_have_count(0)
        release.set()
        await expect(page.get_by_role("heading", level=1, name="Search")).to_be_visible()


@pytest.mark.parametrize("width", [1600, 1000])
async def test_all_screens_and_the_chat_have_one_left_edge_and_one_width(site, width):
    async with site((Say("Noted."),)) as running:
        page = await open_samples(running, viewport={"width": width, "height": 900})
        edges = {}
        for address in SCREENS:
            await open_screen(page, address)
            edges[address] = await page.evaluate(EDGES, ".page-head")
        await page.evaluate("location.hash = '#/new'")
        await expect(page.locator(".examples")).to_be_visible()
        for name in (".composer", ".examples"):
            edges[name] = await page.evaluate(EDGES, name)
        left = await page.evaluate("document.querySelector('h1').getBoundingClientRect().left")
        edges["title"] = [round(left), edges[".composer"][1]]
        await page.evaluate("location.hash = '#/nosuch'")
        left = await page.evaluate("document.querySelector('.screen-wait h1').getBoundingClientRect().left")
        edges["nosuch"] = [round(left), edges[".composer"][1]]
    assert len({tuple(each) for each in edges.values()}) == 1, edges


async def test_all_screens_and_the_chat_have_one_left_edge_on_a_phone(site):
    async with site((Say("Noted."),)) as running:
        page = await open_samples(running, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
        edges = {}
        for address in SCREENS:
            await open_screen(page, address)
            edges[address] = await page.evaluate(EDGES, ".page-head")
        await page.evaluate("location.hash = '#/new'")
        await expect(page.locator(".examples")).to_be_visible()
        for name in (".composer", ".examples"):
            edges[name] = await page.evaluate(EDGES, name)
        await page.unroute("**/v1/**")
        await page.reload()
        await page.locator("textarea").fill("hello")
        await page.get_by_role("button", name="Send", exact=True).tap()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Noted.")
        edges["message"] = await page.evaluate(EDGES, ".sheets .msg.assistant")
    assert len({tuple(each) for each in edges.values()}) == 1, edges


async def test_no_focus_ring_is_cut(site):
    async with site() as running:
        page = await open_samples(running)
        cut = {}
        for address in (*SCREENS, "new"):
            if address == "new":
                await page.evaluate("location.hash = '#/new'")
                await expect(page.locator(".composer")).to_be_visible()
            else:
                await open_screen(page, address)
            await page.keyboard.press("Tab")
            cut[address] = await page.evaluate(CUT_RINGS)
    assert {address: names for address, names in cut.items() if names} == {}


async def test_an_unknown_screen_says_so_and_leads_on(site):
    async with site() as running:
        page = await running.log_in(viewport={"width": 390, "height": 700})
        await show(page, "nosuch", "There is no screen “nosuch”.")
        await expect(page).to_have_title("Not found · alipes")
        await page.get_by_role("button", name="Open the menu").click()
        await expect(page.get_by_role("link", name="Inbox")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="Start a conversation").click()
        await expect(page.locator(".composer")).to_be_visible()


async def test_a_reader_sees_every_screen_and_no_button_that_would_fail(site):
    async with site() as running:
        reader = await running.log_in("read")
        refused = []
        reader.on("response", lambda answer: answer.status == 403 and refused.append(answer.url))
        quiet = {"Open the menu", "Download CSV", "Try again", "Pause", "Follow", "Log out", "Show more"}
        for address in ("schedules", "skills", "skills?tab=pending", "memory", "mcp", "plugins", "people"):
            await show(reader, address, SCREENS[address])
            await expect(reader.locator(".spinner")).to_have_count(0)
            buttons = await reader.locator(".page button:not([role=tab])").all_inner_texts()
            assert {each.strip() for each in buttons if each.strip()} <= quiet, address
            assert await reader.locator(".page textarea:enabled").count() == 0, address
        for address in ("people/platforms", "people/outbox", "settings", "log", "usage", "inbox", "browsers"):
            await show(reader, address, SCREENS[address])
            await expect(reader.locator(".spinner")).to_have_count(0)
            await expect(reader.locator(".error-box")).to_have_count(0)
        assert refused == []


async def test_an_error_is_shown_and_trying_again_loads_the_screen(site):
    async with site() as running:
        page = await running.log_in()
        problem = {"title": "Error", "status": 503, "detail": "The database is locked.", "code": "store"}
        await page.route("**/v1/schedules", lambda route: route.fulfill(status=503, json=problem))
        await show(page, "schedules", "Schedules")
        await expect(page.locator(".error-box")).to_contain_text("The database is locked.")
        await page.unroute("**/v1/schedules")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_text("No schedules")).to_be_visible()


async def test_answers_with_unknown_and_missing_fields_are_shown(site):
    async with site() as running:
        page = await running.log_in()
        odd = {
            "jobs": [{"id": "x", "name": "odd", "when": "?", "state": "new-state", "future": {"a": [1]}}],
            "later": 1,
        }
        await page.route("**/v1/schedules", lambda route: route.fulfill(json=odd))
        await show(page, "schedules", "Schedules")
        await expect(page.get_by_role("link", name="odd")).to_be_visible()
        await page.route(
            "**/v1/skills", lambda route: route.fulfill(body=json.dumps({}), content_type="application/json")
        )
        await show(page, "skills", "Skills")
        await expect(page.locator(".error-box")).to_contain_text("could not be shown")


async def test_the_palette_opens_screens_conversations_settings_and_schedules_by_keyboard(site):
    async with site((Say("Noted."),)) as running:
        page = await running.log_in()
        run = await start_run(page, "Water the orchids")
        await call(
            page, "POST", "schedules", {"when": "manual", "prompt": "x", "name": "night-watch", "deliver": ["none"]}
        )
        for words, label, address in (
            ("usag", "Usage", "#/usage"),
            ("orchids", "orchids", f"#/c/{(await call(page, 'GET', 'sessions'))['sessions'][0]['id']}"),
            ("ngtwatch", "night-watch", "#/schedules/"),
            ("api.rate", "api.rate", "#/settings/api.rate"),
        ):
            await page.keyboard.press("Control+k")
            box = page.get_by_role("combobox", name="Go to")
            await box.fill(words)
            await expect(page.locator("#palette-0")).to_contain_text(label)
            await expect(page.locator("#palette-0")).not_to_contain_text("Search messages")  # until all is loaded
            await box.press("Enter")
            await expect(box).to_have_count(0)
            assert address in page.url, words
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Go to").press("Escape")
        await expect(page.get_by_role("combobox", name="Go to")).to_have_count(0)
        assert run["id"]


async def test_a_job_is_paused_by_keyboard_alone(site):
    async with site() as running:
        page = await running.log_in()
        job = {"when": "every day at 9", "prompt": "x", "name": "watch", "deliver": ["none"]}
        await call(page, "POST", "schedules", job)
        await show(page, "schedules", "Schedules")
        await page.get_by_role("button", name="New job").focus()
        for _ in range(2):
            await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1, name="watch")).to_be_visible()
        for _ in range(40):
            if await page.evaluate("document.activeElement.textContent.trim()") == "Pause":
                break
            await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Resume")).to_be_visible()
