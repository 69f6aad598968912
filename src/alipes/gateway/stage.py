"""The chats that are watched now, each a scene, and the pace that all scenes of a platform share."""

import asyncio
from collections.abc import Mapping

from msgspec import structs

from alipes.gateway.channels import Channel
from alipes.gateway.counts import Counts
from alipes.gateway.group import Group
from alipes.gateway.manners import Rules
from alipes.gateway.pace import Pace
from alipes.gateway.scene import Direction, Scene
from alipes.kernel.delivery import lane
from alipes.kernel.turns import Address, Turn, TurnEnded
from alipes.store.people import Progress


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
