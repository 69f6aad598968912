"""Learning: after some turns a model may propose a note or a skill. A person decides, or the setting `auto` does.

It works in the background on the model of `[auxiliary.learning]`, within the spending limits and a daily cap. Turns
that were not answered teach nothing. What untrusted text may have caused says so, and is never saved without a person.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import structs

from alipes.agent.auxiliary import AuxiliaryModels, BackgroundTasks
from alipes.features.learning.review import (
    MAX_ANSWER_TOKENS,
    PROMPT,
    LearnedNote,
    LearnedSkill,
    SkillProposal,
    format_transcript,
    is_worth_a_look,
    make_skill_text,
    parse_reply,
)
from alipes.features.learning.settings import LearningConfig
from alipes.features.memory.change import OWNER, MemoryOrigin, memory_scope
from alipes.features.memory.memory import describe_change
from alipes.features.memory.secrets import contains_secret
from alipes.features.memory.service import MemoryService, decode_edit
from alipes.features.skills.skill import SKILL_FILE, find_name_problem
from alipes.features.skills.skills import Skills
from alipes.features.skills.versions import SkillChange, SkillFile, SkillFiles, check_files, diff_files, hash_files
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.messages import Message, user
from alipes.kernel.turns import Turn
from alipes.runtime.front_matter import split_front_matter
from alipes.runtime.redaction import Mask
from alipes.store.sql.proposals import Proposal

TASK = "learning"
MAX_PENDING = 10
"""With this many pending proposals of a person, no more are made."""
CHANGED_SINCE = "The skill was changed since this was proposed. Reject it, or replace its text with `edit`."
_skill_decoder = msgspec.json.Decoder(SkillProposal)


class Learning:
    """Looks at finished turns, and carries out what was accepted."""

    def __init__(
        self,
        config: LearningConfig,
        auxiliary: AuxiliaryModels,
        memory: MemoryService,
        skills: Skills,
        *,
        tasks: BackgroundTasks,
        mask: Mask,
    ) -> None:
        self.config, self._auxiliary, self.memory, self.skills = config, auxiliary, memory, skills
        self._tasks, self._mask, self._proposals = tasks, mask, memory.proposals
        self._lock = asyncio.Lock()
        self.clock: Callable[[], float] = time.time

    async def turn_ended(self, turn: Turn, ending: str, said: tuple[Message, ...]) -> None:
        """The hook: starts a review in the background."""
        inbound, config = turn.inbound, self.config
        if ending != "answered" or config.mode == "off" or not config.per_day:
            return
        if inbound.origin is not None or inbound.notice or inbound.offered or memory_scope(inbound) is None:
            return
        if is_worth_a_look(turn, said, config.steps):
            self._tasks.spawn(partial(self._review, turn, said), f"learning from turn {turn.id}")

    async def _review(self, turn: Turn, said: tuple[Message, ...]) -> None:
        scope = memory_scope(turn.inbound) or OWNER
        async with self._lock:  # one at a time, so that the cap holds
            if await self._is_capped(turn, scope):
                return
            message = user(await self._describe(turn, said, scope))
            reply = await self._auxiliary.ask(
                TASK, turn, system=PROMPT, messages=(message,), max_tokens=MAX_ANSWER_TOKENS
            )
        sources = await self.memory.untrusted_sources(turn)
        for found in parse_reply(reply.message.text):
            proposal = await self._to_proposal(found, turn, scope)
            if proposal is not None:
                await self._handle(structs.replace(proposal, sources=sources), turn)

    async def _is_capped(self, turn: Turn, scope: str) -> bool:
        midnight = self.clock() - _seconds_today(self.clock())
        if await self._proposals.count_calls(TASK, midnight) >= self.config.per_day:
            return True
        if len(await self._proposals.list_pending(scope)) >= MAX_PENDING:
            return True
        return await self._auxiliary.spending.is_reached(turn)

    async def _describe(self, turn: Turn, said: tuple[Message, ...], scope: str) -> str:
        notes = [await self.memory.memory.describe(scope, target) for target in ("memory", "user")]
        known = [each for each in await self.skills.of_turn(turn) if each.origin == "home"] if scope == OWNER else []
        used = {str(call.args.get("name")) for each in said for call in each.calls if call.name == "skill_view"}
        texts = [await self.skills.view(each) for each in known if each.name in used][:2]
        listed = "\n".join(f"- {each.name}: {each.description[:200]}" for each in known) or "(none)"
        allowed = "" if scope == OWNER else "\nPropose notes only, no skills."
        parts = ("Present notes:", *notes, "\nSkills that may be changed:", listed, *texts)
        return self._mask("\n".join((*parts, f"{allowed}\nTranscript:\n{format_transcript(turn, said)}")))

    async def _to_proposal(self, found: LearnedNote | LearnedSkill, turn: Turn, scope: str) -> Proposal | None:
        """None if it cannot be carried out as it is."""
        try:
            if isinstance(found, LearnedNote):
                await self.memory.memory.preview(scope, found.edit)
                change = msgspec.json.encode(found.edit).decode()
                return Proposal("", "memory", scope, change, found.reason, turn.session, turn.id)
            if scope != OWNER or find_name_problem(found.name):
                return None
            files, base = await self._skill_files(found)
            check_files(found.name, files)
        except (ToolError, ConfigError):
            return None
        text = files[SKILL_FILE].data.decode()
        if contains_secret(text, self._mask):
            return None
        made = SkillProposal(found.name, text, base)
        return Proposal("", "skill", scope, msgspec.json.encode(made).decode(), found.reason, turn.session, turn.id)

    async def _skill_files(self, found: LearnedSkill) -> tuple[SkillFiles, str]:
        """The files after the change, and the hash of those before it. A changed skill keeps its fields."""
        present = await asyncio.to_thread(self.skills.store.read, found.name)
        if SKILL_FILE not in present:
            return {SKILL_FILE: SkillFile(make_skill_text(found).encode())}, ""
        front, _ = split_front_matter(present[SKILL_FILE].data.decode("utf-8", "replace"))
        text = make_skill_text(found) if front is None else f"---\n{front.strip()}\n---\n\n{found.body.strip()}\n"
        return {**present, SKILL_FILE: SkillFile(text.encode())}, hash_files(present)

    async def _handle(self, proposal: Proposal, turn: Turn) -> None:
        """Store it; with `auto` carry it out, unless untrusted text was read."""
        waiting = await self._proposals.list_pending(proposal.scope)
        stored = await self._proposals.add(proposal)
        if self.config.mode == "auto" and not proposal.sources:
            text = f"Learned: {await self.accept(stored, by='auto')}"
            await self.memory.people.nudge(turn, text, stored.id)
        elif self.config.nudge and not waiting:
            place = "/memory pending" if stored.kind == "memory" else "/skills pending"
            await self.memory.people.nudge(turn, f"A proposal from this turn waits: {place}", stored.id)

    async def accept(self, proposal: Proposal, *, by: str = "person") -> str:
        """Carry out a proposal; returns what was done. Raises `ToolError` and `ConfigError`; then it stays pending."""
        if proposal.kind == "memory":
            origin = MemoryOrigin("learning", proposal.session, proposal.turn)
            change = await self.memory.accept(proposal, decode_edit(proposal), origin, by=by)
            if change is None:
                raise ToolError("That proposal was decided already.")
            return describe_change(change)
        skill = decode_skill(proposal)
        files = await self.proposed_files(proposal)
        check_files(skill.name, files)
        if not await self._proposals.decide(proposal.id, "accepted", by):
            raise ToolError("That proposal was decided already.")
        change_by = SkillChange("learning", proposal.reason, proposal.session, proposal.turn)
        write = self.skills.store.write if skill.base else self.skills.store.create
        version = await asyncio.to_thread(write, skill.name, files, change_by)
        return f"skill {skill.name}, version {version.number}"

    async def diff(self, proposal: Proposal) -> str:
        """What it would change now. Raises `ToolError` if it cannot be carried out."""
        if proposal.kind == "memory":
            return await self.memory.memory.preview(proposal.scope, decode_edit(proposal))
        present = await asyncio.to_thread(self.skills.store.read, decode_skill(proposal).name)
        return diff_files(present, await self.proposed_files(proposal))

    async def replace_text(self, proposal: Proposal, body: str) -> None:
        """Give a proposed skill another text; its fields stay. It applies to the present version of the skill."""
        skill = decode_skill(proposal)
        front, _ = split_front_matter(skill.text)
        present = await asyncio.to_thread(self.skills.store.read, skill.name)
        text = f"---\n{(front or '').strip()}\n---\n\n{body.strip()}\n"
        changed = SkillProposal(skill.name, text, hash_files(present))
        check_files(skill.name, {SKILL_FILE: SkillFile(text.encode())})
        await self._proposals.replace_change(proposal.id, msgspec.json.encode(changed).decode())

    async def proposed_files(self, proposal: Proposal) -> dict[str, SkillFile]:
        """The files of the skill if it is accepted. Raises `ToolError` if the skill was changed since."""
        skill = decode_skill(proposal)
        present = await asyncio.to_thread(self.skills.store.read, skill.name)
        if hash_files(present) != skill.base:
            raise ToolError(CHANGED_SINCE)
        return {**present, SKILL_FILE: SkillFile(skill.text.encode())}


def decode_skill(proposal: Proposal) -> SkillProposal:
    return _skill_decoder.decode(proposal.change)


def _seconds_today(now: float) -> float:
    """Seconds since the last midnight."""
    local = time.localtime(now)
    return local.tm_hour * 3600 + local.tm_min * 60 + local.tm_sec
