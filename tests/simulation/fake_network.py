"""The world outside, as far as a process can reach it by HTTP: Telegram, a model, and wires that fail.

It outlives the process. A request that is on its way when its sender dies may arrive all the same.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from msgspec import Struct

from tests.simulation.fake_model import chunks, judged
from tests.simulation.machine import Machine
from tests.simulation.plan import Deed, Fault

ME = 7
_WHAT = re.compile(r"c\d+[a-z]\d+-\d+-\d+")


class Bubble(Struct):
    id: int
    chat: int
    text: str
    edits: int = 0
    gone: bool = False


class Answer:
    """As much of an HTTP response as is looked at."""

    reason_phrase = ""

    def __init__(self, content: bytes, status: int = 200, pieces: AsyncIterator[bytes] | None = None) -> None:
        self.content, self.status_code, self._pieces = content, status, pieces
        self.headers: dict[str, str] = {"content-type": "text/event-stream" if pieces else "application/json"}

    def aiter_raw(self) -> AsyncIterator[bytes]:
        return self._pieces if self._pieces is not None else _once(self.content)

    aiter_bytes = aiter_raw


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


class Flight(Struct, eq=False):
    """A request on its way."""

    verb: str
    given: dict[str, Any]
    how: str
    received: "asyncio.Future[Answer]"
    arrived: bool = False


class Outside:
    """`http` is what a `ClientScope` would give: one handle for everything."""

    def __init__(self, machine: Machine, faults: tuple[Fault, ...]) -> None:
        self.machine = machine
        self.dice = random.Random(machine.dice.random())
        self.bubbles: list[Bubble] = []
        self.updates: list[dict[str, Any]] = []
        """Not confirmed yet."""
        self.said: dict[tuple[int, int], int] = {}
        """By chat and number, the message that a person wrote."""
        self.asking: Counter[str] = Counter()
        """Model requests that are open, by session."""
        self._text_of: dict[int, str] = {}
        self.allowed: set[str] = set()
        """What people said yes to."""
        self.yes: Counter[int] = Counter()
        """By chat, how often."""
        self.worded: set[int] = set()
        """Chats in which somebody answered in words: those count for whatever is asked by then."""
        self.answers: dict[int, int] = {}
        """Messages that were written to answer a question, and their chats."""
        self._presses: list[tuple[float, Bubble, str]] = []
        """Buttons that will be pressed: when, where, which."""
        self._numbers, self._messages = 0, 100
        self._calls: Counter[str] = Counter()
        self._faults = {(each.verb, each.nth): each.how for each in faults if each.kind == "net"}
        self._flights: dict[Flight, None] = {}
        self._parked: list[Flight] = []

    @property
    def expected(self) -> bool:
        """Is there something that somebody did, or has in mind to do, and we have not heard?"""
        return bool(self.updates or self._presses)

    # --- people

    def happen(self, deed: Deed) -> None:
        """A person did something: Telegram has an update for us."""
        self.machine.note(deed.kind, deed.chat, deed.text)
        if deed.kind == "again":
            message = self.said.get((deed.chat, deed.of))
            if message is not None:
                self._update(deed.chat, message, self._text_of.get(message, ""))
            return
        if deed.kind == "edit":
            message = self.said.get((deed.chat, deed.of))
            if message is not None:
                self._update(deed.chat, message, deed.text, "edited_message")
            return
        said = deed.kind in ("say", "album")
        album = f"album {deed.of}" if deed.kind == "album" else ""
        message = self._write(deed.chat, deed.text if said else f"/{deed.kind} {deed.text}".strip(), album)
        if said:
            self.said[deed.chat, deed.of] = message
        if album:
            self._write(deed.chat, "and this", album)

    def _write(self, chat: int, text: str, album: str = "") -> int:
        self._messages += 1
        self._text_of[self._messages] = text
        self._update(chat, self._messages, text, album=album)
        return self._messages

    def _update(self, chat: int, message: int, text: str, kind: str = "message", *, album: str = "") -> None:
        person = {"id": chat, "first_name": f"P{chat}"}
        seen = {"message_id": message, "chat": {"id": chat, "type": "private"}, "from": person, "text": text}
        self._tell({kind: seen | ({"media_group_id": album} if album else {})})

    def _tell(self, update: dict[str, Any]) -> None:
        self._numbers += 1
        self.updates.append({"update_id": self._numbers, **update})
        parked, self._parked = self._parked, []
        for flight in parked:
            self._serve(flight)

    def begin(self) -> None:
        """A process begins: what people had in mind to do, they do."""
        for press in self._presses:
            self.machine.loop.call_at(max(press[0], self.machine.loop.time()), self._press, press)

    def _ask(self, bubble: Bubble, markup: dict[str, Any]) -> None:
        """Somebody reads a question, and will press a button, or write; once in a while again, or never."""
        data = [button["callback_data"] for row in markup["inline_keyboard"] for button in row]
        chosen, chance = self.dice.choice(data), self.dice.random()
        if data[0].startswith("reply:") and chance < 0.1:
            return
        if chance > 0.6:
            chosen = self.dice.choice(("yes", "no") if data[0].startswith("ask:") else ("1", "blue"))
        self._will(self.dice.random() * 5.0, bubble, chosen)

    def _will(self, later: float, bubble: Bubble, what: str) -> None:
        press = (self.machine.clock[0] + later, bubble, what)
        self._presses.append(press)
        if not self.machine.loop.dead:
            self.machine.loop.call_at(press[0], self._press, press)

    def _press(self, press: tuple[float, Bubble, str]) -> None:
        self._presses.remove(press)
        _, bubble, data = press
        self.machine.note("press", bubble.chat, data.rpartition(":")[2])
        if ":" not in data:
            self._answer(bubble, data)
            return
        if data.startswith("ask:") and not data.endswith(":no"):
            self.yes[bubble.chat] += 1
            self.allowed.update(_WHAT.findall(bubble.text))
        self._numbers += 1
        place = {"message_id": bubble.id, "chat": {"id": bubble.chat, "type": "private"}}
        query = {"id": str(self._numbers), "from": {"id": bubble.chat, "first_name": "P"}}
        self._tell({"callback_query": {**query, "message": place, "data": data}})

    def _answer(self, bubble: Bubble, text: str) -> None:
        chat = bubble.chat
        if text.isdecimal() and int(text) in self._text_of:  # the platform brings it a second time
            self._update(chat, int(text), self._text_of[int(text)])
            return
        self.yes[chat] += text == "yes"
        self.worded.add(chat)
        message = self._write(chat, text)
        self.answers[message] = chat
        if self.dice.random() < 0.4:
            self._will(self.dice.random() * 6.0, bubble, str(message))

    # --- the wires

    def http(self, *_args: Any, **_more: Any) -> "Outside":
        return self

    async def request(
        self, _method: str, url: str, *, headers: Any = None, content: bytes = b"", timeout: float = 30.0
    ) -> Answer:
        verb = url.rpartition("/")[2]
        flight = self._depart(verb, content)
        try:
            async with asyncio.timeout(timeout):
                return await flight.received
        except TimeoutError as late:
            raise httpx2.ReadTimeout("no answer") from late

    @asynccontextmanager
    async def stream(
        self, _method: str, _url: str, *, headers: Any = None, content: bytes = b""
    ) -> AsyncIterator[Answer]:
        flight = self._depart("model", content)
        session = str(flight.given.get("prompt_cache_key"))
        self.asking[session] += 1
        try:
            yield await flight.received
        finally:
            self.asking[session] -= 1

    def _depart(self, verb: str, content: bytes) -> Flight:
        loop = self.machine.loop
        self._calls[verb] += 1
        how = self._faults.get((verb, self._calls[verb]), "")
        given = msgspec.json.decode(content) if content else {}
        flight = Flight(verb, given, how, loop.create_future())
        self._flights[flight] = None
        loop.call_later(self.dice.random() * 0.1, self._arrive, flight)
        return flight

    def _arrive(self, flight: Flight) -> None:
        self._flights.pop(flight, None)
        flight.arrived = True
        if flight.received.cancelled() and self.dice.random() < 0.5:
            return  # the sender disconnected before it was read
        match flight.how:
            case "refused":
                self._fail(flight, httpx2.ConnectError("refused"))
            case "odd":
                self._fail(flight, RuntimeError("as planned"))
            case "lost":
                self.machine.note("lost", flight.verb)
            case "reset":
                self._fail(flight, httpx2.ReadError("reset"))
            case "cut":
                self._serve(flight, httpx2.ReadError("cut"))
            case "mute":
                self._serve(flight, asyncio.CancelledError())
            case _:
                self._serve(flight)

    def _serve(self, flight: Flight, instead: BaseException | None = None) -> None:
        answer = self._model(flight) if flight.verb == "model" else self._telegram(flight)
        if answer is None:
            return
        if instead is None:
            self.machine.loop.call_later(self.dice.random() * 0.1, _give, flight, answer)
        elif isinstance(instead, Exception):
            self._fail(flight, instead)

    def _fail(self, flight: Flight, error: Exception) -> None:
        self.machine.note("fails", flight.verb, flight.how)
        if not flight.received.done():
            flight.received.set_exception(error)

    def crash(self) -> None:
        """The sender is gone; of what was under way, some arrives."""
        for flight in self._flights:
            if flight.verb not in ("getUpdates", "model") and self.dice.random() < 0.5 and not flight.how:
                self._telegram(flight)
        self._flights.clear()
        self._parked.clear()
        self.asking.clear()

    # --- Telegram

    def _telegram(self, flight: Flight) -> Answer | None:
        verb, how, given = flight.verb, flight.how, flight.given
        if how in ("429", "500", "409"):
            self.machine.note(how, verb)
            more = {"parameters": {"retry_after": 34}} if how == "429" else {}
            seen = {"ok": False, "error_code": int(how), "description": "as planned", **more}
            return Answer(msgspec.json.encode(seen), int(how))
        if how == "502" and self.dice.random() < 0.5:
            return Answer(b"<html>", 502)
        if verb == "getUpdates":
            return self._getUpdates(flight)
        result = getattr(self, f"_{verb}", lambda _given: True)(given)
        if how == "502":
            return Answer(b"<html>", 502)
        if isinstance(result, str):
            seen = {"ok": False, "error_code": 400, "description": result}
            return Answer(msgspec.json.encode(seen), 400)
        return Answer(msgspec.json.encode({"ok": True, "result": result}))

    def _getMe(self, _given: dict[str, Any]) -> dict[str, Any]:
        return {"id": ME, "first_name": "bot", "username": "bot", "is_bot": True}

    def _getUpdates(self, flight: Flight) -> Answer | None:
        offset, wait = flight.given["offset"], flight.given["timeout"]
        self.updates = [each for each in self.updates if each["update_id"] >= offset]
        if not self.updates and wait and not flight.received.done():
            self._parked.append(flight)
            flight.given["timeout"] = 0
            self.machine.loop.call_later(wait, self._give_up, flight)
            return None
        self.machine.note("updates", offset, len(self.updates))
        return Answer(msgspec.json.encode({"ok": True, "result": self.updates[:100]}))

    def _give_up(self, flight: Flight) -> None:
        if flight in self._parked:
            self._parked.remove(flight)
            self._serve(flight)

    def _sendMessage(self, given: dict[str, Any]) -> dict[str, Any]:
        self._messages += 1
        self.bubbles.append(Bubble(self._messages, int(given["chat_id"]), given["text"]))
        self.machine.note("sent", given["chat_id"], given["text"])
        if "reply_markup" in given:
            self._ask(self.bubbles[-1], given["reply_markup"])
        return {"message_id": self._messages}

    def _editMessageText(self, given: dict[str, Any]) -> dict[str, Any] | str:
        bubble = self._bubble(given)
        if bubble is None:
            return "message to edit not found"
        if bubble.text == given["text"]:
            return "message is not modified"
        bubble.text, bubble.edits = given["text"], bubble.edits + 1
        self.machine.note("edited", bubble.id, bubble.text)
        return {"message_id": bubble.id}

    def _deleteMessage(self, given: dict[str, Any]) -> bool | str:
        bubble = self._bubble(given)
        if bubble is None:
            return "message to delete not found"
        bubble.gone = True
        self.machine.note("deleted", bubble.id)
        return True

    def _bubble(self, given: dict[str, Any]) -> Bubble | None:
        id = given["message_id"]
        return next((each for each in self.bubbles if each.id == id and not each.gone), None)

    # --- the model

    def _model(self, flight: Flight) -> Answer:
        how = flight.how
        for complaint in judged(flight.given["messages"]):
            self.machine.blame(f"the model is shown {complaint}")
        self.machine.note("asked", how, len(flight.given["messages"]))
        if how in ("429", "500"):
            seen = {"error": {"message": "as planned", "type": "server_error"}}
            answer = Answer(msgspec.json.encode(seen), int(how))
            answer.headers["retry-after"] = "3"
            return answer
        return Answer(b"", 200, self._flow(flight))

    async def _flow(self, flight: Flight) -> AsyncIterator[bytes]:
        pieces = chunks(flight.given["messages"], flight.how, tools=bool(flight.given.get("tools")))
        slow = pieces.slow
        for index, piece in enumerate(pieces.data):
            await asyncio.sleep(self.dice.random() * slow)
            if flight.how == "drop" and index >= len(pieces.data) // 2:
                raise httpx2.ReadError("dropped")
            if flight.how == "stall" and index:
                await asyncio.sleep(60.0)
                raise httpx2.ReadTimeout("stalled")
            yield piece


def _give(flight: Flight, answer: Answer) -> None:
    if not flight.received.done():
        flight.received.set_result(answer)
