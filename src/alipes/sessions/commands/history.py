"""Commands about what was said: found, named, copied, exported."""

import asyncio
import os
import re
from pathlib import Path

import msgspec

from alipes.kernel.conversations import Standing
from alipes.kernel.formatting import ago, brief, count
from alipes.kernel.messages import Json
from alipes.sessions.commands.context import Context, Copy, Document, Reply
from alipes.sessions.commands.usage_report import ID
from alipes.store.export import SessionFacts, markdown

LISTED = 20
FORCE = "--force"
_NOTHING = "Nothing was said in this conversation yet."


async def sessions(context: Context, args: str) -> Reply:
    found = await context.store.archive.sessions(LISTED, args)
    standing = await context.store.sessions.standing(context.key)
    here, now = standing.session if standing else "", context.clock()
    lines = [_line(facts, facts.id == here, now) for facts in found]
    if not lines:
        nothing = f"No conversation is called {brief(args)}." if args else "There is no conversation yet."
        return Reply(nothing)
    return Reply("\n".join([*lines, "/resume ID goes on with one."]))


def _line(facts: SessionFacts, here: bool, now: float) -> str:
    mark = "*" if here else " "
    return f"{mark} {facts.id[:ID]}  {ago(facts.updated, now)}  {brief(facts.title or '(no title)')[1:-1]}"


async def title(context: Context, args: str) -> Reply:
    standing = await context.store.sessions.standing(context.key)
    if args:
        standing = standing or await context.store.sessions.open(context.inbound.address)
        await context.store.sessions.configure(standing.session, title=args)
        return Reply(f"This conversation is called {brief(args)}.")
    if standing is None:
        return Reply("This conversation has no title yet; /title TEXT gives it one.")
    facts = await context.store.archive.resolve(standing.session)
    kind = "is called" if standing.title else "has no title; it begins"
    return Reply(f"This conversation {kind} {brief(facts.title)}.")


async def search(context: Context, args: str) -> Reply:
    if not args:
        return Reply("What for? /search WORDS.", trouble=True)
    hits = await context.store.archive.search(args, LISTED)
    if not hits:
        return Reply(f"Nothing was said about {brief(args)}.")
    now = context.clock()
    lines = [f"{hit.session[:ID]}  {ago(hit.when, now)}  {hit.title}\n    {hit.snippet}" for hit in hits]
    return Reply("\n".join(lines))


async def copy(context: Context, args: str) -> Reply:
    if args and not (args.isascii() and args.isdecimal() and 0 < int(args) < 10**6):
        return Reply("/copy takes a number: /copy 2 is the answer before the last.", trouble=True)
    standing = await context.store.sessions.standing(context.key)
    messages = await context.store.archive.messages(standing.session) if standing else ()
    answers = [m.text for m in messages if m.role == "assistant" and not m.calls and m.text.strip()]
    back = int(args or 1)
    if not answers:
        return Reply("There is no answer to copy yet.", trouble=True)
    if back > len(answers):
        return Reply(f"There are only {count(len(answers), 'answer')} here.", trouble=True)
    return Reply(action=Copy(answers[-back]))


async def export(context: Context, args: str) -> Reply:
    standing = await context.store.sessions.standing(context.key)
    if standing is None:
        return Reply(_NOTHING, trouble=True)
    force = FORCE in (args[: len(FORCE)], args[-len(FORCE) :])
    name = args.removeprefix(FORCE).removesuffix(FORCE).strip()
    document = await context.store.archive.export(standing.session)
    if not context.files:
        file = Path(name or _file_name(standing, document)).name
        return Reply(action=Document(file, _text(document, file)))
    usual = Path(context.inbound.workdir, _file_name(standing, document))
    return await asyncio.to_thread(_write, usual, name, document, force)


def _write(usual: Path, name: str, document: dict[str, Json], force: bool) -> Reply:
    """To `name`, seen from the usual file's folder; where it is a folder, into it under the usual name."""
    path = usual.parent / os.path.expanduser(name) if name else usual
    try:
        path = path / usual.name if path.is_dir() else path
        with path.open("w" if force else "x", encoding="utf-8", errors="replace") as file:
            file.write(_text(document, path.name))
    except FileExistsError:
        return Reply(f"{path} is there already; /export {path} {FORCE} replaces it.", trouble=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return Reply(f"{path} could not be written: {why}.", trouble=True)
    return Reply(f"Written to {path}.")


def _text(document: dict[str, Json], name: str) -> str:
    if name.lower().endswith(".json"):
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return markdown(document)


def _file_name(standing: Standing, document: dict[str, Json]) -> str:
    session = document["session"]
    assert isinstance(session, dict)
    slug = re.sub(r"[^\w]+", "-", str(session["title"]).lower()).strip("-")[:40].rstrip("-")
    return f"{slug or 'conversation'}-{standing.session[:ID]}.md"
