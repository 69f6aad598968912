"""Discord's Markdown and JSON bodies for outgoing messages, and Discord's errors as ours."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import aiohttp
import discord
import msgspec

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import MessagePart
from alipes.platforms.connection import describe_error, no_answer_error
from alipes.platforms.files import media_name
from alipes.platforms.markup import (
    Marks,
    Span,
    Spans,
    TextMark,
    format_parts,
    inline_marks,
    join_text,
    shared_marks,
    utf16_length,
)

LONGEST = 2000
_SIGNS = {"bold": "**", "italic": "*", "strike": "~~"}
_ADDRESS = re.compile(r"(https?://[^\s<>]+)")
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_ALWAYS = re.compile(r"[*`]|~(?=~)|(?<=~)~|\|(?=\|)|(?<=\|)\||\\(?=[!-/:-@\[-`{-~]|$)|\[(?=[^\]\n]*\]\()")
_EDGE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
"""An underscore inside a word means nothing to Discord."""
_LINE_START = re.compile(r"^(\s*)(>+|#+|-#?)(?=\s)", re.MULTILINE)


def format_markdown(markdown: str, longest: int = LONGEST) -> tuple[MessagePart, ...]:
    """Split a text into messages of at most `longest` characters, counted in UTF-16 units."""

    def fits(spans: Spans) -> bool:
        return utf16_length(render_spans(spans)) <= longest

    return format_parts(markdown, longest, fits, render_spans)


def render_spans(spans: Spans) -> str:
    """Write marked text in Discord's Markdown and escape everything else that looks like markup."""
    return "".join(
        "> " + _blocks(group).replace("\n", "\n> ") if quote else _blocks(group)
        for quote, group in groupby(_leading(spans), lambda span: span.find("quote"))
    )


def _leading(spans: Spans) -> Iterator[Span]:
    """Write out the address of links that Discord would not show as links."""
    for link, group in groupby(spans, lambda span: span.find("link")):
        inside = list(group)
        shown = join_text(inside).strip()
        if link and (not _WEB.fullmatch(link.value) or _WEB.match(shown)):
            inside = [span.without(link) for span in inside]
            if link.value != shown:
                inside.append(Span(f" ({link.value})", tuple(m for m in inside[-1].marks if m.kind == "quote")))
        yield from inside


def escape(text: str, *, line_start: bool = True) -> str:
    """Escape text. Web addresses stay as they are, since escaping would break them."""
    parts = _ADDRESS.split(text)
    out = "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))
    if line_start:
        return _LINE_START.sub(r"\1\\\2", out)
    first, newline, rest = out.partition("\n")
    return first + newline + _LINE_START.sub(r"\1\\\2", rest)


def _escaped(text: str) -> str:
    return _EDGE.sub(r"\_", _ALWAYS.sub(r"\\\g<0>", text))


def _blocks(spans: Iterable[Span]) -> str:
    out = ""
    for code, group in groupby(spans, lambda span: span.find("pre")):
        if code:
            text = join_text(group).replace("```", "``\u200b`")
            language = code.value if re.fullmatch(r"[\w+#.-]+", code.value) else ""
            out += f"```{language}\n{text}\n```"
        else:
            out += _inline(tuple(group), line_start=not out or out.endswith("\n"))
    return out


def _inline(spans: Spans, *, line_start: bool) -> str:
    out = ""
    opened: Marks = ()
    for text, marks in _atoms(spans):
        kept = len(shared_marks(opened, marks))
        closing = "".join(_sign(mark, opens=False) for mark in reversed(opened[kept:]))
        opening = "".join(_sign(mark, opens=True) for mark in marks[kept:])
        if closing and opening and closing[-1] == opening[0]:
            closing += "\u200b"  # a zero-width space, so that the two signs are not read as one
        out += closing + opening
        begins = "\n" in out[-1:] or (line_start and not out.strip())
        out += _code(text) if TextMark("code") in marks else escape(text, line_start=begins)
        opened = marks
    return out + "".join(_sign(mark, opens=False) for mark in reversed(opened))


def _atoms(spans: Spans) -> Iterator[tuple[str, Marks]]:
    """Words and the spaces between them, each with its marks: a sign next to a space is not read as markup."""
    words = [(part, inline_marks(span)) for span in spans for part in re.split(r"(^\s+|\s+$)", span.text) if part]
    for number, (text, marks) in enumerate(words):
        if text.strip():
            yield text, marks
            continue
        before = words[number - 1][1] if number else ()
        after = next((its for other, its in words[number:] if other.strip()), ())
        yield text, shared_marks(before, after)


