"""Questions before dangerous calls, put to a chat; and who may answer them there, by button or in words."""

from collections.abc import Mapping

import msgspec

from alipes.gateway.access import Access
from alipes.gateway.bubble import escaped
from alipes.gateway.channels import Channel
from alipes.gateway.delivery import Delivery
from alipes.gateway.posing import NOT_THEIRS, OVER, Posed, Posing
from alipes.gateway.standing import Standing
from alipes.kernel.delivery import Button
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


class Questions:
    """Those that are open."""

    def __init__(self, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._store, self._lobby, self._access = store, lobby, access
        self._posing: Posing[ApprovalAsked] = Posing(asking.question, store, lobby, access, delivery)
        self.standing = Standing(store)

    async def put(self, address: Address, turn: str, asked: ApprovalAsked) -> None:
        """Ask it in the chat."""
        question = await self._posing.prepared(address, turn, asked)
        owner = await self._access.role(address.platform, question.asker) == "owner"
        choices: tuple[Consent, ...] = (
            ("once", "session", "always", "no") if owner else ("once", "session", "no")
        )
        buttons = tuple(Button(_LABELS[each], f"{BUTTON}:{asked.ask}:{each}") for each in choices)
        text = f"{_shown(asked)}Answer _yes_ (once), _session_ or _no_{', or _always_' if owner else ''}."
        self.standing.asked(address.key, turn, "" if len(_whole(asked.call)) > LONGEST else text)
        await self._posing.show(question, text, buttons)

    async def close(self, answered: ApprovalAnswered, channels: Mapping[str, Channel]) -> None:
        """It is answered: the question in the chat says so, and has no buttons any more."""
        over = "Stopped." if answered.by == "stop" else _DONE[answered.choice]
        await self._posing.close(answered.ask, channels, lambda asked: f"{_shown(asked)}{over}")

    async def review(self) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked."""
        await self._posing.review(_given_up)

    def waits(self, key: str, person: str, role: Role) -> bool:
        """Is there one in this conversation that the person may answer?"""
        return any(role == "owner" or person == question.asker for question in self._posing.of(key))

    async def pressed(self, data: str, person: str, platform: str) -> str:
        """What to tell the person, empty for nothing: the question itself shows the answer."""
        _, ask, choice = (*data.split(":"), "", "")[:3]
        question = self._posing.find(ask, platform)
        if question is None or choice not in _LABELS:
            return OVER
        consent = next(each for each in _LABELS if each == choice)
        return await self._answer(question, consent, person)

    async def answer(self, key: str, choice: Consent, person: str, *, everything: bool = False) -> str | None:
        """The word of a person on the oldest question of a conversation; None where none waits."""
        questions = self._posing.of(key)[: None if everything else 1]
        told = [await self._answer(each, choice, person) for each in questions]
        return told[0] or _DONE[choice] if told else None

    async def _answer(self, question: Posed[ApprovalAsked], choice: Consent, person: str) -> str:
        role = await self._posing.role(question, person)
        if role is None:
            return NOT_THEIRS
        if choice == "always" and role != "owner":
            return "Only an owner can allow something for good."
        await asking.answered(self._store.database, question.id)
        await self._lobby.post(question.address.key, Answer(question.asked.ask, choice, person))
        return ""


def _given_up(asked: ApprovalAsked, why: str) -> tuple[Answer, str]:
    text = f"so it counts as a _no_:\n\n{_fenced(_call(asked.call))}"
    return Answer(asked.ask, "no", unasked=why), text


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
