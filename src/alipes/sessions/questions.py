"""Questions to people: approvals of tool calls, and clarifications asked by the model."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from alipes.agent.approval.command_files import ShownFiles
from alipes.agent.approval.patterns import covering_patterns, find_problem, propose_pattern
from alipes.agent.plan import PlanAnswer
from alipes.kernel.approvals import FILE_ACCESS, NETWORK, answers_to, host_source
from alipes.kernel.conversations import ApprovalDecision, DeniedBecause, QuestionUndelivered, QuestionWithdrawn
from alipes.kernel.formatting import join_names
from alipes.kernel.mcp import mcp_source, split_mcp_name
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import (
    SCHEDULED_PREFIX,
    AnswerApproval,
    AnswerQuestion,
    ApprovalAnswered,
    ApprovalAsked,
    Envelope,
    Event,
    QuestionAnswered,
    QuestionAsked,
    Turn,
)
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.sessions.permissions import ACCEPT, ACCEPT_QUESTION, ACCEPT_WITH_EDITS, REJECT, PermissionModes
from alipes.store.sql.approvals import Approval, StandingChoice
from alipes.store.sql.questions import StoredQuestion
from alipes.store.sql.store import Store

NOBODY = "nobody"
"""Instead of a person, if the question could not be delivered."""
RECHECK_S = 10.0
"""Seconds between two looks at the stored answer while a turn waits."""
FILES_RECHECK_S = 1.0
"""Seconds between two looks at the files that an open question is about."""
WITHDRAWN = "the files it reads changed, so the question is asked again"
Asked: TypeAlias = ApprovalAsked | QuestionAsked
Answer: TypeAlias = AnswerApproval | AnswerQuestion
_NOT_IN_RULES = {"terminal": frozenset({"timeout"})}
"""By tool, arguments that do not change what a call does."""
_SHOWN_SOURCES = 3
_ALTHOUGH: dict[StandingChoice, str] = {"always": "always allow it", "session": "allowed it for this session"}


class FrontEnd(Protocol):
    """A front end that reaches people who are not connected at the moment."""

    def can_reach(self, key: str) -> bool:
        """True if questions for `key` can be delivered later even though no client is connected."""

    def send_soon(self, outbound: Outbound) -> None:
        """A message to a chat is in the outbox: send it now."""

    async def before_resume(self, keys: tuple[str, ...]) -> None:
        """Awaited with the sessions whose interrupted turns are about to resume."""


class _OpenQuestion(Struct, frozen=True):
    turn: Turn
    asked: Asked
    answer: "asyncio.Future[Answer]"


class Questions:
    """Asks the people who watch a session, while the turn waits; stopping the turn answers "no".

    A turn that works for another conversation asks there. One approval at a time per session. Approvals are rows
    in the store: an open one is asked again after a restart, and `session` and `always` are looked up at each use.
    """

    def __init__(
        self,
        store: Store,
        hooks: Hooks,
        *,
        interactive: bool,
        mask: Callable[[str], str] = str,
        permissions: PermissionModes | None = None,
    ) -> None:
        """`mask` removes known secrets from what is stored about a call."""
        self._permissions = permissions or PermissionModes(store)
        self._approvals, self._sources, self._bus = store.approvals, store.sources, store.bus
        self._questions = store.questions
        self._hooks, self._mask = hooks, mask
        self.interactive = interactive
        """A person can answer."""
        self.front_end: FrontEnd | None = None
        self._interrupted: dict[str, list[ApprovalAnswered]] = {}
        self._open: dict[str, _OpenQuestion] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def attach(self, front_end: FrontEnd) -> None:
        """Ask by it people who are not connected."""
        self.front_end = front_end

    def allow_asking(self) -> None:
        """A person can answer from now on."""
        self.interactive = True

    async def ask_approval(
        self,
        call: ToolCall,
        reason: str,
        turn: Turn,
        *,
        diff: str = "",
        exact: bool = True,
        files: ShownFiles | None = None,
    ) -> ApprovalDecision:
        """The decision on `call`: made now, or earlier for exactly this call. None: nobody can be asked.

        A conversation that has read untrusted text is asked again about what was allowed before that. `diff`: what a
        write would change. `exact`: no pattern of commands may allow it. `files`: what a command reads; a right holds
        for their content, and the question is withdrawn when that changes.
        """
        if await self._permissions.of_turn(turn) == "all":
            return "once"
        rule, (key, session, _) = rule_for(call, turn) + (files.rule if files else ""), _place(turn)
        async with self._locks.setdefault(key, asyncio.Lock()):
            sources = await self._list_sources(call, turn)
            covering = () if exact else await self._find_covering(call, turn)
            right = await self._approvals.find_right(rule, session, turn.id, sources, patterns=covering)
            right = None if files is not None and files.once else right
            if right is not None and right.confirmed:
                return right.choice
            if right is not None:
                reason = f"{reason.rstrip('.')}. {_why_again(right.choice, sources)}"
            approval = await self._approvals.find_waiting(turn.id, rule, reason)
            if approval is None or approval.choice is None:
                if not self._can_answer(key):
                    return None
                approval = approval or await self._store(call, (reason, rule), turn, sources)
                shown = (files.text, files.once) if files is not None else ()
                pattern = "" if exact else propose_pattern(call)
                asked = ApprovalAsked(approval.id, call, reason, rule, approval.workdir, diff, pattern, *shown)
                answer = await self._ask_approval(asked, turn, files)
                if answer is None:
                    return QuestionWithdrawn()
            else:  # answered while no process waited for it
                answer = _stored_answer(approval)
            await self._approvals.take(approval.id)
            return _to_decision(answer)

    async def _list_sources(self, call: ToolCall, turn: Turn) -> Mapping[str, str]:
        """By source, the untrusted text that is a reason to ask again."""
        sources = {**await self._sources.list_read(turn)}
        if call.name == NETWORK and "group" not in call.args:  # text from a host is no reason to ask about it again
            sources.pop(host_source(str(call.args.get("host"))), None)
        if (parts := split_mcp_name(call.name)) is not None:  # nor are results of a server about its tools
            sources = {each: label for each, label in sources.items() if not each.startswith(mcp_source(parts[0]))}
        return sources

    async def _find_covering(self, call: ToolCall, turn: Turn) -> tuple[str, ...]:
        """Ids of the approvals whose patterns together cover the call."""
        known = {each.pattern: each.id for each in await self._approvals.list_patterns(turn.inbound.workdir)}
        return tuple(known[pattern] for pattern in covering_patterns(known, call))

    async def _store(self, call: ToolCall, why: tuple[str, str], turn: Turn, sources: Mapping[str, str]) -> Approval:
        """Store an open question; `why`: its reason and its rule."""
        (reason, rule), (key, session, _) = why, _place(turn)
        approval = Approval(
            id=os.urandom(6).hex(),
            session=session,
            key=key,
            turn=turn.id,
            tool=call.name,
            arguments=msgspec.json.encode(_mask_strings(call.args, self._mask)).decode(),
            workdir="" if call.name == NETWORK else turn.inbound.workdir,
            reason=reason,
            rule=rule,
            asked_at=time.time(),
        )
        await self._approvals.ask(approval, sources)
        return approval

    async def _ask_approval(self, asked: ApprovalAsked, turn: Turn, files: ShownFiles | None) -> AnswerApproval | None:
        """The answer; None if the question was withdrawn because the files changed."""
        question = self._add(turn, asked)
        answered = ApprovalAnswered(asked.ask, "no", "stop")
        try:
            await self._hooks.dispatcher.notify(specs.on_event, event=asked, turn=turn)
            self._publish(turn, asked)
            answer = await self._wait_for_answer(asked.ask, question, files)
            if answer is None:
                answered = ApprovalAnswered(asked.ask, "no", "stop", note=WITHDRAWN)
                return None
            answered = ApprovalAnswered(asked.ask, answer.choice, answer.by, answer.pattern, answer.note)
        except asyncio.CancelledError:
            self._interrupted.setdefault(turn.id, []).append(answered)
            raise
        finally:  # also when stopped: front ends must remove the question
            del self._open[asked.ask]
            self._publish(turn, answered)
        if answer.choice not in answers_to(asked):  # another process, which does not know the question, recorded it
            await self._approvals.revoke(await self._approvals.find(asked.ask))
        await self._hooks.dispatcher.notify(specs.on_event, event=answered, turn=turn)
        return answer

    async def _wait_for_answer(
        self, ask: str, question: _OpenQuestion, files: ShownFiles | None
    ) -> AnswerApproval | None:
        """The answer, also if the process that recorded it ended before it could pass it on. None if the files changed
        first."""
        while not question.answer.done():
            await asyncio.wait({question.answer}, timeout=FILES_RECHECK_S if files and files.text else RECHECK_S)
            changed = files is not None and not question.answer.done() and not await files.are_current()
            if changed and await self._approvals.answer(ask, "no", "stop", note=WITHDRAWN):
                return None
            if not question.answer.done() and (stored := await self._approvals.find(ask)).choice is not None:
                return _stored_answer(stored)
        answer = question.answer.result()
        assert isinstance(answer, AnswerApproval)
        return answer

    async def record(self, answer: AnswerApproval) -> AnswerApproval | None:
        """Store an answer before it is sent to the turn; None if the question has been answered or withdrawn."""
        answer = structs.replace(answer, choice="no", by=NOBODY) if answer.unasked else answer
        asked = self.find_open(answer.ask)
        if isinstance(asked, ApprovalAsked) and answer.choice not in answers_to(asked):
            answer = structs.replace(answer, choice="once", pattern="")
        if answer.pattern and (answer.choice != "always" or find_problem(answer.pattern)):
            answer = structs.replace(answer, choice="no" if answer.choice == "no" else "once", pattern="")
        said = answer.ask, answer.choice, answer.by
        stored = await self._approvals.answer(*said, pattern=answer.pattern, note=answer.note)
        return answer if stored else None

    async def record_reply(self, answer: AnswerQuestion) -> bool:
        """Store an answer to a question of the model before it is sent; False if it was answered before."""
        by = NOBODY if answer.unasked else answer.by
        return await self._questions.answer(answer.ask, answer.text, by)

    async def ask_to_accept(self, turn: Turn, seconds: float) -> PlanAnswer | None:
        """Ask whether the plan of the turn is accepted; None if nobody answers."""
        choices = (ACCEPT_WITH_EDITS, ACCEPT, REJECT)
        answer = await self.ask_question(turn, ACCEPT_QUESTION, choices, seconds)
        if answer is None or answer.unasked:
            return None
        return await self._permissions.accept_plan(turn, answer.text)

    async def ask_question(
        self, turn: Turn, text: str, choices: tuple[str, ...], seconds: float
    ) -> AnswerQuestion | None:
        """A person's answer, or why the question could not be delivered; None if nobody can be asked or
        nobody answers in time."""
        if not self._can_answer(_place(turn)[0]):
            return None
        now, (key, session, _) = time.time(), _place(turn)
        asked = QuestionAsked(os.urandom(6).hex(), text, choices, now + seconds)
        question = self._add(turn, asked)
        answered = QuestionAnswered(asked.ask)
        try:
            await self._questions.ask(StoredQuestion(asked.ask, session, key, turn.id, text, choices, now, asked.until))
            self._publish(turn, asked)
            async with asyncio.timeout(seconds):
                answer = await question.answer
            assert isinstance(answer, AnswerQuestion)
            answered = QuestionAnswered(asked.ask, answer.text, answer.by)
        except TimeoutError:
            await self._questions.close(asked.ask)
            return None
        else:
            return answer
        finally:
            del self._open[asked.ask]
            self._publish(turn, answered)

    def answer(self, answer: Answer) -> None:
        """Pass on an answer; the first one counts, and one to a closed question is ignored."""
        question = self._open.get(answer.ask)
        if question is not None and not question.answer.done():
            question.answer.set_result(answer)

    def open(self, key: str) -> tuple[tuple[str, Asked], ...]:
        """The open questions of `key`, each with the turn it belongs to."""
        placed = ((_place(question.turn), question.asked) for question in self._open.values())
        return tuple((turn, asked) for (place, _, turn), asked in placed if place == key)

    def find_open(self, ask: str) -> Asked | None:
        """The question with this id, if a turn of this process waits for it."""
        question = self._open.get(ask)
        return None if question is None else question.asked

    def is_waiting(self, turn: str) -> bool:
        """True if the turn, or one that works for it, waits for a person."""
        askers = (question.turn for question in self._open.values())
        return any(turn in (asker.id, asker.inbound.parent, _place(asker)[2]) for asker in askers)

    def take_interrupted(self, turn: str) -> tuple[ApprovalAnswered, ...]:
        """The approvals that the end of the turn answered, for its plugins; each is returned once."""
        return tuple(self._interrupted.pop(turn, ()))

    def _can_answer(self, key: str) -> bool:
        """True if a client is connected, or a front end reaches the person."""
        if not self.interactive or key.startswith(SCHEDULED_PREFIX):  # a job runs unattended
            return False
        return self._bus.has_subscribers(key) or (self.front_end is not None and self.front_end.can_reach(key))

    def _add(self, turn: Turn, asked: Asked) -> _OpenQuestion:
        question = _OpenQuestion(turn, asked, asyncio.get_running_loop().create_future())
        self._open[asked.ask] = question
        return question

    def _publish(self, turn: Turn, event: Event) -> None:
        key, _, asker = _place(turn)
        self._bus.publish(Envelope(key, asker, event))


class PlanQuestion:
    """Plan mode of turns: whether it is on, and the question at its end."""

    def __init__(self, questions: Questions, permissions: PermissionModes, timeout: float) -> None:
        self._questions, self._permissions, self._timeout = questions, permissions, timeout

    async def is_on(self, turn: Turn, *, since_claim: bool = False) -> bool:
        return await self._permissions.of_turn(turn, since_claim=since_claim) == "plan"

    async def ask_to_accept(self, turn: Turn) -> PlanAnswer | None:
        return await self._questions.ask_to_accept(turn, self._timeout)


def _stored_answer(approval: Approval) -> AnswerApproval:
    choice = approval.choice or "no"
    return AnswerApproval(approval.id, choice, approval.answered_by, pattern=approval.pattern, note=approval.note)


def _to_decision(answer: AnswerApproval) -> ApprovalDecision:
    if answer.unasked:
        return QuestionUndelivered(answer.unasked)
    if answer.choice == "no" and answer.note:
        return DeniedBecause(answer.note)
    return answer.choice


def _place(turn: Turn) -> tuple[str, str, str]:
    """Where a person is asked for the turn: key, session, and the person's turn."""
    origin = turn.inbound.origin
    if origin is None:
        return turn.key, turn.session, turn.id
    asker = turn.id if origin.reports else origin.turn  # background work may ask after that turn has ended
    return origin.address.key, origin.session, asker


