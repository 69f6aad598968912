"""Fake Telegram and a fake model behind connections that fail.

They outlive the process. A request in flight when its sender dies may still arrive.
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

from tests.simulation.fake_model import find_transcript_errors, stream_reply
from tests.simulation.machine import Machine
from tests.simulation.plan import Fault, UserAction

ME = 7
_WHAT = re.compile(r"c\d+[a-z]\d+-\d+-\d+")


class SentMessage(Struct):
    id: int
    chat: int
    text: str
    edits: int = 0
    gone: bool = False


class Answer:
    """The parts of an HTTP response that production code reads."""

    reason_phrase = ""

    def __init__(self, content: bytes, status: int = 200, pieces: AsyncIterator[bytes] | None = None) -> None:
        self.content, self.status_code, self._pieces = content, status, pieces
        self.headers: dict[str, str] = {"content-type": "text/event-stream" if pieces else "application/json"}

    def aiter_raw(self) -> AsyncIterator[bytes]:
        return self._pieces if self._pieces is not None else _once(self.content)

    aiter_bytes = aiter_raw


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


class InFlightRequest(Struct, eq=False):
    """A request that was sent and not answered."""

    verb: str
    given: dict[str, Any]
    how: str
    received: "asyncio.Future[Answer]"
    arrived: bool = False


class FakeNetwork:
    """Serves as its own HTTP client: `http` returns it for every endpoint, as a `ClientScope` would."""

    def __init__(self, machine: Machine, faults: tuple[Fault, ...]) -> None:
        self.machine = machine
        self.rng = random.Random(machine.rng.random())
        self.sent_messages: list[SentMessage] = []
        self.updates: list[dict[str, Any]] = []
        """Not confirmed yet."""
        self.said: dict[tuple[int, int], int] = {}
        """By chat and number, the message that a person wrote."""
        self.asking: Counter[str] = Counter()
        """Model requests that are open, by session."""
        self._text_of: dict[int, str] = {}
        self.allowed: set[str] = set()
        """Writes that people approved."""
        self.approvals: Counter[int] = Counter()
        """By chat, the number of approvals."""
        self.worded: set[int] = set()
        """Chats with an answer in words, which counts for whatever is being asked."""
        self.answers: dict[int, int] = {}
        """Messages that were written to answer a question, and their chats."""
        self._presses: list[tuple[float, SentMessage, str]] = []
        """Buttons that will be pressed: when, where, which."""
        self._numbers, self._messages = 0, 100
        self._calls: Counter[str] = Counter()
        self._faults = {(each.verb, each.nth): each.how for each in faults if each.kind == "net"}
        self._in_flight: dict[InFlightRequest, None] = {}
        self._parked: list[InFlightRequest] = []

    @property
    def expected(self) -> bool:
        """True while there are unconfirmed updates or buttons still to be pressed."""
        return bool(self.updates or self._presses)

    # --- people

    def apply(self, action: UserAction) -> None:
        """Turn a person's action into Telegram updates."""
        self.machine.record(action.kind, action.chat, action.text)
        if action.kind == "again":
            message = self.said.get((action.chat, action.of))
            if message is not None:
                self._update(action.chat, message, self._text_of.get(message, ""))
            return
        if action.kind == "edit":
            message = self.said.get((action.chat, action.of))
            if message is not None:
                self._update(action.chat, message, action.text, "edited_message")
            return
        said = action.kind in ("say", "album")
        album = f"album {action.of}" if action.kind == "album" else ""
        message = self._write(action.chat, action.text if said else f"/{action.kind} {action.text}".strip(), album)
        if said:
            self.said[action.chat, action.of] = message
        if album:
            self._write(action.chat, "and this", album)

    def _write(self, chat: int, text: str, album: str = "") -> int:
        self._messages += 1
        self._text_of[self._messages] = text
        self._update(chat, self._messages, text, album=album)
        return self._messages

    def _update(self, chat: int, message: int, text: str, kind: str = "message", *, album: str = "") -> None:
        person = {"id": chat, "first_name": f"P{chat}"}
        seen = {"message_id": message, "chat": {"id": chat, "type": "private"}, "from": person, "text": text}
        self._queue_update({kind: seen | ({"media_group_id": album} if album else {})})

    def _queue_update(self, update: dict[str, Any]) -> None:
        self._numbers += 1
        self.updates.append({"update_id": self._numbers, **update})
        parked, self._parked = self._parked, []
        for pending in parked:
            self._serve(pending)

    def start_process(self) -> None:
        """A process starts: schedule the button presses that are still to come."""
        for press in self._presses:
            self.machine.loop.call_at(max(press[0], self.machine.loop.time()), self._press, press)

    def _schedule_answer(self, sent_message: SentMessage, markup: dict[str, Any]) -> None:
        """A person reads a question and later presses a button or writes, sometimes twice or never."""
        data = [button["callback_data"] for row in markup["inline_keyboard"] for button in row]
        chosen, chance = self.rng.choice(data), self.rng.random()
        if data[0].startswith("reply:") and chance < 0.1:
            return
        if chance > 0.6:
            chosen = self.rng.choice(("yes", "no") if data[0].startswith("ask:") else ("1", "blue"))
        self._schedule_press(self.rng.random() * 5.0, sent_message, chosen)

    def _schedule_press(self, later: float, sent_message: SentMessage, what: str) -> None:
        press = (self.machine.clock[0] + later, sent_message, what)
        self._presses.append(press)
        if not self.machine.loop.dead:
            self.machine.loop.call_at(press[0], self._press, press)

    def _press(self, press: tuple[float, SentMessage, str]) -> None:
        self._presses.remove(press)
        _, sent_message, data = press
        self.machine.record("press", sent_message.chat, data.rpartition(":")[2])
        if ":" not in data:
            self._answer(sent_message, data)
            return
        if data.startswith("ask:") and not data.endswith(":no"):
            self.approvals[sent_message.chat] += 1
            self.allowed.update(_WHAT.findall(sent_message.text))
        self._numbers += 1
        place = {"message_id": sent_message.id, "chat": {"id": sent_message.chat, "type": "private"}}
        query = {"id": str(self._numbers), "from": {"id": sent_message.chat, "first_name": "P"}}
        self._queue_update({"callback_query": {**query, "message": place, "data": data}})

    def _answer(self, sent_message: SentMessage, text: str) -> None:
        chat = sent_message.chat
        if text.isdecimal() and int(text) in self._text_of:  # the platform delivers it a second time
            self._update(chat, int(text), self._text_of[int(text)])
            return
        self.approvals[chat] += text == "yes"
        self.worded.add(chat)
        message = self._write(chat, text)
        self.answers[message] = chat
        if self.rng.random() < 0.4:
            self._schedule_press(self.rng.random() * 6.0, sent_message, str(message))

    # --- HTTP

    def http(self, *_args: Any, **_more: Any) -> "FakeNetwork":
        return self

    async def request(
        self, _method: str, url: str, *, headers: Any = None, content: bytes = b"", timeout: float = 30.0
    ) -> Answer:
        verb = url.rpartition("/")[2]
        pending = self._send(verb, content)
        try:
            async with asyncio.timeout(timeout):
                return await pending.received
        except TimeoutError as late:
            raise httpx2.ReadTimeout("no answer") from late

    @asynccontextmanager
    async def stream(
        self, _method: str, _url: str, *, headers: Any = None, content: bytes = b""
    ) -> AsyncIterator[Answer]:
        pending = self._send("model", content)
        session = str(pending.given.get("prompt_cache_key"))
        self.asking[session] += 1
        try:
            yield await pending.received
        finally:
            self.asking[session] -= 1

    def _send(self, verb: str, content: bytes) -> InFlightRequest:
        loop = self.machine.loop
        self._calls[verb] += 1
        how = self._faults.get((verb, self._calls[verb]), "")
        given = msgspec.json.decode(content) if content else {}
        pending = InFlightRequest(verb, given, how, loop.create_future())
        self._in_flight[pending] = None
        loop.call_later(self.rng.random() * 0.1, self._arrive, pending)
        return pending

    def _arrive(self, pending: InFlightRequest) -> None:
        self._in_flight.pop(pending, None)
        pending.arrived = True
        if pending.received.cancelled() and self.rng.random() < 0.5:
            return  # the sender disconnected before it was read
        match pending.how:
            case "refused":
                self._fail(pending, httpx2.ConnectError("refused"))
            case "odd":
                self._fail(pending, RuntimeError("as planned"))
            case "lost":
                self.machine.record("lost", pending.verb)
            case "reset":
                self._fail(pending, httpx2.ReadError("reset"))
            case "cut":
                self._serve(pending, httpx2.ReadError("cut"))
            case "mute":
                self._serve(pending, asyncio.CancelledError())
            case _:
                self._serve(pending)

    def _serve(self, pending: InFlightRequest, instead: BaseException | None = None) -> None:
        answer = self._model(pending) if pending.verb == "model" else self._telegram(pending)
        if answer is None:
            return
        if instead is None:
            self.machine.loop.call_later(self.rng.random() * 0.1, _answer_request, pending, answer)
        elif isinstance(instead, Exception):
            self._fail(pending, instead)

    def _fail(self, pending: InFlightRequest, error: Exception) -> None:
        self.machine.record("fails", pending.verb, pending.how)
        if not pending.received.done():
            pending.received.set_exception(error)

    def crash(self) -> None:
        """The sender is gone; some of its requests still arrive."""
        for pending in self._in_flight:
            if pending.verb not in ("getUpdates", "model") and self.rng.random() < 0.5 and not pending.how:
                self._telegram(pending)
        self._in_flight.clear()
        self._parked.clear()
        self.asking.clear()

    # --- Telegram

    def _telegram(self, pending: InFlightRequest) -> Answer | None:
        verb, how, given = pending.verb, pending.how, pending.given
        if how in ("429", "500", "409"):
            self.machine.record(how, verb)
            more = {"parameters": {"retry_after": 34}} if how == "429" else {}
            seen = {"ok": False, "error_code": int(how), "description": "as planned", **more}
            return Answer(msgspec.json.encode(seen), int(how))
        if how == "502" and self.rng.random() < 0.5:
            return Answer(b"<html>", 502)
        if verb == "getUpdates":
            return self._getUpdates(pending)
        result = getattr(self, f"_{verb}", lambda _call_args: True)(given)
        if how == "502":
            return Answer(b"<html>", 502)
        if isinstance(result, str):
            seen = {"ok": False, "error_code": 400, "description": result}
            return Answer(msgspec.json.encode(seen), 400)
        return Answer(msgspec.json.encode({"ok": True, "result": result}))

    def _getMe(self, _call_args: dict[str, Any]) -> dict[str, Any]:
        return {"id": ME, "first_name": "bot", "username": "bot", "is_bot": True}

    def _getUpdates(self, pending: InFlightRequest) -> Answer | None:
        offset, wait = pending.given["offset"], pending.given["timeout"]
        self.updates = [each for each in self.updates if each["update_id"] >= offset]
        if not self.updates and wait and not pending.received.done():
            self._parked.append(pending)
            pending.given["timeout"] = 0
            self.machine.loop.call_later(wait, self._give_up, pending)
            return None
        self.machine.record("updates", offset, len(self.updates))
        return Answer(msgspec.json.encode({"ok": True, "result": self.updates[:100]}))

    def _give_up(self, pending: InFlightRequest) -> None:
        if pending in self._parked:
            self._parked.remove(pending)
            self._serve(pending)

    def _sendMessage(self, given: dict[str, Any]) -> dict[str, Any]:
        self._messages += 1
        self.sent_messages.append(SentMessage(self._messages, int(given["chat_id"]), given["text"]))
        self.machine.record("sent", given["chat_id"], given["text"])
        if "reply_markup" in given:
            self._schedule_answer(self.sent_messages[-1], given["reply_markup"])
        return {"message_id": self._messages}

    def _editMessageText(self, given: dict[str, Any]) -> dict[str, Any] | str:
        sent_message = self._find_sent(given)
        if sent_message is None:
            return "message to edit not found"
        if sent_message.text == given["text"]:
            return "message is not modified"
        sent_message.text, sent_message.edits = given["text"], sent_message.edits + 1
        self.machine.record("edited", sent_message.id, sent_message.text)
        return {"message_id": sent_message.id}

    def _deleteMessage(self, given: dict[str, Any]) -> bool | str:
        sent_message = self._find_sent(given)
        if sent_message is None:
            return "message to delete not found"
        sent_message.gone = True
        self.machine.record("deleted", sent_message.id)
        return True

    def _find_sent(self, given: dict[str, Any]) -> SentMessage | None:
        id = given["message_id"]
        return next((each for each in self.sent_messages if each.id == id and not each.gone), None)

    # --- the model

    def _model(self, pending: InFlightRequest) -> Answer:
        how = pending.how
        for error in find_transcript_errors(pending.given["messages"]):
            self.machine.report(f"the model was sent {error}")
        self.machine.record("asked", how, len(pending.given["messages"]))
        if how in ("429", "500"):
            seen = {"error": {"message": "as planned", "type": "server_error"}}
            answer = Answer(msgspec.json.encode(seen), int(how))
            answer.headers["retry-after"] = "3"
            return answer
        return Answer(b"", 200, self._stream_reply(pending))

    async def _stream_reply(self, pending: InFlightRequest) -> AsyncIterator[bytes]:
        pieces = stream_reply(pending.given["messages"], pending.how, tools=bool(pending.given.get("tools")))
        slow = pieces.slow
        for index, piece in enumerate(pieces.data):
            await asyncio.sleep(self.rng.random() * slow)
            if pending.how == "drop" and index >= len(pieces.data) // 2:
                raise httpx2.ReadError("dropped")
            if pending.how == "stall" and index:
                await asyncio.sleep(60.0)
                raise httpx2.ReadTimeout("stalled")
            yield piece


def _answer_request(pending: InFlightRequest, answer: Answer) -> None:
    if not pending.received.done():
        pending.received.set_result(answer)
