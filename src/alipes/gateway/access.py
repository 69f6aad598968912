"""Access control: who may talk to the bot, and as what. By default nobody may."""

import time
from collections.abc import Callable

from alipes.gateway.policy import GatewayPolicy
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.sessions.people import EVERYONE, role_in_settings
from alipes.store.ports.people import CODE_VALID_S, PairingRequest, PeopleStore, PersonRole

CODE_INTERVAL = 30.0
"""Seconds in which a stranger is not offered another code."""
MAX_STRANGERS = 1000


class Access:
    """Roles from the configuration first, then from pairing."""

    def __init__(self, people: PeopleStore, policy: GatewayPolicy, *, clock: Callable[[], float] = time.time) -> None:
        self.people, self._policy, self._clock = people, policy, clock
        self._offered: dict[tuple[str, str], float] = {}
        """When each stranger last wrote, so that repeated messages cost no database access."""

    async def role(self, platform: str, person: str) -> PersonRole | None:
        """None: no access."""
        policy = self._policy.for_platform(platform)
        if not person:
            return None
        if listed := role_in_settings(person, policy.allow, policy.owners):
            return listed
        if paired := await self.people.role(platform, person):
            return paired
        if known := policy.known_role(person):
            return "user" if policy.owners else known
        return "user" if EVERYONE in policy.allow else None

    async def may_fetch(self, message: IncomingMessage) -> bool:
        """True if the files of this message should be downloaded."""
        return await self.role(message.address.platform, message.sender) is not None

    async def offer_code(self, message: IncomingMessage) -> bool:
        """Send a stranger a pairing code. Returns False if nothing is sent.

        Never in a group, where everyone would read the code, and not twice within `CODE_INTERVAL`.
        """
        now, address = self._clock(), message.address
        stranger = (address.platform, message.sender)
        recent = now - self._offered.get(stranger, now - CODE_INTERVAL) < CODE_INTERVAL
        if not self._policy.pairing or message.group or recent:
            return False
        while len(self._offered) >= MAX_STRANGERS:
            del self._offered[next(iter(self._offered))]
        self._offered[stranger] = now

        def offer(code: str) -> Outbound:
            text = (
                f"You don't have access yet. Your pairing code is `{code}` (valid for one hour). "
                f"Ask the owner to run `alipes pair {code}`, or to send me `/pair {code}`."
            )
            id = f"code:{address.platform}:{message.id}"
            return Outbound(id, address, text, reply_to="", expires=now + CODE_VALID_S, notice=True)

        applicant = PairingRequest(address.platform, message.sender, message.name, address)
        return await self.people.request_pairing(applicant, offer)
