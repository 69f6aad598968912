"""The table of slash commands: parsing, help and running. All work while a turn runs."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from alipes import __version__
from alipes.kernel.errors import AlipesError, MessageRejected, StoreError
from alipes.kernel.formatting import closest_matches, format_columns, join_names
from alipes.kernel.turns import Inbound
from alipes.plugins import specs
from alipes.plugins.dispatch import guard
from alipes.plugins.features import OpenFeatures
from alipes.plugins.registry import CommandContribution, Contributions, PromptTemplate
from alipes.sessions.commands import conversation, history, project, rewind, search, settings, status, templates, window
from alipes.sessions.commands.approvals import approvals, mode, permissions
from alipes.sessions.commands.context import CommandContext, CommandReply, Quit, RunSetup
from alipes.sessions.commands.jobs import jobs
from alipes.sessions.commands.keys import keys
from alipes.sessions.commands.tools import tools

CommandAction: TypeAlias = Callable[[CommandContext, str], Awaitable[CommandReply]]


Group: TypeAlias = Literal[
    "Conversations", "While a turn runs", "Model and cost", "Project", "Memory", "Permissions", "alipes"
]
GROUPS: tuple[Group, ...] = get_args(Group)
"""The heads of `/help`, in its order."""
OTHERS, TEMPLATES = "More commands", "Your commands"
"""The heads behind them: commands without a group, and templates."""


class Command(Struct, frozen=True):
    """A slash command, and what front ends must know of it."""

    name: str
    """Without the slash."""
    hint: str
    """Its arguments; optional ones in brackets."""
    help: str
    act: CommandAction
    free: bool = False
    """It runs with any arguments, even without a hint."""
    aliases: tuple[str, ...] = ()
    """Other names. A plugin's command or a template of such a name takes precedence."""
    group: Group | None = None
    place: int = 99
    """Where `/help` lists it in its group: the lowest first."""
    plugin: str = ""
    """The plugin that it is of."""
    template: PromptTemplate | None = None
    """The template that it sends."""
    stops_turn: bool = False
    """It ends the running turn."""
    run_once: bool = False
    """It must not run again if its message is delivered twice, not even after a crash."""
    changes_transcript: bool = False
    """Messages that are shown may change or go: show the conversation from the start."""
    in_order: bool = False
    """It sends a message or changes the conversation of later ones, so it keeps its place among messages."""
    takes_message: bool = False
    """Its argument is a message, which may name files."""
    opens_list: bool = False
    """Without an argument, a terminal shows what to choose from."""
    chooses_model: bool = False
    """Its argument is a model, which overrides the one that was given at the start."""
    in_chats: bool = True
    """Chats list it."""
    in_editors: bool = True
    """Editors list it."""
    owners_only: bool = False
    """In chats, only owners may run it."""
    complete: Callable[[OpenFeatures, str], Iterable[str]] | None = None
    """Arguments to offer at a terminal, given the open features and the folder."""


class Parsed(Struct, frozen=True):
    """A text that is a command."""

    command: Command
    args: str


class UnknownCommand(Parsed, frozen=True):
    """A word with a slash that names no command: running it replies so. It is never sent to the model."""


OTHER_NAMES = {"plan": ("mode", "plan")}
"""Commands of other agents that are one of ours with an argument."""
POINTERS = {
    "config": "`alipes config` shows and changes settings; /setup chooses a provider and a model.",
    "doctor": "`alipes doctor` checks this machine; `!alipes doctor` runs it here.",
    "login": "/setup adds a provider with its key; keys are kept in .env in the home of alipes.",
    "logout": "Remove the key with `alipes config unset NAME`; /setup chooses another provider.",
    "theme": "Set terminal.theme to dark or light: `alipes config set terminal.theme light`.",
    "vim": "Set terminal.editing to vim: `alipes config set terminal.editing vim`.",
    "tree": "/branch continues in a copy, /sessions lists the copies, /rewind goes back to an earlier message.",
    "add-dir": "Add the folder to sandbox.write: `alipes config set sandbox.write FOLDER`.",
    "version": f"alipes {__version__}",
    "hooks": "Hooks are shell commands or plugins: [hooks] in config.toml; /plugins lists what is loaded.",
    "share": "/export FILE.html writes this conversation as a page that you can pass on.",
    "feedback": "Report problems at the project's issue tracker; `alipes doctor` collects the facts.",
    "bug": "Report problems at the project's issue tracker; `alipes doctor` collects the facts.",
}
"""Commands of other agents, and what does the same here. A command of that name takes precedence."""
MAX_NAME_CHARS = 24
"""A longer command in the list of commands gets a line of its own."""
_WORD = re.compile(r"/[^\W\d_][\w:.-]*", re.ASCII)
_PATHS = frozenset(
    (
        *("applications", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "library", "media", "mnt", "nix", "opt"),
        *("private", "proc", "root", "run", "sbin", "snap", "srv", "sys", "system", "tmp", "users", "usr", "var"),
    )
)
"""Folders of a file system: `/tmp is full` is a message."""
_FOOTER = "Keys: /keys, or ? on an empty line. !COMMAND runs a shell command; @FILE attaches a file."


