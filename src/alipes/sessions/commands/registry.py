"""The table of slash commands: parsing, help and running. All work while a turn runs."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.errors import AlipesError, StoreError
from alipes.kernel.formatting import did_you_mean, format_columns
from alipes.plugins import specs
from alipes.plugins.dispatch import guard
from alipes.plugins.registry import CommandContribution, Contributions
from alipes.sessions.commands import conversation, history, status
from alipes.sessions.commands.approvals import approvals, mode, permissions
from alipes.sessions.commands.context import CommandContext, CommandReply, Quit

CommandAction: TypeAlias = Callable[[CommandContext, str], Awaitable[CommandReply]]


class Command(Struct, frozen=True):
    name: str
    """Without the slash."""
    hint: str
    """Its arguments; optional ones in brackets."""
    help: str
    act: CommandAction
    free: bool = False
    """It takes any arguments, even without a hint."""


class Parsed(Struct, frozen=True):
    """A text that is a command."""

    command: Command
    args: str


async def _help(context: CommandContext, args: str) -> CommandReply:
    name, known = args.removeprefix("/").lower(), known_commands(context.contributions)
    if not name:
        return CommandReply(format_columns([(_usage(command), command.help) for command in known]))
    by_name = {command.name: command for command in known}
    if name not in by_name:
        return CommandReply(f"Unknown command /{name}.{did_you_mean(name, by_name)} See /help.", failed=True)
    return CommandReply(f"{_usage(by_name[name])}: {by_name[name].help}")


async def _quit(_context: CommandContext, _args: str) -> CommandReply:
    return CommandReply(action=Quit())


COMMANDS = (
    Command("help", "[COMMAND]", "show the commands, or one of them", _help),
    Command("new", "", "start a new conversation (stops the current turn)", conversation.new),
    Command("stop", "", "stop the current turn", conversation.stop),
    Command("status", "", "show the model, running and queued messages, context and cost", status.status),
    Command("model", "[NAME]", "show the model, or choose one for this conversation", status.model),
    Command("usage", "[DAYS]", "show token usage and cost", status.usage),
    Command(
        "compress", "[FOCUS] [--preview]", "summarise older messages; FOCUS says what to keep", conversation.compress
    ),
    Command("retry", "", "retry the last message", conversation.retry),
    Command("undo", "[N]", "undo the last turn, or the last N", conversation.undo),
    Command("branch", "[TITLE]", "continue in a copy", conversation.branch),
    Command("sessions", "[WORDS]", "list conversations, latest first", history.sessions),
    Command("resume", "NAME", "continue another conversation, by id or title", conversation.resume),
    Command("title", "[TEXT]", "show or set the title of this conversation", history.title),
    Command("search", "WORDS", "search all conversations", history.search),
    Command("queue", "TEXT", "send after the current turn finishes", partial(conversation.submit, mode="queue")),
    Command("steer", "TEXT", "send to the running turn at its next step", partial(conversation.submit, mode="steer")),
    Command("busy", "[MODE]", "interrupt, queue or steer: what a message does while a turn runs", conversation.busy),
    Command("agents", "[ID | stop ID]", "list subagents, or stop one", conversation.agents),
    Command("background", "TEXT", "run this in the background", conversation.background),
    Command("moa", "TEXT", "ask several models and combine their answers", conversation.moa),
    Command("copy", "[N]", "copy the last answer, or the Nth last", history.copy),
    Command("export", "[FILE] [--force]", "export this conversation as Markdown, .html or .json", history.export),
    Command("plugins", "[ACTION NAME]", "list the plugins; or reload, enable, disable or forgive one", status.plugins),
    Command("approvals", "[show ID | revoke ID | revoke all]", "list what is allowed without asking", approvals),
    Command("permissions", "[add PATTERN | revoke ID]", "show or change what is allowed without asking", permissions),
    Command("mode", "[ask|edits|plan|all]", "show or set what is done without asking", mode),
    Command("quit", "", "quit (a running turn resumes next time)", _quit),
)
BY_NAME = {command.name: command for command in COMMANDS}
_ALWAYS_RUN = ("stop", "quit")
"""Run even with unexpected arguments."""


def _usage(command: Command) -> str:
    return f"/{command.name} {command.hint}".rstrip()


def known_commands(offers: Contributions | None = None) -> tuple[Command, ...]:
    """All commands: the built-in ones and those of plugins."""
    return (*COMMANDS, *(_plugin_command(each) for each in (offers.all(CommandContribution) if offers else ())))


def parse(text: str, offers: Contributions | None = None) -> Parsed | None:
    """The command in `text`; None for anything else, including unknown words with a slash and file paths."""
    head, *rest = text.split(maxsplit=1) or [""]
    if not head.startswith("/"):
        return None
    name = head[1:].lower()
    command = BY_NAME.get(name)
    if command is None and offers is not None:
        if (offer := offers.find(CommandContribution, name)) is not None:
            command = _plugin_command(offer)
        elif (plugin := offers.commands_off.get(name)) is not None:
            command = _command_of_disabled_plugin(name, plugin)
    return None if command is None else Parsed(command, rest[0].strip() if rest else "")


async def run(context: CommandContext, parsed: Parsed) -> CommandReply:
    """Run it. Errors are returned in the reply; only a store error is raised."""
    command, args, relay = parsed.command, parsed.args, context.hooks.dispatcher if context.hooks else None
    if args and not command.hint and not command.free and command.name not in _ALWAYS_RUN:
        return CommandReply(f"/{command.name} takes no arguments.", failed=True)
    if relay is None or not relay.has_hooks(specs.command_given):
        done = await _run_command(context, command, args)
    else:
        async with asyncio.TaskGroup() as beside:  # hooks must not delay a /stop
            given = relay.notify(specs.command_given, name=command.name, args=args, inbound=context.inbound)
            beside.create_task(given, name=f"hooks for /{command.name}")
            done = await _run_command(context, command, args)
    if isinstance(done, StoreError):
        raise done
    return done


async def _run_command(context: CommandContext, command: Command, args: str) -> CommandReply | StoreError:
    try:
        return await command.act(context, args)
    except StoreError as error:
        return error
    except AlipesError as error:
        return CommandReply(str(error), failed=True)


def _plugin_command(offer: CommandContribution) -> Command:
    async def act(context: CommandContext, args: str) -> CommandReply:
        async def work() -> str | None:
            return await offer.act(args, context.inbound)

        offer.owner.hold()  # keeps the plugin open if it is reloaded meanwhile
        try:
            said = await guard(offer.owner, f"/{offer.name}", work(), deadline=context.deadline)
        finally:
            offer.owner.release()
        return CommandReply("" if said is None else str(said))

    help = offer.help or f"from plugin {offer.owner.name}"
    return Command(offer.name, offer.hint, help, act, free=True)


def _command_of_disabled_plugin(name: str, plugin: str) -> Command:
    async def act(_context: CommandContext, _args: str) -> CommandReply:
        how = f"Use /plugins enable {plugin} to load it."
        return CommandReply(f"/{name} belongs to the plugin {plugin}, which is off. {how}", failed=True)

    return Command(name, "", f"from plugin {plugin}, which is off", act, free=True)
