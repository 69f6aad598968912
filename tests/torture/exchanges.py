"""Commands, file tools, attachments, checkpoints and questions, while names of the project are exchanged with links.

    python -m tests.torture.exchanges --minutes 60
    python -m tests.torture.exchanges --minutes 2 --sandboxes landlock --first 7     # seed 7 again

prints a line for each seed, and ends with status 1 if something outside of the project was read or changed.
"""

import argparse
import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from alipes.agent.approval.approval import ApprovalGate
from alipes.agent.approval.command_files import CommandFileCheck
from alipes.agent.approval.files import FileApproval
from alipes.agent.attachments import FileAttacher
from alipes.config.settings import CheckpointsConfig, DocumentsConfig, SandboxConfig, Settings
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.features.checkpoints.git import CheckpointError
from alipes.features.checkpoints.store import CheckpointRecord
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.documents.documents import DocumentConverter
from alipes.tools.files.patch import Patch
from alipes.tools.files.read_file import ReadFile
from alipes.tools.files.write_file import WriteFile
from alipes.tools.images import ImageLoader
from alipes.tools.sandbox import ProjectSandboxes
from alipes.tools.search.search_files import SearchFiles
from alipes.tools.send_file import SendFileTool
from tests.world.exchanger import exchanging_all
from tests.world.sandboxes import SANDBOXES, open_backend, open_machine

CANARY, EVIL = "canary-of-the-home", "planted-by-a-command"
_PATH = re.compile(r"(?<![\w.])[~/][^\s,;:()]*")
ACTS = 30
"""Between two comparisons of what is outside."""
PAUSES_S = (0.0005, 0.003, 0.02)
"""Between two exchanges: what takes longer than this fails often, what takes less succeeds often."""
READ = "cat d/id_rsa d/.bashrc d/plain d/.env f.txt .env .vscode/settings.json nested/file ~/.cache/x/plain ~/extra/d/plain"
WRITE = (
    "for name in d/.bashrc d/new f.txt .env .vscode/settings.json nested/new ~/.cache/x/new ~/extra/d/new /tmp/x/new"
)
COMMANDS = (
    f"{READ}; {WRITE}; do echo {EVIL} >> $name; done",
    "cp -r d copied 2>/dev/null; ls -la d .vscode ~/.cache/x; rm -rf copied d/new; grep -rs canary . /tmp/x ~/extra",
    "git -C nested status; git -C nested config core.fsmonitor {evil}; git -C nested config alias.st '!{evil}'",
    "git -C sub status; git --git-dir sub/other config core.fsmonitor {evil}; git --git-dir sub/other status",
    "rm -rf made; git init -q made; git -C made config core.pager {evil}; ln -sfn ~/p2/.git made/.git2; mv made/.git2 made/.git",
    "chmod -R 0700 d .vscode ~/extra/d; touch d/plain nested/file; mv d/plain d/moved; mv d/moved d/plain",
)


class ExchangeReport(Struct):
    seed: int
    sandbox: str
    acts: Counter[str] = field(default_factory=Counter)
    """How many of each kind succeeded, and how many were refused."""
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        acts = ", ".join(f"{count} {name}" for name, count in sorted(self.acts.items()))
        lines = [f"seed {self.seed}, {self.sandbox}: {len(self.violations)} acts outside ({acts})"]
        return "\n  ".join([*lines, *self.violations])


