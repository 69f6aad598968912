"""Commands for past messages: list, title, copy, export."""

import asyncio
import os
import re
from pathlib import Path

import msgspec

from alipes.kernel.conversations import ActiveSession
from alipes.kernel.formatting import ID, format_ago, format_count, format_excerpt
from alipes.kernel.messages import Json
from alipes.sessions.commands.context import CommandContext, CommandReply, CopyText, SendFile, parse_count
from alipes.store.export import to_markdown
from alipes.store.html_export import to_html
from alipes.store.ports.archive import SessionFacts

LISTED = 20
FORCE = "--force"
_NOTHING = "This conversation is empty."


async def sessions(context: CommandContext, args: str) -> CommandReply:
    found = await context.store.archive.sessions(LISTED, args)
    standing = await context.store.sessions.active(context.key)
    here, now = standing.session if standing else "", context.clock()
    lines = [_line(facts, facts.id == here, now) for facts in found]
    if not lines:
        nothing = f"No conversation matches {format_excerpt(args)}." if args else "No conversations yet."
        return CommandReply(nothing)
    return CommandReply("\n".join([*lines, "Use /resume ID to continue one."]))


def _line(facts: SessionFacts, here: bool, now: float) -> str:
    mark = "*" if here else " "
    title = format_excerpt(facts.title or "(no title)")[1:-1]
    return f"{mark} {facts.id[:ID]}  {format_ago(facts.updated, now)}  {title}"


async def title(context: CommandContext, args: str) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    if args:
        standing = standing or await context.store.sessions.open(context.inbound.address)
        await context.store.sessions.configure(standing.session, title=args)
        return CommandReply(f"Title: {format_excerpt(args)}")
    facts = None if standing is None else await context.store.archive.resolve(standing.session)
    if standing is None or facts is None or not facts.title:
        return CommandReply("This conversation has no title yet. Set one with /title TEXT.")
    kind = "has the title" if standing.title else "has no title; it starts with"
    return CommandReply(f"This conversation {kind} {format_excerpt(facts.title)}.")


async def copy(context: CommandContext, args: str) -> CommandReply:
    back = parse_count(args or "1", 999_999)
    if back is None:
        return CommandReply("/copy takes a number: /copy 2 is the answer before the last.", failed=True)
    standing = await context.store.sessions.active(context.key)
    messages = await context.store.archive.messages(standing.session) if standing else ()
    answers = [m.text for m in messages if m.role == "assistant" and not m.calls and m.text.strip()]
    if not answers:
        return CommandReply("No answer to copy yet.", failed=True)
    if back > len(answers):
        return CommandReply(f"There are only {format_count(len(answers), 'answer')} here.", failed=True)
    return CommandReply(action=CopyText(answers[-back]))


async def export(context: CommandContext, args: str) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    if standing is None:
        return CommandReply(_NOTHING, failed=True)
    force = FORCE in (args[: len(FORCE)], args[-len(FORCE) :])
    name = args.removeprefix(FORCE).removesuffix(FORCE).strip()
    document = await context.store.archive.export(standing.session)
    if not context.local_files:
        file = Path(name or _file_name(standing, document)).name
        return CommandReply(action=SendFile(file, _text(document, file)))
    usual = Path(context.inbound.workdir, _file_name(standing, document))
    return await asyncio.to_thread(_write, usual, name, document, force)


def _write(usual: Path, name: str, document: dict[str, Json], force: bool) -> CommandReply:
    """To `name`, relative to the default file's folder; if it is a folder, into it under the default name."""
    path = usual.parent / os.path.expanduser(name) if name else usual
    try:
        path = path / usual.name if path.is_dir() else path
        with path.open("w" if force else "x", encoding="utf-8", errors="replace") as file:
            file.write(_text(document, path.name))
    except FileExistsError:
        return CommandReply(f"{path} already exists. Add {FORCE} to overwrite.", failed=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return CommandReply(f"{path} could not be written: {why}.", failed=True)
    return CommandReply(f"Written to {path}.")


def _text(document: dict[str, Json], name: str) -> str:
    if name.lower().endswith(".json"):
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    if name.lower().endswith((".html", ".htm")):
        return to_html(document)
    return to_markdown(document)


def _file_name(standing: ActiveSession, document: dict[str, Json]) -> str:
    session = document["session"]
    assert isinstance(session, dict)
    slug = re.sub(r"[^\w]+", "-", str(session["title"]).lower()).strip("-")[:40].rstrip("-")
    return f"{slug or 'conversation'}-{standing.session[:ID]}.md"
