"""The chat in a real browser: sending, streaming, stopping, steering, drafts, commands, questions."""

import json
import re

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.world.model_server import Call, Calls, Fail, Say, Stall
from tests.world.wait import until

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
WORDS = "one two three four five six seven eight nine ten"


async def send(page, text):
    """Type a message and press Enter."""
    await page.locator("textarea").fill(text)
    await page.locator("textarea").press("Enter")


def messages(body):
    """The texts of the user's messages in a request to the model."""
    return [each["content"] for each in body["messages"] if each["role"] == "user"]


async def test_a_first_message_makes_a_conversation_and_shows_its_answer(site):
    async with site((Say("**Hello** from the model."),)) as running:
        page = await running.log_in()
        await send(page, "Good morning")
        answer = page.locator(".msg.assistant .body")
        await expect(answer).to_have_text("Hello from the model.")
        await expect(answer.locator("strong")).to_have_text("Hello")
        await expect(page.locator(".msg.user .body")).to_have_text("Good morning")
        await expect(page).to_have_url(re.compile(r"#/c/[0-9a-f]{12}$"))
        await expect(page.locator(".conversation[aria-current]")).to_contain_text("Good morning")
        await page.reload()
        await expect(answer).to_have_text("Hello from the model.")
        await expect(page.locator(".msg.user .body")).to_have_text("Good morning")


async def test_an_answer_is_shown_while_it_is_written(site):
    async with site((Say(WORDS, pieces=10, delay=0.3),)) as running:
        page = await running.log_in()
        await send(page, "count")
        live = page.locator(".live .body")
        await expect(live).to_contain_text("one two")
        assert "ten" not in await live.inner_text()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text(WORDS)
        await expect(live).to_have_count(0)


async def test_escape_stops_the_run_and_the_page_says_so(site):
    async with site((Stall("half of it"),)) as running:
        page = await running.log_in()
        await send(page, "begin")
        await expect(page.locator(".live .body")).to_contain_text("half of")
        await page.keyboard.press("Escape")
        await expect(page.locator(".ending")).to_contain_text("Stopped.")
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        await running.model.closed_early()


async def test_the_stop_button_stops_the_run(site):
    async with site((Stall("half of it"),)) as running:
        page = await running.log_in()
        await send(page, "begin")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".ending")).to_contain_text("Stopped.")


async def test_a_failed_run_shows_its_reason(site):
    async with site((Fail(400, "the model is on holiday"),)) as running:
        page = await running.log_in()
        await send(page, "hello")
        await expect(page.locator(".ending.failed")).to_contain_text("the model is on holiday")


async def test_a_double_click_is_one_turn(site):
    async with site((Say("first"), Say("second"))) as running:
        page = await running.log_in()
        await page.locator("textarea").fill("only once")
        await page.get_by_role("button", name="Send", exact=True).dblclick()
        await expect(page.locator(".msg.assistant .body")).to_have_text("first")
        await expect(page.locator(".msg.user")).to_have_count(1)
        assert len(running.model.bodies) == 1


async def test_shift_enter_makes_a_new_line_and_a_text_under_composition_is_not_sent(site):
    async with site((Say("done"),)) as running:
        page = await running.log_in()
        area = page.locator("textarea")
        await area.press_sequentially("a")
        await area.press("Shift+Enter")
        await area.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "keyCode": 229})
        await area.press_sequentially("b")
        assert await area.input_value() == "a\nb"
        await area.press("Enter")
        await expect(page.locator(".msg.assistant .body")).to_have_text("done")
        assert messages(running.model.bodies[0]) == ["a\nb"]


async def test_a_draft_is_kept_over_a_reload_and_marked_in_the_list(site):
    async with site((Say("first"),)) as running:
        page = await running.log_in()
        await send(page, "begin")
        await expect(page.locator(".msg.assistant .body")).to_have_text("first")
        await page.locator("textarea").fill("half a thought")
        await expect(page.locator(".conversation .draft")).to_be_visible()
        await page.reload()
        await expect(page.locator("textarea")).to_have_value("half a thought")


async def test_a_message_to_a_running_task_is_steered_into_it(site):
    replies = (Calls((Call("terminal", {"command": "sleep 1.5"}),)), Say("both done"))
    async with site(replies) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".call.running")).to_have_count(1)
        await send(page, "and second")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("both done")
        await expect(page.locator(".msg.user .body")).to_have_text(["first", "and second"])
        assert "and second" in json.dumps(running.model.bodies[-1])


async def test_a_queued_message_is_shown_and_can_be_dropped(site):
    async with site((Stall("working"),)) as running:
        page = await running.log_in()
        await send(page, "first")
        await expect(page.locator(".live .body")).to_contain_text("work")
        await page.locator("textarea").fill("later")
        await page.get_by_label("While a task is running").select_option("queue")
        await page.locator("textarea").press("Enter")
        waiting = page.locator(".msg.waiting")
        await expect(waiting).to_contain_text("Waiting for the running task")
        await waiting.get_by_role("button", name="Drop").click()
        await expect(waiting).to_have_count(0)
        await expect(page.locator(".msg.user")).to_have_count(1)


async def test_a_tool_call_is_one_line_that_opens_to_its_arguments_and_result(site):
    replies = (Calls((Call("terminal", {"command": "echo one; echo two"}),), text="Let me look."), Say("Done."))
    async with site(replies) as running:
        page = await running.log_in()
        await send(page, "look")
        call = page.locator(".call")
        await expect(call.locator(".call-label")).to_have_text("Run echo one; echo two")
        await expect(call).to_have_attribute("data-outcome", "ok")
        await expect(call.locator(".call-outcome")).to_have_text(re.compile(r"\d+ ms|\d.* s"))
        assert not await call.locator(".call-body").count()
        await call.locator("summary").click()
        await expect(call.locator(".call-text").last).to_contain_text("one\ntwo")
        await page.reload()
        await expect(page.locator(".call")).to_have_attribute("data-outcome", "ok")


