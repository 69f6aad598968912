"""A platform behind its bulkhead: how it stands, started anew when it breaks, and every call into it."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from alipes.kernel.errors import AlipesError, ConfigError, DeliveryError, StoreError
from alipes.kernel.platform import Arrival, Piece, Platform, State, Take, Talents
from alipes.kernel.turns import Address
from alipes.runtime.tasks import backoff, heed

log = logging.getLogger(__name__)
T = TypeVar("T")
Condition: TypeAlias = Literal["starting", "ready", "broken"]
WITHIN = 120.0
"""Seconds in which a message must be sent, files and all."""
LIVELY = 15.0
"""Seconds for what is only worth something now: an unfinished answer, a sign of typing."""
PREPARED = 64
"""Texts whose pieces are kept at most."""
STEADY = 60.0
"""Seconds of good service after which an earlier trouble is forgotten."""
HOPELESS = 60.0
"""Seconds before something is tried again that the operator has to mend."""


class PlatformState(Struct, frozen=True):
    """How a platform stands, for those who ask from outside."""

    name: str
    condition: Condition
    since: float
    """Seconds since the epoch from which on it is so."""
    polled: float
    """When it last told that all is well; zero: never."""
    cause: str
    """Why it is not ready; empty if it is."""
    sending: str
    """Why what is sent does not arrive; empty if it does."""
    restarts: int
    """How often it had to be started anew."""


class Channel:
    """All that the gateway does with a platform is done through this."""

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
        self.condition: Condition = "starting"
        self.sending = ""
        self._restarts = 0
        self.on_ready: Callable[[], None] = lambda: None
        """Called each time it becomes ready."""
        self._since, self._polled, self._cause = clock(), 0.0, "it has not been connected yet"
        self._fatal: StoreError | None = None
        self._prepared: dict[str, tuple[Piece, ...]] = {}
        """By their text."""

    @property
    def ready(self) -> bool:
        return self.condition == "ready"

    @property
    def talents(self) -> Talents:
        return self._platform.talents

    @property
    def state(self) -> PlatformState:
        return PlatformState(
            self.name,
            self.condition,
            self._since,
            self._polled,
            self._cause,
            sending=self.sending,
            restarts=self._restarts,
        )

    async def serve(self, take: Take, *, deaf: float = 0.0) -> None:
        """Listen until cancelled, starting anew with a pause whenever it breaks.

        Only a store that fails is raised: who cannot remember must not listen either.
        """
        attempt = 0

        async def taking(arrival: Arrival) -> None:
            try:
                await take(arrival)
            except StoreError as error:
                self._fatal = error
                raise

        while True:
            began = time.monotonic()
            try:
                await self._listen(taking, deaf)
                why: AlipesError = DeliveryError("it stopped listening")
            except AlipesError as error:
                why = error
            if self._fatal is not None:
                raise self._fatal
            self.tell("broken", str(why))
            attempt = 1 if time.monotonic() - began > STEADY else attempt + 1
            self._restarts += 1
            pause = HOPELESS if isinstance(why, ConfigError) else 0.1 + backoff(attempt, self._dice)
            log.warning("platform %s broke: %s; started anew in %.1f s", self.name, why, pause)
            await self._sleep(pause)

    async def _listen(self, take: Take, deaf: float) -> None:
        loop = asyncio.get_running_loop()

        async def listening() -> None:
            async with asyncio.timeout(deaf or None) as limit:

                def tell(state: State, why: str) -> None:
                    self.tell(state, why)
                    if deaf and state == "ready":
                        limit.reschedule(loop.time() + deaf)

                await self._platform.listen(take, tell)

        await self._guarded("listen", listening())

    def tell(self, state: State, why: str = "") -> None:
        """How the connection stands, in the platform's own words."""
        if state == "ready":
            self._polled = self._clock()
        changed = state != self.condition
        if changed:
            self.condition, self._since = state, self._clock()
            log.info("platform %s is %s%s", self.name, state, f": {why}" if why else "")
        self._cause = "" if state == "ready" else why or "it does not say why"
        if changed and state == "ready":
            self.on_ready()

    async def prepare(self, text: str) -> None:
        """Make the pieces of a text that is about to be sent, for whoever asks for them first."""
        while len(self._prepared) >= PREPARED:  # those that nobody came for
            del self._prepared[next(iter(self._prepared))]
        with suppress(DeliveryError):  # whoever asks is told
            self._prepared[text] = await self.pieces(text)

    async def pieces(self, text: str) -> tuple[Piece, ...]:
        if (made := self._prepared.pop(text, None)) is not None:
            return made

        async def work() -> tuple[Piece, ...]:
            return self._platform.pieces(text)

        return await self._guarded("pieces", work())

    async def send(self, address: Address, piece: Piece, *, within: float = WITHIN) -> str:
        return await self._guarded("send", self._platform.send(address, piece), within)

    async def edit(self, address: Address, message: str, piece: Piece, *, within: float = WITHIN) -> None:
        await self._guarded("edit", self._platform.edit(address, message, piece), within)

    async def delete(self, address: Address, message: str) -> None:
        await self._guarded("delete", self._platform.delete(address, message), LIVELY)

    async def typing(self, address: Address) -> None:
        await self._guarded("typing", self._platform.typing(address), LIVELY)

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        await self._guarded("menu", self._platform.menu(commands), WITHIN)

    async def _guarded(self, verb: str, work: Awaitable[T], within: float | None = None) -> T:
        """What it gives; whatever breaks in it is ours to tell: `DeliveryError`, uncertain unless it said."""
        try:
            async with asyncio.timeout(within):
                return await work
        except AlipesError:
            heed()
            raise
        except Exception as error:  # bulkhead: a broken platform does not disturb the others
            heed()
            if isinstance(error, TimeoutError):
                raise DeliveryError(f"{self.name} did not answer in time ({verb})", uncertain=True) from error
            log.exception("platform %s broke in %s", self.name, verb)
            what = f"{self.name} broke in {verb}: {type(error).__name__}: {error}"
            raise DeliveryError(what, uncertain=verb != "pieces") from error
