"""The files of an OpenClaw agent: memory, persona, daily notes, skills."""

import re
from collections.abc import Iterator

from msgspec import structs

from alipes.features.importer.formats import SourceError, content_hash
from alipes.features.importer.found import split_entries
from alipes.features.importer.openclaw.config import OpenClawConfig
from alipes.features.importer.records import DailyNote, LeftOut, MemoryEntry, Persona, Record, RecordSource
from alipes.features.importer.skill_folders import read_skills
from alipes.features.importer.source_home import SourceHome

DEFAULT_PERSONAS = frozenset(
    (
        "eddaf4b16b1ceb802f3f26384e3e63ea",  # 2026.9
        "8fa192379fa045ee8023c83dffa8c8e0",  # 2026.5
        "eabb6dd3b2887c956fa9808758ad1ed7",  # of `openclaw --dev`
    )
)
"""`SOUL.md` as OpenClaw writes it."""
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})(?:-[^/]*)?\.md")
_SUPERSEDED = re.compile(r"<!--[^>]*status:\s*superseded[^>]*-->\s*\n[^\n]*")
_FORM = re.compile(r"^- \*\*(\w[\w ]*):?\*\*:?[ \t]*\n?[ \t]*([^\n]*)$", re.MULTILINE)
_DEFAULT_ENTRIES = frozenset(
    (
        "c967f48743b9af40c0615a56f4f2b459",
        "201ed1ec36921a885eea15f297139a6e",
        "508a609f82f984f2f71abf7d1fa72f23",
        "a188bb84dad61c22dac5ab76c5b9d3b8",
        "0fef44f53ae8306392adb46191b263ac",
        "e8b543e3ebaabc84d81fb1f0d10814bf",
        "30237af480fa76564c2ed7155e29826f",
        "ac96d47ec22a3091aab6de5fe2e29a4a",
        "127d164305b50dad4374236dcd6e3b01",
        "45b94cb39238599e8624dc653541c718",
        "5ef10a47740047ca8a0fb4e55a4dad74",
        "ef747c5a17ef8a93dba335afa383cd01",
        "43dc6c9d9fe12e36feb450652751dd53",
    )
)
"""Of `USER.md` as OpenClaw writes it, by `plain_hash`."""
_OTHERS = ("AGENTS.md", "TOOLS.md", "HEARTBEAT.md", "BOOT.md")


def plain_hash(text: str) -> str:
    """Of a text without its spacing."""
    return content_hash(" ".join(text.split()))


def read_memory(home: SourceHome, folder: str) -> Iterator[MemoryEntry | LeftOut]:
    """`MEMORY.md` and `USER.md`, entry by entry."""
    for name in ("MEMORY.md", "memory.md", "USER.md"):
        file = f"{folder}/{name}"
        if not home.has(file) or (name == "memory.md" and home.has(f"{folder}/MEMORY.md")):
            continue
        seen = {*_DEFAULT_ENTRIES}
        for entry in split_entries(_SUPERSEDED.sub("", home.read_text(file) or "")):
            if (digest := plain_hash(entry)) not in seen:
                seen.add(digest)
                source = RecordSource(file, f"{file}:{digest}", digest)
                yield MemoryEntry(source=source, text=entry, about="user" if name == "USER.md" else "notes")


def read_persona(home: SourceHome, folder: str) -> Iterator[Persona]:
    """`SOUL.md` and what is filled in of `IDENTITY.md`, unless both are OpenClaw's own."""
    soul = home.read_text(f"{folder}/SOUL.md") or ""
    identity = home.read_text(f"{folder}/IDENTITY.md") or ""
    own = "" if plain_hash(soul) in DEFAULT_PERSONAS else soul.strip()
    filled = [f"- {name}: {value}" for name, value in _FORM.findall(identity) if value and not value.startswith("_")]
    text = "\n\n".join(filter(None, (own, "\n".join(filled))))
    if text:
        file = f"{folder}/SOUL.md"
        yield Persona(source=RecordSource(file, file, content_hash(text)), text=text)


def read_notes(home: SourceHome, folder: str) -> Iterator[DailyNote | LeftOut]:
    for name in home.list_names(f"{folder}/memory"):
        if not (day := _DAY.fullmatch(name)):
            continue
        file = f"{folder}/memory/{name}"
        try:
            text = home.read_text(file) or ""
        except SourceError as error:
            yield LeftOut(source=RecordSource(file, name, ""), kind="notes", what=name, why=f"{error}.")
            continue
        if text.strip():
            yield DailyNote(source=RecordSource(file, file, content_hash(text)), day=day[1], text=text)


def read_all_skills(home: SourceHome, folders: list[str]) -> Iterator[Record]:
    """Of the workspace first; a skill of the same name in another folder is left out."""
    seen: set[str] = set()
    for folder in folders:
        for found in read_skills(home, folder):
            if found.source.id not in seen:
                seen.add(found.source.id)
                yield structs.replace(found, source=structs.replace(found.source, id=found.source.file))


def list_others(home: SourceHome, config: OpenClawConfig, folder: str, agent: str) -> Iterator[LeftOut]:
    """Files for OpenClaw itself, and workspaces that are not within the home."""
    for name in _OTHERS:
        if folder and home.has(f"{folder}/{name}"):
            why = "It holds instructions for OpenClaw's own tools: copy what you want into an AGENTS.md of a project."
            yield _left_out(f"{folder}/{name}", name, why)
    if not folder:
        why = "It lies outside of the home: copy it to `workspace` in the home and import again."
        yield _left_out(config.file, f"the workspace of the agent {agent}", why)


def _left_out(file: str, what: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, what, ""), kind="other", what=what, why=why)
