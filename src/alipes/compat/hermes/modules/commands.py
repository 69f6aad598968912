"""`hermes_cli.commands`: our slash commands as Hermes plugins look them up, for menus of messengers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from alipes.compat.hermes.modules.current_app import bridge, is_bound
from alipes.plugins.registry import CommandContribution
from alipes.sessions.commands.registry import COMMANDS, Command

MENU_SIZE = 60
"""Commands in a messenger's menu."""
_NOT_IN_CHATS = ("quit", "copy", "export", "setup", "keys")


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
    here = command.name in _NOT_IN_CHATS
    return CommandDef(command.name, command.help, aliases=command.aliases, args_hint=command.hint, cli_only=here)


COMMAND_REGISTRY: list[CommandDef] = [_definition(command) for command in COMMANDS]
GATEWAY_KNOWN_COMMANDS = frozenset(each.name for each in COMMAND_REGISTRY if not each.cli_only)


def resolve_command(name: str) -> CommandDef | None:
    name = (name or "").lower().lstrip("/")
    return next((each for each in COMMAND_REGISTRY if name in (each.name, *each.aliases)), None)


def is_gateway_known_command(name: str | None) -> bool:
    """True for our commands and those of plugins."""
    word = (name or "").lower().lstrip("/")
    return word in GATEWAY_KNOWN_COMMANDS or any(each == word for each, _, _ in iter_plugin_command_entries())


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
    known = [(each.name, each.description) for each in COMMAND_REGISTRY if not each.cli_only]
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
    known = [(each.name, each.description, each.args_hint) for each in COMMAND_REGISTRY if not each.cli_only]
    return [*known, *iter_plugin_command_entries()]


def slack_subcommand_map() -> dict[str, str]:
    return {name: f"/{name}" for name, _, _ in slack_native_slashes()}


def get_skill_commands() -> dict[str, dict[str, Any]]:
    """None: plugins of Hermes need not know the commands of skills."""
    return {}