def _sign(mark: TextMark, *, opens: bool) -> str:
    match mark.kind:
        case "link":
            return "[" if opens else f"]({mark.value.replace('(', '%28').replace(')', '%29')})"
        case "code":
            return ""
        case kind:
            return _SIGNS[kind]


def _code(text: str) -> str:
    if "`" not in text:
        return f"`{text}`"
    return f"`` {text} ``".replace("```", "`` ` ``") if "``" not in text else f"`{text.replace('`', 'ˋ')}`"


NONCE = 25
ROW, ROWS, LABEL = 5, 5, 80
DESCRIPTION = 100
COMMANDS = 100
SUPPRESS_EMBEDS = 1 << 2
"""Message flag: no link previews, for which Discord would fetch every URL in the text."""


def message_body(part: MessagePart, *, fresh: bool = True) -> dict[str, Any]:
    """JSON of a message; `fresh`: it is sent, not edited."""
    text = part.text or (part.media.caption if part.media else "")
    # the model may write `@everyone`: only the person who is answered is notified
    body: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": [], "replied_user": True}}
    body["flags"] = SUPPRESS_EMBEDS  # a fetched address could leak data
    if part.buttons or not fresh:
        body["components"] = _rows(part.buttons)
    if not fresh:
        return body
    if part.id:
        body |= {"nonce": make_nonce(part.id), "enforce_nonce": True}
    if part.reply_to:
        body["message_reference"] = {"message_id": part.reply_to, "fail_if_not_exists": False}
    if part.media:
        body["attachments"] = [{"id": 0, "filename": media_name(part.media)}]
    return body


def file_form(media: Media, body: dict[str, Any], data: bytes) -> list[dict[str, Any]]:
    """The same as form fields, with a file."""
    file = {
        "name": "files[0]",
        "value": data,
        "filename": media_name(media),
        "content_type": "application/octet-stream",
    }
    return [{"name": "payload_json", "value": msgspec.json.encode(body).decode()}, file]


def make_nonce(name: str) -> str:
    """A nonce for our id: the same for the same id."""
    return name if len(name) <= NONCE else hashlib.blake2b(name.encode(), digest_size=NONCE // 2).hexdigest()


def slash_commands(commands: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    """Our commands as Discord registers them, with one optional text argument."""
    option = {"type": 3, "name": "arguments", "description": "arguments of the command", "required": False}
    return [
        {"name": name.lower(), "description": (about or name)[:DESCRIPTION], "type": 1, "options": [option]}
        for name, about in commands[:COMMANDS]
    ]


def translate_error(failure: BaseException, doing: str) -> DeliveryError:
    match failure:
        case discord.RateLimited():
            wait = failure.retry_after
            return DeliveryError(f"Discord asks to wait {wait:.1f} s before {doing}.", retry_after=wait)
        case discord.NotFound():
            return Undeliverable(f"Discord no longer has this chat or message ({doing}: {failure.text or failure}).")
        case discord.Forbidden():
            return Undeliverable(f"Discord does not allow the bot to write there ({doing}: {failure.text or failure}).")
        case discord.DiscordServerError():
            return DeliveryError(f"Discord failed with {failure.status} while {doing}.", uncertain=True)
        case discord.HTTPException() if failure.status == 401:
            return DeliveryError(f"Discord does not accept the bot's token ({doing}).")
        case discord.HTTPException():
            return Undeliverable(f"Discord rejected it ({doing}: {failure.text or failure}).")
    sent = not isinstance(failure, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return no_answer_error("Discord", doing, describe_error(failure), sent=sent, late=isinstance(failure, TimeoutError))


def _rows(buttons: tuple[Button, ...]) -> list[dict[str, Any]]:
    """At most five rows of five buttons, which is Discord's limit."""
    incoming = [
        {"type": 2, "style": 2, "label": button.label[:LABEL] or button.data[:LABEL], "custom_id": button.data}
        for button in buttons[: ROW * ROWS]
    ]
    return [{"type": 1, "components": incoming[at : at + ROW]} for at in range(0, len(incoming), ROW)]
