"""Takes the pictures of docs/page.md from a real run. `make pictures` keeps them (ALIPES_TEST_PICTURES=FOLDER)."""

import os
import shlex
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from PIL import Image
from playwright.async_api import expect

from tests.page.screen_steps import call
from tests.world.environment import ROOT
from tests.world.mcp_harness import world_table
from tests.world.model_server import Call, Calls, Say
from tests.world.plugin_sources import native

pytestmark = [pytest.mark.deadline(180), pytest.mark.service("chromium")]
KEPT_IN = os.environ.get("ALIPES_TEST_PICTURES")
DAY_S = 86_400
PHONE = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
ANSWER = """The build fails because the header of `libfoo` is missing. Two ways to fix it:

1. Install it: `apt install libfoo-dev`
2. Switch the feature off in the settings of the build:

```toml
[build]
foo = false
```

| target | before | after |
|---|---|---|
| server | failed | **212 passed** |
| client | 87 passed | 87 passed |

I would install it, because the tests of the server need it.
"""
RENAME_FOLDER = """(folder) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "/home/ann/project");
}"""
"""Shows a person's folder instead of the temporary one."""
SKILL = "---\nname: release\ndescription: How a release is made, from the changelog to the tag.\n---\n\nRun the tests first.\n"
JOBS = (
    {"name": "news", "when": "every weekday at 8", "prompt": "Send me a summary of what is new.", "deliver": ["none"]},
    {"name": "backup", "when": "every day at 3:30", "script": "restic backup ~/notes", "deliver": ["none"]},
)
NOTES = ("The tests of the server need libfoo.\nReleases are made on Thursdays.", "Ann prefers short answers.")
ASKED = "Why does the build fail since yesterday?"
PUSH = "Push the release branch, please"


def reply(body):
    messages = [each for each in body["messages"] if each["role"] != "system"]
    said, last = str(messages[-1]["content"]), messages[-1]["role"]
    if not body.get("tools"):
        return Say("Why the build fails" if "build" in said else "Push the release")
    if PUSH in said and last == "user":
        return Calls((Call("terminal", {"command": "git push --force origin release"}),))
    return Say(ANSWER, pieces=8)


