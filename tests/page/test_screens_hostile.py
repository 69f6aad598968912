"""Texts full of markup in every field of every screen, of the palette and of errors: shown as text, nothing runs."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import Page, Route, expect

from tests.page.samples import ANSWERS, SCREENS
from tests.world.page_site import PageSite

pytestmark = [pytest.mark.deadline(400), pytest.mark.service("chromium")]
WATCH = """
window.reports = [];
addEventListener("securitypolicyviolation", (event) => window.reports.push(`${event.violatedDirective} ${event.blockedURI}`));
addEventListener("message", (event) => window.reports.push(`message ${event.data}`));
"""
KEPT = {"ask", "id", "key", "name", "code", "from", "to", "day", "scopes", "scope", "secret"}
"""Fields that must differ between two rows, or that lead to another row: numbered instead of equal."""


def read_corpus() -> list[str]:
    """The strings of the corpus; escapes such as `\\n` and `\\u202e` are the characters that they stand for."""
    lines = (Path(__file__).parent / "xss_corpus.txt").read_text("utf-8").splitlines()
    return [re.sub(r"\\(n|t|u[0-9a-f]{4})", lambda found: _character(found[1]), line) for line in lines]


def _character(escape: str) -> str:
    character = {"n": "\n", "t": "\t"}.get(escape) or chr(int(escape[1:], 16))
    return character.encode("utf-8", "replace").decode()


CORPUS = read_corpus()
ALL = "\n".join(CORPUS)


def spoil(value: Any, text: str, number: int = 0) -> Any:
    """`value` with `text` in place of every text; lists have one row for every string of the corpus."""
    match value:
        case dict():
            return {name: _spoil_field(name, each, text, number) for name, each in value.items()}
        case [dict() as row, *_]:
            rows = value if len(value) > 300 else [row] * len(CORPUS)
            return [spoil(rows[place], string, place) for place, string in enumerate(CORPUS)]
        case [str(), *_]:
            return [text]
        case list():
            return value
        case str():
            return text
    return value


def _spoil_field(name: str, value: Any, text: str, number: int) -> Any:
    if name in {"from", "to", "day", "scopes"}:
        return value
    if name in KEPT and isinstance(value, str):
        return f"{number} {text}"
    return number + 1 if name in KEPT and isinstance(value, int) else spoil(value, text, number)


HOSTILE = {path: answer if path == "key" else spoil(copy.deepcopy(answer), ALL) for path, answer in ANSWERS.items()}


async def answer_hostile(route: Route) -> None:
    path = route.request.url.partition("/v1/")[2].partition("?")[0]
    if path == "events":
        await route.fulfill(content_type="text/event-stream", body=f"event: {CORPUS[0]}\ndata: {{}}\n\n")
    elif path == "log/stream":
        lines = spoil(ANSWERS["log"]["lines"], ALL)
        body = "".join(f"id: {place}\ndata: {json.dumps(line)}\n\n" for place, line in enumerate(lines))
        await route.fulfill(content_type="text/event-stream", body=body)
    else:
        await route.fulfill(json=HOSTILE.get(path, {}))


async def answer_error(route: Route) -> None:
    if route.request.url.endswith("/v1/key"):
        await route.fulfill(json=ANSWERS["key"])
    else:
        await route.fulfill(status=409, json={"title": "Conflict", "status": 409, "detail": ALL, "code": CORPUS[0]})


async def open_watched(running: PageSite, answer: Any) -> Page:
    page = await running.log_in()
    await page.add_init_script(WATCH)
    page.on("dialog", lambda dialog: running.errors.append(f"dialog {dialog.message}"))
    await page.route("**/v1/**", answer)
    await page.reload()
    await page.locator(".sidebar .brand").wait_for()
    return page


async def check_harmless(running: PageSite, page: Page) -> None:
    assert running.errors == [], page.url
    assert await page.evaluate("window.pwned") is None
    assert await page.evaluate("window.reports") == []
    assert [url for url in running.requests if not url.startswith((running.url, "blob:"))] == []
    assert (
        await page.evaluate("document.querySelectorAll('script:not([src]), iframe, object, embed, base').length") == 0
    )


def test_the_corpus_has_at_least_150_different_strings():
    assert len(set(CORPUS)) >= 150


async def test_hostile_texts_in_every_field_of_every_screen_are_shown_as_text(site):
    async with site() as running:
        page = await open_watched(running, answer_hostile)
        for address in SCREENS:
            await page.evaluate("hash => { location.hash = hash; }", f"#/{address}")
            await expect(page.locator(".page h1")).to_be_visible()
            if address == "doctor":
                await page.get_by_role("button", name="Run the checks").click()
            await expect(page.locator(".spinner"), address).to_have_count(0)
            shown = page.locator(".page").get_by_text("window.pwned=1").or_(page.locator(".page textarea, .page input"))
            await expect(shown.first, address).to_be_attached()
            await page.evaluate("document.querySelectorAll('.page details').forEach((each) => { each.open = true; })")
            await check_harmless(running, page)


async def test_hostile_errors_are_shown_as_text(site):
    async with site() as running:
        page = await open_watched(running, answer_error)
        for address in SCREENS:
            await page.evaluate("hash => { location.hash = hash; }", f"#/{address}")
            await expect(page.locator(".page h1")).to_be_visible()
            if address == "doctor":
                await page.get_by_role("button", name="Run the checks").click()
            await expect(page.locator(".page [role=alert]").first).to_contain_text("window.pwned=1")
            await check_harmless(running, page)


async def test_hostile_texts_in_dialogs_toasts_and_the_palette_are_shown_as_text(site):
    async with site() as running:
        page = await open_watched(running, answer_hostile)
        await page.evaluate("location.hash = '#/schedules/j1'")
        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("dialog")).to_contain_text("window.pwned=1")
        await page.keyboard.press("Escape")
        await page.route("**/v1/schedules/*/run", answer_error)
        await page.get_by_role("button", name="Run now").click()
        await expect(page.locator(".toast")).to_contain_text("window.pwned=1")
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Go to").fill("pwned")
        await expect(page.locator("#palette-list").get_by_role("option").first).to_contain_text("pwned")
        await check_harmless(running, page)
        await page.keyboard.press("Escape")
        await page.evaluate("location.hash = '#/log'")
        await page.locator(".log-line").first.click()
        await expect(page.get_by_role("dialog")).to_contain_text("Log line")
        await check_harmless(running, page)
