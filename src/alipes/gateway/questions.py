"""Questions before dangerous calls, put to a chat; and who may answer them there, by button or in words."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from alipes.gateway.access import Access
from alipes.gateway.live.drafts import escaped
from alipes.gateway.outbound import replies
from alipes.gateway.outbound.delivery import Delivery
from alipes.gateway.platform_runner import Channel
from alipes.kernel.errors import DeliveryError
from alipes.kernel.messages import ToolCall
from alipes.kernel.outbox import Button, Outbound, lane
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address, Answer, ApprovalAnswered, ApprovalAsked, Asked, Consent, Heard, Reply
from alipes.runtime.tasks import to_the_end
from alipes.sessions.sessions import Lobby
from alipes.store import outbox as asking
from alipes.store.inbox import SqliteArrivals
from alipes.store.outbox import answered, unanswered
from alipes.store.people import Role
from alipes.store.store import Store

A = TypeVar("A", ApprovalAsked, Asked)
Named: TypeAlias = Callable[[str, str], str]
"""The id under which the question of a turn is owed."""

OVER = "That question is not open any more."
NOT_THEIRS = "Only who asked for it, or an owner, can answer that."
_UNREACHED = "I cannot tell whether this question of mine reached you"


class Posed(Struct, Generic[A], frozen=True):
    asked: A
    address: Address
    asker: str
    """Whose message led to it: the one person who may answer, beside owners."""
    id: str
    """Under which it is owed to the chat."""
    reply_to: str = ""


class Posing(Generic[A]):
    """The open ones of one kind. They are asked again by a turn that is resumed, so that none is kept."""

    def __init__(self, named: Named, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._named, self._store, self._lobby = named, store, lobby
        self._access, self._delivery = access, delivery
        self._open: dict[str, Posed[A]] = {}

    async def prepared(self, address: Address, turn: str, asked: A) -> Posed[A]:
        """One that can be shown."""
        facts = await self._store.archive.turn(turn)
        asker, reply_to = ("", "") if facts is None else (facts.inbound.sender, facts.inbound.reply_to)
        return Posed(asked, address, asker, self._named(turn, asked.ask), reply_to)

    async def show(self, question: Posed[A], text: str, buttons: tuple[Button, ...]) -> None:
        """Open it, and owe it to the chat for as long as the turn waits that asks."""
        self._open[question.asked.ask] = question
        told = Outbound(question.id, question.address, text, buttons=buttons, reply_to=question.reply_to)
        await self._delivery.owe(structs.replace(told, notice=True, fleeting=True))

    async def close(self, ask: str, channels: Mapping[str, Channel], over: Callable[[A], str]) -> None:
        """It is answered, or given up: the question in the chat says so as `over` words it, if it does, and
        has no buttons any more."""
        question = self._open.pop(ask, None)
        if question is None:
            return
        channel = channels[question.address.platform]
        async with self._delivery.lock(lane(question.address)):
            await answered(self._store.database, question.id)  # also if that was said elsewhere
            debt = await self._store.outbox.find(question.id)
            if debt is None:
                return
            if debt.state == "owed":
                await self._store.outbox.give_up(debt, "expired", "it was over before it was asked")
            elif debt.paid and channel.talents.edits and (text := over(question.asked)):
                try:
                    if pieces := await channel.pieces(text):
                        await channel.edit(question.address, debt.paid[-1], pieces[-1])
                except DeliveryError:
                    return  # a button that is pressed later is told that it is over

    async def review(self, give_up: Callable[[A, str], tuple[Answer | Reply, str]]) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked, and
        the chat what follows from that: both as `give_up` words it."""
        for ask, question in tuple(self._open.items()):
            debt = await self._store.outbox.find(question.id)
            if debt is None or debt.state not in ("dead", "expired"):
                continue
            self._open.pop(ask, None)
            why = f"the question was not delivered: {debt.why.rstrip('.')}"
            op, text = give_up(question.asked, why)
            await self._lobby.post(question.address.key, op)
            told = Outbound(f"unasked:{ask}", question.address, f"{_UNREACHED}, {text}", notice=True)
            await self._delivery.owe(told)

    def find(self, ask: str, platform: str) -> Posed[A] | None:
        """The open one of this name, if it was asked on that platform."""
        question = self._open.get(ask)
        return question if question is not None and question.address.platform == platform else None

    def of(self, key: str) -> list[Posed[A]]:
        """Those of a conversation, the oldest first."""
        return [each for each in self._open.values() if each.address.key == key]

    async def role(self, question: Posed[A], person: str) -> Role | None:
        """Of one who may answer it; else None."""
        role = await self._access.role(question.address.platform, person)
        return role if role == "owner" or person == question.asker else None


