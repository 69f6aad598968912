"""A home for the real program, with a model and a messenger on loopback, a plugin and a key; and an API client."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.e2e.program import Home
from tests.e2e.service import ServeProcess, open_serve
from tests.world.api_harness import ApiClient
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer
from tests.world.plugin_sources import native
from tests.world.telegram_server import TelegramServer

PLUGIN = "trial"


def write_home(
    home: Home,
    model: ModelServer,
    telegram: TelegramServer | None = None,
    *,
    plugin: str = "",
    lines: tuple[str, ...] = (),
    **messenger: object,
) -> None:
    """`plugin`: source code. `lines`: the first lines of config.toml. `messenger`: more keys of `[telegram]`."""
    home.path.mkdir(exist_ok=True, mode=0o700)
    text = ['model = "test/scripted"', f"api.rate = {0}", *lines]
    text += ["[providers.test]", 'api = "openai-chat"', f'base_url = "{model.url("openai-chat")}"']
    secrets = ["ALIPES_API_KEY=key-ann-0123456789abcdef"]
    if telegram is not None:
        said = {"poll": 2, "allow": '["*"]', "busy": '"queue"', **messenger}
        text += ["[telegram]", f'base_url = "{telegram.url}"', *(f"{key} = {said[key]}" for key in said)]
        secrets.append(f"TELEGRAM_BOT_TOKEN={telegram.token}")
    if plugin:
        native(home.path / "plugins" / PLUGIN, PLUGIN, code=plugin)
        text += ["[plugins]", f'enabled = ["{PLUGIN}"]']
    (home.path / "config.toml").write_text("\n".join(text) + "\n")
    (home.path / ".env").write_text("\n".join(secrets) + "\n")
    (home.path / ".env").chmod(0o600)


@asynccontextmanager
async def open_service(home: Home, **environment: str) -> AsyncIterator[tuple[ServeProcess, ApiClient]]:
    """The service, and an API client with the operator's key."""
    async with open_serve(home, **environment) as served, open_client(served) as api:
        yield served, api


@asynccontextmanager
async def open_client(served: ServeProcess) -> AsyncIterator[ApiClient]:
    async with httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=LIMIT_S) as client:
        yield ApiClient(client)


def bot_texts(telegram: TelegramServer, chat: int) -> list[str]:
    """The messages of the bot in the chat, from top to bottom."""
    return [kept.text for kept in telegram.chats.mine(chat)]


def last_user_text(body: dict[str, Any]) -> str:
    """The last message of a person in a request."""
    seen = [each["content"] for each in body["messages"] if each["role"] == "user"]
    said = [str(each) for each in seen if not str(each).startswith("<notice>")]
    return said[-1] if said else ""


def open_files(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def logged_errors(home: Home) -> list[str]:
    """Error lines of the log."""
    log = (home.path / "logs" / "alipes.log").read_text()
    return [each for each in log.splitlines() if '"level":"error"' in each or "is closed" in each]
