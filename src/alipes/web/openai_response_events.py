"""A response while it is being made: OpenAI's named and numbered events, folded from the turn's."""

from typing import Any

import msgspec
from msgspec import structs

from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Event, Retracted, Said, TextDelta
from alipes.web.openai_documents import (
    Echo,
    OutputMessage,
    OutputText,
    ResponseDocument,
    call_item,
    document,
)
from alipes.web.openai_speech import TOOL, Speech, progress
from alipes.web.sse import frame


class ResponseEvents:
    """The frames, in order. Each message of the turn is an item of the output."""

    def __init__(self, id: str, asked: Echo, turn: str, offered: frozenset[str]) -> None:
        self._id, self._asked, self._turn, self._offered = id, asked, turn, offered
        self._number = 0
        self._index = 0
        """Of the next item, or of the open one."""
        self._item: OutputMessage | None = None
        """The message that is being said."""
        self._speech = Speech()
        self._place = 0
        """How many messages the model has said."""
        self._again = 0
        """How many of them were taken back."""
        self.texts: list[str] = []
        """What was sent, message by message."""

    def opening(self) -> bytes:
        begun = document(self._id, self._asked, "in_progress", [])
        return self._frame("response.created", response=begun) + self._frame(
            "response.in_progress", response=begun
        )

    def of(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._delta(self._speech.hear(event))
            case Said(message) if message.role == "assistant":
                rest = self._speech.complete(message.text)
                frames = self._delta(rest) if message.text.strip() else b""
                frames += self._close(message.text)
                self._place += 1
                return frames
            case Retracted():
                sent = self._speech.current
                self._again += self._speech.drop()
                return self._close(sent, whole=False)
        if (told := progress(event, self._offered)) is not None:
            return self._frame(TOOL, alipes=told)
        return b""

    def calls(self, calls: tuple[ToolCall, ...]) -> bytes:
        """The calls that the client is to run, after all that was said."""
        return b"".join(self._call(call) for call in calls)

    def ending(self, answer: ResponseDocument) -> bytes:
        names = {"completed": "response.completed", "failed": "response.failed"}
        left = self._close(self._speech.current, whole=False)
        return left + self._frame(names.get(answer.status, "response.incomplete"), response=answer)

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        frames = b"" if self._item is not None else self._open()
        return frames + self._frame("response.output_text.delta", **self._at(), delta=text, logprobs=[])

    def _open(self) -> bytes:
        again = f"{self._place}_{self._again}" if self._again else f"{self._place}"
        self._item = OutputMessage(f"msg_{self._turn}_{again}", [], "in_progress")
        added = self._frame("response.output_item.added", output_index=self._index, item=self._item)
        return added + self._frame("response.content_part.added", **self._at(), part=OutputText(""))

    def _close(self, text: str, *, whole: bool = True) -> bytes:
        if self._item is None:
            return b""
        part = OutputText(text)
        done = structs.replace(self._item, content=[part], status="completed" if whole else "incomplete")
        frames = (
            self._frame("response.output_text.done", **self._at(), text=text, logprobs=[])
            + self._frame("response.content_part.done", **self._at(), part=part)
            + self._frame("response.output_item.done", output_index=self._index, item=done)
        )
        self.texts.append(text)
        self._item, self._index = None, self._index + 1
        return frames

    def _call(self, call: ToolCall) -> bytes:
        item = call_item(call)
        begun = structs.replace(item, arguments="", status="in_progress")
        at = {"item_id": item.id, "output_index": self._index}
        text = item.arguments
        frames = (
            self._frame("response.output_item.added", output_index=self._index, item=begun)
            + self._frame("response.function_call_arguments.delta", **at, delta=text)
            + self._frame("response.function_call_arguments.done", **at, arguments=text)
            + self._frame("response.output_item.done", output_index=self._index, item=item)
        )
        self._index += 1
        return frames

    def _at(self) -> dict[str, Any]:
        assert self._item is not None
        return {"item_id": self._item.id, "output_index": self._index, "content_index": 0}

    def _frame(self, name: str, /, **fields: object) -> bytes:
        data = msgspec.json.encode({"type": name, "sequence_number": self._number, **fields})
        self._number += 1
        return frame(data, event=name)
