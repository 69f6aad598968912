"""The methods of the loopback Bot API and their errors, without polling and webhooks."""

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tests.world.telegram_http import Uploaded
from tests.world.telegram_markup import Unparsable, parse, units
from tests.world.telegram_state import Media, StoredMessage, TelegramChats, Wire, bare

LONGEST, CAPTION = 4096, 1024
DOWNLOAD, UPLOAD, PHOTO = 20 << 20, 50 << 20, 10 << 20


class Refused(Exception):
    """An error response."""

    def __init__(self, code: int, why: str, **parameters: Any) -> None:
        super().__init__(why)
        self.code, self.why, self.parameters = code, why, parameters


def bad(why: str, **parameters: Any) -> Refused:
    return Refused(400, f"Bad Request: {why}", **parameters)


def number(given: Wire, name: str, default: int | None = None) -> int:
    value = given.get(name, default)
    if value in (None, ""):
        raise bad(f"{name} is empty" if name != "chat_id" else "chat_id is empty")
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise bad("chat not found" if name == "chat_id" else f"{name} is not a number") from error


def decoded(given: Wire, name: str) -> Any:
    """A value that a form carries as JSON."""
    value = given.get(name)
    if isinstance(value, str):
        try:
            return msgspec.json.decode(value) if value else None
        except msgspec.DecodeError as error:
            raise bad(f"can't parse {name} JSON object") from error
    return value


def truth(given: Wire, name: str) -> bool:
    return str(given.get(name, "")).lower() in ("1", "true")


def get_me(town: TelegramChats, given: Wire) -> Wire:
    return town.bot


def get_chat(town: TelegramChats, given: Wire) -> Wire:
    gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
    more = {"accent_color_id": 1, "max_reaction_count": 11, "accepted_gift_types": dict.fromkeys(gifts, False)}
    return _place(town, given) | more


def send_message(town: TelegramChats, given: Wire) -> Wire:
    chat = _place(town, given)["id"]
    words = _words(given, "text", LONGEST)
    kept = town.speak(
        chat,
        words | _around(town, chat, given),
        _thread(town, chat, given),
        raw=given["text"],
        mode=given.get("parse_mode") or "",
    )
    return kept.wire


def edit_text(town: TelegramChats, given: Wire, name: str = "text") -> Wire:
    kept = _ours(town, given, "edit")
    if name == "text" and "text" not in kept.wire:
        raise bad("there is no text in the message to edit")
    words = _words(given, name, LONGEST if name == "text" else CAPTION)
    markup = _keyboard(given)
    kinds = (name, f"{name}_entities".removeprefix("text_"))
    same = all(kept.wire.get(kind) == words.get(kind) for kind in kinds)
    if same and kept.wire.get("reply_markup") == markup:
        raise bad(
            "message is not modified: specified new message content and reply markup are exactly the same "
            "as a current content and reply markup of the message"
        )
    for kind in kinds:
        kept.wire.pop(kind, None)
    kept.wire.update(words)
    _mark(kept, markup)
    kept.raw, kept.mode = given.get(name, ""), given.get("parse_mode") or ""
    kept.edits.append((time.time(), kept.text))
    kept.wire["edit_date"] = int(time.time())
    return kept.wire


def edit_caption(town: TelegramChats, given: Wire) -> Wire:
    return edit_text(town, {"caption": "", **given}, "caption")


def edit_markup(town: TelegramChats, given: Wire) -> Wire:
    kept = _ours(town, given, "edit")
    markup = _keyboard(given)
    if kept.wire.get("reply_markup") == markup:
        raise bad("message is not modified: specified new message content and reply markup are exactly the same")
    _mark(kept, markup)
    return kept.wire


def delete(town: TelegramChats, given: Wire) -> bool:
    chat = _place(town, given)["id"]
    kept = town.messages.get(chat, {}).get(number(given, "message_id"))
    if kept is None or kept.deleted:
        raise bad("message to delete not found")
    kept.deleted = time.time()
    return True


def chat_action(town: TelegramChats, given: Wire) -> bool:
    chat = _place(town, given)["id"]
    _thread(town, chat, given)
    if given.get("action") not in (
        "typing",
        "upload_photo",
        "upload_document",
        "record_voice",
        "upload_voice",
        "upload_video",
    ):
        raise bad("wrong parameter action in request")
    return True


def answer_query(town: TelegramChats, given: Wire) -> bool:
    if town.queries.pop(str(given.get("callback_query_id")), None) is None:
        raise bad("query is too old and response timeout expired or query ID is invalid")
    return True


def get_file(town: TelegramChats, given: Wire) -> Wire:
    name = str(given.get("file_id"))
    if name not in town.files:
        raise bad("invalid file_id")
    path, data = town.files[name]
    if len(data) > DOWNLOAD:
        raise bad("file is too big")
    return {"file_id": name, "file_unique_id": f"u-{name}", "file_size": len(data), "file_path": path}


def sending(kind: str) -> Callable[[TelegramChats, Wire], Wire]:
    def send(town: TelegramChats, given: Wire) -> Wire:
        chat = _place(town, given)["id"]
        words = _words(given, "caption", CAPTION) if given.get("caption") else {}
        words |= town.attach(_upload(town, given, kind, given.get(kind)))
        around = _around(town, chat, given)
        raw, mode = given.get("caption") or "", given.get("parse_mode") or ""
        return town.speak(chat, words | around, _thread(town, chat, given), raw=raw, mode=mode).wire

    return send