class ExchangeWorld:
    """A project whose folders and files are exchanged with links that lead to the home of the user."""

    def __init__(self, folder: Path, seed: int, *, keeps_modes: bool) -> None:
        """`keeps_modes`: the sandbox keeps commands from changing permissions outside. Landlock alone does not."""
        self.random, self.folder, self._keeps_modes = random.Random(seed), folder, keeps_modes
        self.home, self.project, self.outside = folder / "home", folder / "home" / "project", folder / "outside"
        self.alipes_home, self.evil = self.home / ".alipes", folder / "evil"
        self.places = Places(home=str(self.home), alipes_home=str(self.alipes_home), scratch=())
        self.config = SandboxConfig(write=(str(self.home / "extra"),), grants=())
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        more = {"home": str(self.home), "alipes_home": self.alipes_home, "environ": environ}
        self.sandboxes = ProjectSandboxes(self.config, **more)
        self.scope = CommandScope("s1", str(self.project))
        self._make_files()
        policy = self.sandboxes.make_policy(self.scope)
        self.private = Path(policy.private_home), Path(policy.scratch)
        self._make_exchanged()
        self.before = self.describe_outside()

    @property
    def targets(self) -> tuple[Path, ...]:
        return self.home, self.home / ".ssh", self.home / ".alipes" / "memory", self.home / "p2", self.outside

    def _make_files(self) -> None:
        for place in self.targets:
            place.mkdir(parents=True, exist_ok=True)
            for name in ("id_rsa", ".bashrc", ".env", "plain", "picture.png", "page.html", "settings.json", "file"):
                (place / name).write_text(f"{CANARY} of {place.name}\n")
        self.evil.write_text(f"#!/bin/sh\ntouch {self.folder}/ran\n")
        self.evil.chmod(0o755)
        for place in (self.home / "p2", self.project, self.project / "nested", self.project / "sub"):
            place.mkdir(parents=True, exist_ok=True)
            self.git("init", "-q", cwd=place)
        shutil.copytree(self.project / "sub" / ".git", self.project / "sub" / "other")
        self.git("config", "alias.mine", "!true", cwd=self.home / "p2")
        for name in ("extra/d", "project/d", "project/.vscode"):
            self._fill(self.home / name)
        (self.project / "nested" / "file").write_text("inside\n")
        (self.project / ".env").write_text("KEY=of-the-project\n")
        (self.project / "f.txt").write_text("inside\n")
        (self.project / "t.sh").write_text("echo good\n")
        (self.project / "t-link").symlink_to(self.evil)

    def _fill(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("id_rsa", ".bashrc", "plain", "picture.png", "page.html", "settings.json"):
            (folder / name).write_text("inside\n")
        (folder / ".env").write_text("KEY=of-the-project\n")

    def _make_exchanged(self) -> None:
        project, (home, scratch) = self.project, self.private
        caches = home / ".cache"
        caches.mkdir(exist_ok=True)
        for folder in (caches, scratch):
            self._fill(folder / "x")
        files = {project / "f-link": ".bashrc", project / "env-link": ".ssh/id_rsa"}
        for link, target in files.items():
            link.symlink_to(self.home / target)
        self.pairs = [
            *((project / "d", project / "d-link"), (project / ".vscode", project / "vscode-link")),
            *((project / "nested", project / "nested-link"), (self.home / "extra" / "d", self.home / "extra" / "link")),
            *((caches / "x", caches / "link"), (scratch / "x", scratch / "link")),
            *((project / "f.txt", project / "f-link"), (project / ".env", project / "env-link")),
            *((project / "sub" / ".git", project / "sub" / "other"), (project / "t.sh", project / "t-link")),
        ]
        self.point_links()

    def point_links(self) -> None:
        """Let the links to folders lead elsewhere, and put back what commands removed."""
        for one, other in self.pairs[:6]:
            folder, link = (other, one) if one.is_symlink() else (one, other)
            for path in (link, folder):
                if path.is_symlink() or path.is_file():
                    path.unlink()
            shutil.rmtree(link, ignore_errors=True)  # a checkpoint brought it back as a folder
            link.symlink_to(self.random.choice(self.targets))
            self._fill(folder)

    def git(self, *arguments: str, cwd: Path) -> None:
        """git as the user runs it on the machine."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *arguments], cwd=cwd, env=env, capture_output=True, check=False)

    def describe_outside(self) -> dict[str, str]:
        """Every file outside of what commands may change, with its content, and every folder."""
        found = dict[str, str]()
        open_to_commands = (self.project, self.home / "extra", self.alipes_home / "sandbox")
        ours = (self.alipes_home / "run", self.alipes_home / "checkpoints", self.alipes_home / "outgoing")
        for top in (self.home, self.outside):
            for folder, names, files in os.walk(top):
                place = Path(folder)
                names[:] = [name for name in names if place / name not in (*open_to_commands, *ours)]
                found[folder] = f"folder {place.stat().st_mode & 0o777:o}" if self._keeps_modes else "folder"
                found |= {str(place / name): (place / name).read_text(errors="replace") for name in files}
        return found


class ExchangeTrial:
    """Acts in the world, in random order, and looks for what they did outside."""

    def __init__(
        self, world: ExchangeWorld, backend: CommandBackend, report: ExchangeReport, scope: ClientScope
    ) -> None:
        self.world, self._backend, self._report = world, backend, report
        self.boundary = FileBoundary(world.places, lambda scope: (world.sandboxes.make_policy(scope), True))
        self._command_files = CommandFileCheck(world.places)
        self._gate = ApprovalGate(self.boundary, self._answer, command_files=self._command_files)
        self._turn = Turn("t", "s1", Inbound("1", Address("terminal", "x"), "x", "go", workdir=str(world.project)))
        self.call_id, self.session, self.workdir, self.turn = "c", "s1", str(world.project), self._turn
        self._images = ImageLoader(self.boundary, PublicFetcher(scope, ()))
        documents = DocumentConverter(DocumentsConfig(timeout=20), backend=backend)
        self._reader = ReadFile(self.boundary, documents=documents)
        self._attacher = FileAttacher(Settings(home=world.alipes_home), documents=documents)
        self._sender = SendFileTool(self.boundary, world.alipes_home / "outgoing")
        self._checkpoints = Checkpoints(world.alipes_home / "checkpoints", CheckpointsConfig(), world.places)
        self._made = 0

    async def progress(self, text: str) -> None:
        self._look(text, "progress")

    async def _answer(self, call: Any, risk: Any, turn: Any, files: Any = None) -> str:
        """Yes to what is in the project, after a moment; to a script if its text is the known one."""
        await asyncio.sleep(0.003)
        if files is not None:
            return "once" if files.text in ("t.sh:\n    echo good", "t.sh (as before)") else "no"
        paths = [path.replace("~", str(self.world.home)) for path in _PATH.findall(risk.reason)]
        return "once" if all(path.startswith(f"{self.world.project}/") for path in paths) else "no"

    def _look(self, text: str, act: str) -> None:
        if CANARY in text:
            at = text.index(CANARY)
            self._report.violations.append(f"{act} showed {text[at : at + 60]!r}")

    async def run(self, rounds: Callable[[], bool]) -> None:
        acts = [
            *(self._run_command, self._run_command, self._write, self._patch, self._read, self._search),
            *(self._load_image, self._send, self._attach, self._checkpoint, self._run_outside),
        ]
        while rounds():
            some = self.world.random.sample(self.world.pairs, self.world.random.randint(1, len(self.world.pairs)))
            with exchanging_all(some, self.world.random.choice(PAUSES_S)):
                for _ in range(ACTS):
                    await self._try(self.world.random.choice(acts))
            await self._try(self._run_nothing)  # as when the command ends that exchanged the names
            self._compare()
            self.world.point_links()

    async def _try(self, act: Callable[[], Awaitable[str]]) -> None:
        name = act.__name__.strip("_")
        try:
            self._look(await act(), name)
        except (OSError, ToolError, CheckpointError) as error:  # what has changed meanwhile is an error
            self._look(str(error), name)
            name = f"{name} refused"
        self._report.acts[name] += 1

    def _compare(self) -> None:
        """Nothing outside has changed, no program of a command ran when the user looks at the project."""
        world = self.world
        for folder in (world.project, world.project / "sub", world.project / "nested", world.project / "made"):
            if folder.is_dir() and not folder.is_symlink():
                world.git("status", cwd=folder)
                world.git("st", cwd=folder)
        if (world.folder / "ran").exists():
            (world.folder / "ran").unlink()
            self._report.violations.append("a program of a command ran on the machine")
        for path in (world.alipes_home / "outgoing").rglob("*"):
            if path.is_file():
                self._look(path.read_text(errors="replace"), f"send_file {path.name}")
        shutil.rmtree(world.alipes_home / "outgoing", ignore_errors=True)
        now = world.describe_outside()
        changed = {path for path in now.keys() | world.before.keys() if now.get(path) != world.before.get(path)}
        self._report.violations += [f"changed: {path}" for path in sorted(changed)]
        world.before = now

    async def _run_nothing(self) -> str:
        return await self._run_command("true")

    async def _run_command(self, script: str = "") -> str:
        world, output = self.world, b""
        script = (script or world.random.choice(COMMANDS)).replace("{evil}", str(world.evil))
        env = {"PATH": "/usr/bin:/bin", "HOME": str(world.home)}
        async with self._backend.open(f"exec 2>&1; {script}", world.scope, cwd=self.workdir, env=env) as child:
            while piece := await child.read():
                output += piece
            await child.wait()
        return output.decode(errors="replace")

    async def _call(self, tool: Any, **args: Any) -> str:
        """What a turn does with a call: judge it, run it, end it."""
        call = ToolCall("c", tool.spec.name, args)
        verdict = await self._gate.before_tool(call, self._turn)
        try:
            if verdict is not None:
                raise ToolError(f"denied: {verdict.reason}")
            done = await tool.run(args, self)
            return done if isinstance(done, str) else str(done.text)
        finally:
            await FileApproval(self.boundary).after_tool(call, self._turn)

    def _name(self) -> str:
        names = (
            "d/plain",
            "d/.bashrc",
            "d/new/deep",
            "f.txt",
            "nested/file",
            ".vscode/settings.json",
            "nested/.git/config",
        )
        return self.world.random.choice(names)

    async def _write(self) -> str:
        return await self._call(WriteFile(self.boundary), path=self._name(), content=f"{EVIL}\n")

    async def _patch(self) -> str:
        name = self._name()
        text = self.world.random.choice(("inside", EVIL, f"{CANARY} of home", f"{CANARY} of .ssh"))
        more = self.world.random.choice(("", "*** Delete File: d/id_rsa\n", "*** Add File: d/new/file\n+x\n"))
        patch = f"*** Begin Patch\n*** Update File: {name}\n-{text}\n+inside\n{more}*** End Patch"
        said = await self._call(Patch(self.boundary), mode="patch", patch=patch)
        return said.replace(text, "")

    async def _read(self) -> str:
        name = self.world.random.choice((self._name(), "d/id_rsa", "d/page.html", "/tmp/x/plain"))
        return await self._call(self._reader, path=name)

    async def _search(self) -> str:
        tool = SearchFiles({"PATH": os.environ["PATH"]}, self.boundary)
        said = await self._call(tool, pattern="canar[y]", output_mode="content", path=".")
        return said.replace("canar[y]", "")

    async def _load_image(self) -> str:
        name = self.world.random.choice(("d/picture.png", "f.txt", "d/id_rsa"))
        call = ToolCall("c", "vision_analyze", {"path": name, "question": "?"})
        verdict = await self._gate.before_tool(call, self._turn)
        try:
            if verdict is not None:
                raise ToolError(f"denied: {verdict.reason}")
            return (await self._images.load(name, self)).decode(errors="replace")
        finally:
            await FileApproval(self.boundary).after_tool(call, self._turn)

    async def _send(self) -> str:
        return await self._call(self._sender, path=self.world.random.choice(("d/plain", "f.txt", "nested/file")))

    async def _attach(self) -> str:
        found = await self._attacher.read(
            "see @d/plain @f.txt @d/page.html @nested/file and @d/picture.png", self.workdir
        )
        if not found.blocks:
            raise ToolError("nothing attached")
        return found.blocks

    async def _checkpoint(self) -> str:
        self._made += 1
        await self._checkpoints.make(self.workdir, CheckpointRecord(turn=f"t{self._made}"))
        known = await self._checkpoints.list_checkpoints(self.workdir)
        if not known:
            raise CheckpointError("there are none")
        number = self.world.random.choice(known).checkpoint.number
        text = await self._checkpoints.diff(self.workdir, number)
        await self._checkpoints.restore(self.workdir, number, force=True)
        return text

    async def _run_outside(self) -> str:
        """A script of the project on the machine itself: it does what was shown, or nothing."""
        call = ToolCall("c", "terminal", {"command": "sudo -n true; sh t.sh", "outside": True})
        if await self._gate.before_tool(call, self._turn) is not None:
            raise ToolError("denied")
        await self._command_files.check_start(self)
        return ""


@asynccontextmanager
async def open_trial(sandbox: str, folder: Path, report: ExchangeReport) -> AsyncIterator[ExchangeTrial]:
    world = ExchangeWorld(folder, report.seed, keeps_modes=sandbox != "landlock alone")
    with open_machine(sandbox, folder):
        async with open_backend(sandbox, home=world.home, config=world.config) as backend, ClientScope() as scope:
            assert (problem := await backend.check()) == "", problem
            yield ExchangeTrial(world, backend, report, scope)


async def run_seed(seed: int, sandbox: str, rounds: Callable[[], bool]) -> ExchangeReport:
    """Act while `rounds` says so."""
    report = ExchangeReport(seed, sandbox)
    with tempfile.TemporaryDirectory(prefix="exchanges") as folder:
        async with open_trial(sandbox, Path(folder), report) as trial:
            await trial.run(rounds)
    return report


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Exchanged names while commands and tools act, by seed.")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all sandboxes together (default: 60)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--sandboxes", nargs="+", default=[*SANDBOXES], help="which (default: all)")
    given = parser.parse_args(words)
    until, seed, found = time.monotonic() + given.minutes * 60, given.first, 0
    while time.monotonic() < until:
        for sandbox in given.sandboxes:
            end = min(until, time.monotonic() + 60)
            report = asyncio.run(run_seed(seed, sandbox, lambda end=end: time.monotonic() < end))
            found += len(report.violations)
            print(report, flush=True)
        seed += 1
    print(f"{found} acts outside")
    return 1 if found else 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
