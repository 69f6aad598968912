"""Imported skills, with all their files and where they came from."""

import hashlib

from alipes.features.importer.formats import SourceError
from alipes.features.importer.plan import PlannedItem
from alipes.features.importer.records import SkillFolder
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.targets.files import hash_folder, hash_found
from alipes.features.importer.targets.target import ImportContext, compare, describe_item
from alipes.features.skills.skill import find_name_problem
from alipes.features.skills.versions import SkillChange, SkillFile, SkillStore
from alipes.kernel.errors import ConfigError


class SkillFolders:
    def __init__(self, context: ImportContext) -> None:
        self._context = context
        self._skills = SkillStore(context.settings.paths.skills)

    async def plan(self, record: SkillFolder, known: LedgerEntry | None) -> PlannedItem:
        if problem := find_name_problem(record.name):
            return describe_item(record.source, "skills", record.name, "", "left out", problem)
        place = self._skills.folder / record.name
        state = compare(known, record.source.hash, hash_folder(place), hash_found(record.files))
        notes = ["there is another skill of this name here"] if state == "conflict" else []
        if record.scripts:
            notes.append(f"look at its scripts before you use it: {', '.join(record.scripts[:5])}")
        what = f"{record.category}/{record.name}" if record.category else record.name
        sensitive = bool(record.scripts)
        why = "; ".join(notes)
        return describe_item(record.source, "skills", what, f"skills/{record.name}", state, why, sensitive=sensitive)

    async def apply(self, record: SkillFolder, item: PlannedItem, _known: LedgerEntry | None) -> str:
        context, store, name = self._context, self._skills, record.name
        assert context.journal is not None and context.source is not None
        exists = context.journal.existed(store.folder / name)
        if exists and item.state == "conflict" and context.options.conflicts == "both":
            name, exists = f"{name[: 60 - len(context.program)]}-{context.program}", False
        try:
            files = {each.name: (context.source.read_bytes(each.path), each.executable) for each in record.files}
        except SourceError as error:
            return f"{error}."
        if name != record.name and "SKILL.md" in files:
            text = files["SKILL.md"][0].replace(f"name: {record.name}".encode(), f"name: {name}".encode(), 1)
            files["SKILL.md"] = (text, False)
        origin = {"kind": "import", "place": context.title, "folder": item.source, "exact": item.hash}
        if record.category:
            origin["category"] = record.category
        change = SkillChange("install", f"imported from {context.title}", source=origin)
        objects = store.folder / ".versions" / "objects"
        sums = [hashlib.sha256(data).hexdigest() for data, _ in files.values()]
        touched = (
            *(store.folder / name, store.folder / ".versions" / name, store.folder / ".pins.json"),
            *(store.folder / ".lock", *(objects / each[:2] / each for each in sums)),
        )
        try:
            with context.journal.changing(*touched):
                wanted = {path: SkillFile(*file) for path, file in files.items()}
                if store.read(name) != wanted:  # else an import that was broken off has written it
                    store.write(name, wanted, change)
        except ConfigError as error:
            return str(error)
        target = f"skills/{name}"
        place = store.folder / name
        await context.ledger.add(context.entry(item, "replaced" if exists else "made", target, hash_folder(place)))
        return ""

    def _hash(self, entry: LedgerEntry) -> str:
        return hash_folder(self._skills.folder / entry.target.removeprefix("skills/"))

    async def check(self, entry: LedgerEntry) -> str:
        return "" if self._hash(entry) == entry.target_hash else "it was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        """Its files were put back already, if nobody has changed them."""
        if self._hash(entry) == entry.target_hash and entry.action == "made":
            return "it could not be removed"
        await self._context.ledger.remove(entry)
        return ""
