"""Memory, persona, skills, plugins and hooks of Hermes."""

from collections.abc import Iterator

from alipes.features.importer.formats import SourceError, content_hash, plain_text
from alipes.features.importer.records import (
    FoundFile,
    FoundPlugin,
    LeftOut,
    MemoryEntry,
    Persona,
    Record,
    RecordSource,
    SkillFolder,
)
from alipes.features.importer.source_home import SourceHome
from alipes.runtime.front_matter import field_text, parse_fields, split_front_matter

SOUL, SKILLS, BUNDLED = "SOUL.md", "skills", "skills/.bundled_manifest"
MAX_DEPTH = 4
_MEMORY = {"memories/MEMORY.md": "notes", "memories/USER.md": "user"}
_SCRIPTS = (".sh", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1", ".bash", ".zsh")
_NO_SKILLS = ("references", "scripts", "assets", "templates")
_DEFAULT_PERSONA = "You are Hermes Agent, an intelligent AI assistant created by Nous Research."
LEFT = {
    "kanban.db": "the board of tasks has no counterpart here",
    "projects.db": "projects have no counterpart here",
    "response_store.db": "responses of the API are not kept",
    "checkpoints": "snapshots of files are not taken over",
    "logs": "logs are not taken over",
    "webhook_subscriptions.json": "add webhooks with `alipes webhook add`: their secrets are new here",
    "cache": "caches are not taken over",
    "cron/executions.db": "the history of runs is not taken over",
    "cron/output": "the outputs of runs are not taken over",
}


def read_memory(home: SourceHome) -> Iterator[Record]:
    for file, about in _MEMORY.items():
        content = home.read_text(file)
        for entry in _split_entries(content or ""):
            source = RecordSource(file, f"{about}:{content_hash(' '.join(entry.split()))}", content_hash(entry))
            yield MemoryEntry(source=source, text=entry, about="user" if about == "user" else "notes")


def _split_entries(content: str) -> Iterator[str]:
    entry: list[str] = []
    for line in [*content.splitlines(), "§"]:
        if line.strip() == "§":
            if text := "\n".join(entry).strip():
                yield text
            entry = []
        else:
            entry.append(line)


def read_persona(home: SourceHome) -> Iterator[Record]:
    content = (home.read_text(SOUL) or "").strip()
    plain = " ".join(content.split())
    if plain.startswith(_DEFAULT_PERSONA):
        why = "it is the text that Hermes Agent comes with"
        yield LeftOut(source=RecordSource(SOUL, SOUL, ""), kind="persona", what=SOUL, why=why)
    elif plain:
        yield Persona(source=RecordSource(SOUL, SOUL, content_hash(content)), text=content)


def read_skills(home: SourceHome) -> Iterator[Record]:
    bundled = {line.partition(":")[0].strip() for line in (home.read_text(BUNDLED) or "").splitlines()}
    yield from _find_skills(home, SKILLS, bundled, 0)


def _find_skills(home: SourceHome, folder: str, bundled: set[str], depth: int) -> Iterator[Record]:
    for name in home.list_names(folder):
        path = f"{folder}/{name}"
        if name.startswith(".") or name in _NO_SKILLS:
            continue
        if home.has(f"{path}/SKILL.md"):
            yield _read_skill(home, path, name, bundled)
        elif depth < MAX_DEPTH:
            yield from _find_skills(home, path, bundled, depth + 1)


def _read_skill(home: SourceHome, path: str, folder: str, bundled: set[str]) -> Record:
    try:
        head, _ = split_front_matter(home.read_text(f"{path}/SKILL.md") or "")
        fields = parse_fields(head) if head else {}
        name = plain_text(field_text(fields.get("name"))).strip() or folder
        if name in bundled:
            why = "it comes with Hermes Agent"
            return LeftOut(source=RecordSource(path, path, ""), kind="skills", what=name, why=why)
        files = home.list_files(path)
    except (SourceError, ValueError) as error:
        return LeftOut(source=RecordSource(path, path, ""), kind="skills", what=folder, why=str(error))
    scripts = tuple(each.name for each in files if each.executable or each.name.endswith(_SCRIPTS))
    category = "/".join(path.split("/")[1:-1])
    source = RecordSource(path, path, hash_files(files))
    return SkillFolder(source=source, name=name, files=files, category=category, scripts=scripts)


def read_plugins(home: SourceHome) -> Iterator[Record]:
    for what, folder in (("plugin", "plugins"), ("hook", "hooks")):
        for name in home.list_names(folder):
            path = f"{folder}/{name}"
            try:
                files = home.list_files(path)
            except SourceError as error:
                if not str(error).endswith("is not a folder"):
                    yield LeftOut(source=RecordSource(path, path, ""), kind="plugins", what=name, why=str(error))
                continue
            source = RecordSource(path, path, hash_files(files))
            if files:
                yield FoundPlugin(source=source, name=name, files=files, what="hook" if what == "hook" else "plugin")


def hash_files(files: tuple[FoundFile, ...]) -> str:
    return content_hash([(each.name, each.hash, each.executable) for each in files])


def read_others(home: SourceHome) -> Iterator[LeftOut]:
    for name, why in LEFT.items():
        if home.exists(name):
            yield LeftOut(source=RecordSource(name, name, ""), kind="other", what=name, why=why)
    dumps = [name for name in home.list_names("sessions") if name.startswith("request_dump_")]
    if dumps:
        why = "whole requests are not taken over"
        source = RecordSource("sessions", "request_dumps", "")
        yield LeftOut(source=source, kind="other", what=f"{len(dumps)} dumps of requests", why=why)
