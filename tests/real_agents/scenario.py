"""What each program does here: a conversation on Telegram with `alipes serve`, a stop, a kill, and what is left."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.e2e.program import Home
from tests.e2e.service import OWNER, ServeProcess, open_serve
from tests.real_agents.orders import Orders
from tests.real_agents.programs import KEY, SECRET, RealProgram, search_path
from tests.world.model_server import ModelServer
from tests.world.telegram_server import StoredMessage, TelegramServer

COLUMNS = (
    *("agent", "version", "initialise", "prompt", "stream", "permission on Telegram", "edit with diff", "our tools"),
    *("stop", "kill -9, then", "orphans"),
)
WAIT_S = 45.0
ADDRESS = "127.0.0.2"
"""Of loopback, and not one that programs reach without the proxy of their sandbox."""


class Scenario:
    def __init__(self, program: RealProgram, folder: Path) -> None:
        self.program, self.home, self.work = program, Home(folder / "home"), folder / "work"
        self.row = {"agent": program.name, "version": program.version}
        self._seen = 0
        self._model = ModelServer(Orders(program.api, self.work), host=ADDRESS, strict=False)
        self._telegram = TelegramServer()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.work.mkdir()
        async with self._model, self._telegram:
            self._write_settings()
            yield

    def _write_settings(self) -> None:
        home, telegram = self.home.path, self._telegram
        home.mkdir(mode=0o700)
        lines = [f'model = "agent/{self.program.name}"', f'workdir = "{self.work}"']
        lines += ["[fetch]", f'allow = ["{ADDRESS}:{self._model.port}"]']
        lines += ["[telegram]", f'base_url = "{telegram.url}"', "poll = 2", f"allow = [{OWNER}]"]
        lines += [self.program.configure(home, self._model.url(self.program.api))]
        (home / "config.toml").write_text("\n".join(lines))
        (home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram.token}\n{KEY}={SECRET}\n")
        (home / ".env").chmod(0o600)

    def _environment(self) -> dict[str, str]:
        return {"PATH": search_path(), "ALIPES_SANDBOX_BACKEND": "sandbox"}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ServeProcess]:
        async with open_serve(self.home, **self._environment()) as served:
            yield served

    def note(self, column: str, text: str) -> None:
        self.row[column] = text

    # What people do

    async def say(self, text: str) -> None:
        self._seen = len(self._texts())
        self._telegram.chats.say(text, chat=OWNER)

    async def shows(self, text: str) -> str:
        """Wait until a message that is new since the last `say` contains this."""
        async with asyncio.timeout(WAIT_S):
            await self._telegram.until(lambda: any(text in each for each in self._texts()[self._seen :]))
        return next(each for each in self._texts()[self._seen :] if text in each)

    async def approve(self) -> str:
        """Wait for a question and say yes to it, and no to other connections; returns it."""
        while True:
            async with asyncio.timeout(WAIT_S):
                await self._telegram.until(lambda: bool(self._questions()))
            asked = self._questions()[-1]
            text, is_connection = asked.text, "Allow a connection" in asked.text
            buttons = [button["text"] for row in asked.wire["reply_markup"]["inline_keyboard"] for button in row]
            self._telegram.chats.press(OWNER, asked.wire["message_id"], buttons[-1 if is_connection else 0])
            await self._telegram.until(partial(self._is_answered, asked))
            if not is_connection:
                return text

    def _is_answered(self, asked: StoredMessage) -> bool:
        return asked not in self._questions()

    def _questions(self) -> list[StoredMessage]:
        return [kept for kept in self._telegram.chats.mine(OWNER) if kept.wire.get("reply_markup")]

    def _texts(self) -> list[str]:
        return [kept.text for kept in self._telegram.chats.mine(OWNER)]

    def describe(self) -> str:
        """What the bot said, for a test that failed."""
        return "\n---\n".join(self._texts())

    def was_streamed(self, text: str) -> bool:
        """True if the beginning of a message was shown before all of it."""
        shown = [str(call.given.get("text") or "") for call in self._telegram.calls]
        return any(text[:3] in each and text not in each for each in shown)

    # The steps

    async def initialise(self) -> None:
        done = await self.home.run("agents", "test", self.program.name, "--json", **self._environment())
        assert done.status == 0, done.err
        self.note("initialise", f"{json.loads(done.out)['seconds']:.1f} s")

    async def talk(self) -> None:
        text = "Hello, my friend out there."
        await self.say(f"[order say {text}]")
        await self.shows(text)
        self.note("prompt", "yes")
        self.note("stream", "yes" if self.was_streamed(text) else "no")

    async def edit(self) -> None:
        await self.say("[order edit a.txt]")
        question = await self.approve()
        assert "a.txt" in question
        self.note("permission on Telegram", "yes")
        await self.shows("done with edit")
        assert (self.work / "a.txt").read_text() == "a new line\n"
        self.note("edit with diff", "yes" if "+a new line" in question else "edit without a diff in the question")

    async def use_our_tools(self) -> None:
        args = {"action": "add", "target": "user", "content": "likes green tea"}
        await self.say(f"[order use memory {json.dumps(args)}]")
        answered = asyncio.create_task(self.shows("done with use"))
        while not answered.done():  # some ask before they use tools of others
            if self._questions():
                await self.approve()
            await asyncio.sleep(0.05)
        await answered
        notes = [path.read_text() for path in self.home.path.rglob("USER.md")]
        assert any("likes green tea" in text for text in notes), notes
        self.note("our tools", "yes")

    async def stop(self) -> None:
        await self._run_sleep("3607")
        sleeping = find_sleeping("3607")
        began = time.monotonic()
        await self.say("/stop")
        while any(Path("/proc", pid).exists() for pid in sleeping):
            await asyncio.sleep(0.002)
        took = time.monotonic() - began
        await self.shows("topped")
        await self.say("[order say Still here.]")
        await self.shows("Still here.")
        self.note("stop", f"{1000 * took:.0f} ms")

    async def kill(self, served: ServeProcess) -> None:
        await self._run_sleep("3608")
        served.process.kill()
        await served.process.wait()
        await self.wait_until_gone()

    async def go_on(self) -> None:
        text = await self.shows("I went on after the restart.")
        assert text
        notice = next((each for each in self._texts()[self._seen :] if "continues its session" in each), "")
        self.note("kill -9, then", "session opened again" if notice else "new session with a summary")

    async def _run_sleep(self, seconds: str) -> None:
        """Have it run a command that does not end; some of them refuse to run `sleep`."""
        await self.say(f"[order run python3 -c 'import time; time.sleep({seconds})']")
        assert f"time.sleep({seconds})" in await self.approve()
        async with asyncio.timeout(WAIT_S):
            while not find_sleeping(seconds):
                await asyncio.sleep(0.01)

    async def wait_until_gone(self) -> None:
        """Wait until no process of this home runs, at most 10 seconds; the rest are orphans."""
        for _ in range(200):
            if not self.find_left():
                break
            await asyncio.sleep(0.05)
        left = self.find_left()
        self.note("orphans", str(int(self.row.get("orphans", "0")) + len(left)))

    def find_left(self) -> list[str]:
        place = str(self.home.path).encode()
        return find_processes(lambda _, environ: place in environ)


def find_sleeping(seconds: str) -> list[str]:
    return find_processes(lambda words, _: words[-1:] == [f"import time; time.sleep({seconds})"])


def find_processes(is_wanted: Callable[[list[str], bytes], bool]) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            environ = Path("/proc", pid, "environ").read_bytes()
        except OSError:
            continue
        if is_wanted(words, environ):
            found.append(pid)
    return found
