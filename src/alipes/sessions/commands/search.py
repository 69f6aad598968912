"""`/search`: finds what was said, and shows the messages around a hit."""

import re
import time

from alipes.kernel.formatting import ID, format_ago, format_excerpt
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.store.export import format_place
from alipes.store.ports.search import EVERYTHING, ContextMessage, SearchContext, SearchHit, SearchScope

HINT = "WORDS | around NUMBER [COUNT]"
LISTED = 20
AROUND, MAX_AROUND = 5, 50
_MAX_TEXT = 1_000
_AROUND = re.compile(r"(?:--)?around\s+#?(\d{1,15})(?:\s+(\d{1,3}))?", re.IGNORECASE)


async def search(context: CommandContext, args: str, *, scope: SearchScope = EVERYTHING) -> CommandReply:
    """`scope`: what the person may see."""
    if not args:
        return CommandReply(f"Usage: /search {HINT}", failed=True)
    finder = context.services.search
    if (wanted := _AROUND.fullmatch(args)) is not None:
        count = min(int(wanted[2] or AROUND), MAX_AROUND)
        found = await finder.around(int(wanted[1]), count, count, scope=scope)
        return CommandReply(_format_context(found, int(wanted[1]), count))
    hits = await finder.search(args, LISTED, scope=scope)
    if not hits:
        return CommandReply(f"No matches for {format_excerpt(args)}.")
    lines = [_format_hit(hit, context) for hit in hits]
    return CommandReply("\n".join([*lines, "Use /search around NUMBER to read on, /resume ID to continue one."]))


def _format_hit(hit: SearchHit, context: CommandContext) -> str:
    here = context.inbound.address.platform
    place = "subagent" if hit.parent else hit.platform
    where = "" if place == here else f"  ({format_place(place, hit.chat if not hit.parent else '', '')})"
    head = f"{hit.session[:ID]}  {format_ago(hit.when, context.clock())}  {hit.title}{where}"
    return f"{head}\n    #{hit.message}  {hit.snippet}"


def _format_context(found: SearchContext, number: int, count: int) -> str:
    place = format_place(found.platform, found.chat, found.workdir)
    lines = [f"{found.session[:ID]}  {found.title}  ({place})"]
    lines += [_format_message(message, number) for message in found.messages]
    more = [
        f"/search around {found.messages[at].message} {count} for {side} messages"
        for at, side, exists in ((0, "earlier", found.earlier), (-1, "later", found.later))
        if exists
    ]
    return "\n".join([*lines, *more])


def _format_message(message: ContextMessage, number: int) -> str:
    text = message.text.strip()
    shown = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    mark = ">" if message.message == number else " "
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(message.when))
    indented = shown.replace("\n", "\n    ")
    return f"{mark} #{message.message}  {when}  {message.role}\n    {indented}"
