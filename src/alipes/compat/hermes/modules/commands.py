"""`hermes_cli.commands`: our slash commands as Hermes plugins look them up, for menus of messengers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from alipes.compat.hermes.modules.current_app import bridge, is_bound
from alipes.plugins.registry import CommandContribution
from alipes.sessions.commands.registry import COMMANDS, Command

MENU_SIZE = 60
"""Commands in a messenger's menu."""


@dataclass(frozen=True)
class CommandDef:
    """One slash command."""

    name: str
    description: str
    category: str = "Session"
    aliases: tuple[str, ...] = ()
    args_hint: str = ""
    subcommands: tuple[str, ...] = ()
    cli_only: bool = False
    gateway_only: bool = False
    gateway_config_gate: str | None = None


def _definition(command: Command) -> CommandDef:
    here = not command.in_chats
    return CommandDef(command.name, command.help, aliases=command.aliases, args_hint=command.hint, cli_only=here)


def find_constant(name: str) -> Any:
    """`COMMAND_REGISTRY` and `GATEWAY_KNOWN_COMMANDS`, with the commands of the features of the open app."""
    match name:
        case "COMMAND_REGISTRY":
            return _registry()
        case "GATEWAY_KNOWN_COMMANDS":
            return frozenset(each.name for each in _registry() if not each.cli_only)
    raise AttributeError(name)


def _registry() -> list[CommandDef]:
    try:
        known: Iterable[Command] = bridge().contributions().builtin_commands().values()
    except RuntimeError:  # no plugin is open
        known = COMMANDS
    return [_definition(command) for command in known]


def resolve_command(name: str) -> CommandDef | None:
    name = (name or "").lower().lstrip("/")
    return next((each for each in _registry() if name in (each.name, *each.aliases)), None)


def is_gateway_known_command(name: str | None) -> bool:
    """True for our commands and those of plugins."""
    word = (name or "").lower().lstrip("/")
    known = find_constant("GATEWAY_KNOWN_COMMANDS")
    return word in known or any(each == word for each, _, _ in iter_plugin_command_entries())


def should_bypass_active_session(command_name: str | None) -> bool:
    """All commands are answered while a turn runs."""
    return is_gateway_known_command(command_name)


def iter_plugin_command_entries() -> Iterator[tuple[str, str, str]]:
    """Name, description and arguments of each plugin command."""
    for each in bridge().contributions().all(CommandContribution) if is_bound() else ():
        yield each.name, each.help, each.hint


def resolve_config_gates() -> set[str]:
    return set()


def is_gateway_available(cmd: CommandDef, config_overrides: Any = None) -> bool:
    return not cmd.cli_only


def telegram_bot_commands() -> list[tuple[str, str]]:
    known = [(each.name, each.description) for each in _registry() if not each.cli_only]
    listed = known + [(name, text or name) for name, text, _ in iter_plugin_command_entries()]
    return [(name.replace("-", "_"), text[:256]) for name, text in listed]


def telegram_menu_max_commands() -> int:
    return MENU_SIZE


def telegram_menu_commands(max_commands: int = 100) -> tuple[list[tuple[str, str]], int]:
    """The commands of the menu, and how many did not fit."""
    listed = telegram_bot_commands()
    return listed[:max_commands], max(len(listed) - max_commands, 0)


def discord_skill_commands(*_given: Any, **_more: Any) -> tuple[list[tuple[str, str, str]], int]:
    return [], 0


def discord_skill_commands_by_category(*_given: Any, **_more: Any) -> tuple[dict[str, Any], list[Any], int]:
    """None: plugins of Hermes need not know the commands of skills."""
    return {}, [], 0


def slack_native_slashes() -> list[tuple[str, str, str]]:
    known = [(each.name, each.description, each.args_hint) for each in _registry() if not each.cli_only]
    return [*known, *iter_plugin_command_entries()]


def slack_subcommand_map() -> dict[str, str]:
    return {name: f"/{name}" for name, _, _ in slack_native_slashes()}


def get_skill_commands() -> dict[str, dict[str, Any]]:
    """None: plugins of Hermes need not know the commands of skills."""
    return {}