async def _help(context: CommandContext, args: str) -> CommandReply:
    name, known = args.removeprefix("/").lower(), known_commands(context.contributions)
    if not name:
        footer = [_FOOTER] if context.local_files else []
        return CommandReply("\n\n".join([*_grouped(known), *footer]))
    found = next((each for each in known if name in (each.name, *each.aliases)), None)
    if found is None:
        return CommandReply(f"Unknown command /{name}.{suggest_commands(name, known)} See /help.", failed=True)
    return CommandReply(f"{_usage(found)}: {_describe(found)}")


def _grouped(known: tuple[Command, ...]) -> list[str]:
    """The commands in groups, each with its head."""
    groups: dict[str, list[Command]] = {head: [] for head in (*GROUPS, OTHERS, TEMPLATES)}
    for each in sorted(known, key=lambda command: command.place):
        groups[each.group or (TEMPLATES if each.template is not None else OTHERS)].append(each)
    shown = {head: [(f"  {_usage(each)}", _describe(each)) for each in group] for head, group in groups.items()}
    names = [len(name) for rows in shown.values() for name, _ in rows if len(name) <= MAX_NAME_CHARS]
    width = max(names, default=0)
    return [f"{head}\n{format_columns(rows, width=width)}" for head, rows in shown.items() if rows]


def _describe(command: Command) -> str:
    also = ", ".join(f"/{each}" for each in command.aliases)
    return f"{command.help}; also {also}" if also else command.help


async def _quit(_context: CommandContext, _args: str) -> CommandReply:
    return CommandReply(action=Quit())


async def _setup(_context: CommandContext, _args: str) -> CommandReply:
    return CommandReply(action=RunSetup())


