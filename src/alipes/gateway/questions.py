"""Questions before dangerous calls, put to a chat; and who may answer them there, by button or in words."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from alipes.gateway.access import Access
from alipes.gateway.bubble import escaped
from alipes.gateway.channels import Channel
from alipes.gateway.delivery import Delivery
from alipes.gateway.posing import UNREACHED, posed, undelivered
from alipes.gateway.standing import Standing
from alipes.kernel.delivery import Button, Outbound, lane
from alipes.kernel.errors import DeliveryError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Answer, ApprovalAnswered, ApprovalAsked, Consent
from alipes.sessions.lobby import Lobby
from alipes.store import asked as asking
from alipes.store.opening import Store
from alipes.store.people import Role

BUTTON = "ask"
LONGEST = 1500
"""Letters of a call that are shown."""
WORDS: dict[str, Consent] = {
    **dict.fromkeys(("yes", "y", "ok", "okay", "once", "approve", "allow"), "once"),
    **dict.fromkeys(("no", "n", "nope", "deny", "don't", "dont"), "no"),
    "session": "session",
    "always": "always",
}
"""What a person may say instead of pressing a button, as the whole message."""
_LABELS: dict[Consent, str] = {"once": "Yes", "session": "Yes, here", "always": "Always", "no": "No"}
_DONE: dict[Consent, str] = {
    "once": "Allowed.",
    "session": "Allowed in this conversation.",
    "always": "Allowed for good.",
    "no": "Not allowed.",
}


class Question(Struct, frozen=True):
    asked: ApprovalAsked
    address: Address
    asker: str
    """Whose message led to it: the one person who may answer, beside owners."""
    id: str
    """Under which it is owed to the chat."""


class Questions:
    """Those that are open. They are asked again by a turn that is resumed, so that none is kept."""

    def __init__(self, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._store, self._lobby, self._access, self._delivery = store, lobby, access, delivery
        self._open: dict[str, Question] = {}
        self.standing = Standing(store)

    async def put(self, address: Address, turn: str, asked: ApprovalAsked) -> None:
        """Ask it in the chat."""
        facts = await self._store.archive.turn(turn)
        asker = facts.inbound.sender if facts is not None else ""
        owner = await self._access.role(address.platform, asker) == "owner"
        choices: tuple[Consent, ...] = (
            ("once", "session", "always", "no") if owner else ("once", "session", "no")
        )
        buttons = tuple(Button(_LABELS[each], f"{BUTTON}:{asked.ask}:{each}") for each in choices)
        reply_to = facts.inbound.reply_to if facts is not None else ""
        text = f"{_shown(asked)}Answer _yes_ (once), _session_ or _no_{', or _always_' if owner else ''}."
        question = Question(asked, address, asker, asking.question(turn, asked.ask))
        self._open[asked.ask] = question
        self.standing.asked(address.key, turn, "" if len(_whole(asked.call)) > LONGEST else text)
        await self._delivery.owe(posed(question.id, address, text, buttons=buttons, reply_to=reply_to))

    async def close(self, answered: ApprovalAnswered, channels: Mapping[str, Channel]) -> None:
        """It is answered: the question in the chat says so, and has no buttons any more."""
        question = self._open.pop(answered.ask, None)
        if question is None:
            return
        channel = channels[question.address.platform]
        async with self._delivery.lock(lane(question.address)):
            await asking.answered(self._store.database, question.id)  # also if that was said elsewhere
            debt = await self._store.outbox.find(question.id)
            if debt is None:
                return
            if debt.state == "owed":
                await self._store.outbox.give_up(debt, "expired", "it was answered before it was asked")
            elif debt.paid:
                over = "Stopped." if answered.by == "stop" else _DONE[answered.choice]
                try:
                    pieces = await channel.pieces(f"{_shown(question.asked)}{over}")
                    if channel.talents.edits and pieces:
                        await channel.edit(question.address, debt.paid[-1], pieces[-1])
                except DeliveryError:
                    return  # a button that is pressed later is told that it is over

    async def review(self) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked."""
        for ask, question in tuple(self._open.items()):
            if why := await undelivered(self._store.outbox, question.id):
                self._open.pop(ask, None)
                await self._lobby.post(question.address.key, Answer(ask, "no", unasked=why))
                text = f"{UNREACHED}, so it counts as a _no_:\n\n{_fenced(_call(question.asked.call))}"
                await self._delivery.owe(Outbound(f"unasked:{ask}", question.address, text, notice=True))

    def waits(self, key: str, person: str, role: Role) -> bool:
        """Is there one in this conversation that the person may answer?"""
        here = (question for question in self._open.values() if question.address.key == key)
        return any(role == "owner" or person == question.asker for question in here)

    async def pressed(self, data: str, person: str, platform: str) -> str:
        """What to tell the person, empty for nothing: the question itself shows the answer."""
        _, ask, choice = (*data.split(":"), "", "")[:3]
        question = self._open.get(ask)
        if question is None or choice not in _LABELS or question.address.platform != platform:
            return "That question is not open any more."
        consent = next(each for each in _LABELS if each == choice)
        return await self._answer(question, consent, person)

    async def answer(self, key: str, choice: Consent, person: str, *, everything: bool = False) -> str | None:
        """The word of a person on the oldest question of a conversation; None where none waits."""
        questions = [each for each in self._open.values() if each.address.key == key]
        told = [await self._answer(each, choice, person) for each in questions[: None if everything else 1]]
        return told[0] or _DONE[choice] if told else None

    async def _answer(self, question: Question, choice: Consent, person: str) -> str:
        role = await self._access.role(question.address.platform, person)
        if role is None or (role != "owner" and person != question.asker):
            return "Only who asked for it, or an owner, can answer that."
        if choice == "always" and role != "owner":
            return "Only an owner can allow something for good."
        await asking.answered(self._store.database, question.id)
        await self._lobby.post(question.address.key, Answer(question.asked.ask, choice, person))
        return ""


def _shown(asked: ApprovalAsked) -> str:
    why = asked.reason.strip().rstrip(".")
    return f"**Shall I?** It {escaped(why)}.\n\n{_fenced(_call(asked.call))}\n"


def _call(call: ToolCall) -> str:
    whole = _whole(call)
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]} … ({len(whole) - LONGEST} letters more)"


def _whole(call: ToolCall) -> str:
    command = call.args.get("command")
    text = str(command) if command and len(call.args) == 1 else msgspec.json.encode(call.args).decode()
    return f"{call.name}: {text}"


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
