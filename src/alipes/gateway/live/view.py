"""One chat while turns live there: the unfinished answer, the tools at work, a sign of typing.

Nothing of it is a promise: what was said is owed and paid elsewhere, and this may lose anything.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from msgspec import Struct, structs

from alipes.gateway.live.drafts import Bubble, Shown
from alipes.gateway.platform_runner import Channel
from alipes.gateway.policy import Counts, Group, Pace, Rules
from alipes.kernel.errors import DeliveryError
from alipes.kernel.outbox import lane
from alipes.kernel.turns import (
    Address,
    ApprovalAnswered,
    ApprovalAsked,
    Asked,
    Envelope,
    Event,
    Heard,
    Noted,
    Retracted,
    Said,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnStarted,
)
from alipes.store.peers.bus import Subscription
from alipes.store.people import Progress
from alipes.store.store import Store

log = logging.getLogger(__name__)
Letter: TypeAlias = ApprovalAsked | ApprovalAnswered | Asked | Heard
SOON = 0.4
"""Seconds before a sign of typing: who is answered at once needs none."""
LEAST = 0.05
"""Seconds between two changes, also where the platform bears more."""
TROUBLE = 5.0
"""Seconds for which nothing is shown after it failed, unless the platform asks for more."""


class Direction(Struct, frozen=True):
    """What the scenes of a gateway share."""

    store: Store
    lock: Callable[[str], asyncio.Lock]
    nudge: Callable[[str, str], None]
    asked: Callable[[Address, str, ApprovalAsked | Asked], Awaitable[None]]
    answered: Callable[[ApprovalAnswered | Heard], Awaitable[None]]
    asking: Callable[[str], tuple[tuple[str, ApprovalAsked | Asked], ...]] = lambda _key: ()
    """What is asked under a key already."""
    ended: Callable[[TurnEnded, float], None] = lambda _ended, _since: None
    """With the seconds since it was stopped here, or less than zero."""
    first: float = 1.0
    linger: float = 120.0


class Scene(Subscription):
    """Told at once of everything published; it only keeps it, and shows it later, all that came together."""

    def __init__(
        self, address: Address, channel: Channel, direction: Direction, *, pace: Pace, progress: Progress
    ) -> None:
        """`pace`: shared by all scenes of the platform."""
        super().__init__()
        self.address, self.key, self.lane = address, address.key, lane(address)
        self.progress = progress
        self.turn = ""
        """The turn that lives; empty when none does."""
        self._channel, self._direction, self._pace = channel, direction, pace
        self._shown = Shown(address, channel, direction.store)
        self._bubble, self._text = Bubble(), list[str]()
        self._letters: deque[tuple[str, Letter]] = deque()
        self._asking = 0
        self._hushed = 0.0
        """When it was stopped: nothing more is shown until the next turn begins."""
        self._stirred, self._closing = asyncio.Event(), False
        self._due, self._armed, self._placed = 0.0, False, False
        self._show, self._type, self._finale = False, False, ""
        """What is to be done next; at the end of a turn the bubble is shown as it stands then."""
        self._loop = asyncio.get_running_loop()

    def put(self, envelope: Envelope, source: str) -> None:
        """Called for each token of each answer: what is done here must cost nothing."""
        self.source = source
        if not self.turn and isinstance(envelope.event, TextDelta | ToolStarted | Said):
            self._begin(envelope.turn, resumed=True)  # it was under way when we came
        match envelope.event:
            case TextDelta(text):
                if not self._text:
                    self._due = max(self._due, self._loop.time() + self._direction.first)
                self._text.append(text)
                self._arm()
            case TurnStarted(turn, _, attempt):
                self._begin(turn, resumed=attempt > 1)
            case Said(message):
                if message.role == "assistant":
                    self.curtain()
                if message.role != "user":  # nothing is owed for a person's own words
                    self._direction.nudge(self.address.platform, self.lane)
            case ApprovalAsked() | ApprovalAnswered() | Asked() | Heard() as letter:
                self._letters.append((envelope.turn, letter))
                self._asking += 1 if isinstance(letter, ApprovalAsked | Asked) else -1
                self._stirred.set()
            case TurnEnded() as ended:
                self._end(envelope.turn, ended)
            case event:
                self._watch(event)

    def _watch(self, event: Event) -> None:
        match event:
            case ToolStarted(call):
                self._bubble.started(call)
            case ToolProgress(call_id, text):
                self._bubble.progressed(call_id, text)
            case ToolFinished(call, result):
                self._bubble.finished(call, result)
            case Noted(text):
                self._bubble.noted(text)
            case Retracted():
                self._text.clear()
                return
            case _:
                return
        if self.progress != "off":
            delay = 0.0 if self._shown.begun else self._direction.first
            self._due = max(self._due, self._loop.time() + delay) if not self._armed else self._due
            self._arm()

    def end(self) -> None:
        """Who published here is gone."""
        self._closing = True
        self._stirred.set()

    def _begin(self, turn: str, *, resumed: bool) -> None:
        self.turn, self._hushed, self._asking, self._placed, self._finale = turn, 0.0, 0, False, ""
        self._text.clear()
        self._bubble = Bubble()
        self._shown.begin(resumed=resumed)
        if self._channel.talents.typing:
            self._loop.call_later(SOON, self._beat, turn)

    def _end(self, turn: str, ended: TurnEnded) -> None:
        self._direction.nudge(self.address.platform, self.lane)
        if turn == self.turn:
            self._direction.ended(ended, self._loop.time() - self._hushed if self._hushed else -1.0)
            if ended.ending != "stopped" and not self._hushed and self._shown.begun:
                self._finale = self._bubble.text(self.progress)
                self._stirred.set()
            self.turn, self._show = "", False
            self._text.clear()  # of what was stopped, that which was shown stays as it is

    def hush(self) -> None:
        """The living turn is being stopped."""
        self._hushed = self._hushed or self._loop.time()
        self._text.clear()

    def curtain(self) -> None:
        """What was shown of the answer is made whole by others."""
        self._text.clear()
        self._shown.curtain()

    async def run(self) -> None:
        """Show it, until nothing has happened for long."""
        store, linger = self._direction.store, self._direction.linger
        async with store.bus.subscribe(self.key, into=self):
            self._letters.extendleft(self._direction.asking(self.key))  # twice does no harm
            if self._letters:
                self._stirred.set()
            self.progress = await store.people.progress(self.lane) or self.progress
            while not self._closing:
                try:
                    async with asyncio.timeout(linger):
                        await self._stirred.wait()
                except TimeoutError:
                    if not self.turn:
                        return
                self._stirred.clear()
                await self._act()

    async def _act(self) -> None:
        while self._letters:
            turn, letter = self._letters.popleft()
            if isinstance(letter, ApprovalAsked | Asked):
                await self._direction.asked(self.address, turn, letter)
            else:
                await self._direction.answered(letter)
        show, type, self._show, self._type = self._show, self._type, False, False
        finale, self._finale = self._finale, ""
        try:
            if finale:
                async with self._direction.lock(self.lane):
                    await self._shown.tools(finale)
            if type and self.going and not self._asking:
                await self._channel.typing(self.address)
            if show and self.going:
                async with self._direction.lock(self.lane):
                    await self._perform()
        except DeliveryError as error:
            pause = error.retry_after if error.retry_after is not None else TROUBLE
            self._due = self._loop.time() + pause
            log.info("what is shown in %s waits %.1f s: %s", self.lane, pause, error)
        if self._text and self.going:
            self._arm()

    async def _perform(self) -> None:
        if not self.going:  # we waited for the lock
            return
        self._due = self._loop.time() + max(self._channel.talents.pace, LEAST)
        await self._shown.tools(self._bubble.text(self.progress))
        if self.going:
            await self._shown.draft(self.turn, "".join(self._text), lambda: self.going)

    @property
    def going(self) -> bool:
        """Is there somebody to show something to, and something to show?"""
        return bool(self.turn) and not self._hushed and self._channel.ready

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._armed = False
        if not self.going:
            return
        if not self._placed:
            self._placed, self._due = True, max(self._due, self._loop.time() + self._pace.reserve())
        if self._loop.time() + 0.01 < self._due:  # others are before us, or it failed meanwhile
            self._arm()
            return
        self._show, self._placed = True, False
        self._stirred.set()

    def _beat(self, turn: str) -> None:
        if turn == self.turn and not self._closing:
            if self._pace.spare():
                self._type = True
                self._stirred.set()
            self._loop.call_later(max(1.0, self._channel.talents.typing * 0.8), self._beat, turn)


class Stage:
    """A scene for every conversation in a chat that has a turn, or had one lately."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        rules: Rules,
        direction: Direction,
        *,
        counts: Counts,
        group: Group,
    ) -> None:
        self._channels, self._rules, self._counts, self._group = channels, rules, counts, group
        self._direction = structs.replace(
            direction, ended=self._ended, first=rules.first, linger=rules.linger
        )
        clock = asyncio.get_running_loop().time
        self._paces = {name: Pace(rules.edits, clock) for name in channels}
        self._scenes: dict[str, Scene] = {}

    def watch(self, address: Address) -> None:
        """Watch what happens there from now on."""
        channel = self._channels.get(address.platform)
        if channel is None or address.key in self._scenes:
            return
        progress = self._rules.of(address.platform).progress
        pace = self._paces[channel.name]
        scene = Scene(address, channel, self._direction, pace=pace, progress=progress)
        if self._group.start(self._play(scene), f"scene {scene.key}"):
            self._scenes[address.key] = scene

    def hush(self, key: str) -> None:
        """What lives there is being stopped: nothing more is shown of it."""
        if (scene := self._scenes.get(key)) is not None:
            scene.hush()

    def curtain(self, turn: Turn) -> None:
        """What it says is about to be owed: from here on nobody shows it unfinished."""
        scene = self._scenes.get(turn.key)
        if scene is not None and scene.turn == turn.id:
            scene.curtain()

    def choose(self, address: Address, progress: Progress) -> None:
        """How much the chat is shown of its tools."""
        for scene in self._scenes.values():
            if scene.lane == lane(address):
                scene.progress = progress

    async def _play(self, scene: Scene) -> None:
        try:
            await scene.run()
        finally:
            if self._scenes.get(scene.key) is scene:
                del self._scenes[scene.key]

    def _ended(self, ended: TurnEnded, since: float) -> None:
        self._counts.turns[ended.ending] += 1
        if since >= 0:
            self._counts.stopped(since)
