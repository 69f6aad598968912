"""The manifest in docs/slack.md has every command that can be given in a chat. `python -m tests.architecture.test_docs_slack`
writes it."""

import json
import re
from pathlib import Path
from typing import Any, cast

from alipes.gateway.commands import ChatCommands, Desk

PAGE = Path(__file__).parents[2] / "docs" / "slack.md"
BLOCK = re.compile(r"```json\n(\{.*?\n?\})\n```", re.DOTALL)
SCOPES = [
    "channels:history", "channels:read", "chat:write", "commands", "files:read", "files:write",
    "groups:history", "groups:read", "im:history", "im:read", "mpim:history", "mpim:read",
    "reactions:write", "users:read",
]  # fmt: skip
EVENTS = ["message.channels", "message.groups", "message.im", "message.mpim"]
MOST = 50
"""Commands that Slack lets an app have."""


def manifest() -> dict[str, Any]:
    known = ChatCommands(cast(Desk, None)).known()
    commands = [("/alipes", "[COMMAND] [WORDS]", "give a command, or say something")]
    commands += [(f"/alipes-{each.name}", each.hint, each.help) for each in known]
    return {
        "display_information": {"name": "alipes", "description": "An agent that answers you here"},
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
    told: dict[str, Any] = {"command": name, "description": about, "should_escape": False}
    return {**told, "usage_hint": hint} if hint else told


def written(told: dict[str, Any]) -> str:
    """As JSON, with one line per command."""
    text = json.dumps(told, indent=2)
    inside = re.compile(r"\{\n\s+\"command\".*?\}", re.DOTALL)
    return inside.sub(lambda found: json.dumps(json.loads(found[0])), text)


def test_the_manifest_has_every_command_and_nothing_that_we_do_not_use():
    found = BLOCK.search(PAGE.read_text())
    assert found and json.loads(found[1]) == manifest(), "run: python -m tests.architecture.test_docs_slack"


def test_slack_takes_the_manifest():
    commands = manifest()["features"]["slash_commands"]
    assert len(commands) <= MOST
    for each in commands:
        assert re.fullmatch(r"/[a-z0-9_-]{1,31}", each["command"])
        assert 0 < len(each["description"]) <= 2000 and len(each.get("usage_hint", "")) <= 1000


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda _: f"```json\n{written(manifest())}\n```", PAGE.read_text()))
