"""Everyday tasks succeed in the sandbox through the real tools, with at most one question each.

They run in one conversation, before the first test; a table at the end shows the result of each.
"""

import asyncio
import functools
import http.server
import os
import pwd
import re
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from alipes.kernel.turns import ApprovalAsked, ToolFinished
from alipes.testing import open_agent
from alipes.testing.agent import Conversation
from alipes.testing.scripted_model import call
from alipes.tools import backends
from tests.e2e.everyday_tasks import INDEX, INDEX_HOST, TASKS, Step, Task
from tests.world.breach_world import find_own_address
from tests.world.environment import require
from tests.world.sandboxes import scratch_removed

RESULT = "everyday task"
NAMES = [task.name for task in TASKS]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
GIT_CONFIG = "[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n"


class Outcome(NamedTuple):
    questions: int
    problem: str = ""
    missing: str = ""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Outcome]]:
    require("bwrap")
    folder = tmp_path_factory.mktemp("everyday")
    with pytest.MonkeyPatch.context() as patch, open_index(folder / "index") as index:
        home = folder / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(GIT_CONFIG)
        patch.setenv("HOME", str(home))
        patch.delenv("GIT_CONFIG_GLOBAL")
        patch.setenv("PATH", ":".join([*(f"{folder}/bin" for folder in find_toolchains()), SYSTEM_PATH]))
        patch.setattr(backends, "SANDBOXES", ("bubblewrap",))
        patch.chdir(folder)
        yield asyncio.run(run_all(home, index))


def find_toolchains() -> list[str]:
    """Python and Rust, wherever they are: the home of the test is not that of the user."""
    rust = Path(pwd.getpwuid(os.getuid()).pw_dir).glob(".rustup/toolchains/stable-*")
    return [sys.base_prefix, *sorted(map(str, rust))[:1]]


async def run_all(home: Path, index: str) -> Mapping[str, Outcome]:
    place = urlsplit(index).netloc
    config = {"sandbox": {"backend": "sandbox", "read": find_toolchains()}, "fetch": {"allow": [place]}}
    alipes_home = home / ".alipes"
    async with scratch_removed(alipes_home), open_agent(home=alipes_home, person="once", config=config) as agent:
        return {task.name: await run_task(agent, task, index) for task in TASKS}


async def run_task(agent: Conversation, task: Task, index: str) -> Outcome:
    missing = [program for program in task.needs if shutil.which(program) is None]
    if missing:
        return Outcome(0, missing=missing[0])
    folder = agent.workdir / f"task-{NAMES.index(task.name)}"
    folder.mkdir()
    questions, last, host = 0, "", urlsplit(index).hostname
    assert host is not None
    for step in task.steps:
        step = step._replace(
            command=step.command.replace(INDEX, index).replace(INDEX_HOST, host),
            process=step.process.replace("LAST", last),
        )
        name, arguments = step.arguments(str(folder))
        agent.model.set_script(call(name, **arguments), "done")
        reply = await agent.say(task.name)
        questions += len(reply.of(ApprovalAsked))
        output = "".join(finished.result.text for finished in reply.of(ToolFinished)) or repr(reply)
        if problem := find_problem(step, output):
            return Outcome(questions, problem)
        last = next(iter(re.findall(r"\[(p\d+) is running", output)), last)
    if task.makes and not os.path.lexists(folder / task.makes):
        return Outcome(questions, f"{task.makes} does not exist")
    return Outcome(questions)


def find_problem(step: Step, output: str) -> str:
    foreground = not step.background and not step.process
    failed = foreground and "[exit code 0" not in output
    return f"{step}\n{output}" if failed or step.shows not in output else ""


@contextmanager
def open_index(folder: Path) -> Iterator[str]:
    """A package index with one package, on an address of this machine that is not loopback."""
    page = folder / "simple" / "tiny"
    page.mkdir(parents=True)
    wheel, info = "tiny-1.0-py3-none-any.whl", "tiny-1.0.dist-info"
    with zipfile.ZipFile(page / wheel, "w") as archive:
        archive.writestr("tiny/__init__.py", "VALUE = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    (page / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel}">{wheel}</a>')
    handler = functools.partial(_QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((find_own_address(), 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{server.server_address[0]}:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_every_task_succeeds_in_the_sandbox_with_at_most_one_question(outcomes, record_property):
    problems = list[str]()
    for name, outcome in outcomes.items():
        result = f"{outcome.missing} is not installed" if outcome.missing else "failed" if outcome.problem else "done"
        record_property(RESULT, f"{name}|{outcome.questions}|{result}")
        problems += [f"{name}: {outcome.problem}"] if outcome.problem else []
        problems += [f"{name}: {outcome.questions} questions"] if outcome.questions > 1 else []
    assert problems == []
    asked = [name for name, outcome in outcomes.items() if outcome.questions]
    assert len(asked) <= 3, asked


def test_there_are_at_least_fifty_tasks():
    assert len(NAMES) == len(set(NAMES)) >= 50
