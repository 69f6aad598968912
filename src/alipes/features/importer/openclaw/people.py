"""Who may write to OpenClaw: allow lists and pairings. Codes that wait are not taken."""

import re
from collections.abc import Iterator

from alipes.features.importer.formats import content_hash, read_json, read_time
from alipes.features.importer.json_lines import Row, get_row, get_text, get_texts
from alipes.features.importer.openclaw.config import OpenClawConfig
from alipes.features.importer.openclaw.databases import read_table
from alipes.features.importer.openclaw.settings import STATE
from alipes.features.importer.records import FoundPerson, LeftOut, RecordSource
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count

_FOLDER = "credentials"
_PAIRED = re.compile(r"([a-z0-9]+)(?:-[^/]*)?-allowFrom\.json")


def read_people(home: SourceHome, config: OpenClawConfig) -> Iterator[FoundPerson | LeftOut]:
    """Each person once; who was paired and allowed counts as allowed."""
    seen: set[tuple[str, str]] = set()
    for person in [*_read_allowed(config), *_read_paired(home)]:
        if (person.platform, person.id) not in seen:
            seen.add((person.platform, person.id))
            yield person
    for owner in get_texts(config.row("commands"), "ownerAllowFrom"):
        why = "Who is an owner is asked: see --owner."
        yield _left_out(config.file, f"{owner} as an owner", why)
    waiting = sum(1 for _ in _list_waiting(home))
    if waiting:
        yield _left_out(_FOLDER, format_count(waiting, "waiting code"), "They write again and get a code of alipes.")


def _read_allowed(config: OpenClawConfig) -> Iterator[FoundPerson]:
    for platform, given in config.row("channels").items():
        if not isinstance(given, dict):
            continue
        accounts = [each for each in get_row(given, "accounts").values() if isinstance(each, dict)]
        for table in (given, get_row(given, "dm"), *accounts):
            for entry in get_texts(table, "allowFrom"):
                yield _make_person(config.file, platform, entry, "allowed")


def _read_paired(home: SourceHome) -> Iterator[FoundPerson]:
    if home.has(STATE):
        with home.open_database(STATE) as db:
            for row in read_table(
                db, "channel_pairing_allow_entries", ("channel_key", "entry", "updated_at"), "sort_order"
            ):
                added = read_time(row["updated_at"])
                yield _make_person(STATE, get_text(row, "channel_key"), get_text(row, "entry"), "paired", added)
    for name in home.list_names(_FOLDER):
        if found := _PAIRED.fullmatch(name):
            file = f"{_FOLDER}/{name}"
            for entry in get_texts(_read(home, file), "allowFrom"):
                yield _make_person(file, found[1], entry, "paired")


def _list_waiting(home: SourceHome) -> Iterator[Row]:
    if home.has(STATE):
        with home.open_database(STATE) as db:
            yield from list(read_table(db, "channel_pairing_requests", ("channel_key",)))
    for name in home.list_names(_FOLDER):
        if name.endswith("-pairing.json"):
            requests = _read(home, f"{_FOLDER}/{name}").get("requests")
            yield from (each for each in requests or () if isinstance(each, dict)) if isinstance(requests, list) else ()


def _make_person(file: str, platform: str, entry: str, how: str, added: float = 0.0) -> FoundPerson:
    person = re.sub(rf"^(?:{re.escape(platform)}|tg|user):", "", entry.strip(), flags=re.IGNORECASE)
    source = RecordSource(file, f"{platform}:{person}", content_hash(platform, person))
    return FoundPerson(
        source=source, platform=platform, id=person, added=added, how="paired" if how == "paired" else "allowed"
    )


def _read(home: SourceHome, file: str) -> Row:
    found = read_json(home.read_text(file) or "{}", file)
    return found if isinstance(found, dict) else {}


def _left_out(file: str, what: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, what, ""), kind="people", what=what, why=why)
