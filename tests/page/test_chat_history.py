"""Conversations in a real browser: the list, older messages, links to messages, and what the menu does."""

import asyncio
import json
import re

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.screen_steps import call
from tests.page.test_chat import send
from tests.world.model_server import Call, Calls, Fail, Say, Stall
from tests.world.pictures import PNG

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


async def test_the_menu_renames_branches_and_deletes(site):
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
        title = page.get_by_role("textbox", name="Title")
        await title.fill("A better title")
        await title.press("Enter")
        await expect(page.locator(".conversation-title")).to_have_text("A better title")
        original = page.url
        await choose("Branch")
        await expect(page).not_to_have_url(original)
        await expect(page.locator(".msg.user .body")).to_have_text(["first", "second"])
        await expect(page.locator(".chat-head").get_by_role("link", name="A better title")).to_be_visible()
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
        model = page.locator(".model-button")
        await expect(model).to_have_text("scripted test")
        await model.click()
        await page.get_by_role("searchbox", name="Find a model").fill("scrip")
        await page.keyboard.press("ArrowDown")
        async with page.expect_response(lambda answer: '"model"' in (answer.request.post_data or "")):
            await page.keyboard.press("Enter")
        await expect(model).to_have_accessible_name("Model: test/scripted")
        await page.reload()
        await expect(page.get_by_label("Permission mode")).to_have_value("plan")
        await expect(page.get_by_label("Thinking effort")).to_have_value("high")
        assert (await call(page, "GET", "sessions"))["sessions"][0]["model"] == "test/scripted"


async def test_choices_that_follow_each_other_are_all_kept_and_shown(site):
    async with site(answer) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        held = []

        async def hold(route):
            if route.request.method != "PATCH":
                return await route.continue_()
            held.append(json.loads(route.request.post_data))
            if len(held) == 1:
                await first.wait()
            return await route.continue_()

        first = asyncio.Event()
        await page.route("**/v1/sessions/*", hold)
        await page.get_by_label("Permission mode").select_option("plan")
        await page.get_by_label("Thinking effort").select_option("high")
        await page.evaluate("fetch('v1/key').then((answer) => answer.text())")
        assert held == [{"permission_mode": "plan"}]
        async with page.expect_response(lambda answer: "effort" in (answer.request.post_data or "")):
            first.set()
        await expect(page.get_by_label("Permission mode")).to_have_value("plan")
        await expect(page.get_by_label("Thinking effort")).to_have_value("high")


async def test_effort_is_chosen_before_the_first_message(site):
    async with site(answer) as running:
        page = await running.log_in()
        await page.get_by_label("Thinking effort").select_option("low")
        await send(page, "first")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await expect(page.get_by_label("Thinking effort")).to_have_value("low")
        (session,) = (await call(page, "GET", "sessions"))["sessions"]
    assert (session["effort"], session["title"]) == ("low", "first")
    assert running.model.bodies[0]["reasoning_effort"] == "low"


async def test_enter_takes_the_first_model_that_matches(site):
    async with site(answer) as running:
        page = await running.log_in()
        await page.locator(".model-button").click()
        await page.get_by_role("searchbox", name="Find a model").fill("smol")
        await page.keyboard.press("Enter")
        await expect(page.locator(".model-button")).to_have_accessible_name("Model: embedded/smollm2-135m")


async def test_a_conversation_that_was_deleted_says_so_and_leads_on(site):
    async with site() as running:
        page = await running.log_in()
        await page.goto(f"{running.url}#/c/000000000000")
        await expect(page.get_by_role("heading", name="Conversation not found")).to_be_visible()
        await expect(page.get_by_role("alert")).to_contain_text("may have been deleted")
        await expect(page.locator("textarea")).to_have_count(0)
        await page.get_by_role("link", name="Start a conversation").click()
        await expect(page.locator("textarea")).to_be_visible()


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
        await page.get_by_role("button", name="Send", exact=True).tap()
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.get_by_role("button", name="Open the menu").tap()
        await expect(page.locator(".conversation")).to_be_in_viewport()
        await page.locator(".conversation").tap()
        await expect(page.locator(".conversation")).not_to_be_in_viewport()
        assert await page.evaluate("document.documentElement.scrollWidth") == 320


def number_answers():
    """A model that numbers its answers."""
    count = iter(range(1, 100))
    return lambda body: Say(f"answer {next(count)} to {body['messages'][-1]['content'][:40]}")