def send_album(town: TelegramChats, given: Wire) -> list[Wire]:
    chat = _place(town, given)["id"]
    items = decoded(given, "media")
    if not isinstance(items, list) or not 2 <= len(items) <= 10:
        raise bad("group send failed")
    album, out = f"{time.time_ns()}", []
    for item in items:
        words = _words(item, "caption", CAPTION) if item.get("caption") else {}
        words |= town.attach(_upload(town, given, item["type"], item["media"])) | {"media_group_id": album}
        around = _around(town, chat, given)
        out.append(town.speak(chat, words | around, _thread(town, chat, given), raw=item.get("caption") or "").wire)
    return out


def _upload(town: TelegramChats, given: Wire, kind: str, value: Any) -> Media:
    if isinstance(value, str) and value.startswith("attach://"):
        value = given.get(value.removeprefix("attach://"))
    if isinstance(value, Uploaded):
        if not value.data:
            raise bad("file must be non-empty")
        if len(value.data) > (PHOTO if kind == "photo" else UPLOAD):
            raise Refused(413, "Request Entity Too Large")
        return Media(kind, value.data, value.name, value.mime)
    if value in town.files:
        return Media(kind, town.files[value][1])
    raise bad(f"there is no {kind} in the request")


def _place(town: TelegramChats, given: Wire) -> Wire:
    chat = number(given, "chat_id")
    if chat in town.moved:
        raise bad("group chat was upgraded to a supergroup chat", migrate_to_chat_id=town.moved[chat])
    if chat in town.blocked:
        raise Refused(403, f"Forbidden: {town.blocked[chat]}")
    if chat not in town.chats:
        raise bad("chat not found")
    return town.chats[chat]


def _ours(town: TelegramChats, given: Wire, verb: str) -> StoredMessage:
    chat = _place(town, given)["id"]
    kept = town.messages.get(chat, {}).get(number(given, "message_id"))
    if kept is None or kept.deleted:
        raise bad(f"message to {verb} not found")
    if not kept.mine:
        raise bad(f"message can't be {verb}ed")
    return kept


def _words(given: Wire, name: str, longest: int) -> Wire:
    raw = given.get(name) or ""
    if not isinstance(raw, str):
        raise bad(f"{name} must be a string")
    entities = decoded(given, "entities" if name == "text" else "caption_entities")
    try:
        text, parsed = parse(raw, given.get("parse_mode") or "")
    except Unparsable as error:
        raise bad(f"can't parse entities: {error}") from error
    if name == "text" and not text.strip(" \n\t\u200b\u200c\u200d\u2060\u2063\u00a0"):
        raise bad("message text is empty")
    if units(text) > longest:
        raise bad("message is too long" if name == "text" else "message caption is too long")
    parsed = entities if entities else parsed
    return {name: text} | ({f"{name}_entities".removeprefix("text_"): parsed} if parsed else {})


def _thread(town: TelegramChats, chat: int, given: Wire) -> int:
    thread = number(given, "message_thread_id", 0)
    if thread and thread not in town.topics.get(chat, ()):
        raise bad("message thread not found")
    return thread


def _around(town: TelegramChats, chat: int, given: Wire) -> Wire:
    """The buttons of a message, and the message it replies to."""
    out: Wire = {}
    if (markup := _keyboard(given)) is not None:
        out["reply_markup"] = markup
    reply = decoded(given, "reply_parameters") or {}
    if "reply_to_message_id" in given:
        reply = {
            "message_id": given["reply_to_message_id"],
            "allow_sending_without_reply": truth(given, "allow_sending_without_reply"),
        }
    if reply:
        answered = town.messages.get(chat, {}).get(number(reply, "message_id"))
        if answered is not None and not answered.deleted:
            out["reply_to_message"] = bare(answered.wire)
        elif not truth(reply, "allow_sending_without_reply"):
            raise bad("message to be replied not found")
    return out


def _keyboard(given: Wire) -> Wire | None:
    markup = decoded(given, "reply_markup")
    rows = (markup or {}).get("inline_keyboard")
    if not rows:
        return None
    for button in (button for row in rows for button in row):
        if not button.get("text"):
            raise bad("can't parse inline keyboard button: text must be non-empty")
        if "callback_data" in button and not 1 <= len(button["callback_data"].encode()) <= 64:
            raise bad("BUTTON_DATA_INVALID")
    return {"inline_keyboard": rows}


def _mark(kept: StoredMessage, markup: Wire | None) -> None:
    if markup is None:
        kept.wire.pop("reply_markup", None)
    else:
        kept.wire["reply_markup"] = markup


def check_commands(given: Wire) -> list[Wire]:
    commands = decoded(given, "commands")
    if not isinstance(commands, list) or len(commands) > 100:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if not re.fullmatch(r"[a-z0-9_]{1,32}", command.get("command", "")):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(command.get("description", "")) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
    return commands


METHODS: dict[str, Callable[[TelegramChats, Wire], Any]] = {
    "getme": get_me, "getchat": get_chat, "sendmessage": send_message, "editmessagetext": edit_text,
    "editmessagecaption": edit_caption, "editmessagereplymarkup": edit_markup, "deletemessage": delete,
    "sendchataction": chat_action, "answercallbackquery": answer_query, "getfile": get_file,
    "sendmediagroup": send_album,
    **{f"send{kind}": sending(kind) for kind in ("photo", "document", "voice", "video", "audio")},
}  # fmt: skip
