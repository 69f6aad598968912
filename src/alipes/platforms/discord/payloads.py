"""Text with marks as Discord's Markdown, in messages that Discord takes. It sends nothing."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import discord
import msgspec

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Button
from alipes.kernel.platform import Piece
from alipes.platforms.connection import brief, unanswered
from alipes.platforms.markup.markdown import read
from alipes.platforms.markup.spans import Mark, Span, Spans, cut, plain, utf16

LONGEST = 2000
_SIGNS = {"bold": "**", "italic": "*", "strike": "~~"}
_ADDRESS = re.compile(r"(https?://[^\s<>]+)")
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_ALWAYS = re.compile(r"[*`]|~(?=~)|(?<=~)~|\|(?=\|)|(?<=\|)\||\\(?=[!-/:-@\[-`{-~]|$)|\[(?=[^\]\n]*\]\()")
_EDGE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
"""An underscore inside a word is none of Discord's business."""
_LINE_START = re.compile(r"^(\s*)(>+|#+|-#?)(?=\s)", re.MULTILINE)


def pieces(markdown: str, longest: int = LONGEST) -> tuple[Piece, ...]:
    """A text as messages of at most `longest` characters, counted so that nobody counts more."""

    def fits(spans: Spans) -> bool:
        return utf16(written(spans)) <= longest

    parts = cut(read(markdown), fits, longest)
    return tuple(Piece(text=written(part), plain=plain(part)) for part in parts)


def written(spans: Spans) -> str:
    """The marks as Discord reads them; whatever else it would take for one is escaped."""
    return "".join(
        _quoted(_blocks(group)) if quote else _blocks(group)
        for quote, group in groupby(_leading(spans), lambda span: _of(span, "quote"))
    )


def _leading(spans: Spans) -> Iterator[Span]:
    """Links that Discord does not follow, or would not show as such, tell where they lead instead."""
    for link, group in groupby(spans, lambda span: _of(span, "link")):
        inside = list(group)
        shown = "".join(span.text for span in inside).strip()
        if link and (not _WEB.fullmatch(link.value) or _WEB.match(shown)):
            inside = [Span(span.text, tuple(m for m in span.marks if m != link)) for span in inside]
            if link.value != shown:
                inside.append(
                    Span(f" ({link.value})", tuple(m for m in inside[-1].marks if m.kind == "quote"))
                )
        yield from inside


def escape(text: str, *, line_start: bool = True) -> str:
    """What is meant as text stays text. Addresses are left alone: they would no longer lead anywhere."""
    parts = _ADDRESS.split(text)
    out = "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))
    if line_start:
        return _LINE_START.sub(r"\1\\\2", out)
    first, newline, rest = out.partition("\n")
    return first + newline + _LINE_START.sub(r"\1\\\2", rest)


def _escaped(text: str) -> str:
    return _EDGE.sub(r"\_", _ALWAYS.sub(r"\\\g<0>", text))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _blocks(spans: Iterable[Span]) -> str:
    out = ""
    for code, group in groupby(spans, lambda span: _of(span, "pre")):
        if code:
            text = "".join(span.text for span in group).replace("```", "``\u200b`")
            language = code.value if re.fullmatch(r"[\w+#.-]+", code.value) else ""
            out += f"```{language}\n{text}\n```"
        else:
            out += _inline(tuple(group), line_start=not out or out.endswith("\n"))
    return out


def _inline(spans: Spans, *, line_start: bool) -> str:
    out = ""
    opened: tuple[Mark, ...] = ()
    for text, marks in _atoms(spans):
        kept = sum(1 for _ in _common(opened, marks))
        closing = "".join(_sign(mark, opens=False) for mark in reversed(opened[kept:]))
        opening = "".join(_sign(mark, opens=True) for mark in marks[kept:])
        if closing and opening and closing[-1] == opening[0]:
            closing += "\u200b"  # else they would be read as one sign
        out += closing + opening
        begins = "\n" in out[-1:] or (line_start and not out.strip())
        out += _code(text) if Mark("code") in marks else escape(text, line_start=begins)
        opened = marks
    return out + "".join(_sign(mark, opens=False) for mark in reversed(opened))


def _atoms(spans: Spans) -> Iterator[tuple[str, tuple[Mark, ...]]]:
    """Words and the blanks between them, each with its marks: a sign next to a blank is not read as one."""
    words = [(part, _shown(span)) for span in spans for part in re.split(r"(^\s+|\s+$)", span.text) if part]
    for number, (text, marks) in enumerate(words):
        if text.strip():
            yield text, marks
            continue
        before = words[number - 1][1] if number else ()
        after = next((its for other, its in words[number:] if other.strip()), ())
        yield text, tuple(_common(before, after))