async def test_a_message_is_edited_and_every_version_can_be_shown(site):
    async with site(number_answers()) as running:
        page = await running.log_in()
        await send(page, "first")
        answers = page.locator(".sheets .msg.assistant .body")
        await expect(answers).to_have_text(["answer 1 to first"])
        await send(page, "then")
        await expect(answers).to_have_text(["answer 1 to first", "answer 2 to then"])
        await page.locator(".msg.user").first.hover()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("Edited message").fill("better")
        await page.get_by_label("Edited message").press("Enter")
        await expect(answers).to_have_text(["answer 3 to better"])
        versions = page.get_by_role("group", name="Versions of this message")
        await expect(versions).to_have_text("2/2")
        await versions.get_by_role("button", name="Previous version").click()
        await expect(answers).to_have_text(["answer 1 to first", "answer 2 to then"])
        await page.reload()
        await expect(versions).to_have_text("1/2")
        await versions.get_by_role("button", name="Next version").click()
        await expect(answers).to_have_text(["answer 3 to better"])


async def test_an_answer_is_given_again_and_undone_at_its_message(site):
    async with site(number_answers()) as running:
        page = await running.log_in()
        await send(page, "first")
        answers = page.locator(".sheets .msg.assistant .body")
        await expect(answers).to_have_text(["answer 1 to first"])
        for number in (2, 3):
            await answers.hover()
            await page.get_by_role("button", name="Retry").click()
            await expect(answers).to_have_text([f"answer {number} to first"])
            await expect(page.locator(".versions")).to_have_text(f"{number}/{number}")
        await page.get_by_role("button", name="Previous version").click()
        await expect(answers).to_have_text(["answer 2 to first"])
        await expect(page.locator(".reply")).to_have_count(0)
        await page.locator(".msg.user").hover()
        await page.get_by_role("button", name="Undo").click()
        await expect(page.locator(".sheets .msg")).to_have_count(0)
        await expect(page.locator("textarea")).to_have_value("first")
        await page.get_by_role("button", name="Redo").click()
        await expect(answers).to_have_text(["answer 2 to first"])


async def test_files_are_chips_while_the_task_runs_too(site, tmp_path):
    name = "notes with a name that is longer than a line of a phone.csv"
    (tmp_path / name).write_text("a;b")
    (tmp_path / "dot.png").write_bytes(PNG)
    async with site((Stall("on its way"),)) as running:
        page = await running.log_in()
        await page.locator("input[type=file]").set_input_files([tmp_path / name, tmp_path / "dot.png"])
        await expect(page.locator(".attachment")).to_have_count(2)
        await expect(page.get_by_text("uploading")).to_have_count(0)
        await send(page, "look")
        await expect(page.locator(".live .body")).to_contain_text("on its")
        mine = page.locator(".sheets .msg.user")
        await expect(mine.locator(".body")).to_have_text("look")
        await mine.get_by_role("button", name=name).click()
        await expect(page.get_by_role("dialog", name=name).locator("code")).to_have_text("a;b")
        await page.keyboard.press("Escape")
        await expect(mine.get_by_role("button", name="Enlarge the picture")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".ending")).to_be_visible()
        await expect(mine.get_by_role("button", name=name)).to_have_count(1)


