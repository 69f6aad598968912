"""Questions in chats: approvals and clarifications, and who may answer them by button or in words."""

import asyncio
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.agent.approval.patterns import covers, find_problem, propose_pattern
from alipes.gateway.outbound import replies
from alipes.gateway.outbound.delivery import OutboxWorker
from alipes.gateway.people import Access
from alipes.gateway.platform_runner import PlatformRunner
from alipes.kernel.approvals import AGENT_TOOL, NETWORK, answers_to, describe_call, describe_question, reveal
from alipes.kernel.errors import DeliveryError
from alipes.kernel.formatting import escape_markdown
from alipes.kernel.messages import ToolCall
from alipes.kernel.outbox import Button, Media, Outbound, lane
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import (
    Address,
    AnswerApproval,
    AnswerQuestion,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalChoice,
    QuestionAnswered,
    QuestionAsked,
)
from alipes.runtime.tasks import run_to_completion
from alipes.sessions.sessions import Sessions
from alipes.store.sql import outbox as stored
from alipes.store.sql.approvals import Approval
from alipes.store.sql.people import PersonRole
from alipes.store.sql.questions import StoredQuestion
from alipes.store.sql.store import Store

Asked: TypeAlias = ApprovalAsked | QuestionAsked
Answered: TypeAlias = ApprovalAnswered | QuestionAnswered
GiveAnswer: TypeAlias = Callable[[], Awaitable[str | None]]
"""Gives an answer; returns what to tell the person, if anything."""

APPROVAL_BUTTON, CLARIFY_BUTTON = "ask", "reply"
MAX_PATTERN_CHARS = 80
"""A longer pattern is not shown besides the command."""
_NO_BECAUSE = r"(?is)(?:no|nope|deny|denied)(?:\s*[:;]\s*|\s*,?\s+because:?\s+)(\S.*)"
EXPIRED = "That question has expired."
MAX_CLOSED = 1000
NOT_ALLOWED = "Only the person who asked, or an owner, can answer."
MAX_CALL_CHARS = 6000
"""Characters of a call that are shown in messages, several if necessary; a longer one is sent as a file."""
_HEAD_CHARS, _TAIL_CHARS = 2000, 1000
"""Characters of a longer call that the question itself shows."""
HOLD_TIMEOUT = 5.0
"""Seconds that an early answer, and its chat, wait at most for a question to be asked again."""
CHOICE_WORDS: dict[str, ApprovalChoice] = {
    **dict.fromkeys(("yes", "y", "ok", "okay", "once", "approve", "allow"), "once"),
    **dict.fromkeys(("no", "n", "nope", "deny", "don't", "dont"), "no"),
    "session": "session",
    "always": "always",
}
"""Words that answer an approval if they are the whole message."""
_LABELS: dict[ApprovalChoice, str] = {"once": "Yes", "session": "Yes, this session", "always": "Always", "no": "No"}
_RESULTS: dict[ApprovalChoice, str] = {
    "once": "Approved.",
    "session": "Approved for this session.",
    "always": "Always approved.",
    "no": "Denied.",
}


class ChatQuestion(Struct, frozen=True):
    """A question that is open in a chat."""

    asked: Asked
    address: Address
    asker: str
    """Sender of the message that led to it: may answer, besides owners."""
    id: str
    """Id of its outbox row."""


def is_question_button(data: str) -> bool:
    return data.startswith((f"{APPROVAL_BUTTON}:", f"{CLARIFY_BUTTON}:"))


