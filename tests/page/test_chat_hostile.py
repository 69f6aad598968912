"""Hostile and huge texts in the chat: everything is shown as text, nothing runs, nothing freezes."""

import json
import time

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.test_chat import send
from tests.world.model_server import Call, Calls, Say

pytestmark = [pytest.mark.deadline(180), pytest.mark.service("chromium")]
HTML = '<img src=x onerror="window.hit=1"><script>window.hit=1</script><svg onload="window.hit=1"></svg>'
MARKDOWN = """[a](javascript:window.hit=1) [b](JaVaScRiPt:window.hit=1) [c](data:text/html,<script>window.hit=1</script>)
![d](https://evil.example/x.png) ![e](x" onerror="window.hit=1) <https://evil.example/<b>> [f](https://evil.example/path)

| <b>cell</b> | [g](vbscript:x) |
|---|---|
| `<i>` | ![h](javascript:alert(1)) |

```<script>
</code></pre><script>window.hit=1</script>
```
"""
BIDI = "user\u202egnp.exe \u2066hidden\u2069 \u0000 \ufffd"


async def check_nothing_ran(running, page):
    assert await page.evaluate("window.hit") is None
    assert {url.split("/")[2] for url in running.requests if "//" in url and not url.startswith("blob:")} == {
        f"127.0.0.1:{running.port}"
    }
    assert await page.locator(".msg script, .msg img[src^=http], .msg svg[onload]").count() == 0


async def test_markup_in_messages_and_titles_is_text(site):
    async with site((Say(f"{HTML}\n\n{MARKDOWN}"), Say(HTML))) as running:
        page = await running.log_in()
        await send(page, HTML)
        answer = page.locator(".sheets .msg.assistant .body")
        await expect(answer).to_contain_text('<img src=x onerror="window.hit=1">')
        await expect(page.locator(".msg.user .body")).to_have_text(HTML)
        await expect(page.locator(".conversation-title")).to_contain_text("<img src=x")
        await page.reload()
        await expect(answer).to_contain_text("<svg onload")
        links = await answer.locator("a[href]").evaluate_all("(all) => all.map((each) => each.href)")
        assert links and all(each.startswith("https://evil.example/") for each in links)
        assert "javascript:window.hit=1" in await answer.inner_text()
        await expect(answer.get_by_text("f (evil.example)")).to_be_visible()
        await check_nothing_ran(running, page)


async def test_markup_in_calls_and_results_is_text(site):
    command = f"printf '%s' '{HTML.replace(chr(39), '')}'"
    async with site((Calls((Call("terminal", {"command": command}),)), Say("done"))) as running:
        page = await running.log_in()
        await send(page, "go")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("done")
        await page.locator(".call summary").click()
        await expect(page.locator(".call-text").last).to_contain_text("<script>window.hit=1</script>")
        await check_nothing_ran(running, page)


async def test_marks_of_direction_do_not_reorder_the_command_of_an_approval(site):
    async with site(
        (Calls((Call("terminal", {"command": "git push --force origin \u202enigam"}),)), Say("no"))
    ) as running:
        page = await running.log_in()
        await send(page, "go")
        question = page.get_by_role("region", name="Approval needed")
        await expect(question.locator("pre")).to_contain_text("\\u202enigam")
        await question.get_by_role("button", name="Deny", exact=True).click()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("no")


async def test_a_megabyte_without_a_space_is_wrapped_and_does_not_freeze_the_page(site):
    async with site((Say("x" * 190_000, pieces=100), Say("next"))) as running:
        page = await running.log_in()
        await send(page, "y" * 1_000_000)
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(1, timeout=30_000)
        await expect(page.get_by_role("button", name="Show all 200,000 characters")).to_be_visible()
        log = page.get_by_role("log")
        assert await log.evaluate("(log) => log.scrollWidth <= log.clientWidth")
        await page.reload()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_count(1)
        started = time.monotonic()
        await send(page, "still there?")
        await expect(page.locator(".sheets .msg.assistant .body").last).to_have_text("next")
        assert time.monotonic() - started < 20


async def test_a_long_result_is_cut_and_shown_whole_on_demand(site):
    command = "seq 1 20000"
    async with site((Calls((Call("terminal", {"command": command}),)), Say("done"))) as running:
        page = await running.log_in()
        await send(page, "count")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("done")
        await page.reload()
        await page.locator(".call summary").click()
        result = page.locator(".call-text").last
        await expect(result.get_by_role("button", name="Show all")).to_be_visible()
        await result.get_by_role("button", name="Show all").click()
        await expect(result.get_by_role("button", name="Show all")).to_have_count(0)


async def test_deeply_nested_markdown_is_shown(site):
    async with site((Say("> " * 60 + "deep\n" + "- " * 60 + "item\n" + "*" * 2000 + "`" * 999),)) as running:
        page = await running.log_in()
        await send(page, "go")
        await expect(page.locator(".sheets .msg.assistant .body")).to_contain_text("deep")


async def test_unknown_events_and_broken_drafts_are_ignored(site):
    async with site((Say("fine"),)) as running:
        page = await running.log_in()
        await page.evaluate("localStorage['alipes.outbox'] = '{broken'; localStorage['alipes.draft.new'] = 'null'")
        await page.reload()
        await send(page, json.dumps({"type": "unknown"}))
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("fine")


async def test_letters_of_any_direction_keep_their_order(site):
    async with site((Say(BIDI),)) as running:
        page = await running.log_in()
        await send(page, "مرحبا بالعالم")
        body = page.locator(".msg.user .body")
        await expect(body).to_have_css("direction", "rtl")
        await expect(page.locator(".sheets .msg.assistant .body p")).to_have_attribute("dir", "auto")
