"""Runs one platform behind its bulkhead: restarts it when it breaks and guards every call into it."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from alipes.kernel.errors import AlipesError, ConfigError, DeliveryError, StoreError
from alipes.kernel.platform import Capabilities, ConnectionState, IncomingMessage, MessagePart, OnMessage, Platform
from alipes.kernel.turns import Address
from alipes.runtime.tasks import backoff, raise_if_cancelled
from alipes.store.ports.cluster import LeaderElection

log = logging.getLogger(__name__)
T = TypeVar("T")
Condition: TypeAlias = Literal["starting", "ready", "broken"]
SEND_TIMEOUT = 120.0
"""Seconds for sending one message, including its file."""
LIVE_TIMEOUT = 15.0
"""Seconds for drafts and typing indicators, which are worthless later."""
MAX_PREPARED = 64
"""Formatted texts that are kept at most."""
HEALTHY_AFTER = 60.0
"""Seconds without trouble after which the restart backoff starts again at its beginning."""
CONFIG_ERROR_RETRY = 60.0
"""Retry interval after a configuration error, in seconds."""


class PlatformState(Struct):
    """Status of a platform, for /platforms and the health page."""

    name: str
    since: float
    """Unix time of the last change of `condition`."""
    condition: Condition = "starting"
    polled: float = 0.0
    """Unix time of the last success report; zero: never."""
    cause: str = "it has not been connected yet"
    """Why it is not ready; empty if it is."""
    sending: str = ""
    """Why sending fails; empty if it works."""
    restarts: int = 0
    receiving: bool = False
    """This process receives its messages; otherwise another one does, or nobody yet."""


class PlatformRunner:
    """The gateway's only way to a platform."""

    def __init__(
        self,
        platform: Platform,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.name, self._platform = platform.name, platform
        self._clock, self._sleep, self._dice = clock, sleep, dice
        self.state = PlatformState(platform.name, clock())
        self._on_ready: list[Callable[[], None]] = []
        self._fatal: StoreError | None = None
        self._prepared: dict[str, tuple[MessagePart, ...]] = {}
        """Parts of texts that are about to be sent, by text."""

    def add_on_ready(self, notify: Callable[[], None]) -> None:
        """Call `notify` each time it becomes ready to send."""
        self._on_ready.append(notify)

    @property
    def ready(self) -> bool:
        return self.state.condition == "ready"

    @property
    def capabilities(self) -> Capabilities:
        return self._platform.capabilities

    @property
    def sends_alone(self) -> bool:
        """Platforms of plugins may not know this capability."""
        return bool(getattr(self._platform.capabilities, "sends_alone", False))

    async def serve(self, on_message: OnMessage, *, silence_timeout: float = 0.0) -> None:
        """Listen until cancelled and restart the platform with a pause whenever it breaks.

        Raises only `StoreError`: without the store no message may be accepted.
        """
        attempt = 0

        async def receive(message: IncomingMessage) -> None:
            try:
                await on_message(message)
            except StoreError as error:
                self._fatal = error
                raise

        while True:
            started = time.monotonic()
            try:
                await self._listen(receive, silence_timeout)
                why: AlipesError = DeliveryError("it stopped listening")
            except AlipesError as error:
                why = error
            if self._fatal is not None:
                raise self._fatal
            self.set_status("broken", str(why))
            attempt = 1 if time.monotonic() - started > HEALTHY_AFTER else attempt + 1
            self.state.restarts += 1
            pause = CONFIG_ERROR_RETRY if isinstance(why, ConfigError) else 0.1 + backoff(attempt, self._dice)
            log.warning("platform %s failed: %s; restarting in %.1f s", self.name, why, pause)
            await self._sleep(pause)

    async def serve_elected(self, leaders: LeaderElection, listen: Callable[[], Awaitable[None]]) -> None:
        """Run `listen` while this process is the one that receives. Until then it only sends, if the platform can."""
        leading, following, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        following.set()
        closed.set()

        async def lead() -> None:
            following.clear()
            leading.set()
            await closed.wait()
            self.state.receiving = True
            try:
                await listen()
            finally:
                self.state.receiving = False
                leading.clear()
                following.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_while(following, leading, closed), name=f"sender {self.name}")
            await leaders.lead(f"platform {self.name}", lead)
            raise DeliveryError("it stopped listening")

    async def _send_while(self, following: asyncio.Event, leading: asyncio.Event, closed: asyncio.Event) -> None:
        """Keep the platform ready to send while another process receives. `closed` is set while it is not in use."""
        while True:
            await following.wait()
            closed.clear()
            if self.sends_alone:
                self.set_status("broken", "it is being prepared to send")
                async with asyncio.TaskGroup() as group:
                    sender = group.create_task(self._run_sender(), name=f"sending {self.name}")
                    await leading.wait()
                    sender.cancel()
                self.set_status("broken", "this process begins to receive")
            else:
                self.set_status("broken", "another process receives its messages and sends ours")
                await leading.wait()
            closed.set()

    async def _run_sender(self) -> None:
        attempt = 0
        while True:
            try:
                await self._guard("run_sender", self._platform.run_sender(self.set_status))
                why: AlipesError = DeliveryError("it stopped sending")
            except AlipesError as error:
                why = error
            self.set_status("broken", str(why))
            attempt += 1
            await self._sleep(
                CONFIG_ERROR_RETRY if isinstance(why, ConfigError) else 0.1 + backoff(attempt, self._dice)
            )

    async def _listen(self, on_message: OnMessage, silence_timeout: float) -> None:
        loop = asyncio.get_running_loop()

        async def listen() -> None:
            async with asyncio.timeout(silence_timeout or None) as limit:

                def on_status(state: ConnectionState, why: str) -> None:
                    self.set_status(state, why)
                    if silence_timeout and state == "ready":
                        limit.reschedule(loop.time() + silence_timeout)

                await self._platform.listen(on_message, on_status)

        await self._guard("listen", listen())

    def set_status(self, condition: ConnectionState, why: str = "") -> None:
        """Record what the platform reports about its connection."""
        ready, changed = condition == "ready", condition != self.state.condition
        if ready:
            self.state.polled = self._clock()
        if changed:
            self.state.condition, self.state.since = condition, self._clock()
            log.info("platform %s is %s%s", self.name, condition, f": {why}" if why else "")
        self.state.cause = "" if ready else why or "no reason given"
        if changed and ready:
            for notify in self._on_ready:
                notify()

    def set_sending_problem(self, why: str) -> None:
        """Why sending fails; empty if it works."""
        self.state.sending = why

    async def prepare(self, text: str) -> None:
        """Format a text that is about to be sent; the next `format_message` of it returns the result."""
        while len(self._prepared) >= MAX_PREPARED:
            del self._prepared[next(iter(self._prepared))]
        with suppress(DeliveryError):  # raised again when the text is sent
            self._prepared[text] = await self.format_message(text)

    async def format_message(self, text: str) -> tuple[MessagePart, ...]:
        if (parts := self._prepared.pop(text, None)) is not None:
            return parts

        async def work() -> tuple[MessagePart, ...]:
            return self._platform.format_message(text)

        return await self._guard("format_message", work())

    async def send(self, address: Address, part: MessagePart, *, within: float = SEND_TIMEOUT) -> str:
        return await self._guard("send", self._platform.send(address, part), within)

    async def edit(self, address: Address, message: str, part: MessagePart, *, within: float = SEND_TIMEOUT) -> None:
        await self._guard("edit", self._platform.edit(address, message, part), within)

    async def delete(self, address: Address, message: str) -> None:
        await self._guard("delete", self._platform.delete(address, message), LIVE_TIMEOUT)

    async def typing(self, address: Address) -> None:
        await self._guard("typing", self._platform.typing(address), LIVE_TIMEOUT)

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        await self._guard("set_commands", self._platform.set_commands(commands), SEND_TIMEOUT)

    async def _guard(self, verb: str, work: Awaitable[T], within: float | None = None) -> T:
        """Await `work`; any other error becomes a `DeliveryError`, uncertain except for formatting."""
        try:
            async with asyncio.timeout(within):
                return await work
        except AlipesError:
            raise_if_cancelled()
            raise
        except Exception as error:  # bulkhead: a broken platform does not disturb the others
            raise_if_cancelled()
            if isinstance(error, TimeoutError):
                raise DeliveryError(f"{self.name} did not answer in time ({verb})", uncertain=True) from error
            log.exception("platform %s failed in %s", self.name, verb)
            what = f"{self.name} failed in {verb}: {type(error).__name__}: {error}"
            raise DeliveryError(what, uncertain=verb != "format_message") from error
