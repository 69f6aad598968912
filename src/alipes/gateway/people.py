"""Who may talk to the bot, and as what: by the settings, by pairing codes. By default nobody may."""

import time
from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from alipes.config.messengers import MESSENGERS
from alipes.config.platforms import CommonPlatformConfig, PluginPlatformConfig
from alipes.config.settings import Settings
from alipes.gateway.policy import GatewayPolicy
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.store.sql.people import CODE_VALID_S, PairingRequest, PeopleStore, Person, PersonRole

EVERYONE = "*"
"""In `allow`: everybody has access."""
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


class ListedPerson(Struct, frozen=True):
    """Somebody who has access by the settings."""

    platform: str
    person: str
    role: PersonRole


def role_in_settings(person: str, allow: Collection[str], owners: Collection[str]) -> PersonRole | None:
    """The role that `allow` and `owners` of a platform give; None if they do not name the person."""
    if person in owners:
        return "owner"
    if person in allow and person != EVERYONE:
        return "user" if owners else "owner"
    return None


def listed_people(settings: Settings) -> Iterator[ListedPerson]:
    """Everybody whom the settings name; `*` as a person if everybody has access."""
    platforms: dict[str, CommonPlatformConfig] = {name: settings.messengers.get(name) for name in MESSENGERS}
    for platform, config in {**platforms, **settings.platforms}.items():
        for person in dict.fromkeys((*config.owners, *config.allow)):
            yield ListedPerson(platform, person, role_in_settings(person, config.allow, config.owners) or "user")


def is_listed(settings: Settings, person: Person) -> bool:
    """True if the settings give this person access as well."""
    config: CommonPlatformConfig = settings.platforms.get(person.platform, PluginPlatformConfig())
    if person.platform in MESSENGERS:
        config = settings.messengers.get(person.platform)
    return bool({person.person, person.name} & {*config.allow, *config.owners})


async def approve(people: PeopleStore, code: str, role: PersonRole | None = "user") -> Person:
    """Give access to the person with this code and tell them. Raises `MessageRejected`.

    Without a role, the first person becomes the owner.
    """

    def welcome(who: PairingRequest) -> Outbound:
        id = f"welcome:{who.platform}:{who.person}:{who.created}"
        return Outbound(id, who.address, "You now have access. Send me a message, or /help for commands.")

    if role is None:
        role = "user" if any(each.role == "owner" for each in await people.all()) else "owner"
    return await people.approve(code, role, welcome)


def find_person(people: Collection[Person], who: str) -> Person:
    """By `platform:id`, id or name. Raises `ConfigError` if nobody or several match."""
    platform, _, id = who.partition(":")
    exact = [each for each in people if (each.platform, each.person) == (platform, id)]
    found = exact or [each for each in people if who.lower() in (each.name.lower(), each.person.lower())]
    if len(found) == 1:
        return found[0]
    names = [f"{each.platform}:{each.person}" for each in found or people]
    if found:
        raise ConfigError(f"{who} matches {', '.join(names)}; choose one of these")
    raise ConfigError(f"{who} is not paired.{did_you_mean(who, names)}")
