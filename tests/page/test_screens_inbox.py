"""The inbox in a real browser: approvals and questions of running turns, answered once."""

import json

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.screen_steps import call, show, start_run
from tests.world.model_server import Call, Calls, Say
from tests.world.wait import until

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
COMMAND = "git push --force origin main"


def terminal(command=COMMAND):
    """The model runs a command, then says so."""
    return (Calls((Call("terminal", {"command": command}),)), Say("As you wish."))


def clarify(**question):
    return (Calls((Call("clarify", question),)), Say("Thanks."))


async def test_an_approval_shows_the_whole_command_and_allowing_it_once_runs_it(site, tmp_path):
    async with site(terminal(f"echo {'long ' * 400}end > {tmp_path}/said; {COMMAND}")) as running:
        page = await running.log_in()
        await show(page, "inbox", "Inbox")
        await expect(page.get_by_text("No open questions")).to_be_visible()
        await start_run(page, "Push it")
        card = page.get_by_role("article", name="Approval")
        await expect(card.get_by_role("group", name="Command")).to_contain_text(
            f"long end > {tmp_path}/said; {COMMAND}"
        )
        assert not (tmp_path / "said").exists()
        await card.get_by_role("button", name="Allow once").click()
        await expect(page.get_by_text("No open questions")).to_be_visible()
        await expect(page.get_by_text("elsewhere")).to_have_count(0)
        await until((tmp_path / "said").exists)


async def test_a_denial_with_a_note_reaches_the_model(site):
    async with site(terminal()) as running:
        page = await running.log_in()
        await start_run(page, "Push it")
        await show(page, "inbox", "Inbox")
        await page.get_by_role("button", name="Deny with a reason …").click()
        await page.get_by_label("Reason, for the model").fill("ask Ann first")
        await page.locator(".answer-form").get_by_role("button", name="Deny").click()
        await expect(page.get_by_text("No open questions")).to_be_visible()
        await until(lambda: "ask Ann first" in json.dumps(running.model.bodies[-1]))


async def test_always_allows_the_edited_pattern_and_shows_why_a_pattern_is_refused(site):
    async with site((*terminal(), *terminal("git push --force origin other"))) as running:
        page = await running.log_in()
        await start_run(page, "Push it")
        await show(page, "inbox", "Inbox")
        await page.get_by_role("button", name="Always allow …").click()
        pattern = page.get_by_label("Always allow commands that match")
        await pattern.fill("*")
        await page.get_by_role("button", name="Always allow", exact=True).click()
        await expect(page.locator(".card .field-error")).not_to_be_empty()
        await expect(pattern).to_have_value("*")
        await pattern.fill("git push --force origin *")
        await page.get_by_role("button", name="Always allow", exact=True).click()
        await expect(page.get_by_text("No open questions")).to_be_visible()
        await start_run(page, "Push again")
        await until(lambda: len(running.model.bodies) == 4)  # the second command ran without a question
        assert (await call(page, "GET", "inbox"))["questions"] == []


async def test_an_answer_given_elsewhere_resolves_the_card(site):
    async with site(terminal()) as running:
        page = await running.log_in()
        await start_run(page, "Push it")
        await show(page, "inbox", "Inbox")
        await expect(page.get_by_role("article", name="Approval")).to_be_visible()
        ask = (await call(page, "GET", "inbox"))["questions"][0]["ask"]
        await call(page, "POST", f"inbox/{ask}", {"choice": "no"})
        await expect(page.get_by_role("article", name="Approval")).to_have_count(0)
        await expect(page.get_by_text("Answered elsewhere or expired")).to_be_visible()
        await page.get_by_role("button", name="Dismiss").click()
        await expect(page.get_by_text("Answered elsewhere or expired")).to_have_count(0)


async def test_a_second_answer_shows_what_was_decided(site):
    async with site(terminal()) as running:
        page = await running.log_in()
        await start_run(page, "Push it")
        await show(page, "inbox", "Inbox")
        allow = page.get_by_role("button", name="Allow once")
        await expect(allow).to_be_visible()
        ask = (await call(page, "GET", "inbox"))["questions"][0]["ask"]
        other = await running.log_in()
        await page.context.set_offline(True)  # this browser does not hear of the other answer
        await call(other, "POST", f"inbox/{ask}", {"choice": "no"})
        await page.route("**/v1/events", lambda route: route.abort())
        await page.route("**/v1/inbox", lambda route: route.abort())
        await page.context.set_offline(False)
        await allow.click()
        await expect(page.locator(".card .field-error")).to_contain_text("denied")


async def test_a_question_is_answered_by_a_choice_or_by_a_text(site):
    question = {"question": "Which branch?", "choices": ["main", "develop"]}
    async with site((*clarify(**question), *clarify(**question))) as running:
        page = await running.log_in()
        await show(page, "inbox", "Inbox")
        await start_run(page, "Release")
        await expect(page.get_by_role("article", name="Question")).to_contain_text("Which branch?")
        await page.get_by_role("button", name="develop").click()
        await expect(page.get_by_text("No open questions")).to_be_visible()
        await until(lambda: "develop" in json.dumps(running.model.bodies[-1]["messages"][-1]))
        await start_run(page, "Release again")
        await page.get_by_label("Your answer").fill("the branch of Ann")
        await page.get_by_role("button", name="Answer").click()
        await until(lambda: "the branch of Ann" in json.dumps(running.model.bodies[-1]["messages"][-1]))


async def test_a_reader_sees_the_question_and_no_answers(site):
    async with site(terminal()) as running:
        page = await running.log_in()
        await start_run(page, "Push it")
        reader = await running.log_in("read")
        await show(reader, "inbox", "Inbox")
        await expect(reader.get_by_role("article", name="Approval")).to_contain_text(COMMAND)
        await expect(reader.get_by_text("This browser may only read.")).to_be_visible()
        await expect(reader.get_by_role("button", name="Allow once")).to_have_count(0)
