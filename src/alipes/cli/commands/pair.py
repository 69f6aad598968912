"""`alipes pair`: approves people who messaged the bot, lists them and revokes access."""

import msgspec

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console import help_text, render
from alipes.console.common import print_list, run_in_store
from alipes.console.options import OptionParser
from alipes.gateway.people import approve, find_person, is_listed
from alipes.kernel.errors import MessageRejected
from alipes.kernel.formatting import format_ago
from alipes.store.sql.people import PairingRequest, Person, PersonRole
from alipes.store.sql.store import Store


class Pairings(msgspec.Struct, frozen=True):
    """People with access, and open requests."""

    people: tuple[Person, ...]
    applicants: tuple[PairingRequest, ...]


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes pair", help_text.PAIR)
    args, named = parser.parse_with_words(argv)
    if args.owner and args.user:
        parser.error("use either --owner or --user")
    match named:
        case [] | ["list"]:
            _show(load_settings(), json=args.json)
        case ["revoke", who]:
            return _revoke(load_settings(), who)
        case ["revoke", *_]:
            parser.error("`revoke` takes one WHO as shown by `list`")
        case _:
            role: PersonRole | None = "owner" if args.owner else "user" if args.user else None
            return _approve(load_settings(), " ".join(named), role)
    return 0


def _show(settings: Settings, *, json: bool) -> None:
    async def read(store: Store) -> Pairings:
        return Pairings(await store.people.all(), await store.people.list_requests())

    found = run_in_store(settings, read)
    people = [(each.platform, each.person, each.name, each.role, each.since) for each in found.people]
    pending = [(each.platform, each.person, each.name, "pending", each.created) for each in found.applicants]
    rows = [(f"{where}:{who}", name, role, format_ago(since)) for where, who, name, role, since in (*people, *pending)]
    empty = "Nobody is paired yet. People who message the bot get a code; approve it with `alipes pair CODE`."
    if print_list(found, ("WHO", "NAME", "ROLE", "SINCE"), rows, json=json, empty=empty):
        print("People listed in `allow` in config.toml have access as well.")


def _approve(settings: Settings, code: str, role: PersonRole | None) -> int:
    async def act(store: Store) -> Person:
        return await approve(store.people, code, role)

    try:
        person = run_in_store(settings, act)
    except MessageRejected as refused:
        print(f"Nobody was approved: {refused}.")
        return 1
    print(f"{_display_name(person)} now has access (role: {person.role}).")
    return 0


def _revoke(settings: Settings, who: str) -> int:
    async def act(store: Store) -> Person:
        person = find_person(await store.people.all(), who)
        await store.people.revoke_access(person.platform, person.person)
        return person

    person = run_in_store(settings, act)
    print(f"Access of {_display_name(person)} was revoked.")
    if is_listed(settings, person):
        print(f"But {person.platform}.allow in config.toml still lists them: remove them there too.")
    return 0


def _display_name(person: Person) -> str:
    return f"{render.sanitize(person.name or person.person)} ({person.platform}:{person.person})"