async def test_an_approval_shows_the_whole_command_and_is_answered_inline(site):
    replies = (Calls((Call("terminal", {"command": "git push --force origin main"}),)), Say("As you wish."))
    async with site(replies) as running:
        page = await running.log_in()
        await send(page, "clean up")
        question = page.get_by_role("region", name="Approval needed")
        await expect(question.locator("pre")).to_have_text("git push --force origin main")
        for name in ("Allow once", "Allow in this conversation", "Always allow …", "Deny"):
            await expect(question.get_by_role("button", name=name, exact=True)).to_be_visible()
        await question.get_by_role("button", name="Deny with a reason …").click()
        await question.get_by_label("Reason, for the model").fill("not that folder")
        await question.locator("form").get_by_role("button", name="Deny").click()
        await expect(question).to_have_count(0)
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("As you wish.")
        await expect(page.locator(".call")).to_have_attribute("data-outcome", "denied")
        assert "not that folder" in json.dumps(running.model.bodies[-1])


async def test_an_approval_answered_in_another_browser_disappears_here(site):
    replies = (Calls((Call("terminal", {"command": "git push --force origin main"}),)), Say("As you wish."))
    async with site(replies) as running:
        page, other = await running.log_in(), await running.log_in()
        await send(page, "clean up")
        question = page.get_by_role("region", name="Approval needed")
        await expect(question).to_be_visible()
        await other.goto(page.url)
        await other.get_by_role("region", name="Approval needed").get_by_role("button", name="Deny", exact=True).click()
        await expect(question).to_have_count(0)
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("As you wish.")


async def test_a_question_is_answered_by_a_choice(site):
    question = {"question": "Which branch?", "choices": ["main", "develop"]}
    async with site((Calls((Call("clarify", question),)), Say("Thanks."))) as running:
        page = await running.log_in()
        await send(page, "release")
        asked = page.get_by_role("region", name="Question")
        await expect(asked.get_by_role("heading")).to_have_text("Which branch?")
        await asked.get_by_role("button", name="develop").click()
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Thanks.")
        assert "develop" in json.dumps(running.model.bodies[-1])


async def test_a_reader_may_change_nothing(site):
    async with site((Say("hello"),)) as running:
        page = await running.log_in()
        await send(page, "hello")
        await expect(page.locator(".msg.assistant .body")).to_have_text("hello")
        reader = await running.log_in("read")
        await reader.goto(page.url)
        await expect(reader.locator(".msg.assistant .body")).to_have_text("hello")
        await expect(reader.locator(".foot")).to_have_text("This browser may only read.")
        await expect(reader.locator("textarea")).to_have_count(0)


async def test_a_picture_is_pasted_previewed_and_sent(site):
    async with site((Say("a dot"),)) as running:
        page = await running.log_in()
        png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        await page.locator("textarea").evaluate(
            """(area, data) => {
              const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
              const moved = new DataTransfer();
              moved.items.add(new File([bytes], "dot.png", {type: "image/png"}));
              area.dispatchEvent(new ClipboardEvent("paste", {clipboardData: moved, bubbles: true, cancelable: true}));
            }""",
            png,
        )
        await expect(page.locator(".attachment img")).to_be_visible()
        await send(page, "what is this?")
        await expect(page.locator(".msg.assistant .body")).to_have_text("a dot")
        await expect(page.locator(".msg.user .picture img")).to_be_visible()
        await until(lambda: png in json.dumps(running.model.bodies))
        await page.reload()
        await expect(page.locator(".msg.user .picture img")).to_be_visible()


async def test_a_command_can_begin_a_conversation(site):
    async with site((Say("Hello."),)) as running:
        page = await running.log_in()
        await send(page, "/status")
        await expect(page.locator(".msg.reply")).to_contain_text("test/scripted")
        await expect(page).to_have_url(re.compile(r"#/c/[0-9a-f]{12}$"))
        await send(page, "Good morning")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("Hello.")


async def test_a_failed_command_is_not_shown_as_done(site):
    script = (Calls((Call("terminal", {"command": "exit 3"}),)), Say("It failed."))
    async with site(script) as running:
        page = await running.log_in()
        await send(page, "run it")
        line = page.locator(".call")
        await expect(line).to_have_attribute("data-outcome", "failed")
        await expect(line.locator(".call-outcome")).to_contain_text("exit code 3")
        await expect(page.locator(".sheets .msg.assistant .body")).to_have_text("It failed.")
        await page.reload()
        await expect(line).to_have_attribute("data-outcome", "failed")
        await expect(line.locator(".call-outcome")).to_contain_text("exit code 3")


async def test_a_message_of_the_page_does_not_cover_the_composer(site):
    async with site() as running:
        page = await running.log_in(viewport={"width": 390, "height": 700})
        await page.evaluate(
            "import(document.querySelector('script[type=module]').src.replace('first.js', 'ui.js')).then((ui) => ui.toast('Saved.'))"
        )
        toast, composer = page.locator(".toast"), page.locator(".composer")
        await expect(toast).to_be_visible()
        above, below = await toast.bounding_box(), await composer.bounding_box()
        assert above["y"] + above["height"] < below["y"]
