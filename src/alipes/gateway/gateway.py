"""The gateway: platforms behind bulkheads, one way in, one way out, and what is shown in between."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from alipes.gateway.access import Access
from alipes.gateway.commands import ChatCommands, Desk
from alipes.gateway.inbound.pipeline import House, Reception, Staff
from alipes.gateway.inbound.transcription import Transcribe
from alipes.gateway.live.view import Direction, Stage
from alipes.gateway.outbound.delivery import Delivery
from alipes.gateway.outbound.owed import Owing
from alipes.gateway.outbound.replies import Resuming, clear_out
from alipes.gateway.outbound.send import addressed
from alipes.gateway.platform_runner import Channel, PlatformState
from alipes.gateway.policy import Counts, Group, Rules
from alipes.gateway.questions import Inquiries, Questions
from alipes.kernel.errors import AlipesError, DeliveryError
from alipes.kernel.outbox import Outbound, lane
from alipes.kernel.platform import Arrival, Platform
from alipes.kernel.turns import Address, ApprovalAnswered, ApprovalAsked, Asked, Heard, Turn
from alipes.plugins import specs
from alipes.runtime.tasks import first
from alipes.sessions.sessions import Lobby

log = logging.getLogger(__name__)
TIDY = 3600.0
"""Seconds between two looks for what need not be remembered any more."""
KEPT = 30 * 86400.0
"""Seconds that files stay which were made to be sent: longer than anything is owed."""


class Gateway:
    """Serves `platforms`, by name, on an open house. The lobby of the house owes what `owing` says."""

    def __init__(
        self,
        house: House,
        platforms: Mapping[str, Platform],
        rules: Rules,
        *,
        owing: Owing | None = None,
        restart: Callable[[], None] = lambda: None,
        transcribe: Transcribe | None = None,
    ) -> None:
        """`restart`: asks for a new process; it must return at once. `transcribe`: see `hearing`."""
        self._house, self._rules = house, rules
        self.counts = Counts()
        self._channels = {name: Channel(platform) for name, platform in platforms.items()}
        self.delivery = Delivery(house.store, self._channels, rules, counts=self.counts)
        self.access = Access(house.store.people, rules)
        for platform in platforms.values():
            platform.fetch_only_for(self.access.welcome)
        questions = self._questions = Questions(house.store, house.lobby, self.access, self.delivery)
        inquiries = self._inquiries = Inquiries(house.store, house.lobby, self.access, self.delivery)
        direction = Direction(
            store=house.store,
            lock=self.delivery.lock,
            nudge=self.delivery.nudge,
            asked=partial(_ask, questions, inquiries),
            answered=self._answered,
            asking=partial(_asking, house.lobby),
        )
        # what is taken up from an earlier process may have to ask before its chat is watched again
        chats = tuple(f"agent:main:{name}:" for name in platforms)
        house.lobby.reaches = lambda key: key.startswith(chats)
        self._resuming = Resuming(house.store, self._channels)
        house.lobby.resuming = self._resuming.tell
        self._group = Group()
        self._stage = Stage(self._channels, rules, direction, counts=self.counts, group=self._group)
        if owing is not None:
            owing.heard = self._heard
        self.commands = ChatCommands(
            Desk(self.access, house.store.people, questions, self.states, self._stage.choose)
        )
        staff = Staff(
            access=self.access,
            commands=self.commands,
            questions=questions,
            inquiries=inquiries,
            delivery=self.delivery,
            stage=self._stage,
            counts=self.counts,
            group=self._group,
            restart=restart,
            transcribe=transcribe,
        )
        self._reception = Reception(house, rules, staff)

    async def run(self) -> None:
        """Serve until cancelled. Raises `StoreError` only: all else is told, and tried again."""
        try:
            await self._house.store.database.stretch()
            async with asyncio.TaskGroup() as group:
                await self._resuming.tell(())  # before a turn that is taken up can ask anew
                self._group.open(group)
                await self._resume()
                await self._reception.recall(tuple(self._channels))
                group.create_task(self.delivery.run(), name="delivery")
                group.create_task(self._tidy(), name="tidying")
                asked = self._questions, self._inquiries
                group.create_task(_review(*asked, every=self._rules.poll), name="questions")
                group.create_task(self._renew_menus(), name="menus")
                for name, channel in self._channels.items():
                    channel.on_ready = partial(self._ready, channel)
                    take = partial(self.take, name)
                    group.create_task(channel.serve(take, deaf=self._rules.deaf), name=f"platform {name}")
                relay = self._house.hooks.relay
                await relay.tell(specs.gateway_started, platforms=tuple(self._channels))
        except* AlipesError as errors:
            raise first(errors) from errors

    async def take(self, platform: str, arrival: Arrival) -> None:
        """Something came in on `platform`; it is kept or dealt with once this returns."""
        if arrival.address.platform != platform:
            raise DeliveryError(f"{platform} brought something that was said on {arrival.address.platform}")
        await self._reception.take(arrival)

    async def send(self, to: str, text: str) -> str:
        """Say something where `to` names a chat or a platform with a home; the id of what is owed now.

        Raises `NotTaken` where it names nothing.
        """
        outbound = await addressed(self._house.store.people, to, text, self._channels)
        await self.delivery.owe(outbound)
        return outbound.id

    def states(self) -> tuple[PlatformState, ...]:
        """How each platform stands."""
        return tuple(channel.state for channel in self._channels.values())

    async def _resume(self) -> None:
        """Watch what the lobby took up from an earlier process, and tell the chats that were not told yet."""
        left = await self._house.store.turns.orphans()  # what the lobby has not looked for yet
        keys = tuple(dict.fromkeys((*self._house.lobby.recovered, *left)))
        await self._resuming.tell(keys)
        for key in keys:
            if (address := await self._resuming.address(key)) is not None:
                await self._questions.standing.recall(key)
                self._stage.watch(address)

    def _heard(self, turn: Turn, owed: tuple[Outbound, ...] | None) -> None:
        """A turn that came in by another door is watched as well."""
        self._stage.watch(turn.inbound.address)
        if owed is not None:
            self._stage.curtain(turn)
            # who looks for it now finds it with the same write by which it is owed
            self.delivery.nudge(turn.inbound.address.platform, lane(turn.inbound.address))
        for each in owed or ():
            self._house.store.database.meanwhile.append(partial(_prepare, self._channels, self._group, each))

    def _ready(self, channel: Channel) -> None:
        self._group.start(self._greet(channel), f"greeting {channel.name}")

    async def _greet(self, channel: Channel) -> None:
        await self.delivery.ready(channel.name)
        await self._show_menu(channel)

    def _menu(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.name, each.help) for each in self.commands.known(self._house.offers))

    async def _renew_menus(self) -> None:
        """Plugins come and go, and their commands with them; nobody is told."""
        shown = self._menu()
        while True:
            await asyncio.sleep(self._rules.menus)
            if (wanted := self._menu()) != shown:
                shown = wanted
                for channel in self._channels.values():
                    if channel.ready:
                        await self._show_menu(channel)

    async def _show_menu(self, channel: Channel) -> None:
        try:
            await channel.menu(self._menu())
        except DeliveryError as error:
            log.warning("platform %s does not show our commands: %s", channel.name, error)

    async def _answered(self, answered: ApprovalAnswered | Heard) -> None:
        if isinstance(answered, Heard):
            await self._inquiries.close(answered, self._channels)
        else:
            await self._questions.close(answered, self._channels)

    async def _tidy(self) -> None:
        while True:
            await self._house.store.outbox.forget()
            await self._house.store.drafts.forget()
            await self._house.store.arrivals.forget()
            await asyncio.to_thread(clear_out, self._rules.outgoing, time.time() - KEPT)
            await asyncio.sleep(TIDY)


def _prepare(channels: Mapping[str, Channel], group: Group, outbound: Outbound) -> None:
    """Begin with what can be done before it is owed."""
    if channel := channels.get(outbound.address.platform):
        group.start(channel.prepare(outbound.text), f"preparing {outbound.id}")


async def _review(questions: Questions, inquiries: Inquiries, *, every: float) -> None:
    """No turn waits for the answer to a question that will reach nobody, whoever gave that up."""
    while True:
        await asyncio.sleep(every)
        await questions.review()
        await inquiries.review()


def _asking(lobby: Lobby, key: str) -> tuple[tuple[str, ApprovalAsked | Asked], ...]:
    """What a person is being asked there, each with its turn."""
    return (*lobby.approvals.asking(key), *lobby.questions.asking(key))


async def _ask(
    questions: Questions, inquiries: Inquiries, address: Address, turn: str, asked: ApprovalAsked | Asked
) -> None:
    if isinstance(asked, Asked):
        await inquiries.put(address, turn, asked)
    else:
        await questions.put(address, turn, asked)