def _common(one: tuple[Mark, ...], other: tuple[Mark, ...]) -> Iterator[Mark]:
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            return
        yield mine


def _shown(span: Span) -> tuple[Mark, ...]:
    """Each kind once, the innermost last, and code innermost of all."""
    kinds = {mark.kind: mark for mark in reversed(span.marks) if mark.kind not in ("quote", "pre")}
    return tuple(sorted(reversed(kinds.values()), key=lambda mark: mark.kind == "code"))


def _sign(mark: Mark, *, opens: bool) -> str:
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


def _of(span: Span, kind: str) -> Mark | None:
    return next((mark for mark in span.marks if mark.kind == kind), None)


NONCE = 25
ROW, ROWS, LABEL = 5, 5, 80
DESCRIPTION = 100
COMMANDS = 100


def body(piece: Piece, *, fresh: bool = True) -> dict[str, Any]:
    """The JSON of a message; `fresh`: it is sent, not changed."""
    text = piece.text or (piece.media.caption if piece.media else "")
    # The model may write `@everyone`; nobody is called by what it writes, only whom it answers.
    told: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": [], "replied_user": True}}
    if piece.buttons or not fresh:
        told["components"] = _rows(piece.buttons)
    if not fresh:
        return told
    if piece.id:
        told |= {"nonce": nonce(piece.id), "enforce_nonce": True}
    if piece.reply_to:
        told["message_reference"] = {"message_id": piece.reply_to, "fail_if_not_exists": False}
    if piece.media:
        told["attachments"] = [{"id": 0, "filename": _name(piece)}]
    return told


def form(piece: Piece, told: dict[str, Any], data: bytes) -> list[dict[str, Any]]:
    """The same with a file."""
    file = {
        "name": "files[0]",
        "value": data,
        "filename": _name(piece),
        "content_type": "application/octet-stream",
    }
    return [{"name": "payload_json", "value": msgspec.json.encode(told).decode()}, file]


def nonce(name: str) -> str:
    """Ours where it fits, else its digest: the same for the same."""
    return name if len(name) <= NONCE else hashlib.blake2b(name.encode(), digest_size=NONCE // 2).hexdigest()


def slash_commands(commands: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    """Our commands as Discord registers them. What follows the name is one free text."""
    option = {"type": 3, "name": "arguments", "description": "what the command is about", "required": False}
    return [
        {"name": name.lower(), "description": (about or name)[:DESCRIPTION], "type": 1, "options": [option]}
        for name, about in commands[:COMMANDS]
    ]


def ours(theirs: BaseException, doing: str) -> DeliveryError:
    """A failed call of theirs, by who acts next."""
    match theirs:
        case discord.RateLimited():
            wait = theirs.retry_after
            return DeliveryError(f"Discord asks to wait {wait:.1f} s before {doing}.", retry_after=wait)
        case discord.NotFound():
            return Gone(f"Discord has no such chat or message any more ({doing}: {theirs.text or theirs}).")
        case discord.Forbidden():
            return Gone(f"Discord does not let the bot write there ({doing}: {theirs.text or theirs}).")
        case discord.DiscordServerError():
            return DeliveryError(f"Discord failed with {theirs.status} while {doing}.", uncertain=True)
        case discord.HTTPException() if theirs.status == 401:
            return DeliveryError(f"Discord does not accept the bot's token ({doing}).")
        case discord.HTTPException():
            return Gone(f"Discord refuses it ({doing}: {theirs.text or theirs}).")
    sent = not isinstance(theirs, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return unanswered("Discord", doing, brief(theirs), sent=sent, late=isinstance(theirs, TimeoutError))


def _name(piece: Piece) -> str:
    assert piece.media
    return piece.media.name or Path(piece.media.path).name or "file"


def _rows(buttons: tuple[Button, ...]) -> list[dict[str, Any]]:
    """At most five rows of five; Discord shows no more."""
    made = [
        {
            "type": 2,
            "style": 2,
            "label": button.label[:LABEL] or button.data[:LABEL],
            "custom_id": button.data,
        }
        for button in buttons[: ROW * ROWS]
    ]
    return [{"type": 1, "components": made[at : at + ROW]} for at in range(0, len(made), ROW)]
