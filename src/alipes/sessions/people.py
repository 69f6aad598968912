"""People who may talk to the bot, for the command, the chat command and the API: lists, approves, finds them."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from alipes.config.platforms import MESSENGERS, CommonPlatformConfig, PluginPlatformConfig
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.outbox import Outbound
from alipes.store.ports.people import PairingRequest, PeopleStore, Person, PersonRole

EVERYONE = "*"
"""In `allow`: everybody has access."""


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
