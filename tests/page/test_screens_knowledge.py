"""Skills, proposals and memory in a real browser."""

import msgspec
import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from alipes.features.learning.review import SkillProposal
from alipes.features.memory.change import OWNER, MemoryEdit
from alipes.features.skills.versions import SkillFile, hash_files
from alipes.store.sql.proposals import Proposal, ProposalStore
from alipes.store.sqlite.database import open_database
from tests.page.screen_steps import call, show

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
TEXT = "---\nname: tea\ndescription: How to make tea.\n---\n\n{}\n"


async def propose(running, kind, change, reason):
    async with open_database(running.home.path / "alipes.db") as database:
        row = Proposal("", kind, OWNER, msgspec.json.encode(change).decode(), reason, "s1", "t1")
        await ProposalStore(database).add(row)


async def read_memory(page, target):
    found = await call(page, "GET", "memory")
    return next(each for each in found["targets"] if each["target"] == target)


async def test_a_proposed_skill_is_edited_accepted_and_rolled_back(site):
    async with site() as running:
        page = await running.log_in()
        await propose(running, "skill", SkillProposal("tea", TEXT.format("Warm the pot."), ""), "It took long.")
        await show(page, "skills?tab=pending", "Skills")
        card = page.get_by_role("article", name="Proposal tea")
        await expect(card).to_contain_text("It took long.")
        await expect(card.locator(".diff .added").first).to_be_visible()
        await card.get_by_role("button", name="Edit").click()
        typed = card.get_by_label("Text to accept")
        await typed.fill((await typed.input_value()).replace("Warm the pot.", "Warm the pot well."))
        await card.get_by_role("button", name="Accept edited").click()
        await expect(page.get_by_text("Nothing is proposed")).to_be_visible()
        assert "Warm the pot well." in (await call(page, "GET", "skills/tea"))["text"]
        files = {"SKILL.md": SkillFile((running.home.path / "skills" / "tea" / "SKILL.md").read_bytes())}
        base = hash_files(files)
        await propose(running, "skill", SkillProposal("tea", TEXT.format("Use cold water."), base), "Again.")
        await show(page, "skills", "Skills")
        await show(page, "skills?tab=pending", "Skills")
        await page.get_by_role("article", name="Proposal tea").get_by_role("button", name="Accept").click()
        await expect(page.get_by_text("Nothing is proposed")).to_be_visible()
        await show(page, "skills/tea", "tea")
        await expect(page.get_by_role("group", name="Text of the skill")).to_contain_text("Use cold water.")
        await page.get_by_role("table", name="Versions").get_by_role("button", name="Go back").last.click()
        await page.get_by_role("dialog").get_by_role("button", name="Go back").click()
        await expect(page.get_by_role("group", name="Text of the skill")).to_contain_text("Warm the pot well.")
        assert "Warm the pot well." in (await call(page, "GET", "skills/tea"))["text"]


async def test_a_skill_is_switched_off_and_a_proposed_note_rejected(site):
    async with site() as running:
        page = await running.log_in()
        folder = running.home.path / "skills" / "tea"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(TEXT.format("Warm the pot."))
        await propose(running, "memory", MemoryEdit("add", "user", "likes tea"), "said so")
        await show(page, "skills", "Skills")
        await page.get_by_role("link", name="tea").click()
        async with page.expect_response(lambda answer: answer.request.method == "PATCH"):
            await page.get_by_role("switch", name="In use").click()
        await expect(page.get_by_role("switch", name="In use")).not_to_be_checked()
        assert not (await call(page, "GET", "skills/tea"))["enabled"]
        await show(page, "skills?tab=pending", "Skills")
        await page.get_by_role("button", name="Reject").click()
        await expect(page.get_by_text("Nothing is proposed")).to_be_visible()
        assert (await read_memory(page, "user"))["text"] == ""


async def test_memory_is_edited_and_a_change_is_undone(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "memory", "Memory")
        notes = page.get_by_label("Text: Notes of the agent")
        await notes.fill("- The build needs make\n")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("button", name="Save")).to_have_count(0)
        assert (await read_memory(page, "memory"))["entries"] == ["The build needs make"]
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_role("dialog").get_by_role("button", name="Undo").click()
        await expect(notes).to_have_value("")
        assert (await read_memory(page, "memory"))["entries"] == []


async def test_a_note_changed_meanwhile_is_a_conflict_and_nothing_typed_is_lost(site):
    async with site() as running:
        page = await running.log_in()
        await show(page, "memory", "Memory")
        notes = page.get_by_label("Text: Notes of the agent")
        await notes.fill("- mine\n")
        base = (await read_memory(page, "memory"))["base"]
        await call(page, "PATCH", "memory", {"target": "memory", "text": "- theirs\n", "base": base})
        await expect(page.get_by_text("This memory was changed meanwhile.")).to_be_visible()
        await expect(page.locator(".stored")).to_contain_text("theirs")
        await expect(notes).to_have_value("- mine\n")
        assert (await read_memory(page, "memory"))["entries"] == ["theirs"]
        await page.get_by_role("button", name="Save my text over it").click()
        await expect(page.locator(".stored")).to_have_count(0)
        assert (await read_memory(page, "memory"))["entries"] == ["mine"]
