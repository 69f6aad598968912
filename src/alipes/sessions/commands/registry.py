"""The commands of every front end, in one table: found in a text, run, told. Each works while a turn runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.errors import AlipesError, StoreError
from alipes.kernel.formatting import aligned, did_you_mean
from alipes.plugins import specs
from alipes.plugins.dispatch import guard
from alipes.plugins.registry import CommandOffer, Offers
from alipes.sessions.commands import agents, conversation, history, status
from alipes.sessions.commands.context import Context, Quit, Reply

Act: TypeAlias = Callable[[Context, str], Awaitable[Reply]]


class Command(Struct, frozen=True):
    name: str
    """Without the slash."""
    hint: str
    """What may follow it; in brackets what may be left out."""
    help: str
    act: Act
    free: bool = False
    """It takes whatever follows it, also if it has no hint."""


class Parsed(Struct, frozen=True):
    """A text that is a command."""

    command: Command
    args: str


async def _help(context: Context, args: str) -> Reply:
    name, known = args.removeprefix("/").lower(), known_commands(context.offers)
    if not name:
        return Reply(aligned([(_usage(command), command.help) for command in known]))
    by_name = {command.name: command for command in known}
    if name not in by_name:
        return Reply(f"There is no /{name}.{did_you_mean(name, by_name)} /help shows all.", trouble=True)
    return Reply(f"{_usage(by_name[name])}: {by_name[name].help}")


async def _quit(_context: Context, _args: str) -> Reply:
    return Reply(action=Quit())


COMMANDS = (
    Command("help", "[COMMAND]", "show the commands, or one of them", _help),
    Command("new", "", "begin a new conversation; what runs is ended", conversation.new),
    Command("stop", "", "end what is running", conversation.stop),
    Command("status", "", "show the model, what runs and waits, context and cost", status.status),
    Command("model", "[NAME]", "show the model, or choose one for this conversation", status.model),
    Command("usage", "[DAYS]", "show tokens and cost, here and today; or of the last days", status.usage),
    Command(
        "compress",
        "[FOCUS] [--preview]",
        "sum up what was said before; FOCUS is kept above all",
        conversation.compress,
    ),
    Command("retry", "", "ask the last message again, as if it had not been answered", conversation.retry),
    Command("undo", "[N]", "take back the last turn, or the last N", conversation.undo),
    Command("branch", "[TITLE]", "go on in a copy, and leave the original as it is", conversation.branch),
    Command("sessions", "[WORDS]", "list conversations, the latest first", history.sessions),
    Command("resume", "NAME", "go on with another conversation, by id or title", conversation.resume),
    Command("title", "[TEXT]", "show or set the title of this conversation", history.title),
    Command("search", "WORDS", "find what was said, in all conversations", history.search),
    Command("queue", "TEXT", "say this after what is running is over", conversation.queue),
    Command("steer", "TEXT", "say this to what is running, at its next step", conversation.steer),
    Command(
        "busy",
        "[MODE]",
        "interrupt, queue or steer: what a message does while something runs",
        conversation.busy,
    ),
    Command(
        "agents",
        "[ID | stop ID]",
        "show who works beside this conversation, or end one of them",
        agents.agents,
    ),
    Command(
        "background", "TEXT", "have this done beside the conversation; the answer comes", agents.background
    ),
    Command("moa", "TEXT", "have several models answer this together", agents.moa),
    Command("copy", "[N]", "copy the last answer, or the Nth last", history.copy),
    Command("export", "[FILE] [--force]", "write this conversation as Markdown, or as .json", history.export),
    Command(
        "plugins",
        "[ACTION NAME]",
        "list the plugins; or reload, enable or disable one",
        status.plugins,
    ),
    Command("quit", "", "leave; what runs goes on at the next start", _quit),
)
BY_NAME = {command.name: command for command in COMMANDS}
_ANYWAY = ("stop", "quit")
"""Done whatever follows them."""


def _usage(command: Command) -> str:
    return f"/{command.name} {command.hint}".rstrip()


def known_commands(offers: Offers | None = None) -> tuple[Command, ...]:
    """All that can be typed now: the house's own, and what plugins offer."""
    return (*COMMANDS, *(_offered(each) for each in (offers.all(CommandOffer) if offers else ())))


def parse(text: str, offers: Offers | None = None) -> Parsed | None:
    """The command that `text` is; None for all else, also unknown words with a slash, and paths of files."""
    head, *rest = text.split(maxsplit=1) or [""]
    if not head.startswith("/"):
        return None
    name = head[1:].lower()
    command = BY_NAME.get(name)
    if command is None and offers is not None and (offer := offers.find(CommandOffer, name)) is not None:
        command = _offered(offer)
    return None if command is None else Parsed(command, rest[0].strip() if rest else "")


async def run(context: Context, parsed: Parsed) -> Reply:
    """Do it. What goes wrong is told in the reply; only a broken store is raised."""
    command, args, relay = parsed.command, parsed.args, context.hooks.relay if context.hooks else None
    if args and not command.hint and not command.free and command.name not in _ANYWAY:
        return Reply(f"/{command.name} takes nothing after it, so nothing was done.", trouble=True)
    if relay is None or not relay.listens(specs.command_given):
        done = await _done(context, command, args)
    else:
        async with asyncio.TaskGroup() as beside:  # who is told does not keep a /stop waiting
            given = relay.tell(specs.command_given, name=command.name, args=args, inbound=context.inbound)
            beside.create_task(given, name=f"telling of /{command.name}")
            done = await _done(context, command, args)
    if isinstance(done, StoreError):
        raise done
    return done


async def _done(context: Context, command: Command, args: str) -> Reply | StoreError:
    try:
        return await command.act(context, args)
    except StoreError as error:
        return error
    except AlipesError as error:
        return Reply(str(error), trouble=True)


def _offered(offer: CommandOffer) -> Command:
    async def act(context: Context, args: str) -> Reply:
        async def work() -> str | None:
            return await offer.act(args, context.inbound)

        offer.owner.hold()  # a plugin that is exchanged meanwhile stays open for it
        try:
            said = await guard(offer.owner, f"/{offer.name}", work(), deadline=context.deadline)
        finally:
            offer.owner.release()
        return Reply("" if said is None else str(said))

    help = offer.help or f"of the plugin {offer.owner.name}"
    return Command(offer.name, offer.hint, help, act, free=True)
