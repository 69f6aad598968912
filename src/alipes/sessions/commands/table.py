"""The commands of every front end, in one table: found in a text, run, told. Each works while a turn runs."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.config.near import did_you_mean
from alipes.kernel.errors import AlipesError, StoreError
from alipes.kernel.wording import aligned
from alipes.sessions.commands import account, course, shelf
from alipes.sessions.commands.context import Context, Quit, Reply

Act: TypeAlias = Callable[[Context, str], Awaitable[Reply]]


class Command(Struct, frozen=True):
    name: str
    """Without the slash."""
    hint: str
    """What may follow it; in brackets what may be left out."""
    help: str
    act: Act


class Parsed(Struct, frozen=True):
    """A text that is a command."""

    command: Command
    args: str


async def _help(_context: Context, args: str) -> Reply:
    name = args.removeprefix("/").lower()
    if not name:
        return Reply(aligned([(_usage(command), command.help) for command in COMMANDS]))
    if name not in BY_NAME:
        return Reply(f"There is no /{name}.{did_you_mean(name, BY_NAME)} /help shows all.", trouble=True)
    return Reply(f"{_usage(BY_NAME[name])}: {BY_NAME[name].help}")


async def _quit(_context: Context, _args: str) -> Reply:
    return Reply(action=Quit())


COMMANDS = (
    Command("help", "[COMMAND]", "show the commands, or one of them", _help),
    Command("new", "", "begin a new conversation; what runs is ended", course.new),
    Command("stop", "", "end what is running", course.stop),
    Command("status", "", "show the model, what runs and waits, context and cost", account.status),
    Command("model", "[NAME]", "show the model, or choose one for this conversation", account.model),
    Command("usage", "", "show tokens and cost, here, today and by model", account.usage),
    Command("retry", "", "ask the last message again, as if it had not been answered", course.retry),
    Command("undo", "[N]", "take back the last turn, or the last N", course.undo),
    Command("branch", "[TITLE]", "go on in a copy, and leave the original as it is", course.branch),
    Command("sessions", "[WORDS]", "list conversations, the latest first", shelf.sessions),
    Command("resume", "NAME", "go on with another conversation, by id or title", course.resume),
    Command("title", "[TEXT]", "show or set the title of this conversation", shelf.title),
    Command("search", "WORDS", "find what was said, in all conversations", shelf.search),
    Command("queue", "TEXT", "say this after what is running is over", course.queue),
    Command("steer", "TEXT", "say this to what is running, at its next step", course.steer),
    Command(
        "busy", "[MODE]", "interrupt, queue or steer: what a message does while something runs", course.busy
    ),
    Command("copy", "[N]", "copy the last answer, or the Nth last", shelf.copy),
    Command("export", "[FILE] [--force]", "write this conversation as Markdown, or as .json", shelf.export),
    Command("quit", "", "leave; what runs goes on at the next start", _quit),
)
BY_NAME = {command.name: command for command in COMMANDS}
_ANYWAY = ("stop", "quit")
"""Done whatever follows them."""


def _usage(command: Command) -> str:
    return f"/{command.name} {command.hint}".rstrip()


def parse(text: str) -> Parsed | None:
    """The command that `text` is; None for all else, also unknown words with a slash, and paths of files."""
    head, *rest = text.split(maxsplit=1) or [""]
    command = BY_NAME.get(head[1:].lower()) if head.startswith("/") else None
    return None if command is None else Parsed(command, rest[0].strip() if rest else "")


async def run(context: Context, parsed: Parsed) -> Reply:
    """Do it. What goes wrong is told in the reply; only a broken store is raised."""
    command, args = parsed.command, parsed.args
    if args and not command.hint and command.name not in _ANYWAY:
        return Reply(f"/{command.name} takes nothing after it, so nothing was done.", trouble=True)
    try:
        return await command.act(context, args)
    except StoreError:
        raise
    except AlipesError as error:
        return Reply(str(error), trouble=True)
