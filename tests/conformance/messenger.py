"""`alipes serve` as the program behind a messenger, and its own messages in a chat."""

import asyncio
import signal
from contextlib import AsyncExitStack

from tests.conformance.surface import Surface
from tests.e2e.service import ServeProcess, open_serve


class Messenger(Surface):
    """One process serves all rooms; it is restarted if a conversation needs that."""

    platform: str
    words: tuple[str, ...] = ()
    """Arguments of `alipes serve`."""
    _served: ServeProcess | None = None
    _stack: AsyncExitStack

    async def start(self) -> None:
        assert self._served is None, "it runs already"
        self._stack = AsyncExitStack()
        self._served = await self._stack.enter_async_context(open_serve(self.home, *self.words))
        await self._served.ready()

    async def leave(self) -> None:
        served = self._running()
        served.process.send_signal(signal.SIGTERM)
        await served.heard(b"STOPPING=1")

    async def left(self) -> None:
        served, self._served = self._running(), None
        assert await served.left(by=None) == 0
        assert served.process.stderr is not None
        complaints = await served.process.stderr.read()
        await self._stack.aclose()
        assert not complaints, complaints.decode()

    async def kill(self) -> None:
        served, self._served = self._running(), None
        assert await served.left(by=signal.SIGKILL) == -signal.SIGKILL
        await self._stack.aclose()

    async def end(self) -> None:
        if self._served is None:
            return
        if self.spoilt:
            await self._stack.aclose()
        else:
            await self.leave()
            await self.left()

    async def knows(self) -> None:
        while await self._running().metric('alipes_queue_depth{queue="outbox"}'):
            await asyncio.sleep(0.02)

    async def doubted(self) -> int:
        """How many uncertain messages this process sent again."""
        return int(
            await self._running().metric(f'alipes_messages_total{{platform="{self.platform}",fate="uncertain"}}')
        )

    def _running(self) -> ServeProcess:
        assert self._served is not None, "it does not run"
        return self._served

    def stopped(self, partial: str) -> list[str]:
        return [f"{partial} …", "Stopped."]

    def superseded(self, partial: str) -> list[str]:
        return [f"{partial} …"]

    def renewed(self, partial: str) -> list[str]:
        return [f"{partial} …", "Started a new conversation. Stopped: the running turn."]

    def worked(self, command: str, output: str) -> list[str]:
        return [f"✓ Run {command} · 1 line"]

    def consented(self, command: str, yes: bool) -> list[str]:
        why = "Approve? Why: a force-push can overwrite work on the remote."
        return [f"{why}\n\nterminal: {command}\nfolder: {self.workdir}\n\n{'Approved.' if yes else 'Denied.'}"]

    def restarted(self, answer: str) -> list[str]:
        return [answer]  # it is stopped before we leave

    def resumed(self, words: str, answer: str) -> list[str]:
        return [answer, f"I was restarted. Continuing with “{words}”."]