def add_usage(database):
    """Model calls of four weeks."""
    models = (("anthropic/claude-sonnet-5", 9e-6), ("openai/gpt-6-mini", 2e-6), ("local/qwen-4", 0.0))
    rows = []
    for day in range(28):
        for number, (model, price) in enumerate(models):
            tokens = 4_000 * ((day * (3 + number) + 5 * number) % 13)
            moment = time.time() - day * DAY_S - 60
            task = ("title", "compaction", "memory")[number]
            rows.append(("", "", task, "", model, tokens, tokens // 8, tokens // 2, 0, 0, tokens * price, moment))
    names = "turn_id, session_id, task, tool, model, input, output, cached, cache_write, reasoning, cost, created"
    with closing(sqlite3.connect(database, timeout=30)) as db, db:
        db.executemany(f"INSERT INTO auxiliary_calls ({names}) VALUES ({', '.join('?' * 12)})", rows)


async def send(page, text):
    await page.locator("textarea").fill(text)
    await page.locator("textarea").press("Enter")


async def take(page, name, tmp_path):
    """Take a picture once the page has come to the end of its changes."""
    folder = Path(KEPT_IN or tmp_path)
    await page.wait_for_timeout(600)
    await page.screenshot(path=folder / f"{name}.png")
    assert (folder / f"{name}.png").stat().st_size > 10_000


SCREENS = {
    "inbox": "Open questions of all conversations",
    "search": "Search in all conversations",
    "usage": "Usage",
    "schedules": "Schedules",
    "skills": "Skills",
    "memory": "Memory",
    "mcp": "MCP servers",
    "agents": "Other agents",
    "plugins": "Plugins",
    "people": "People and platforms",
    "settings": "Settings",
    "log": "Log",
    "doctor": "Doctor",
    "browsers": "Browsers",
}
"""Screens by their address, with what the docs say of each."""
CHATS = {
    "new": "A new conversation",
    "chat": "A conversation",
    "models": "The list of models",
    "keys": "Appearance and keys",
}
WIDE = {"viewport": {"width": 1280, "height": 800}}


async def take_themes(page, name, folder, tmp_path):
    """A light and a dark picture, with a colour table: a third of the bytes."""
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)
        await page.wait_for_timeout(300)
        for place in (str(tmp_path), sys.executable, str(ROOT), tmp_path.name):
            await page.evaluate(RENAME_FOLDER, place)
        path = folder / f"{name}-{theme}.png"
        await page.screenshot(path=path)
        with Image.open(path) as picture:
            reduced = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            reduced.save(path, optimize=True)


async def fill_screens(running, page, tmp_path):
    """Something to see on each screen."""
    add_usage(running.home.path / "alipes.db")
    await send(page, PUSH)
    await expect(page.locator("code", has_text="git push --force").first).to_be_visible()
    await call(page, "POST", "mcp", {"name": "world", "command": shlex.join(world_command(tmp_path))})
    await call(page, "POST", "mcp/world/test")
    await call(page, "POST", "skills", {"text": SKILL})
    plugin = str(native(tmp_path / "ways"))
    offer = await call(page, "POST", "plugins/look", {"source": plugin})
    await call(page, "POST", "plugins", {"source": plugin, "sha256": offer["sha256"]})
    for job in JOBS:
        await call(page, "POST", "schedules", job)
    for notes, text in zip((await call(page, "GET", "memory"))["targets"], NOTES, strict=True):
        await call(page, "PATCH", "memory", {"target": notes["target"], "text": text, "base": notes["base"]})
    await page.goto(f"{running.url}#/new")
    await send(page, ASKED)
    await expect(page.locator(".msg.assistant td").first).to_have_text("server")
    await expect(page.locator("button.stop")).to_have_count(0)
    return page.url


async def fill_screen(page, name):
    """What a screen shows only when it is asked for."""
    if name == "doctor":
        await page.get_by_role("button", name="Run the checks").click()
        await expect(page.locator(".checks").first).to_be_visible(timeout=60_000)
    if name == "search":
        await page.goto(page.url + "?q=build")
        await expect(page.locator(".hit").first).to_be_visible()
    if name == "log":
        await page.get_by_label("Level").select_option("debug and above")
        await expect(page.locator(".log-line").first).to_be_visible()


def world_command(tmp_path):
    table = world_table(tmp_path / "world")
    return (table["command"], *table["args"])


@pytest.mark.deadline(900)
async def test_the_pictures_of_every_screen(site, tmp_path):
    folder = Path(KEPT_IN or tmp_path) / "page"
    folder.mkdir(exist_ok=True)
    async with site(reply, log_level='"debug"') as running:
        first = await running.log_in()
        chat = await fill_screens(running, first, tmp_path)
        for size, options in (("1280", WIDE), ("390", PHONE)):
            page = await running.log_in(**options)
            for name in SCREENS:
                await page.goto(f"{running.url}#/{name}")
                await expect(page.locator("h1").first).to_be_visible()
                await expect(page.locator(".spinner")).to_have_count(0)
                await fill_screen(page, name)
                await take_themes(page, f"{name}-{size}", folder, tmp_path)
            for name in CHATS:
                await page.goto(chat if name == "chat" else f"{running.url}#/new")
                await expect(page.locator(".msg.assistant td, .welcome").first).to_be_visible()
                if name == "models":
                    await page.locator(".model-button").click()
                if name == "keys":
                    await page.locator("textarea").blur()
                    await page.keyboard.press("?")
                await take_themes(page, f"{name}-{size}", folder, tmp_path)
                await page.keyboard.press("Escape")
    assert len(list(folder.glob("*.png"))) == 4 * len([*SCREENS, *CHATS])


async def test_the_pictures_of_the_docs_show_chat_inbox_usage_and_phone(site, tmp_path):
    async with site(reply) as running:
        add_usage(running.home.path / "alipes.db")
        page = await running.log_in()
        await send(page, PUSH)
        await expect(page.locator("code", has_text="git push --force").first).to_be_visible()
        await page.goto(f"{running.url}#/")
        await send(page, ASKED)
        await expect(page.locator(".msg.assistant td").first).to_have_text("server")
        await expect(page.locator("button.stop")).to_have_count(0)
        await take(page, "page-chat-light", tmp_path)
        await page.emulate_media(color_scheme="dark")
        await take(page, "page-chat-dark", tmp_path)
        await page.emulate_media(color_scheme="light")
        await page.goto(f"{running.url}#/inbox")
        await expect(page.get_by_text("git push --force origin release").first).to_be_visible()
        await page.evaluate(RENAME_FOLDER, str(tmp_path))
        await take(page, "page-inbox", tmp_path)
        await page.goto(f"{running.url}#/usage")
        await expect(page.locator("canvas")).to_be_visible()
        await take(page, "page-usage", tmp_path)
        phone = await (await running.open_context(**PHONE, color_scheme="dark")).new_page()
        await phone.goto(await running.link())
        await phone.wait_for_url(f"{running.url}#/**")
        await phone.get_by_role("button", name="Open the menu").click()
        await phone.locator(".conversation", has_text="build").click()
        await expect(phone.locator(".msg.assistant td").first).to_have_text("server")
        await take(phone, "page-phone", tmp_path)
