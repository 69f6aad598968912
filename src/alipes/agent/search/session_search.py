"""`session_search`: finds what was said before, in this conversation and in others that the person may see.

Results are old text: they are marked as data, and a conversation that reads them counts as having read the untrusted
text that those conversations had read.
"""

import time
from collections.abc import Mapping

from msgspec import structs

from alipes.agent.search.conversations import ConversationSearch
from alipes.kernel.errors import SessionError, ToolError
from alipes.kernel.formatting import ID, format_count, format_excerpt
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.kernel.turns import Turn
from alipes.kernel.untrusted import mark_untrusted
from alipes.store.export import format_place
from alipes.store.ports.search import EVERYTHING, ContextMessage, SearchContext, SearchHit, SearchScope, SessionOwner
from alipes.store.sql.approvals import UntrustedSourceStore
from alipes.tools.common import int_argument, make_schema

LOCAL_PLATFORMS = frozenset({"terminal"})
"""Where the person is the owner of the home."""
API = "api"
DEFAULT_LIMIT, MAX_LIMIT = 10, 50
DEFAULT_AROUND, MAX_AROUND = 4, 30
MAX_MESSAGE_CHARS = 1_500
SOURCE = "earlier conversations"
_SCOPES = ("all", "folder", "chat", "conversation")


def visible_scope(turn: Turn) -> SearchScope:
    """What the person of a turn may see: in the terminal everything, for an owner in a direct chat too, else only the
    conversations of the same chat or of the same API key."""
    inbound = turn.inbound
    place = inbound.origin.address if inbound.origin is not None else inbound.address
    if place.platform in LOCAL_PLATFORMS:
        return EVERYTHING
    if place.platform == API:
        return SearchScope(owner=SessionOwner(API, place.user))
    by_owner = inbound.sender and not inbound.untrusted and not inbound.notice and inbound.origin is None
    if by_owner and place.chat_type == "dm" and place.platform not in _WITHOUT_PEOPLE:
        return EVERYTHING
    return SearchScope(key=place.key)


_WITHOUT_PEOPLE = frozenset({"webhook", "plugin", "cron", "schedule", "subagent", "web"})
"""Platforms where the sender is a program."""


class SessionSearch:
    """The tool."""

    spec = ToolSpec(
        name="session_search",
        description="Search by words what was said in earlier conversations and in this one (also compacted parts). "
        "To read on, pass the number of a hit as around.",
        schema=make_schema(
            "", query="string", scope=[*_SCOPES], limit="integer", around="integer", before="integer", after="integer"
        ),
        effect="read",
    )

    def __init__(self, search: ConversationSearch, sources: UntrustedSourceStore) -> None:
        self._search, self._sources = search, sources

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        scope = _narrow(visible_scope(act.turn), str(args.get("scope") or "all"), act.turn)
        if number := int_argument(args, "around"):
            return await self._read_around(number, args, scope, act)
        query = str(args.get("query") or "").strip()
        if not query:
            raise ToolError("query is empty; give words to search for, or around with the number of a message")
        limit = max(1, min(int_argument(args, "limit", DEFAULT_LIMIT), MAX_LIMIT))
        found = await self._search.search(query, limit + 1, scope=scope)
        hits = [hit for hit in found if hit.turn != act.turn.id][:limit]  # not the question itself
        await act.progress(format_count(len(hits), "hit"))
        if not hits:
            return "No matches. Try fewer or other words."
        await self._sources.inherit(act.turn, sorted({hit.session for hit in hits}))
        return mark_untrusted("\n".join(map(_format_hit, hits)), SOURCE)

    async def _read_around(self, number: int, args: Mapping[str, Json], scope: SearchScope, act: ToolContext) -> str:
        before, after = (
            max(0, min(int_argument(args, name, DEFAULT_AROUND), MAX_AROUND)) for name in ("before", "after")
        )
        try:
            context = await self._search.around(number, before, after, scope=scope)
        except SessionError as error:
            raise ToolError(str(error)) from error
        await self._sources.inherit(act.turn, [context.session])
        return mark_untrusted(_format_context(context, number), SOURCE)


def _narrow(scope: SearchScope, wanted: str, turn: Turn) -> SearchScope:
    """The part of a scope that the model asks for."""
    origin = turn.inbound.origin
    address, session = (origin.address, origin.session) if origin is not None else (turn.inbound.address, turn.session)
    match wanted:
        case "folder":
            return structs.replace(scope, workdir=turn.inbound.workdir)
        case "chat":
            return structs.replace(scope, key=address.key)
        case "conversation":
            return structs.replace(scope, session=session)
    return scope


def _format_hit(hit: SearchHit) -> str:
    place = format_place(hit.platform, hit.chat, hit.workdir)
    of = f", subagent of {hit.parent[:ID]}" if hit.parent else ""
    head = f"#{hit.message} {_format_time(hit.when)} {hit.role}, {format_excerpt(hit.title)}"
    return f"{head} ({place}{of}, conversation {hit.session[:ID]})\n    {hit.snippet}"


def _format_context(context: SearchContext, number: int) -> str:
    place = format_place(context.platform, context.chat, context.workdir)
    lines = [f"{format_excerpt(context.title)} ({place}, conversation {context.session[:ID]})"]
    lines += ["[earlier messages left out]"] if context.earlier else []
    lines += [_format_message(message, number) for message in context.messages]
    return "\n".join([*lines, *(["[later messages left out]"] if context.later else [])])


def _format_message(message: ContextMessage, number: int) -> str:
    text = message.text
    shown = text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]}…"
    mark = "> " if message.message == number else ""
    return f"{mark}#{message.message} {_format_time(message.when)} {message.role}: {shown}"


def _format_time(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
