"""Settings, people, plugins, usage, log, doctor, search and browsers on the page of a real server."""

import json
import logging
import re
import signal
import time

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from alipes.runtime.log_file import open_log
from alipes.store.sql.people import PairingRequest, PeopleStore
from alipes.store.sqlite.database import open_database
from tests.page.screen_steps import call, show, start_run
from tests.world.model_server import Say
from tests.world.plugin_sources import native

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
log = logging.getLogger("alipes.test")
CLEO = Address("telegram", "9", user="9")


async def find_setting(page, key):
    return await call(page, "GET", f"settings/{key}")


async def request_code(running):
    """Cleo asks for access on Telegram; returns the code that was sent to her."""
    sent = []

    def message(code):
        sent.append(code)
        return Outbound("code:9", CLEO, f"code {code}")

    async with open_database(running.home.path / "alipes.db") as database:
        await PeopleStore(database).request_pairing(PairingRequest("telegram", "9", "Cleo", CLEO), message)
    return sent[0]


async def test_an_invalid_setting_has_its_error_beside_it_and_a_valid_one_is_written(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "settings/api", "Settings")
        row = page.locator("[id='setting-api.rate']")
        field = row.get_by_role("textbox")
        before = await field.input_value()
        await field.fill("many")
        await page.get_by_role("button", name="Save").click()
        await expect(row.locator(".field-error")).to_contain_text("api.rate")
        await expect(field).to_have_value("many")
        assert str((await find_setting(page, "api.rate"))["value"]) == before
        await show(page, "doctor", "Doctor")
        await show(page, "settings/api", "Settings")
        await expect(field).to_have_value("many")  # still there after another screen
        await field.fill("77")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("region", name="Unsaved changes")).to_have_count(0)
        found = await find_setting(page, "api.rate")
        await row.get_by_text("Why this value?").click()
        await expect(row.locator(".why")).to_contain_text("config.toml")
    assert (found["value"], found["source"]) == (77, "file")
    assert "rate = 77" in (running.home.path / "config.toml").read_text()


async def test_settings_are_found_by_words_and_go_back_to_the_default(site):
    async with site(**{"terminal.busy": '"steer"'}) as running:
        page = await running.log_in()
        await show(page, "settings", "Settings")
        await page.get_by_label("Search settings").fill("busy")
        row = page.locator("[id='setting-terminal.busy']")
        await expect(row.get_by_role("combobox")).to_have_value("steer")
        await row.get_by_role("button", name="Back to the default").click()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("region", name="Unsaved changes")).to_have_count(0)
        assert (await find_setting(page, "terminal.busy"))["source"] == "default"


TOPICS = "import(new URL('screens/settings_topics.js', document.querySelector('script[src]').src))"


async def test_settings_are_controls_by_topic(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "settings", "Settings")
        await expect(page.get_by_role("region", name="Models")).to_be_visible()
        keys = [each["key"] for each in (await call(page, "GET", "settings"))["settings"]]
        topics = await page.evaluate(f"{TOPICS}.then((module) => module.TOPICS)")
        named = [key for topic in topics for key in topic["main"]]
        assert sorted({*named} - {*keys}) == ["auxiliary.compaction.model", "auxiliary.titles.model"]
        assert {key.partition(".")[0] for key in keys if "." in key} <= {
            each for topic in topics for each in topic["sections"]
        }
        await page.get_by_role("navigation", name="Topics").get_by_role("link", name="Terminal").click()
        row = page.locator("[id='setting-terminal.editing']")
        await expect(row.get_by_role("combobox", name="Keys of the input")).to_be_visible()
        await expect(page.locator("[id='setting-terminal.notify_after']")).not_to_be_visible()
        await page.get_by_text("Terminal", exact=True).last.click()
        await expect(page.locator("[id='setting-terminal.notify_after']")).to_be_visible()
        await show(page, "settings/api.rate", "Settings")
        await expect(page.locator("[id='setting-api.rate']")).to_be_in_viewport()
        await page.get_by_label("Search settings").fill("thinking effort")
        await expect(page.locator("[id='setting-effort']").get_by_role("combobox")).to_be_visible()


async def test_the_model_of_titles_is_chosen_and_writes_the_next_title(site):
    def reply(body):
        return Say("Rain in April") if not body.get("tools") else Say("It may.")

    async with site(reply) as running:
        page = await running.log_in()
        await show(page, "settings/models", "Settings")
        row = page.locator("[id='setting-auxiliary.titles.model']")
        await row.get_by_role("combobox").fill("test/scripted")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("region", name="Unsaved changes")).to_have_count(0)
        assert (await find_setting(page, "auxiliary.titles.model"))["value"] == "test/scripted"
        await running.stop(signal.SIGTERM)
        await running.start()
        await page.goto(f"{running.url}#/new")
        await page.reload()
        await page.locator("textarea").fill("Will it rain?")
        await page.locator("textarea").press("Enter")
        await expect(page.locator(".conversation-title").first).to_have_text("Rain in April")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Rain in April")


