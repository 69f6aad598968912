"""The shell commands: what a process of the agent may run, and that each has its function and its help."""

from importlib import import_module

import pytest

from alipes.cli.commands.help_index import read_help
from alipes.cli.main import list_commands
from alipes.features.feature import CliCommand

COMMANDS = {command.name: command for command in list_commands()}
OPEN = {"ask", "doctor", "man", "usage"}
"""The agent may run them with any words."""
OPEN_WITHOUT_WORDS = {*OPEN, "agents", "completion", "config", "mcp", "model", "plugins", "schedule", "skills"}
"""Without words, they show something or say how they are used."""


def test_no_name_is_taken_twice():
    assert len(COMMANDS) == len(list_commands())


def test_every_command_without_words_is_refused_to_the_agent_unless_it_is_listed():
    assert {name for name, command in COMMANDS.items() if not command.is_for_people([])} == OPEN_WITHOUT_WORDS


def test_every_command_with_unknown_words_is_refused_to_the_agent_unless_it_is_listed():
    assert {name for name, command in COMMANDS.items() if not command.is_for_people(["other"])} == OPEN
    assert {name for name, command in COMMANDS.items() if not command.is_for_people(["--other"])} == OPEN


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_agent_may_read_every_help(option):
    assert not any(command.is_for_people([option]) for command in COMMANDS.values())


def test_a_model_is_switched_by_a_person_only():
    assert not COMMANDS["model"].is_for_people(["--live", "--all"])
    assert COMMANDS["model"].is_for_people(["--live", "ollama/other"])


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_has_its_function_and_its_help(command: CliCommand):
    assert callable(getattr(import_module(command.module), command.function))
    assert read_help(command).startswith(f"usage: alipes {command.name}")