async def test_a_file_of_a_message_is_a_chip_and_a_picture_is_enlarged(site, tmp_path):
    (tmp_path / "notes.csv").write_text("a;b")
    (tmp_path / "dot.png").write_bytes(PNG)
    async with site((Say("Seen."),)) as running:
        page = await running.log_in()
        await page.locator("input[type=file]").set_input_files([tmp_path / "notes.csv", tmp_path / "dot.png"])
        await expect(page.locator(".attachment")).to_have_count(2)
        await expect(page.get_by_text("uploading")).to_have_count(0)
        await send(page, "look")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.reload()
        mine = page.locator(".msg.user")
        await expect(mine.locator(".body")).to_have_text("look")
        await expect(page.locator(".conversation-title")).to_have_text("look")
        await mine.get_by_role("button", name="notes.csv").click()
        preview = page.get_by_role("dialog", name="notes.csv")
        await expect(preview.locator("code")).to_have_text("a;b")
        async with page.expect_download() as saved:
            await preview.get_by_role("button", name="Download").click()
        assert (await (await saved.value).path()).read_text() == "a;b"
        await page.keyboard.press("Escape")
        await expect(preview).to_have_count(0)
        await mine.get_by_role("button", name="Enlarge the picture").click()
        await expect(page.locator("dialog.enlarged img")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog.enlarged")).to_have_count(0)


async def test_an_edited_message_keeps_its_files_and_pictures(site, tmp_path):
    (tmp_path / "notes.csv").write_text("a;b")
    (tmp_path / "dot.png").write_bytes(PNG)
    async with site((Say("Seen."), Say("Seen again."))) as running:
        page = await running.log_in()
        await page.locator("input[type=file]").set_input_files([tmp_path / "notes.csv", tmp_path / "dot.png"])
        await expect(page.locator(".attachment")).to_have_count(2)
        await expect(page.get_by_text("uploading")).to_have_count(0)
        await send(page, "look")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.reload()
        await page.locator(".sheets .msg.user").hover()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("Edited message").fill("look twice")
        await page.get_by_label("Edited message").press("Enter")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Seen again.")
        await page.reload()
        mine = page.locator(".sheets .msg.user")
        await expect(mine.locator(".body")).to_have_text("look twice")
        await expect(mine.get_by_role("button", name="notes.csv")).to_be_visible()
        await expect(mine.get_by_role("button", name="Enlarge the picture")).to_be_visible()
    said = str(running.model.bodies[-1]["messages"][-1]["content"])
    assert "notes.csv" in said and "image" in said


async def test_a_failed_message_is_tried_again_or_undone_where_it_is(site):
    replies = iter((Fail(400, "no"), Say("now it works"), Fail(400, "no")))
    async with site(lambda _body: next(replies)) as running:
        page = await running.log_in()
        await send(page, "first")
        ending = page.locator(".ending.failed")
        await ending.get_by_role("button", name="Retry").click()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("now it works")
        await expect(page.get_by_role("button", name="Undo", exact=True)).to_have_count(0)
        await send(page, "second")
        await page.reload()
        await ending.get_by_role("button", name="Undo").click()
        await expect(page.locator("textarea")).to_have_value("second")
        await expect(page.locator(".sheets .msg.user")).to_have_text(re.compile("first"))


async def test_a_branch_and_the_conversation_it_left_lead_to_each_other(site):
    async with site(answer) as running:
        page = await running.log_in()
        await send(page, "first")
        await page.locator(".sheets .msg.assistant").hover()
        await page.get_by_role("button", name="Branch").click()
        head = page.locator(".chat-head")
        await expect(page.get_by_role("heading", level=1)).to_have_text("first (branch 1)")
        await head.get_by_role("link", name="first").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("first")
        await head.get_by_role("button", name="1 branch").click()
        await page.get_by_role("menuitem", name="first (branch 1)").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("first (branch 1)")


async def test_a_replaced_text_is_shown_as_a_diff(site):
    change = {"path": "a.txt", "old_string": "one\ntwo\nend", "new_string": "one\nthree\nend"}
    async with site((Calls((Call("patch", change),)), Say("Done."))) as running:
        page = await running.log_in()
        await send(page, "change it")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Done.")
        await page.locator(".call summary").first.click()
        await expect(page.locator(".diff .removed")).to_have_text("-two\n")
        await expect(page.locator(".diff .added")).to_have_text("+three\n")


async def test_a_diff_is_shown_with_its_two_sides(site):
    patch = "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    script = (Calls((Call("patch", {"patch": patch}),)), Say("Done."))
    async with site(script) as running:
        page = await running.log_in()
        await send(page, "change it")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Done.")
        await page.locator(".call summary").first.click()
        await page.get_by_role("button", name="Side by side").first.click()
        row = page.locator(".sides tr", has=page.locator(".removed"))
        await expect(row.locator("td")).to_have_text(["two", "three"])


async def test_a_shared_conversation_is_read_without_a_login_until_its_link_is_ended(site):
    async with site((Say("**Bring** an umbrella.\nIt rains."), Say("No, it is dry."))) as running:
        page = await running.log_in()
        await send(page, "Will it rain?")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        await page.get_by_role("button", name="Conversation menu").click()
        await page.get_by_role("menuitem", name="Share").click()
        await page.get_by_role("button", name="Make a link").click()
        link = await page.get_by_role("group", name="Link").locator("code").inner_text()
        await page.get_by_role("button", name="Close", exact=True).click()
        await send(page, "And now?")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(2)
        guest = await (await running.open_context()).new_page()
        answer = await guest.goto(link)
        assert answer.status == 200 and "sandbox" in answer.headers["content-security-policy"]
        await expect(guest.locator("strong")).to_have_text("Bring")
        assert await guest.locator("p", has=guest.locator("strong")).inner_text() == "Bring an umbrella.\nIt rains."
        await expect(guest.get_by_text("it is dry")).to_have_count(0)
        assert str(running.home.path) not in await guest.content()
        assert (await guest.goto(f"{running.url}v1/sessions")).status == 401
        (share,) = (await call(page, "GET", f"sessions/{page.url.rpartition('/')[2]}/shares"))["shares"]
        await call(page, "DELETE", f"shares/{share['id']}")
        assert (await guest.goto(link)).status == 404
