"""Makes the records of what most homes have in the same form: keys, settings, memory files."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from alipes.config.display import is_secret_name, looks_secret
from alipes.config.environment import parse_env
from alipes.config.known_providers import KNOWN
from alipes.features.importer.formats import SourceError, content_hash
from alipes.features.importer.records import FoundKey, FoundSetting, LeftOut, MemoryEntry, RecordSource
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json
from alipes.kernel.models import Secret

_APIS = {
    **dict.fromkeys(("openai-completions", "openai-chat", "chat_completions", "chat", "openai"), "openai-chat"),
    **dict.fromkeys(("openai-responses", "responses"), "openai-responses"),
    **dict.fromkeys(("anthropic-messages", "anthropic_messages", "anthropic"), "anthropic"),
}
_MAX_ENTRY_CHARS = 4_000


def setting(file: str, key: str, value: Json) -> FoundSetting:
    return FoundSetting(source=RecordSource(file, key, content_hash(value)), key=key, value=value)


def key(file: str, name: str, value: str, used_by: str = "") -> FoundKey:
    return FoundKey(
        source=RecordSource(file, name, content_hash(value)), name=name, value=Secret(value), used_by=used_by
    )


def provider_name(name: str) -> str:
    """The name of a provider as it can be in our settings."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-") or "other"


def key_variable(provider: str) -> str:
    """The variable with the key of a provider."""
    known = KNOWN.get(provider_name(provider))
    named = known.key_env if known else ""
    return named or f"{re.sub(r'[^A-Z0-9]+', '_', provider.upper()).strip('_')}_API_KEY"


def read_provider(file: str, name: str, address: str, api: str, variable: str = "") -> Iterator[FoundSetting | LeftOut]:
    """The settings of a provider with an address of its own."""
    ours = provider_name(name)
    table = f"providers.{ours}"
    if api and api not in _APIS:
        why = f"Its API {api[:60]} is not known here."
        yield LeftOut(source=RecordSource(file, table, ""), kind="settings", what=f"provider {name}", why=why)
    elif address:
        yield setting(file, f"{table}.base_url", address)
        if ours not in KNOWN:
            yield setting(file, f"{table}.api", _APIS.get(api, "openai-chat"))
            yield setting(file, f"{table}.key_env", variable or key_variable(name))


def describe_interval(seconds: float) -> str:
    """Such as `every 6h`; empty for nothing."""
    whole = round(seconds)
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    return next((f"every {whole // length}{unit}" for unit, length in units if whole and whole % length == 0), "")


def read_env(home: SourceHome, file: str) -> Iterator[FoundKey]:
    """The variables of an `.env` file that are keys; lines that cannot be read are passed over."""
    for line in (home.read_text(file) or "").splitlines():
        with suppress(ConfigError):
            for name, found in parse_env(line, home.path / file).items():
                if found.value and (is_secret_name(name) or looks_secret(found.value)):
                    yield key(file, name, found.value)


def split_entries(text: str) -> list[str]:
    """The entries of a memory file in Markdown: list items with what belongs to them, and paragraphs.

    Headings, rules, comments and lines in brackets or italics, which say how to fill in the file, are no entries.
    """
    entries: list[str] = []
    in_item = False
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).splitlines():
        stripped = line.strip()
        item = re.match(r"[-*+] +(?:\[[ xX]\] +)?|\d+[.)] +", stripped)
        if not stripped or stripped.startswith(("#", "---", "***", "===")):
            in_item = False
        elif entries and in_item and not item:
            entries[-1] += f"\n{stripped}"
        else:
            entries.append(stripped[item.end() :] if item else stripped)
            in_item = True
    return [entry[:_MAX_ENTRY_CHARS] for entry in entries if _says_something(entry)]


def _says_something(entry: str) -> bool:
    """False for what is only a form: "**Name**: (your name)", "_(optional)_", "(Things to remember)"."""
    filled = re.sub(r"[_*]*\((?:[^()]|\([^()]*\))*\)[_*]*", "", entry)
    filled = re.sub(r"^\s*\*\*[^*\n]{1,60}?:?\*\*:?", "", filled)
    filled = re.sub(r"^[_*](?![_*]).*[_*]$", "", filled.strip(), flags=re.DOTALL)
    return bool(re.search(r"\w", filled))


def read_memory(home: SourceHome, file: str, about: str, skip: Sequence[str] = ()) -> Iterator[MemoryEntry | LeftOut]:
    """The entries of a memory file, without doubles and without those of `skip`, the program's own text."""
    try:
        text = home.read_text(file) or ""
    except SourceError as error:
        yield LeftOut(source=RecordSource(file, file, ""), kind="memory", what=file, why=f"{error}.")
        return
    seen = {" ".join(entry.split()) for entry in skip}
    for entry in split_entries(text):
        if (plain := " ".join(entry.split())) not in seen:
            seen.add(plain)
            source = RecordSource(file, content_hash(plain), content_hash(plain))
            yield MemoryEntry(source=source, text=entry, about="user" if about == "user" else "notes")