def rule_for(call: ToolCall, turn: Turn) -> str:
    """A readable rule that matches exactly this call in this directory, or connections to exactly this host."""
    if call.name == NETWORK:
        return _connection_rule(call.args)
    if call.name == FILE_ACCESS:  # a right covers what the question names
        return f"{call.args.get('action')} {call.args.get('folder')} in {turn.inbound.workdir}"
    where = f" in {turn.inbound.workdir}" if turn.inbound.workdir else ""
    if split_mcp_name(call.name) is not None:  # the person decides about the tool, not about single arguments
        return f"{call.name}{where}"
    ignored = _NOT_IN_RULES.get(call.name, frozenset())
    decisive = {name: value for name, value in call.args.items() if name not in ignored}
    args = msgspec.json.encode(decisive, order="sorted").decode()
    return f"{call.name} {args}{where}"


def _connection_rule(args: Mapping[str, Json]) -> str:
    """A group means its hosts: with other hosts it is another rule. A yes without SSH keys is one without them."""
    if args.get("keys"):
        return f"connect to {args.get('host')}:{args.get('port')} with your SSH keys"
    if "group" not in args:
        return f"connect to {args.get('host')}"
    hosts = args.get("hosts")
    listed = f" ({', '.join(sorted(map(str, hosts)))})" if isinstance(hosts, list) else ""
    return f"connect to {args['group']}{listed}"


def _why_again(choice: StandingChoice, sources: Mapping[str, str]) -> str:
    labels = list(dict.fromkeys(sources.values()))
    shown = labels if len(labels) <= _SHOWN_SOURCES else [*labels[-_SHOWN_SOURCES + 1 :], "other untrusted text"]
    return f"Asked again, although you {_ALTHOUGH[choice]}: this conversation has read {join_names(shown)}"


def _mask_strings(value: Json, mask: Callable[[str], str]) -> Json:
    match value:
        case str():
            return mask(value)
        case list():
            return [_mask_strings(each, mask) for each in value]
        case dict():
            return {name: _mask_strings(each, mask) for name, each in value.items()}
    return value
