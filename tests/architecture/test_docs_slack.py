"""The manifest in docs/slack.md has every chat command. `python -m tests.architecture.test_docs_slack` renews it."""

import json
import re
from pathlib import Path
from typing import Any, cast

from alipes.gateway.commands import ChatCommands
from alipes.sessions.commands.registry import Command
from tests.world.commands import all_commands

PAGE = Path(__file__).parents[2] / "docs" / "slack.md"
BLOCK = re.compile(r"```json\n(\{.*?\n?\})\n```", re.DOTALL)
SCOPES = [
    "channels:history", "channels:read", "chat:write", "commands", "files:read", "files:write",
    "groups:history", "groups:read", "im:history", "im:read", "mpim:history", "mpim:read",
    "reactions:write", "users:read",
]  # fmt: skip
EVENTS = ["message.channels", "message.groups", "message.im", "message.mpim"]
MAX_COMMANDS = 50
"""Slack's limit per app."""


def chat_commands() -> tuple[Command, ...]:
    """Every command that can be given in a chat."""
    unused = cast(Any, None)
    return ChatCommands(unused, unused, unused).known(all_commands())


def manifest() -> dict[str, Any]:
    commands = [("/alipes", "[COMMAND] [WORDS]", "run a command or send a message")]
    commands += [(f"/alipes-{each.name}", each.hint, each.help) for each in chat_commands()]
    return {
        "display_information": {"name": "alipes", "description": "Your personal AI agent"},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": "alipes", "always_online": True},
            "slash_commands": [_command(*each) for each in commands],
        },
        "oauth_config": {"scopes": {"bot": SCOPES}},
        "settings": {
            "event_subscriptions": {"bot_events": EVENTS},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }


def _command(name: str, hint: str, about: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"command": name, "description": about, "should_escape": False}
    return {**entry, "usage_hint": hint} if hint else entry


def to_json(manifest: dict[str, Any]) -> str:
    """One line per command."""
    text = json.dumps(manifest, indent=2)
    inside = re.compile(r"\{\n\s+\"command\".*?\}", re.DOTALL)
    return inside.sub(lambda found: json.dumps(json.loads(found[0])), text)


def test_the_manifest_has_every_command_and_nothing_unused():
    found = BLOCK.search(PAGE.read_text())
    assert found and json.loads(found[1]) == manifest(), "run: python -m tests.architecture.test_docs_slack"


def test_slack_accepts_the_manifest():
    commands = manifest()["features"]["slash_commands"]
    assert len(commands) <= MAX_COMMANDS
    for each in commands:
        assert re.fullmatch(r"/[a-z0-9_-]{1,31}", each["command"])
        assert 0 < len(each["description"]) <= 2000 and len(each.get("usage_hint", "")) <= 1000


def renew() -> None:
    PAGE.write_text(BLOCK.sub(lambda _: f"```json\n{to_json(manifest())}\n```", PAGE.read_text()))


if __name__ == "__main__":
    renew()
