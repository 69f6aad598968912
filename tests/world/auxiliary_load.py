"""Rounds of side work in a real app on real sockets: looking, drawing, mixing, delegating, computing; some fail,
some are stopped at random moments. What is left afterwards is counted here, and judged by who asked."""

import asyncio
import base64
import gc
import io
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import PIL.Image
from msgspec import Struct

from alipes.agent.model_call import RetryPolicy
from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.core.app import App
from alipes.kernel.turns import Address, Inbound, Stop, TurnEnded
from tests.world import model_validation as rules
from tests.world.model_http import Connection, HttpRequest
from tests.world.model_server import Call, Calls, Fail, ModelServer, Reply, Say

KINDS = ("look", "draw", "mix", "delegate", "compute")
API = "openai-chat"
CHATS = 4
"""Conversations that all rounds use: an idle one stays in memory for a while."""


def picture() -> bytes:
    file = io.BytesIO()
    PIL.Image.new("RGB", (16, 8), "red").save(file, "PNG")
    return file.getvalue()


class ScriptedModels(ModelServer):
    """A model that calls the tool named by the user, and draws images."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._answer)
        self._dice = random.Random(seed)

    def _answer(self, body: dict[str, Any]) -> Reply:
        said, words = rules.since_user(API, body)
        self.requests.clear()  # long-lived
        wait = self._dice.random() * 0.004
        if self._dice.random() < 0.05:
            return Fail(500, "a bad day")
        call = None if said else CALLS.get(words.partition(" ")[0])
        return Calls((call,), "") if call else Say("well", pieces=3, delay=wait)

    async def serve(self, connection: Connection, request: HttpRequest) -> None:
        if "/images/" not in request.path:
            await super().serve(connection, request)
        elif self._dice.random() < 0.2:
            connection.whole(500, b"{}")
        else:
            await asyncio.sleep(self._dice.random() * 0.01)
            drawn = {"data": [{"b64_json": base64.b64encode(picture()).decode()}]}
            connection.whole(200, msgspec.json.encode(drawn))


CALLS = {
    "look": Call("vision_analyze", {"path": "a.png", "question": "what is it?"}),
    "draw": Call("image_generate", {"prompt": "a house", "aspect_ratio": "square"}),
    "mix": Call("mixture_of_agents", {"prompt": "why?", "models": ["mine/a", "mine/b", "mine/c"]}),
    "delegate": Call("delegate_task", {"tasks": [{"goal": "say well"}, {"goal": "look twice"}]}),
    "compute": Call("execute_code", {"code": "print(len(read_file('words')))"}),
}


class Leftover(Struct):
    """Object counts before and after."""

    before: dict[str, Any]
    after: dict[str, Any]
    endings: dict[str, int]
    complaints: list[str]
    pools: list[str]
    """The names of open clients."""


@asynccontextmanager
async def open_app_and_models(folder: Path, seed: int) -> AsyncIterator[App]:
    async with ScriptedModels(seed) as studio:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a.png").write_bytes(picture())
        (folder / "words").write_text("some words")
        home = folder / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(
            f'model = "mine/m"\nworkdir = "{folder}"\n'
            f'[providers.mine]\napi = "{API}"\nbase_url = "{studio.url(API)}"\n'
            '[models."mine/m"]\nvision = false\n'
            '[auxiliary.vision]\nmodel = "mine/eye"\n'
            '[images]\nmodel = "mine/brush"\n'
        )
        patience = RetryPolicy(sleep=lambda seconds: asyncio.sleep(seconds / 100))
        async with open_app(load_settings(home, {}), interactive=True, retry=patience) as app:
            yield app


async def run_rounds(
    folder: Path, *, rounds: int, seed: int, kinds: tuple[str, ...] = KINDS, stops: float = 0.4
) -> Leftover:
    """`stops`: how many of the rounds are stopped at a random moment."""
    dice, endings, complaints = random.Random(seed), dict[str, int](), list[str]()
    ear = _LogRecorder(complaints)
    logging.getLogger().addHandler(ear)
    try:
        async with open_app_and_models(folder, seed) as app:
            for number in range(5):  # load and connect everything once
                await _round(app, folder, f"warm{number}", kinds[number % len(kinds)], -1.0, endings)
            await app.sessions.wait_idle()
            before = await _settled({**_count_objects(), "tasks": []}, 20)
            for number in range(rounds):
                wait = dice.random() * 0.06 if dice.random() < stops else -1.0
                await _round(app, folder, f"r{number}", dice.choice(kinds), wait, endings)
                if number % 20 == 0:
                    gc.collect()
            await app.sessions.wait_idle()
            after = await _settled(before)
            pools = [each.name for each in app.scope.open_clients()]
    finally:
        logging.getLogger().removeHandler(ear)
    return Leftover(before, after, endings, complaints, pools)


async def _round(app: App, folder: Path, name: str, kind: str, wait: float, endings: dict[str, int]) -> None:
    place = Address("test", f"chat {sum(name.encode()) % CHATS}")
    inbound = Inbound(name, place, "me", kind, workdir=str(folder), trusted=True)
    async with app.sessions.ask(inbound) as following, asyncio.TaskGroup() as group:
        if wait >= 0:
            group.create_task(_stop(app, place, wait))
        async for event in following:
            if isinstance(event, TurnEnded):
                endings[event.ending] = endings.get(event.ending, 0) + 1


async def _stop(app: App, place: Address, wait: float) -> None:
    await asyncio.sleep(wait)
    await app.sessions.post(place.key, Stop("user_stop", "session_interrupt"))


class _LogRecorder(logging.Handler):
    """Warnings and errors in the log."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        self._complaints.append(record.getMessage())


def _count_objects() -> dict[str, Any]:
    gc.collect()
    lists = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    names = (task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task())
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "tasks": sorted(name for name in names if not name.startswith("Task-")),
        "children": sorted(pid for each in lists for pid in each),
    }


def at_baseline(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """No more children or tasks than before, and at most two more files (idle connections)."""
    more = [Counter(after[kind]) - Counter(before[kind]) for kind in ("children", "tasks")]
    return not any(more) and after["fds"] <= before["fds"] + 2


async def _settled(before: dict[str, Any], looks: int = 200) -> dict[str, Any]:
    """The counts once they are no higher than before, or after a time limit."""
    for _ in range(looks):
        after = _count_objects()
        if at_baseline(before, after):
            return after
        await asyncio.sleep(0.02)
    return after
