"""Stops a tool at random points of its call, in a whole app with real servers and processes, and lists what is left."""

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Container, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

from alipes.kernel.turns import Event, ToolStarted
from alipes.testing import call, open_agent
from alipes.testing.agent import Conversation
from alipes.testing.leaks import LeakCheck, command_line, describe_task
from tests.world.documents import make_pdf
from tests.world.environment import LIMIT_S
from tests.world.mcp_harness import world_table
from tests.world.wait import until
from tests.world.web_site import ARTICLE, WebSite, open_web_site

SPANS_S = (0.02, 0.3)
"""A stop comes within one of these times after the start of the turn, or of the call."""
PAUSE_S = 0.02
KEPT_BY_DESIGN = ("convert_child.py", "mcp_server.py", "playwright", "chromium", "chrome", "trap '' HUP INT TERM")
"""Processes that serve later calls, and the guard of orphans: they stay until the app is closed."""
COMMAND = "setsid sleep 300.{mark} & (trap '' TERM; sleep 300.{mark}; sleep 300.{mark}) & sleep 300.{mark}"
CALLS: dict[str, dict[str, Any]] = {
    "terminal": {"command": COMMAND},
    "execute_code": {"code": "import subprocess\nsubprocess.run(['sleep', '300.{mark}'])"},
    "read_file": {"path": "paper.pdf"},
    "search_files": {"pattern": "nowhere to be found"},
    "write_file": {"path": "note.txt", "content": "text"},
    "patch": {
        "mode": "replace",
        "path": "words-1.txt",
        "old_string": "and",
        "new_string": "and {mark}",
        "replace_all": True,
    },
    "delegate_task": {"goal": "run it"},
    "vision_analyze": {"image_url": "{site}/slow", "question": "What is it?"},
    "web_search": {"query": "larks"},
    "web_extract": {"urls": ["{site}/slow", "{site}/", "{site}/large", "{site}/paper.pdf"]},
    "mcp__world__wait": {"seconds": 600},
    "browser_navigate": {"url": "{site}/slow"},
    "browser_download": {"url": "{site}/slow"},
}
"""By tool, a call that lasts, or that starts other processes."""
OTHERS = {
    "process": "acts on commands in the background, which survive a stop by design",
    "mixture_of_agents": "bench/auxiliary_rounds.py",
    "image_generate": "bench/auxiliary_rounds.py",
    "todo": "starts nothing",
    "clarify": "waits for a person: tests/unit/sessions",
    "send_file": "starts nothing",
    "cronjob": "starts nothing",
    "memory": "starts nothing",
    "session_search": "its reads are interrupted: tests/unit/store/test_search.py",
    **dict.fromkeys(("skills_list", "skill_view", "skill_manage"), "starts nothing"),
}
"""Tools without a case, and why."""


class StoppedTool(Struct, frozen=True):
    """What was left after the stops of a tool."""

    left: tuple[str, ...]
    stopped: int
    """Turns that ended as stopped; the others had ended before."""
    started: int
    """Turns whose call had started."""
    slowest_s: float
    """The longest time from a stop to the end of the turn."""


def find_obstacle(tool: str) -> str:
    """Why a tool cannot be tried on this machine; empty if it can."""
    if not tool.startswith("browser_"):
        return ""
    if find_spec("playwright") is None:
        return "playwright is not installed (make test)"
    return "" if shutil.which("chromium") else "chromium is not installed (make services)"


async def stop_tool(tool: str, folder: Path, *, points: int, seed: int = 17) -> StoppedTool:
    """Stop `points` calls of the tool, each at a random point, and answer a message after each."""
    rng, check, slowest = random.Random(f"{tool} {seed}"), LeakCheck(within=LIMIT_S), 0.0
    stopped = started = 0
    async with open_web_site() as site:
        await asyncio.to_thread(_prepare, folder / "work", site)
        check.begin()
        shared = frozenset(find_descendants(os.getpid()))  # servers of other tests
        async with _open_app(folder, site, tool) as agent:
            await _run_and_stop(agent, site, _Point("0", max(SPANS_S), after_start=True), tool)
            before = len(asyncio.all_tasks())
            for number in range(points):
                mark = f"{rng.randrange(10**9):09d}{os.getpid():07d}"
                point = _Point(mark, rng.uniform(0, rng.choice(SPANS_S)), after_start=number % 2 == 0)
                ending, was_started, seconds = await _run_and_stop(agent, site, point, tool)
                stopped, started = stopped + (ending == "stopped"), started + was_started
                slowest = max(slowest, seconds)
            left = await _settle(site, before, shared)
        try:
            await check.settle()
        except AssertionError as error:
            left = (*left, str(error))
    return StoppedTool(left, stopped, started, slowest)