CLARIFY_BUTTON = "reply"


class Inquiries:
    """Those that are open."""

    def __init__(self, store: Store, lobby: Lobby, access: Access, delivery: Delivery) -> None:
        self._lobby = lobby
        self._posing: Posing[Asked] = Posing(_named, store, lobby, access, delivery)

    async def put(self, address: Address, turn: str, asked: Asked) -> None:
        """Ask it in the chat."""
        inquiry = await self._posing.prepared(address, turn, asked)
        buttons = tuple(
            Button(choice, f"{CLARIFY_BUTTON}:{asked.ask}:{number}")
            for number, choice in enumerate(asked.choices)
        )
        await self._posing.show(inquiry, f"{_shown_clarification(asked)}{_listed(asked)}", buttons)

    async def close(self, heard: Heard, channels: Mapping[str, Channel]) -> None:
        """It is answered, or given up: one that has buttons says so in the chat, and has none any more."""
        over = f"_{escaped(heard.text)}_" if heard.text else "_No answer came._"
        await self._posing.close(
            heard.ask, channels, lambda asked: f"{_shown_clarification(asked)}{over}" if asked.choices else ""
        )

    async def review(self) -> None:
        """Whoever waits for the answer to one that is not sent any more is told that nobody was asked."""
        await self._posing.review(_given_up_clarification)

    def concern(self, arrival: Arrival) -> bool:
        """Is it an answer to a question, open or not any more?"""
        return arrival.pressed.startswith(f"{CLARIFY_BUTTON}:") or self._meant(arrival) is not None

    async def answered(self, arrival: Arrival) -> str:
        """What to tell who sent this, empty for nothing: the question itself shows the answer."""
        if not arrival.pressed:
            inquiry = self._meant(arrival)
            return (
                OVER
                if inquiry is None
                else await self._pass_on(inquiry, inquiry.asked.meant(arrival.text), arrival)
            )
        _, ask, number = (*arrival.pressed.split(":"), "", "")[:3]
        inquiry = self._posing.find(ask, arrival.address.platform)
        if inquiry is None or not number.isdecimal():
            return OVER
        chosen = inquiry.asked.choices[int(number) : int(number) + 1]
        return await self._pass_on(inquiry, chosen[0], arrival) if chosen else OVER

    def _meant(self, arrival: Arrival) -> Posed[Asked] | None:
        """The question of this conversation that these words of who was asked answer."""
        words = arrival.text.strip()
        more = arrival.pressed or arrival.edits or arrival.files or arrival.images
        if not words or words.startswith("/") or more:
            return None
        here = self._posing.of(arrival.address.key)
        return next((each for each in here if arrival.sender == each.asker), None)

    async def _pass_on(self, inquiry: Posed[Asked], text: str, arrival: Arrival) -> str:
        if await self._posing.role(inquiry, arrival.sender) is None:
            return NOT_THEIRS
        await self._lobby.post(inquiry.address.key, Reply(inquiry.asked.ask, text, arrival.sender))
        return ""


def _named(_turn: str, ask: str) -> str:
    return f"inquiry:{ask}"


def _given_up_clarification(asked: Asked, why: str) -> tuple[Reply, str]:
    return Reply(
        asked.ask, "", unasked=why
    ), f"so I go on without an answer:\n\n{_shown_clarification(asked)}"


def _shown_clarification(asked: Asked) -> str:
    return f"**{escaped(asked.question.strip())}**\n\n"