COMMANDS = (
    Command("help", "[COMMAND]", "show the commands, or one of them", _help, group="alipes", place=1),
    Command("new", "", "start a new conversation (stops the current turn)", conversation.new, aliases=("clear",),
        group="Conversations", place=1, stops_turn=True, changes_transcript=True, in_order=True),
    Command("stop", "", "stop the current turn", conversation.stop, group="While a turn runs", place=1, stops_turn=True,
        free=True),
    Command("status", "", "show the model, running and queued messages, context and cost", status.status,
        group="Model and cost", place=4),
    Command("model", "[NAME]", "show the model, or choose one for this conversation", status.model,
        group="Model and cost", place=1, opens_list=True, chooses_model=True),
    Command("effort", "[LEVEL]", "show or set how much the model thinks: low, medium, high", status.effort,
        group="Model and cost", place=2),
    Command("compact", "[FOCUS] [--preview]", "compact older messages; FOCUS says what to keep",
        conversation.compress, aliases=("compress",), group="Conversations", place=12, changes_transcript=True),
    Command("retry", "", "retry the last message", conversation.retry, group="Conversations", place=8, run_once=True,
        changes_transcript=True, in_order=True),
    Command("continue", "[NAME]", "continue a stopped or failed turn, or another conversation", rewind.continue_turn,
        group="Conversations", place=4, in_order=True),
    Command("undo", "[N]", "undo the last turn, or the last N", rewind.undo, group="Conversations", place=9,
        run_once=True, changes_transcript=True, in_order=True),
    Command("redo", "", "bring back the turns of the last undo", rewind.redo, group="Conversations", place=10,
        run_once=True, changes_transcript=True, in_order=True),
    Command("rewind", "[N]", "undo the last turn, or the last N, and edit its message again", rewind.rewind,
        group="Conversations", place=11, run_once=True, changes_transcript=True, in_order=True, in_editors=False),
    Command("branch", "[TITLE]", "continue in a copy", conversation.branch, aliases=("fork",), group="Conversations",
        place=5, changes_transcript=True, in_order=True),
    Command("sessions", "[WORDS]", "list conversations, latest first", history.sessions, group="Conversations",
        place=2),
    Command("resume", "NAME", "continue another conversation, by id or title", conversation.resume,
        group="Conversations", place=3, in_order=True, opens_list=True),
    Command("title", "[TEXT]", "show or set the title of this conversation", history.title, aliases=("rename",),
        group="Conversations", place=6),
    Command("search", search.HINT, "search all conversations, or read around a hit", search.search,
        group="Conversations", place=7),
    Command("queue", "[TEXT | send | drop [N]]",
        "send after the current turn finishes; or list, send or drop queued messages", conversation.queue,
        group="While a turn runs", place=2, takes_message=True),
    Command("steer", "TEXT", "send to the running turn at its next step", partial(conversation.submit, mode="steer"),
        group="While a turn runs", place=3, takes_message=True),
    Command("busy", "[MODE]", "interrupt, queue or steer: what a message does while a turn runs", conversation.busy,
        group="While a turn runs", place=4),
    Command("jobs", "[ID | follow ID | stop ID]", "list background jobs; show, follow or stop one", jobs,
        aliases=("ps", "tasks", "bashes"), group="While a turn runs", place=7),
    Command("background", "TEXT", "run this in the background", conversation.background, group="While a turn runs",
        place=6, takes_message=True),
    Command("context", "", "show what fills the context window", window.context_window, group="Model and cost",
        place=6, in_chats=False),
    Command("btw", "QUESTION", "ask something aside; it leaves no trace in the conversation", window.ask_aside,
        group="While a turn runs", place=8),
    Command("moa", "TEXT", "ask several models and combine their answers", conversation.moa, group="Model and cost",
        place=3, takes_message=True),
    Command("copy", "[N]", "copy the last answer, or the Nth last", history.copy, group="Conversations", place=13,
        in_editors=False),
    Command("export", "[FILE] [--force]", "export this conversation as Markdown, .html or .json", history.export,
        group="Conversations", place=14),
    Command("init", "[NOTES]", "write AGENTS.md: notes about this project for agents", project.init, group="Project",
        place=1, in_order=True, owners_only=True),
    Command("review", "[COMMIT | BRANCH]", "review uncommitted changes, a commit or a branch", project.review,
        group="Project", place=3, in_order=True, in_chats=False, owners_only=True),
    Command("diff", "[PATH]", "show uncommitted changes of this folder", project.diff, group="Project", place=2,
        owners_only=True),
    Command("setup", "", "choose a provider and a model", _setup, group="alipes", place=3, in_chats=False,
        in_editors=False),
    Command("plugins", "[ACTION NAME]", "list the plugins; or reload, enable, disable or reset one", status.plugins,
        group="alipes", place=4, owners_only=True),
    Command("approvals", "[show ID | revoke ID | revoke all]", "list what is allowed without asking", approvals,
        group="Permissions", place=3, owners_only=True),
    Command("permissions", "[add PATTERN | revoke ID]", "show or change what is allowed without asking", permissions,
        group="Permissions", place=2, owners_only=True),
    Command("mode", "[ask|edits|plan|all]", "show or set the permission mode", mode, group="Permissions", place=1,
        owners_only=True),
    Command("tools", "[off NAME | on NAME | reset]", "list the tools; switch them off and on here", tools,
        group="Permissions", place=4),
    Command("config", "[KEY]", "show and change settings", settings.config, group="alipes", place=5, opens_list=True,
        in_chats=False, in_editors=False, owners_only=True),
    Command("theme", "[dark | light | auto]", "choose the colours of the terminal", settings.theme, group="alipes",
        place=6, opens_list=True, in_chats=False, in_editors=False),
    Command("keys", "", "show the keys of the terminal", keys, group="alipes", place=2, in_chats=False,
        in_editors=False),
    Command("quit", "", "quit (a running turn resumes next time)", _quit, aliases=("exit", "q"), group="alipes",
        place=7, in_chats=False, in_editors=False, free=True),
)  # fmt: skip


def _usage(command: Command) -> str:
    return f"/{command.name} {command.hint}".rstrip()


