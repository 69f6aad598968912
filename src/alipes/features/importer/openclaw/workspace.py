"""The files of an OpenClaw agent: memory, persona, daily notes, skills."""

import re
from collections.abc import Iterator

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
_DEFAULT_LINES = (
    "The more you know, the better you can help. But remember — you're learning about a person, not building a "
    "dossier. Respect the difference.",
    "[Agent workspace](/concepts/agent-workspace)",
)
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
        seen = {*_DEFAULT_LINES}
        for entry in split_entries(_SUPERSEDED.sub("", home.read_text(file) or "")):
            if entry not in seen:
                seen.add(entry)
                source = RecordSource(file, plain_hash(entry), plain_hash(entry))
                yield MemoryEntry(source=source, text=entry, about="user" if name == "USER.md" else "notes")


def read_persona(home: SourceHome, folder: str) -> Iterator[Persona]:
    """`SOUL.md` and what is filled in of `IDENTITY.md`, unless both are OpenClaw's own."""
    soul = home.read_text(f"{folder}/SOUL.md") or ""
    identity = home.read_text(f"{folder}/IDENTITY.md") or ""
    own = "" if plain_hash(soul) in DEFAULT_PERSONAS else soul.strip()
    filled = [f"- {name}: {value}" for name, value in _FORM.findall(identity) if value and not value.startswith("_")]
    text = "\n\n".join(filter(None, (own, "\n".join(filled))))
    if text:
        yield Persona(source=RecordSource(f"{folder}/SOUL.md", "persona", content_hash(text)), text=text)


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
            yield DailyNote(source=RecordSource(file, name, content_hash(text)), day=day[1], text=text)


def read_all_skills(home: SourceHome, folders: list[str]) -> Iterator[Record]:
    """Of the workspace first; a skill of the same name in another folder is left out."""
    seen: set[str] = set()
    for folder in folders:
        for found in read_skills(home, folder):
            if found.source.id not in seen:
                seen.add(found.source.id)
                yield found


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
