"""Homes of other programs for the importer, made by the programs themselves against the scripted model.

To make the samples in `tests/world/homes` again, for a newer version: `python -m tests.real_agents.other_homes codex
FOLDER` (or all programs: no name). Look through what it wrote before it is committed: `tests/world/homes/README.md` says
what was taken out.

`tools/agent-programs` installs the programs.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.world.environment import OPTIONAL, SERVICES, environment, program_path
from tests.world.model_replies import Call, Reply, Say
from tests.world.model_server import ModelServer

KEY = "sk-EXAMPLE-not-a-key"
FOLDER = SERVICES / "agents"
PLACES = (FOLDER / "node_modules" / ".bin", FOLDER / "nanobot" / "bin")
FIRST, SECOND, CALLED = "How many hives are there?", "And which is the heaviest?", "Count them with the shell, please."
ANSWERS = ("There are three hives.", "The east one.", "It is counted.")
COMMAND, RESULT = "echo $((6 * 7)) hives", "42 hives"
SHELL = {
    "claude-code": Call("Bash", {"command": COMMAND, "description": "Count"}),
    "codex": Call("exec_command", {"cmd": COMMAND}),
    "nanobot": Call("exec", {"command": COMMAND}),
    "pi": Call("bash", {"command": COMMAND}),
}
"""How each program calls its shell."""


class OtherProgram(Struct, frozen=True):
    name: str
    """The word after `alipes import`."""
    command: str
    home: str
    """Where it has its home below that of the person."""
    make: Callable[["Run"], Awaitable[None]]

    def find_missing(self) -> str:
        """Why it cannot be run; empty if it can."""
        found = shutil.which(self.command, path=search_path())
        return "" if found else f"{self.command} is not installed in {FOLDER} (tools/agent-programs)"


class Run(Struct, frozen=True):
    """A program on the home of a person."""

    command: str
    user: Path
    model: ModelServer
    variables: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """Where it works."""
        return self.user / "orchard"

    async def __call__(self, *words: str) -> str:
        """Its output. Raises AssertionError with all of it."""
        environ = environment(self.user, **self.variables)
        (self.user / "tmp").mkdir(exist_ok=True)
        environ |= {"HOME": str(self.user), "PATH": search_path(), "TMPDIR": str(self.user / "tmp")}
        child = await asyncio.create_subprocess_exec(
            self.command,
            *words,
            cwd=self.folder,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        assert child.returncode == 0, out.decode("utf-8", "replace")[-4000:]
        return out.decode("utf-8", "replace")

    def write(self, name: str, content: str | dict[str, object]) -> None:
        path = self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


async def _make_codex(run: Run) -> None:
    run.write(
        ".codex/config.toml",
        f"""\
model = "scripted-1"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.local]
name = "Local"
base_url = "{run.model.url("openai-responses")}"
wire_api = "responses"
env_key = "LOCAL_API_KEY"
""",
    )
    run.write(".codex/AGENTS.md", "Answer in British English.\n")
    await run("exec", "--skip-git-repo-check", FIRST)
    await run("exec", "--skip-git-repo-check", "resume", "--last", SECOND)
    await run("exec", "--skip-git-repo-check", CALLED)


async def _make_claude(run: Run) -> None:
    run.write(".claude/CLAUDE.md", "Answer in British English.\n")
    allowed = ("--allowedTools", "Bash")
    await run("-p", FIRST, *allowed)
    await run("-p", SECOND, "--continue", *allowed)
    await run("-p", CALLED, *allowed)


async def _make_nanobot(run: Run) -> None:
    provider = {"apiKey": KEY, "apiBase": run.model.url("openai-chat")}
    model = {"model": "scripted-1", "provider": "custom", "workspace": f"{run.user}/.nanobot/workspace"}
    run.write(".nanobot/config.json", {"providers": {"custom": provider}, "agents": {"defaults": model}})
    for words, key in ((FIRST, "telegram:1001"), (SECOND, "telegram:1001"), (CALLED, "cli:direct")):
        await run("agent", "-s", key, "-m", words)


async def _make_pi(run: Run) -> None:
    models = [{"id": "scripted-1", "name": "Scripted", "contextWindow": 100_000, "maxTokens": 4000}]
    address = {"baseUrl": run.model.url("openai-chat"), "api": "openai-completions", "apiKey": KEY}
    run.write(".pi/agent/models.json", {"providers": {"local": {**address, "models": models}}})
    run.write(".pi/agent/settings.json", {"defaultProvider": "local", "defaultModel": "scripted-1"})
    run.write(".pi/agent/AGENTS.md", "Answer in British English.\n")
    await run("-p", FIRST)
    await run("-p", "-c", SECOND)
    await run("-p", CALLED)


PROGRAMS = (
    OtherProgram("codex", "codex", ".codex", _make_codex),
    OtherProgram("claude-code", "claude", ".claude", _make_claude),
    OtherProgram("nanobot", "nanobot", ".nanobot", _make_nanobot),
    OtherProgram("pi", "pi", ".pi/agent", _make_pi),
)


def search_path() -> str:
    """Where the programs are; their Node comes before that of this machine."""
    return ":".join((*map(str, PLACES), program_path(*OPTIONAL)))


def answer(name: str, body: dict[str, Any]) -> Reply:
    """What the model says to the last of the words that a person said, whatever else the program asks."""
    sent = json.dumps(body.get("messages") or body.get("input"))
    asked = max((FIRST, SECOND, CALLED), key=sent.rfind)
    if not body.get("tools") or asked not in sent:
        return Say("A title")
    if asked == CALLED:
        return Say(ANSWERS[2]) if RESULT in sent else SHELL[name]
    return Say(ANSWERS[0] if asked == FIRST else ANSWERS[1])


@asynccontextmanager
async def open_model(name: str) -> AsyncIterator[ModelServer]:
    """The model of this program."""
    async with ModelServer(partial(answer, name), strict=False) as model:
        yield model


async def make_home(program: OtherProgram, user: Path, model: ModelServer) -> Path:
    """Run the program in the home of a person; returns its own home there."""
    variables = {"LOCAL_API_KEY": KEY}
    if program.name == "claude-code":
        variables |= {"ANTHROPIC_BASE_URL": model.url("anthropic"), "ANTHROPIC_API_KEY": KEY}
        variables |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
    run = Run(program.command, user, model, variables)
    run.folder.mkdir(parents=True, exist_ok=True)
    await program.make(run)
    return user / program.home


async def main(names: list[str]) -> None:
    folder = Path(names.pop())
    for program in PROGRAMS:
        if program.name in names or not names:
            async with open_model(program.name) as model:
                print(await make_home(program, folder / program.name, model))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