def known_commands(offers: Contributions) -> tuple[Command, ...]:
    """All commands: the built-in ones, those of plugins, and templates."""
    ours = tuple(offers.builtin_commands().values())
    plugins = tuple(_plugin_command(each) for each in offers.all(CommandContribution))
    taken = {*(each.name for each in (*ours, *plugins))}
    return (*ours, *plugins, *(_template_command(each) for each in offers.templates() if each.name not in taken))


def parse(text: str, offers: Contributions) -> Parsed | None:
    """The command in `text`; None for a message. An unknown word with a slash is an `UnknownCommand`; a file path
    is a message."""
    head, *rest = text.split(maxsplit=1) or [""]
    if not head.startswith("/"):
        return None
    name, args = head[1:].lower(), rest[0].strip() if rest else ""
    if (command := find_command(name, offers)) is not None:
        return Parsed(command, args)
    if name in OTHER_NAMES and (command := find_command(OTHER_NAMES[name][0], offers)) is not None:
        return Parsed(command, OTHER_NAMES[name][1])
    if not _WORD.fullmatch(head) or name in _PATHS:
        return None
    return unknown_command(name, args, known_commands(offers))


def unknown_command(name: str, args: str, known: Iterable[Command]) -> UnknownCommand:
    sentence = POINTERS.get(name, "")
    failed = not sentence
    if failed:
        sentence = f"Unknown command /{name}.{suggest_commands(name, known) or ' /help lists all commands.'}"

    async def act(_context: CommandContext, _args: str) -> CommandReply:
        return CommandReply(sentence, failed=failed)

    return UnknownCommand(Command(name, "", sentence, act, free=True), args)


def find_command(name: str, offers: Contributions) -> Command | None:
    """The command called `name`: built in, of a plugin, a template, or by an alias."""
    ours: Mapping[str, Command] = offers.builtin_commands()
    if (command := ours.get(name)) is not None:
        return command
    if (offer := offers.find(CommandContribution, name)) is not None:
        return _plugin_command(offer)
    if (plugin := offers.commands_off.get(name)) is not None:
        return _command_of_disabled_plugin(name, plugin)
    if (template := offers.find_template(name)) is not None:
        return _template_command(template)
    return next((each for each in ours.values() if name in each.aliases), None)


def suggest_commands(name: str, known: Iterable[Command]) -> str:
    """` Did you mean /a or /b?`, or an empty string."""
    names = [word for command in known for word in (command.name, *command.aliases)]
    starting = sorted((each for each in names if len(name) > 1 and each.startswith(name)), key=len)
    found = list(dict.fromkeys([*starting, *closest_matches(name, names)]))[:3]
    return f" Did you mean {join_names([f'/{each}' for each in found], 'or')}?" if found else ""


async def expand_message(context: CommandContext) -> Inbound:
    """The message itself, or the one that a template makes of it, where commands are not available. Raises
    `MessageRejected` for a command."""
    parsed = parse(context.inbound.text, context.contributions)
    if parsed is None:
        return context.inbound
    if parsed.command.template is not None:
        return (await templates.fill_inbound(parsed.command.template, parsed.args, context))[0]
    if isinstance(parsed, UnknownCommand):
        raise MessageRejected(parsed.command.help)
    raise MessageRejected(f"/{parsed.command.name} is not available here.")


async def run(context: CommandContext, parsed: Parsed) -> CommandReply:
    """Run it. Errors are returned in the reply; only a store error is raised."""
    command, args, relay = parsed.command, parsed.args, context.services.plugins.hooks.dispatcher
    if args and not command.hint and not command.free:
        return CommandReply(f"/{command.name} takes no arguments.", failed=True)
    if isinstance(parsed, UnknownCommand) or not relay.has_hooks(specs.command_given):
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
    return Command(offer.name, offer.hint, help, act, free=True, plugin=offer.owner.name)


def _command_of_disabled_plugin(name: str, plugin: str) -> Command:
    async def act(_context: CommandContext, _args: str) -> CommandReply:
        how = f"Use /plugins enable {plugin} to load it."
        return CommandReply(f"/{name} belongs to the plugin {plugin}, which is off. {how}", failed=True)

    return Command(name, "", f"from plugin {plugin}, which is off", act, free=True, plugin=plugin)


def _template_command(template: PromptTemplate) -> Command:
    async def act(context: CommandContext, args: str) -> CommandReply:
        return await templates.submit(context, template, args)

    return Command(template.name, template.hint, template.description, act, free=True, in_order=True, template=template)