class ChatQuestions:
    """The open questions of all chats. A resumed turn asks again, and the buttons of before still count."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        access: Access,
        outbox: OutboxWorker,
        runners: Mapping[str, PlatformRunner],
        *,
        outgoing: str = "",
    ) -> None:
        """`outgoing`: the folder for files to send; empty: files are not sent."""
        self._store, self._sessions, self.access = store, sessions, access
        self._outbox, self._runners, self._outgoing = outbox, runners, outgoing
        self._open: dict[str, ChatQuestion] = {}
        self._earlier: dict[str, _EarlierQuestion] = {}
        self._closed: deque[str] = deque(maxlen=MAX_CLOSED)
        """Questions that were answered or withdrawn, although the store may not say so yet."""

    def pending(self, key: str) -> tuple[tuple[str, Asked], ...]:
        """What the session under `key` is asking now, each with its turn."""
        return self._sessions.questions.open(key)

    async def ask(self, address: Address, turn: str, asked: Asked) -> None:
        """Send a question to its chat. Its outbox row lives as long as the turn waits."""
        facts = await self._store.archive.turn(turn)
        asker, reply_to = ("", "") if facts is None else (facts.inbound.sender, facts.inbound.reply_to)
        if isinstance(asked, ApprovalAsked):
            owner = await self.access.role(address.platform, asker) == "owner"
            text, buttons = _approval_text(asked, owner=owner), _approval_buttons(asked, owner=owner)
            id = f"{stored.question_id(turn, asked.ask)}:{os.urandom(3).hex()}"  # sent again after a restart
            self._resolve_earlier(address.key, asked.ask)
            await self._send_long_call(address, asked, id)
        else:
            text, buttons = _clarify_text(asked), _clarify_buttons(asked)
            id = f"inquiry:{asked.ask}"
        self._open[asked.ask] = ChatQuestion(asked, address, asker, id)
        outbound = Outbound(id, address, text, buttons=buttons, reply_to=reply_to, notice=True, fleeting=True)
        await self._outbox.enqueue(outbound)

    async def _send_long_call(self, address: Address, asked: ApprovalAsked, id: str) -> None:
        """Send a call that is too long for messages as a file, before the question."""
        text = _format_call(asked)
        if len(text) > MAX_CALL_CHARS and self._outgoing:
            path = await asyncio.to_thread(replies.write_file, self._outgoing, id, f"{asked.call.name}.txt", text)
            await self._outbox.enqueue(
                Outbound(f"file:{id}", address, media=(Media(path),), notice=True, fleeting=True)
            )

    async def close(self, answered: Answered) -> None:
        """A question was answered or withdrawn: show the result in its message and remove the buttons."""
        question = self._open.pop(answered.ask, None)
        if question is None:
            return
        self._closed.append(answered.ask)
        runner = self._runners[question.address.platform]
        async with self._outbox.lock(lane(question.address)):
            await self._store.outbox.mark_answered(question.id)  # it may have been answered elsewhere
            delivery = await self._store.outbox.find(question.id)
            if delivery is None:
                return
            if delivery.state == "queued":
                await self._store.outbox.give_up(delivery, "expired", "answered before it was sent")
            elif delivery.paid and runner.capabilities.can_edit and (closed := _closed_text(question, answered)):
                head, result = closed
                try:
                    parts = await runner.format_message(head + result)
                    if len(parts) != len(delivery.paid):  # split elsewhere: the last message says the result
                        parts = await runner.format_message(result)
                    await runner.edit(question.address, delivery.paid[-1], parts[-1])
                except DeliveryError:
                    return  # pressing an old button is answered with `EXPIRED`

    async def review(self) -> None:
        """Answer questions whose delivery failed, so their turns do not wait forever."""
        for ask, question in tuple(self._open.items()):
            delivery = await self._store.outbox.find(question.id)
            if delivery is None or delivery.state not in ("failed", "expired"):
                continue
            self._open.pop(ask, None)
            why = f"the question was not delivered: {delivery.why.rstrip('.')}"
            text = "My question may not have been delivered, so I"
            if isinstance(question.asked, ApprovalAsked):
                op: AnswerApproval | AnswerQuestion = AnswerApproval(ask, "no", unasked=why)
                text += f" treated it as “no”:\n\n{_fence(_shorten_call(question.asked))}"
            else:
                op = AnswerQuestion(ask, "", unasked=why)
                text += f" continued without an answer:\n\n{_clarify_head(question.asked)}"
            await self._sessions.post(question.address.key, op)
            await self._outbox.enqueue(Outbound(f"unasked:{ask}", question.address, text, notice=True))

    async def handle(self, message: IncomingMessage, role: PersonRole, questions: list[ChatQuestion]) -> bool:
        """Take a message as an answer, if it is one. A second copy is not given twice. `questions`: see `list_open`."""
        if is_question_button(message.pressed):
            give: GiveAnswer | None = partial(self._press, message)
        else:
            give = self._approval_answer(message, role, questions) or self._clarify_answer(message, questions)
        if give is None and _choice_word(message) and await self._wait_for_same(message.address.key):
            # it answered a question that was only now asked again
            give = self._approval_answer(message, role, await self.list_open(message.address))
        if give is None:
            return False
        # a cancelled attempt must not leave a row that makes the next copy look already given
        await run_to_completion(partial(self._give, message, give))
        return True

    async def approve(
        self, address: Address, choice: ApprovalChoice, person: str, *, everything: bool = False
    ) -> str | None:
        """Answer the oldest approval of a conversation, or all; None if there is none."""
        questions = [each for each in await self.list_open(address) if isinstance(each.asked, ApprovalAsked)]
        results = [await self._choose(each, choice, person) for each in questions[: None if everything else 1]]
        return results[0] or _RESULTS[choice] if results else None

    # --- questions of an earlier process

    async def recover(self, key: str) -> None:
        """Remember the unanswered approval that an earlier process sent, before its turn asks again."""
        for turn in (await self._store.sessions.unfinished(key))[:1]:
            if ask := await self._store.outbox.find_unanswered(turn.id):
                self._earlier[key] = _EarlierQuestion(turn.id, ask)

    def release(self, key: str) -> None:
        """Let a held answer pass as a message: something came that must not wait behind it."""
        self._resolve_earlier(key, "")

    def _resolve_earlier(self, key: str, ask: str) -> None:
        """An approval is asked now; it has the id of the earlier one if it is the same word for word."""
        if (earlier := self._earlier.pop(key, None)) is not None:
            earlier.same = ask == earlier.ask
            earlier.resolved.set()

    async def _find_stored(self, ask: str, address: Address) -> ChatQuestion | None:
        """An open question to this chat that another process asked, or an earlier one."""
        found = await self._store.questions.find(ask)
        if found is None or found.key != address.key or found.answered_at is not None:
            return None
        return await _from_store(self._store, found, address)

    async def _wait_for_same(self, key: str) -> bool:
        """Wait until an approval is asked in this conversation; True if it is the one from before."""
        if (earlier := self._earlier.get(key)) is None:
            return False
        if earlier.turn not in [each.id for each in await self._store.sessions.unfinished(key)]:
            return False
        try:
            async with asyncio.timeout(HOLD_TIMEOUT):
                await earlier.resolved.wait()
        except TimeoutError:
            self._earlier.pop(key, None)
        return earlier.same

    # --- answers

    async def list_open(self, address: Address) -> list[ChatQuestion]:
        """Open questions of a conversation, oldest first; in a cluster those of other processes too."""
        known = [each for each in self._open.values() if each.address.key == address.key]
        if not self._store.clustered or not await self._store.questions.has_open(address.key):
            return known
        if (session := await self._store.sessions.active(address.key)) is None:
            return known
        others = [
            await _from_store(self._store, each.asked, address)
            for each in await self._store.questions.list_open(session.session)
            if each.asked.id not in self._open and each.asked.id not in self._closed
        ]
        return known + [each for each in others if each is not None]

    async def _role(self, question: ChatQuestion, person: str) -> PersonRole | None:
        """Role of a person who may answer; otherwise None."""
        role = await self.access.role(question.address.platform, person)
        return role if role == "owner" or person == question.asker else None

    def _approval_answer(
        self, message: IncomingMessage, role: PersonRole, questions: list[ChatQuestion]
    ) -> GiveAnswer | None:
        choice, sender = _choice_word(message), message.sender
        mine = [
            each
            for each in questions
            if isinstance(each.asked, ApprovalAsked) and (role == "owner" or sender == each.asker)
        ]
        if choice and mine:
            return partial(self.approve, message.address, choice, sender)
        if mine and (answer := _answer_with_text(message, mine[0])) is not None:
            return partial(self._choose, mine[0], answer.choice, sender, answer)
        return None

    def _clarify_answer(self, message: IncomingMessage, questions: list[ChatQuestion]) -> GiveAnswer | None:
        text = message.text.strip()
        other = message.pressed or message.edits or message.files or message.images
        if not text or text.startswith("/") or other:
            return None
        for each in questions:
            if isinstance(each.asked, QuestionAsked) and message.sender == each.asker:
                return partial(self._reply, each, each.asked.interpret(message.text), message.sender)
        return None

    async def _press(self, message: IncomingMessage) -> str:
        kind, ask, choice = (*message.pressed.split(":"), "", "")[:3]
        question = self._open.get(ask)
        if question is None and ask not in self._closed:
            question = await self._find_stored(ask, message.address)
        if question is None or question.address.platform != message.address.platform:
            return EXPIRED
        if kind == APPROVAL_BUTTON and choice in _LABELS:
            return await self._choose(question, next(each for each in _LABELS if each == choice), message.sender)
        choices = question.asked.choices if isinstance(question.asked, QuestionAsked) else ()
        if kind == CLARIFY_BUTTON and choice.isdecimal() and int(choice) < len(choices):
            return await self._reply(question, choices[int(choice)], message.sender)
        return EXPIRED

    async def _choose(
        self, question: ChatQuestion, choice: ApprovalChoice, person: str, answer: AnswerApproval | None = None
    ) -> str:
        """Answer an approval. Returns what to tell the person; empty: the question shows the result."""
        role = await self._role(question, person)
        if role is None:
            return NOT_ALLOWED
        if isinstance(question.asked, ApprovalAsked) and choice not in answers_to(question.asked):
            return f"Only “yes” or “no”: {question.asked.once}."
        if choice == "always" and role != "owner":
            return "Only an owner can choose “always”."
        if answer is not None and (problem := _pattern_problem(question.asked, answer.pattern)):
            return problem
        await self._store.outbox.mark_answered(question.id)
        answer = structs.replace(answer or AnswerApproval(question.asked.ask, choice), by=person)
        await self._sessions.post(question.address.key, answer)
        return ""

    async def _reply(self, question: ChatQuestion, text: str, person: str) -> str:
        if await self._role(question, person) is None:
            return NOT_ALLOWED
        await self._sessions.post(question.address.key, AnswerQuestion(question.asked.ask, text, person))
        return ""

    async def _give(self, message: IncomingMessage, give: GiveAnswer) -> None:
        """Store that the message is an answer, then give it. After a crash in between the question is asked
        again: an answer never becomes a message."""
        first = await self._store.inbox.add_answer(message.address.platform, message.id)
        if first and (text := await give()):
            await self._outbox.enqueue(replies.make_note(message, replies.escape_lines(text)))


async def _from_store(store: Store, found: Approval | StoredQuestion, address: Address) -> ChatQuestion | None:
    """A stored question; None if its turn is gone."""
    facts = await store.archive.turn(found.turn)
    if facts is None:
        return None
    if isinstance(found, StoredQuestion):
        question = QuestionAsked(found.id, found.question, found.choices, found.until)
        return ChatQuestion(question, address, facts.inbound.sender, f"inquiry:{found.id}")
    call = ToolCall("", found.tool, msgspec.json.decode(found.arguments))
    asked = ApprovalAsked(found.id, call, found.reason, found.rule, found.workdir, pattern=propose_pattern(call))
    return ChatQuestion(asked, address, facts.inbound.sender, stored.question_id(found.turn, found.id))


class _EarlierQuestion:
    """An approval that an earlier process sent: an answer to it counts only if the same is asked again."""

    def __init__(self, turn: str, ask: str) -> None:
        self.turn, self.ask, self.same = turn, ask, False
        self.resolved = asyncio.Event()


def _choice_word(message: IncomingMessage) -> ApprovalChoice | None:
    """The choice, if the message is nothing but a word for one."""
    alone = not (message.images or message.files or message.edits)
    return CHOICE_WORDS.get(message.text.strip().rstrip(".!").lower()) if alone else None


def _pattern_problem(asked: Asked, pattern: str) -> str:
    """Why the pattern cannot be saved; empty if it can, or if there is none."""
    if not pattern or not isinstance(asked, ApprovalAsked):
        return ""
    return find_problem(pattern, asked.call) if asked.pattern else "A pattern can't allow this one."


def _answer_with_text(message: IncomingMessage, question: ChatQuestion) -> AnswerApproval | None:
    """The answer in `no, because ...` or `always git push *`; None if the message is none."""
    asked, text = question.asked, message.text.strip()
    if message.images or message.files or message.edits or not isinstance(asked, ApprovalAsked):
        return None
    if found := re.match(_NO_BECAUSE, text):
        return AnswerApproval(asked.ask, "no", note=found[1].strip())
    if found := re.match(r"(?i)always[:,]?\s+`?([^`\n]+)`?$", text):
        pattern, command = found[1].strip(), str(asked.call.args.get("command") or "")
        meant = covers((pattern,), asked.call) or pattern.split()[:1] == command.split()[:1]
        return AnswerApproval(asked.ask, "always", pattern=pattern) if meant else None
    return None


def _approval_text(asked: ApprovalAsked, *, owner: bool) -> str:
    always = ", or _always_" if owner else ""
    also = f"\nAlso: `always {asked.pattern}`, or _no, because ..._"
    pattern = also if owner and asked.pattern and len(asked.pattern) <= MAX_PATTERN_CHARS else ""
    how = f"Answer _yes_ (once), _session_ or _no_{always}.{pattern}"
    if asked.once:
        how = "Answer _yes_ (once) or _no_."
    return f"{_approval_head(asked)}{how}"


def _approval_head(asked: ApprovalAsked) -> str:
    why = escape_markdown(reveal(asked.reason.strip().rstrip(".")))
    if asked.call.name != NETWORK:
        return f"**Approve?** Why: {why}.\n\n{_fence(_shorten_call(asked))}\n"
    title, call = escape_markdown(describe_call(asked.call).title), _shorten_call(asked)
    again = why.partition(". ")[2] if why.startswith("connects to ") else f"Why: {why}"  # the title names the host
    return f"**{title}**\n\n" + (f"{_fence(call)}\n" if call else "") + (f"{again}.\n\n" if again else "")


def _approval_buttons(asked: ApprovalAsked, *, owner: bool) -> tuple[Button, ...]:
    choices: tuple[ApprovalChoice, ...] = ("once", "session", "always", "no") if owner else ("once", "session", "no")
    choices = tuple(each for each in choices if each in answers_to(asked))
    return tuple(Button(_LABELS[each], f"{APPROVAL_BUTTON}:{asked.ask}:{each}") for each in choices)


def _clarify_text(asked: QuestionAsked) -> str:
    lines = "".join(f"{number}. {escape_markdown(choice)}\n" for number, choice in enumerate(asked.choices, 1))
    how = f"{lines}\nAnswer with a number, or in your own words." if lines else "_Answer in your own words._"
    return f"{_clarify_head(asked)}{how}"


def _clarify_head(asked: QuestionAsked) -> str:
    return f"**{escape_markdown(asked.question.strip())}**\n\n"


def _clarify_buttons(asked: QuestionAsked) -> tuple[Button, ...]:
    return tuple(
        Button(choice, f"{CLARIFY_BUTTON}:{asked.ask}:{number}") for number, choice in enumerate(asked.choices)
    )


def _closed_text(question: ChatQuestion, answered: Answered) -> tuple[str, str] | None:
    """What the message of a closed question says: the question and its result; None: it stays as it is."""
    if isinstance(question.asked, ApprovalAsked) and isinstance(answered, ApprovalAnswered):
        result = "Stopped." if answered.by == "stop" else _RESULTS[answered.choice]
        if answered.by == "stop" and answered.note:
            result = f"Withdrawn: {answered.note}."
        elif answered.pattern:
            result = f"Always approved: `{answered.pattern}`"
        elif answered.note:
            result = f"Denied: {escape_markdown(answered.note)}"
        return _approval_head(question.asked), result
    if isinstance(question.asked, QuestionAsked) and isinstance(answered, QuestionAnswered) and question.asked.choices:
        result = f"_{escape_markdown(answered.text)}_" if answered.text else "_No answer._"
        return _clarify_head(question.asked), result
    return None


def _shorten_call(asked: ApprovalAsked) -> str:
    """The whole call; for a very long one its start and end, and where all of it is."""
    text = _format_call(asked)
    if len(text) <= MAX_CALL_CHARS:
        return text
    where = f"all {len(text):,} characters: see the file above, or `alipes approvals show {asked.ask}`"
    return f"{text[:_HEAD_CHARS]}\n[... {where} ...]\n{text[-_TAIL_CHARS:]}"


def _format_call(asked: ApprovalAsked) -> str:
    shown = describe_question(asked)
    if asked.call.name == NETWORK:
        return shown.text
    return f"{shown.title}\n{shown.text}" if asked.call.name == AGENT_TOOL else f"{asked.call.name}: {shown.text}"


def _fence(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
