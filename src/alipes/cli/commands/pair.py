"""`alipes pair`: who may speak in chats; people are let in by their code, and sent away. It serves nobody."""

import msgspec

from alipes.cli import help_text, render
from alipes.cli.common import in_store
from alipes.cli.options import Words
from alipes.config.platforms import MESSENGERS, Meeting
from alipes.config.settings import Settings, load
from alipes.gateway.access import approve
from alipes.kernel.errors import ConfigError, NotTaken
from alipes.kernel.formatting import ago, did_you_mean
from alipes.store.people import Applicant, Person, Role
from alipes.store.store import Store


class People(msgspec.Struct, frozen=True):
    """Who may speak, and who asked to."""

    people: tuple[Person, ...]
    applicants: tuple[Applicant, ...]


def run(argv: list[str]) -> int:
    words = Words("alipes pair", help_text.PAIR)
    words.add_argument("--owner", action="store_true")
    words.add_argument("--user", action="store_true")
    words.add_argument("--json", action="store_true")
    given, named = words.split(argv)
    if given.owner and given.user:
        words.error("--owner and --user contradict each other")
    match named:
        case [] | ["list"]:
            _show(in_store(load(), _look), json=given.json)
        case ["revoke", who]:
            return _revoke(load(), who)
        case ["revoke", *_]:
            words.error("`revoke` takes one WHO, as `list` shows it")
        case _:
            role: Role | None = "owner" if given.owner else "user" if given.user else None
            return _approve(load(), " ".join(named), role)
    return 0


async def _look(store: Store) -> People:
    return People(await store.people.all(), await store.people.applicants())


def _show(found: People, *, json: bool) -> None:
    if json:
        print(msgspec.json.encode(found).decode())
        return
    rows: list[tuple[str, str, str, str]] = [
        (f"{each.platform}:{each.person}", each.name, each.role, ago(each.since)) for each in found.people
    ]
    rows += [
        (f"{each.platform}:{each.person}", each.name, "asks to be let in", ago(each.created))
        for each in found.applicants
    ]
    if not rows:
        print(
            "Nobody was let in yet. Who writes to the bot is shown a code; `alipes pair CODE` lets them in."
        )
        return
    shown = [tuple(render.harmless(cell) for cell in row) for row in rows]
    for line in render.table([("WHO", "NAME", "MAY", "SINCE"), *shown]):
        print(line)
    print("People named in `allow` of the configuration may speak as well.")


def _approve(settings: Settings, code: str, role: Role | None) -> int:
    async def act(store: Store) -> Person:
        others = await store.people.all()
        chosen = role or ("user" if any(each.role == "owner" for each in others) else "owner")
        return await approve(store.people, code, chosen)

    try:
        person = in_store(settings, act)
    except NotTaken as refused:
        print(f"Nobody was let in: {refused}.")
        return 1
    may = "may speak, and let others in" if person.role == "owner" else "may speak"
    print(f"{_named(person)} {may}.")
    return 0


def _revoke(settings: Settings, who: str) -> int:
    async def act(store: Store) -> Person:
        person = _find(await store.people.all(), who)
        await store.people.dismiss(person.platform, person.person)
        return person

    person = in_store(settings, act)
    print(f"{_named(person)} is let in no more.")
    met = settings.platforms.get(person.platform, Meeting())
    if person.platform in MESSENGERS:
        met = settings.messengers.named(person.platform)
    if {person.person, person.name} & {*met.allow}:
        print(f"But {person.platform}.allow of the configuration names them: take them out there too.")
    return 0


def _named(person: Person) -> str:
    return f"{render.harmless(person.name or person.person)} ({person.platform}:{person.person})"


def _find(people: tuple[Person, ...], who: str) -> Person:
    platform, _, id = who.partition(":")
    exact = [each for each in people if (each.platform, each.person) == (platform, id)]
    found = exact or [each for each in people if who.lower() in (each.name.lower(), each.person.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        told = ", ".join(f"{each.platform}:{each.person}" for each in found)
        raise ConfigError(f"{who} could be any of {told}; name one of these")
    known = [f"{each.platform}:{each.person}" for each in people]
    raise ConfigError(f"{who} was not let in by a code.{did_you_mean(who, known)}")
