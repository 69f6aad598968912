"""The messages of an OpenClaw session: without metadata, repeated answers and silent ones."""

from alipes.features.importer.content import read_content
from alipes.features.importer.event_messages import EventMessages
from alipes.features.importer.json_lines import Row, get_row, get_text
from alipes.features.importer.openclaw.words import sender_of, strip_metadata
from alipes.kernel.messages import Part, Text

_SILENT = ("NO_REPLY", "HEARTBEAT_OK")
_OWN_CLIENTS = ("", "cli", "webchat", "internal", "gateway")


class OpenClawMessages(EventMessages):
    def __init__(self) -> None:
        super().__init__()
        self._answers: set[str] = set()
        """Texts of the answers since the last message of a person."""
        self.people: set[str] = set()
        """Who wrote, as `platform:id`; the owner at the terminal or in a browser is not among them."""

    def add_user(self, event: Row, message: Row, parts: tuple[Part, ...], sender: str = "") -> None:
        own: list[Part] = []
        said: Row = {}
        for part in parts:
            if isinstance(part, Text):
                words, more = strip_metadata(part.text)
                said = {**more, **said}
                own += [Text(words)] if words else []
            else:
                own.append(part)
        known = get_row(message, "__openclaw")
        platform = get_text(get_row(known, "transport"), "channel") or get_text(said, "chat_id").partition(":")[0]
        person = get_text(known, "senderId") or sender_of(said) if platform not in _OWN_CLIENTS else ""
        if person:
            self.people.add(f"{platform}:{person}")
        self._answers.clear()
        super().add_user(event, message, tuple(own), person)

    def add_answer(self, event: Row, message: Row) -> None:
        text = read_content(message.get("content")).text.strip()
        mirrored = get_text(message, "model") == "delivery-mirror"
        if text and text in self._answers and (mirrored or get_text(message, "api") == "cli"):
            self.leave_out("repeated answer")
        elif text.upper() in _SILENT:
            self.leave_out("silent answer")
        else:
            self._answers.add(text)
            super().add_answer(event, {**message, "usage": {}} if mirrored else message)