async def test_a_secret_is_stored_and_never_shown(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "settings/telegram", "Settings")
        field = page.get_by_label("TELEGRAM_BOT_TOKEN")
        await field.fill("123:secret-token")
        await page.locator("form").filter(has=field).get_by_role("button", name="Store").click()
        await expect(field).to_have_value("")
        await expect(page.get_by_text("Some changes take effect after a restart.")).to_be_visible()
        assert "secret-token" not in json.dumps(await call(page, "GET", "settings"))
        assert "secret-token" not in await page.content()
        reader = await running.log_in("read")
        await show(reader, "settings/telegram", "Settings")
        await expect(reader.get_by_label("TELEGRAM_BOT_TOKEN")).to_be_disabled()
        await expect(
            reader.locator(".page").get_by_role("button", name=re.compile("Store|Save|Restart"))
        ).to_have_count(0)
    assert "123:secret-token" in (running.home.path / ".env").read_text()


async def test_a_person_is_paired_by_code_given_another_role_and_removed(site):
    async with site() as running:
        page = await running.log_in()
        code = await request_code(running)
        await show(page, "people", "People and platforms")
        await expect(page.get_by_role("table", name="Pairing requests")).to_contain_text("Cleo")
        await page.get_by_label("Pairing code").fill("AAAA-BBBB")
        await page.get_by_role("button", name="Give access").click()
        await expect(page.locator(".field-error")).not_to_be_empty()
        await expect(page.get_by_label("Pairing code")).to_have_value("AAAA-BBBB")
        await page.get_by_label("Pairing code").fill(code)
        await page.get_by_role("button", name="Give access").click()
        people = page.get_by_role("table", name="People with access")
        await expect(people).to_contain_text("Cleo")
        await people.get_by_label("Role of Cleo").select_option("owner")
        await expect(page.get_by_text("Role: owner.")).to_be_visible()
        assert [each["role"] for each in (await call(page, "GET", "people"))["people"]] == ["owner"]
        await people.get_by_role("button", name="Remove").click()
        await page.get_by_role("dialog").get_by_role("button", name="Remove access").click()
        await expect(page.get_by_text("Nobody has access by pairing")).to_be_visible()
        assert (await call(page, "GET", "people"))["people"] == []


async def test_a_message_that_waits_to_be_sent_is_dropped_tried_again_and_deleted(site):
    async with site() as running:
        page = await running.log_in()
        await request_code(running)
        await show(page, "people/outbox", "People and platforms")
        await expect(page.get_by_role("table", name="Outgoing messages")).to_contain_text("code ")
        await page.get_by_role("button", name="Drop").click()
        await page.get_by_role("dialog").get_by_role("button", name="Drop").click()
        await expect(page.get_by_text("discarded by the operator")).to_be_visible()
        await page.get_by_role("button", name="Retry").click()
        await expect(page.get_by_text("queued", exact=True).last).to_be_visible()
        assert [each["state"] for each in (await call(page, "GET", "outbox"))["messages"]] == ["queued"]
        await page.get_by_role("button", name="Drop").click()
        await page.get_by_role("dialog").get_by_role("button", name="Drop").click()
        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No messages")).to_be_visible()
        assert (await call(page, "GET", "outbox"))["messages"] == []


async def test_a_plugin_is_enabled_checked_and_disabled(site, tmp_path):
    native(tmp_path / "home" / "plugins" / "ways")
    async with site() as running:
        page = await running.log_in()
        await show(page, "plugins", "Plugins")
        card = page.get_by_role("article", name="ways")
        await expect(card).to_contain_text("Adds tools")
        await card.get_by_role("button", name="Enable").click()
        await page.get_by_role("dialog").get_by_role("button", name="Enable").click()
        await expect(card.get_by_text("on", exact=True)).to_be_visible()
        assert (await call(page, "GET", "plugins"))["plugins"][0]["enabled"]
        await card.get_by_role("button", name="Check its files").click()
        await expect(page.get_by_role("dialog").locator(".checks li").first).to_be_visible()
        await page.keyboard.press("Escape")
        await card.get_by_role("button", name="Disable").click()
        await expect(card.get_by_text("disabled", exact=True)).to_be_visible()
        assert not (await call(page, "GET", "plugins"))["plugins"][0]["enabled"]


