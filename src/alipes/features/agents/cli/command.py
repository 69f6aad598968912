"""`alipes agents`: manages other agents, tries them, and runs their logins."""

import argparse
import shutil
from importlib import import_module

from msgspec import Struct

from alipes.config.editor import change
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console.common import confirm, print_list
from alipes.console.options import OptionParser, print_config_errors
from alipes.features.agents.cli.help import AGENTS
from alipes.features.agents.launch import find_command
from alipes.features.agents.presets import PRESETS
from alipes.features.agents.settings import AgentConfig
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json

NONE = "No agents."


class ListedAgent(Struct, frozen=True):
    name: str
    state: str
    """`ready`, `not installed` or `can be added`."""
    command: str
    install: str = ""


class AgentArguments(Struct, frozen=True):
    """What an action was given."""

    options: argparse.Namespace
    words: list[str]
    """After the name of the action."""
    command: list[str]
    """After `--`."""
    parser: OptionParser

    def name(self) -> str:
        """The one NAME that the action takes."""
        if len(self.words) != 1:
            self.parser.error("this action takes one NAME")
        return self.words[0]


@print_config_errors
def run(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    parser = OptionParser("alipes agents", AGENTS)
    options, words = parser.parse_with_words(argv[:end])
    action, *rest = words or ["list"]
    act = ACTIONS.get(action)
    if act is None:
        parser.error(f"unknown action: {action} (use {', '.join(ACTIONS)})")
    return act(AgentArguments(options, rest, argv[end + 1 :], parser))


def find_agent(settings: Settings, name: str) -> AgentConfig:
    """Raises `ConfigError`."""
    if name not in settings.agents:
        raise ConfigError(
            f"There is no agent {name}.{did_you_mean(name, settings.agents)} Add it with `alipes agents add`."
        )
    return settings.agents[name]


def _list(given: AgentArguments) -> int:
    found = list_agents(load_settings())
    rows = [(each.name, each.state, each.command, each.install) for each in found]
    print_list(found, ("NAME", "STATE", "COMMAND", "INSTALL WITH"), rows, json=given.options.json, empty=NONE)
    return 0


def list_agents(settings: Settings) -> list[ListedAgent]:
    """The configured ones, then presets."""
    found = []
    for name in dict.fromkeys((*settings.agents, *PRESETS)):
        command = find_command(name, settings.agents.get(name, AgentConfig()))
        ready = "ready" if command.path else "not installed"
        install = "" if command.path else command.preset.install
        state = ready if name in settings.agents else "can be added"
        found.append(ListedAgent(name, state, command.line, install))
    return found


def _add(given: AgentArguments) -> int:
    settings, name = load_settings(), given.name()
    if name in settings.agents:
        raise ConfigError(f"There is an agent {name} already. Remove it first with `alipes agents remove {name}`.")
    if not given.command and name not in PRESETS:
        raise ConfigError(f"{name} is not known ({', '.join(PRESETS)}): give its command after --.")
    command, *args = given.command or [PRESETS[name].command]
    env = dict(_parse_pair(given, text) for text in given.options.env)
    fields: dict[str, Json] = {"command": command, "args": [*args], "env": {**env}, "mode": given.options.mode}
    change({("agents", name, field): value for field, value in fields.items() if value}, home=settings.home)
    print(f"Added {name}. Log in with `alipes agents login {name}`, then try it with `alipes agents test {name}`.")
    found = find_command(name, AgentConfig(command=command))
    if not found.path:
        print(
            f"Its program {command} was not found."
            + (f" Install it: {install}" if (install := found.preset.install) else "")
        )
    return 0


def _parse_pair(given: AgentArguments, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        given.parser.error("--env takes NAME=TEXT or NAME")
    return name, value if equals else f"${{{name}}}"


def _remove(given: AgentArguments) -> int:
    settings, name = load_settings(), given.name()
    find_agent(settings, name)
    folder = settings.home / "agents" / name
    question = f"Remove {name} with its login and its sessions ({folder})?"
    if folder.exists() and not given.options.yes and not confirm(question, "remove it"):
        return 1
    change({("agents", name): None}, home=settings.home)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Removed {name}.")
    return 0


def _test(given: AgentArguments) -> int:
    settings, name = load_settings(), given.name()
    find_agent(settings, name)
    run_test = import_module("alipes.features.agents.cli.connect").run_test
    status: int = run_test(settings, name, json=given.options.json)
    return status


def _login(given: AgentArguments) -> int:
    settings, name = load_settings(), given.name()
    find_agent(settings, name)
    run_login = import_module("alipes.features.agents.cli.connect").run_login
    status: int = run_login(settings, name, tuple(given.command))
    return status


ACTIONS = {"list": _list, "add": _add, "test": _test, "login": _login, "remove": _remove}
