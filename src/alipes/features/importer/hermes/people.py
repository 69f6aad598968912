"""People and keys of Hermes: `.env`, `auth.json` and pairings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from alipes.config.display import is_secret_name, looks_secret
from alipes.config.known_providers import KNOWN
from alipes.config.messengers import MESSENGERS
from alipes.features.importer.formats import content_hash, plain_text, read_json, read_time
from alipes.features.importer.hermes.settings import items, key_name, make_key, table, text
from alipes.features.importer.records import FoundPerson, FoundSetting, LeftOut, Record, RecordSource
from alipes.features.importer.source_home import SourceHome

ENV, AUTH = ".env", "auth.json"
PAIRINGS = ("platforms/pairing", "pairing")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_KEY = re.compile(r".*(?:API_KEY|TOKEN|SECRET|PASSWORD|_KEY)")
_ALLOWED, _CHAT = re.compile(r"([A-Z]+)_ALLOWED_USERS"), re.compile(r"([A-Z]+)_HOME_CHANNEL")
_ALLOW_ALL = re.compile(r"(?:[A-Z]+_)?(?:GATEWAY_)?ALLOW_ALL_USERS")


def read_env(content: str) -> dict[str, str]:
    """The variables of a `.env` file; nothing in a value is replaced."""
    found = {}
    for line in content.splitlines():
        if (match := _LINE.fullmatch(line)) and match[2]:
            value = match[2]
            if value[:1] in "'\"" and value[-1:] == value[:1] and len(value) > 1:
                value = value[1:-1]
            if value.isprintable():
                found[match[1]] = value
    return found


def read_people(home: SourceHome, env: Mapping[str, str]) -> Iterator[Record]:
    seen: set[tuple[str, str]] = set()
    for name, value in env.items():
        if match := _ALLOWED.fullmatch(name):
            for id in filter(None, (each.strip() for each in value.split(","))):
                person = (match[1].lower(), id)
                if person not in seen:
                    seen.add(person)
                    yield _person(ENV, person, "allowed")
        elif _ALLOW_ALL.fullmatch(name) and value.lower() in ("1", "true", "yes"):
            why = "everybody could write there; that is a decision to make again"
            yield LeftOut(source=RecordSource(ENV, name, ""), kind="permissions", what=name, why=why)
    for folder in PAIRINGS:
        for name in home.list_names(folder):
            yield from _read_pairings(home, f"{folder}/{name}", seen)


def _read_pairings(home: SourceHome, file: str, seen: set[tuple[str, str]]) -> Iterator[Record]:
    platform, _, kind = file.rpartition("/")[2].removesuffix(".json").rpartition("-")
    if kind not in ("approved", "pending") or (content := home.read_text(file)) is None:
        return
    for id, facts in table(read_json(content, file)).items():
        if kind == "pending":
            who = plain_text(table(facts).get("user_name")) or plain_text(table(facts).get("user_id"))
            why = "a code that waits there is not taken over: they can ask for a new one here"
            yield LeftOut(source=RecordSource(file, f"pending:{id}", ""), kind="people", what=who or id, why=why)
        elif (platform, id) not in seen:
            seen.add((platform, id))
            yield _person(file, (platform, id), "paired", facts)


def _person(file: str, person: tuple[str, str], how: Any, facts: object = None) -> FoundPerson:
    platform, id = person
    source = RecordSource(file, f"{platform}:{id}", content_hash(platform, id))
    name, added = plain_text(table(facts).get("user_name")), read_time(table(facts).get("approved_at"))
    return FoundPerson(source=source, platform=platform, id=id, name=name, added=added, how=how)


def read_env_settings(env: Mapping[str, str]) -> Iterator[Record]:
    for name, value in env.items():
        if (match := _CHAT.fullmatch(name)) and match[1].lower() in MESSENGERS:
            key = f"{match[1].lower()}.home_chat"
            yield FoundSetting(source=RecordSource(ENV, key, content_hash(value)), key=key, value=value)
        elif not (_is_key(name, value) or _ALLOWED.fullmatch(name) or _ALLOW_ALL.fullmatch(name)):
            why = "alipes has no such variable"
            yield LeftOut(source=RecordSource(ENV, f"{ENV}:{name}", ""), kind="settings", what=name, why=why)


def read_keys(home: SourceHome, env: Mapping[str, str]) -> Iterator[Record]:
    """Keys that are written down; logins and references to other places are not."""
    for name, value in env.items():
        if _is_key(name, value):
            used = next((f"providers.{each.name}" for each in KNOWN.values() if each.key_env == name), "")
            yield make_key(ENV, name, value, used)
    if (content := home.read_text(AUTH)) is None:
        return
    auth = read_json(content, AUTH)
    for provider in table(auth, "providers"):
        yield _login(provider, provider)
    for provider, pool in table(auth, "credential_pool").items():
        for number, each in enumerate(filter(lambda each: isinstance(each, dict), items(pool))):
            source, label = text(each.get("source")), text(each.get("label")) or str(number + 1)
            if each.get("auth_type") not in ("api_key", "api-key", None) or each.get("refresh_token"):
                yield _login(provider, f"{provider}: {label}")
            elif source == "manual" and text(each.get("access_token")):
                suffix = re.sub(r"[^A-Z0-9]+", "_", label.upper()).strip("_")
                yield make_key(AUTH, f"{key_name(provider)}_{suffix}", text(each.get("access_token")))


def _is_key(name: str, value: str) -> bool:
    return bool(_KEY.fullmatch(name)) or is_secret_name(name) or looks_secret(value)


def _login(provider: str, what: str) -> LeftOut:
    why = f"logins are not copied, since two programs would lock each other out: log in to {provider} again"
    return LeftOut(source=RecordSource(AUTH, f"{AUTH}:{what}", ""), kind="keys", what=what, why=why)