class _Point(Struct, frozen=True):
    mark: str
    after_s: float
    after_start: bool
    """The time counts from the start of the call, not of the turn."""


async def _run_and_stop(agent: Conversation, site: WebSite, point: _Point, tool: str) -> tuple[str, bool, float]:
    """The ending of the turn, whether its call had started, and the seconds that the stop took."""
    nested = [call("terminal", **_fill(CALLS["terminal"], point.mark, site))] if tool == "delegate_task" else []
    agent.model.set_script(call(tool, **_fill(CALLS[tool], point.mark, site)), *nested, "done", "done")
    pending = await agent.start("go", workdir=str(agent.workdir))
    if point.after_start:
        await until(lambda: pending.ended.is_set() or _has_started(pending.events))
    with suppress(TimeoutError):
        async with asyncio.timeout(point.after_s):
            await pending.ended.wait()
    began = time.perf_counter()
    if not pending.ended.is_set():
        await agent.stop()
    reply = await pending.reply()
    seconds = time.perf_counter() - began
    agent.model.set_script("fine")
    after = await agent.say("and now?")
    assert after.ending == "answered", f"the message after a stop of {tool} ended as {after.ending}"
    return reply.ending, _has_started(reply.events), seconds


def _has_started(events: Iterable[Event]) -> bool:
    return any(isinstance(event, ToolStarted) for event in events)


def _fill(given: Any, mark: str, site: WebSite) -> Any:
    """The arguments with the addresses and names of this run."""
    match given:
        case str():
            return given.replace("{mark}", mark).replace("{site}", site.url(""))
        case dict():
            return {name: _fill(value, mark, site) for name, value in given.items()}
        case list():
            return [_fill(value, mark, site) for value in given]
    return given


def _prepare(work: Path, site: WebSite) -> None:
    """A project, and a site with pages that never arrive."""
    work.mkdir(parents=True)
    for number in range(200):
        (work / f"words-{number}.txt").write_text(f"word {number} and others\n" * 50)
    paper = make_pdf(*("text" * 50 for _ in range(300)))
    (work / "paper.pdf").write_bytes(paper)
    large = ("text/html", ARTICLE.encode() * 40)
    site.pages |= {"/slow": site.hold, "/search": site.hold, "/large": large, "/paper.pdf": ("application/pdf", paper)}


@asynccontextmanager
async def _open_app(folder: Path, site: WebSite, tool: str) -> AsyncIterator[Conversation]:
    config: dict[str, Any] = {
        "checkpoints": {"enabled": True},
        "fetch": {"allow": [site.place]},
        "egress": {"allow": ["127.0.0.1"]},
        "web": {"delay": 0.0, "parallel": 8, "cache": 0.0, "searxng_url": site.url("")},
    }
    if tool.startswith("mcp__"):
        config["mcp"] = {"wait": LIMIT_S, "servers": {"world": world_table(folder / "server", start_timeout=LIMIT_S)}}
    if tool.startswith("browser_"):
        config["browser"] = {"enabled": True}
    async with open_agent(home=folder / "home", model=[], config=config, person="trusts") as agent:
        agent.workdir = folder / "work"
        yield agent


async def _settle(site: WebSite, tasks: int, shared: frozenset[int]) -> tuple[str, ...]:
    """What of the stopped calls is still there after the time limit."""
    left: tuple[str, ...] = ("not looked yet",)
    with suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_S):
            while left := tuple(_find_left(site, tasks, shared)):
                await asyncio.sleep(PAUSE_S)
    return left


def _find_left(site: WebSite, tasks: int, shared: frozenset[int]) -> Iterator[str]:
    for pid in find_descendants(os.getpid(), shared):
        line = command_line(str(pid))
        if line and not any(name in line for name in KEPT_BY_DESIGN):
            yield f"process {pid}: {line}"
    if site.running:
        yield f"{site.running} requests of the web site"
    if len(running := asyncio.all_tasks()) > tasks:
        yield from (f"task {describe_task(task)}" for task in running)


def find_descendants(pid: int, left_out: Container[int] = ()) -> Iterator[int]:
    """All descendants of a process at this moment, except those in `left_out` and their own."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                if child not in left_out:
                    yield child
                    yield from find_descendants(child, left_out)
