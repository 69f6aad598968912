"""Commands that exist in chats only, and those of the house that show less there. One table with the rest."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from alipes.gateway.access import Access
from alipes.gateway.platform_runner import PlatformState
from alipes.gateway.questions import Questions
from alipes.kernel.formatting import ago, aligned, brief, did_you_mean
from alipes.kernel.outbox import lane
from alipes.kernel.turns import Address, Consent
from alipes.plugins.registry import Offers
from alipes.sessions import commands as house
from alipes.sessions.commands import Command, Context, Parsed, Reply
from alipes.store.export import SessionFacts
from alipes.store.people import Progress, SqlitePeople

OWNERS = frozenset({"pair", "restart", "platforms", "sethome", "plugins"})
"""What only an owner may ask for."""
MODES: dict[Progress, str] = {
    "off": "nothing is shown of the tools at work",
    "short": "the tool at work is shown",
    "full": "every tool is shown",
}
_LISTED, _LOOKED = 20, 500
_ID = 6


class Desk(Struct, frozen=True):
    """What these commands work with."""

    access: Access
    people: SqlitePeople
    questions: Questions
    states: Callable[[], tuple[PlatformState, ...]]
    choose: Callable[[Address, Progress], None]


class ChatCommands:
    """The commands that can be given in a chat."""

    def __init__(self, desk: Desk) -> None:
        own = (
            Command("help", "[COMMAND]", "show the commands, or one of them", self._help),
            Command(
                "approve", "[session|always] [all]", "allow what is asked about", partial(_approve, desk)
            ),
            Command("deny", "[all]", "do not allow what is asked about", partial(_deny, desk)),
            Command(
                "progress", "[off|short|full]", "how much is shown of the tools", partial(_progress, desk)
            ),
            Command("sethome", "", "write to this chat when none is named", partial(_sethome, desk)),
            Command("pair", "[CODE] [owner]", "let in who was shown the code", partial(_pair, desk)),
            Command("platforms", "", "show how the platforms stand", partial(_platforms, desk)),
            Command("restart", "", "start the gateway anew; what runs goes on then", _restart),
            Command("sessions", "[WORDS]", "list conversations, the latest first", partial(_sessions, desk)),
            Command("search", "WORDS", "find what was said", partial(_search, desk)),
            Command(
                "resume", "NAME", "go on with another conversation, by id or title", partial(_resume, desk)
            ),
        )
        self._own = {command.name: command for command in own}

    def known(self, offers: Offers | None = None) -> tuple[Command, ...]:
        """All of them, each once."""
        others = (each for each in house.known_commands(offers) if each.name not in {*self._own, "quit"})
        return (*self._own.values(), *others)

    def parse(self, text: str, offers: Offers | None = None) -> Parsed | None:
        """The command that `text` is; None for all else, also for unknown words with a slash."""
        head, *rest = text.split(maxsplit=1) or [""]
        command = self._own.get(head[1:].lower()) if head.startswith("/") else None
        return Parsed(command, rest[0].strip() if rest else "") if command else house.parse(text, offers)

    async def _help(self, context: Context, args: str) -> Reply:
        known = {command.name: command for command in self.known(context.offers)}
        name = args.removeprefix("/").lower()
        if name and name not in known:
            return Reply(f"There is no /{name}.{did_you_mean(name, known)} /help shows all.", trouble=True)
        wanted = [known[name]] if name else known.values()
        return Reply(aligned([(f"/{each.name} {each.hint}".rstrip(), each.help) for each in wanted]))


async def _approve(desk: Desk, context: Context, args: str) -> Reply:
    words = args.lower().split()
    choice: Consent = "always" if "always" in words else "session" if "session" in words else "once"
    return await _answered(desk, context, choice, everything="all" in words)


async def _deny(desk: Desk, context: Context, args: str) -> Reply:
    return await _answered(desk, context, "no", everything="all" in args.lower().split())


async def _answered(desk: Desk, context: Context, choice: Consent, *, everything: bool) -> Reply:
    sender = context.inbound.sender
    told = await desk.questions.answer(context.key, choice, sender, everything=everything)
    return Reply(told or "Nothing waits for your word.")


async def _progress(desk: Desk, context: Context, args: str) -> Reply:
    place, address = lane(context.inbound.address), context.inbound.address
    if not args:
        chosen = await desk.people.progress(place)
        now = f"{chosen}: {MODES[chosen]}. " if chosen else ""
        return Reply(f"{now}/progress takes one of {', '.join(MODES)}.")
    mode: Progress | None = next((each for each in MODES if each == args.lower()), None)
    if mode is None:
        return Reply(f"{brief(args, 20)} is none of {', '.join(MODES)}.", trouble=True)
    await desk.people.set_progress(place, mode)
    desk.choose(address, mode)
    return Reply(f"From now on {MODES[mode]} here.")


async def _sethome(desk: Desk, context: Context, _args: str) -> Reply:
    address = context.inbound.address
    await desk.people.set_home(address)
    return Reply(f"This chat is written to when only {address.platform} is named.")


async def _pair(desk: Desk, context: Context, args: str) -> Reply:
    code, *more = args.split()[:2] or [""]
    if not code:
        waiting = await desk.people.applicants()
        rows = [(each.platform, f"{each.name or each.person}, {ago(each.created)}") for each in waiting]
        return Reply(aligned(rows) + "\n/pair CODE lets one in." if rows else "Nobody waits to be let in.")
    if more and more[0].lower() not in ("owner", "user"):
        return Reply(
            "/pair CODE lets somebody in; /pair CODE owner as one who may do the same.", trouble=True
        )
    person = await desk.access.approve(code, "owner" if more and more[0].lower() == "owner" else "user")
    return Reply(f"{person.name or person.person} may speak on {person.platform} now, as {person.role}.")


async def _platforms(desk: Desk, _context: Context, _args: str) -> Reply:
    return Reply(aligned([(each.name, _stands(each)) for each in desk.states()]))


def _stands(state: PlatformState) -> str:
    since = f"{state.condition}, since {ago(state.since)}".replace("since just now", "just now")
    troubles = [each for each in (state.cause, state.sending and f"sending: {state.sending}") if each]
    return ": ".join([since.removesuffix(" ago"), "; ".join(troubles)] if troubles else [since])


async def _restart(_context: Context, _args: str) -> Reply:
    return Reply("Starting anew. What runs goes on in a moment.")


async def _sessions(desk: Desk, context: Context, args: str) -> Reply:
    if await _alone(desk, context):
        return await house.BY_NAME["sessions"].act(context, args)
    here = await _own(context, args)
    lines = [f"{each.id[:_ID]}  {ago(each.updated)}  {_title(each)}" for each in here[:_LISTED]]
    return Reply("\n".join([*lines, "/resume ID goes on with one."]) if lines else "There is none here.")


async def _search(desk: Desk, context: Context, args: str) -> Reply:
    if not args or await _alone(desk, context):
        return await house.BY_NAME["search"].act(context, args)
    mine = {each.id for each in await _own(context)}
    hits = [hit for hit in await context.store.archive.search(args, _LOOKED) if hit.session in mine]
    lines = [
        f"{hit.session[:_ID]}  {ago(hit.when)}  {hit.title}\n    {hit.snippet}" for hit in hits[:_LISTED]
    ]
    return Reply("\n".join(lines) if lines else f"Nothing was said here about {brief(args)}.")


async def _resume(desk: Desk, context: Context, args: str) -> Reply:
    if args and not await _alone(desk, context):
        found = [each for each in await _own(context) if each.id.startswith(args) or each.title == args]
        if len(found) != 1:
            return Reply(f"There is no conversation here that is called {brief(args)}.", trouble=True)
        args = found[0].id
    return await house.BY_NAME["resume"].act(context, args)


async def _alone(desk: Desk, context: Context) -> bool:
    """Does an owner read this, and nobody else? Only then conversations of others are shown."""
    address = context.inbound.address
    owner = await desk.access.role(address.platform, context.inbound.sender) == "owner"
    return owner and address.chat_type == "dm"


async def _own(context: Context, words: str = "") -> list[SessionFacts]:
    return [each for each in await context.store.archive.sessions(_LOOKED, words) if each.key == context.key]


def _title(facts: SessionFacts) -> str:
    return brief(facts.title or "(no title)")[1:-1]