async def test_usage_is_drawn_listed_and_downloaded(site):
    async with site((Say("Hello."),)) as running:
        page = await running.log_in()
        await start_run(page, "Hello")
        while not (await call(page, "GET", "usage"))["rows"]:
            pass
        await show(page, "usage", "Usage")
        await expect(page.locator(".chart canvas")).to_be_visible()
        await expect(page.get_by_role("table", name="Tokens per day")).to_contain_text("test/scripted")
        await page.get_by_role("tab", name="By surface").click()
        surface = (await call(page, "GET", "usage?by=surface"))["rows"][0]["surface"]
        await expect(page.get_by_role("columnheader", name=surface)).to_be_visible()
        await page.get_by_label("Days in time zone").select_option("Asia/Tokyo")
        await expect(page.get_by_role("table", name="Conversations by cost").get_by_role("link").first).to_be_visible()
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="Download CSV").click()
        rows = (await (await waiting.value).path()).read_text().splitlines()
    assert rows[0].startswith("day,model,task,surface") and "test/scripted" in rows[1]


async def test_the_log_shows_new_lines_pauses_and_filters(site):
    async with site() as running:
        page = await running.log_in()
        with open_log(running.home.path / "logs" / "alipes.log", "debug"):
            log.info("the cat is in")
            await show(page, "log", "Log")
            lines = page.locator(".log-line")
            await expect(lines.filter(has_text="the cat is in")).to_be_visible()
            log.error("the cat is out")
            await expect(lines.filter(has_text="the cat is out")).to_be_visible()
            await page.get_by_role("button", name="Pause").click()
            log.warning("the dog is out")
            await page.get_by_role("button", name="Continue (1 new)").click()
            await expect(lines.filter(has_text="the dog is out")).to_be_visible()
            await page.get_by_label("Level").select_option("error")
            await expect(lines.filter(has_text="the dog is out")).to_have_count(0)
            await lines.filter(has_text="the cat is out").click()
            await expect(page.get_by_role("dialog")).to_contain_text("alipes.test")
            await page.keyboard.press("Escape")
            await page.get_by_label("Text", exact=True).fill("no such text anywhere")
            await expect(page.get_by_text("No lines match")).to_be_visible()


async def test_ten_thousand_lines_of_log_do_not_freeze_the_page(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "log", "Log")
        with open_log(running.home.path / "logs" / "alipes.log", "debug"):
            for number in range(10_000):
                log.info("line %s", number)
        await expect(page.locator(".log-line").filter(has_text="line 9999")).to_be_visible(timeout=60_000)
        assert await page.locator(".log-line").count() < 200  # only those in view are in the document
        started = time.monotonic()
        await page.locator(".log-lines").evaluate("(box) => { box.scrollTop = 0; }")
        await expect(page.get_by_role("button", name="Follow")).to_be_enabled()
        assert time.monotonic() - started < 5


async def test_doctor_shows_its_checks_with_what_to_do(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "doctor", "Doctor")
        await page.get_by_role("button", name="Run the checks").click()
        await expect(page.get_by_role("status").filter(has_text="checks")).to_be_visible(timeout=30_000)
        await expect(page.locator(".checks li").first).to_be_visible()
        reader = await running.log_in("read")
        await show(reader, "doctor", "Doctor")
        await expect(reader.get_by_text("it cannot run the checks")).to_be_visible()


async def test_a_search_hit_opens_the_conversation_at_its_message(site):
    async with site((Say("The zebra lives in the savanna."),)) as running:
        page = await running.log_in()
        run = await start_run(page, "Where does it live?")
        while (await call(page, "GET", f"runs/{run['id']}"))["status"] != "answered":
            pass
        await show(page, "search", "Search")
        await page.get_by_role("searchbox", name="Words in any conversation").fill("savanna")
        hit = page.locator(".hit")
        await expect(hit.locator("mark")).to_have_text("savanna")
        await expect(hit.locator("time")).to_have_text("now")
        await hit.click()
        await expect(page).to_have_url(re.compile(r"#/c/[0-9a-f]+/m/\d+$"))
        await expect(page.get_by_text("The zebra lives in the savanna.").first).to_be_visible()


async def test_another_browser_is_logged_in_by_a_link_and_logged_out(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "browsers", "Browsers")
        await page.get_by_label("Name", exact=True).fill("Phone")
        await page.get_by_label("It may").select_option("read")
        await page.get_by_role("button", name="Make a link").click()
        link = await page.get_by_role("group", name="Login link").locator("code").inner_text()
        phone = await (await running.open_context()).new_page()
        await phone.goto(link)
        await expect(phone.get_by_text("alipes").first).to_be_visible()
        await page.reload()
        row = page.get_by_role("row").filter(has_text="Phone")
        await expect(row).to_contain_text("only read")
        await row.get_by_role("button", name="Log out").click()
        await page.get_by_role("dialog").get_by_role("button", name="Log out").click()
        await expect(row).to_have_count(0)
        assert len((await call(page, "GET", "browsers"))["browsers"]) == 1