def _listed(asked: Asked) -> str:
    lines = "".join(f"{number}. {escaped(choice)}\n" for number, choice in enumerate(asked.choices, 1))
    return f"{lines}\nAnswer with a number, or in your own words." if lines else "_Answer in your own words._"


HELD = 5.0
"""Seconds that a word waits at most; the chat waits with it."""


class _Stood:
    def __init__(self, turn: str, text: str) -> None:
        self.turn, self.text, self.same = turn, text, False
        self.over = asyncio.Event()


class Standing:
    """By conversation, what its person read before we were there: their word is on that, and nothing else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stood: dict[str, _Stood] = {}

    async def recall(self, key: str) -> None:
        """What stands under `key`, before its turn can ask anew."""
        for turn in (await self._store.sessions.unfinished(key))[:1]:
            if text := await unanswered(self._store.database, turn.id):
                self._stood[key] = _Stood(turn.id, text)

    def asked(self, key: str, turn: str, text: str) -> None:
        """A question is put there; an empty text where the person does not see all of it."""
        if (stood := self._stood.pop(key, None)) is not None:
            stood.same = (turn, text) == (stood.turn, stood.text)
            stood.over.set()

    def give_up(self, key: str) -> None:
        """Something came that nothing there may hold up: a word that waits is a message."""
        self.asked(key, "", "")

    async def again(self, key: str) -> bool:
        """Wait until something is asked there; is it what stood there before?"""
        if (stood := self._stood.get(key)) is None:
            return False
        if stood.turn not in [each.id for each in await self._store.sessions.unfinished(key)]:
            return False
        try:
            async with asyncio.timeout(HELD):
                await stood.over.wait()
        except TimeoutError:
            self._stood.pop(key, None)
        return stood.same


APPROVAL_BUTTON = "ask"
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
        buttons = tuple(Button(_LABELS[each], f"{APPROVAL_BUTTON}:{asked.ask}:{each}") for each in choices)
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


class Answering:
    def __init__(
        self, arrivals: SqliteArrivals, questions: Questions, inquiries: Inquiries, delivery: Delivery
    ) -> None:
        self._arrivals, self._delivery = arrivals, delivery
        self._questions, self._inquiries = questions, inquiries

    async def take(self, arrival: Arrival, role: Role) -> bool:
        """Was it an answer, by a button or in words? Then it is given, unless it is a second copy."""
        give = self._consent(arrival, role) or self._reply(arrival)
        if give is None and _word(arrival) and await self._questions.standing.again(arrival.address.key):
            give = self._consent(arrival, role)  # it was said to what is asked anew only now
        if give is None:
            return False
        # who broke off here, and was brought the same again, would take it for a copy that was given
        await to_the_end(partial(self._give, arrival, give))
        return True

    def _consent(self, arrival: Arrival, role: Role) -> Callable[[], Awaitable[str | None]] | None:
        """A word on a question before a dangerous call."""
        key, platform, sender = arrival.address.key, arrival.address.platform, arrival.sender
        choice = _word(arrival)
        if choice and self._questions.waits(key, sender, role):
            return partial(self._questions.answer, key, choice, sender)
        if arrival.pressed.startswith(f"{APPROVAL_BUTTON}:"):
            return partial(self._questions.pressed, arrival.pressed, sender, platform)
        return None

    def _reply(self, arrival: Arrival) -> Callable[[], Awaitable[str | None]] | None:
        """An answer to a question of the model's."""
        concerned = self._inquiries.concern(arrival)
        return partial(self._inquiries.answered, arrival) if concerned else None

    async def _give(self, arrival: Arrival, give: Callable[[], Awaitable[str | None]]) -> None:
        """It is kept, then given, then its giver told. If we die in between it is asked anew: what was an
        answer once never becomes a message."""
        if await self._arrivals.answered(arrival.address.platform, arrival.id) and (told := await give()):
            await self._delivery.owe(replies.note(arrival, replies.as_it_is(told)))


def _word(arrival: Arrival) -> Consent | None:
    """What it says to a question before a dangerous call, if it is nothing but a word on one."""
    alone = not (arrival.images or arrival.files or arrival.edits)
    return WORDS.get(arrival.text.strip().rstrip(".!").lower()) if alone else None
