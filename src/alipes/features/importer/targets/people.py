"""Imported people: who may write on a platform."""

from alipes.config.messengers import MESSENGERS
from alipes.features.importer.plan import PlannedItem
from alipes.features.importer.records import FoundPerson
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.store.people import ImportedPeople
from alipes.features.importer.targets.target import ImportContext, describe_item

EVERYONE = "*"
OWNER = "owner"
AS_OWNER = f"as {OWNER}"


class People:
    def __init__(self, context: ImportContext) -> None:
        self._context, self._rows = context, context.store.tables(ImportedPeople)

    async def plan(self, record: FoundPerson, known: LedgerEntry | None) -> PlannedItem:
        what = f"{record.name or record.id} on {record.platform} ({record.how} there)"
        target = f"{record.platform}:{record.id}"
        if record.platform not in MESSENGERS:
            why = f"alipes has no {record.platform}"
            return describe_item(record.source, "people", what, "", "left out", why)
        if record.id == EVERYONE:
            why = f"everybody could write there; set {record.platform}.allow yourself if you want that"
            return describe_item(record.source, "people", what, "", "left out", why)
        here = await self._context.store.people.role(record.platform, record.id)
        if known is not None or here is not None:
            wanted = self._role(record)
            why = f"they are {here} here: see {record.platform}.owners" if here and here != wanted == OWNER else ""
            return describe_item(record.source, "people", what, target, "same", why)
        return describe_item(record.source, "people", what, target, "new", f"as {self._role(record)}")

    def _role(self, record: FoundPerson) -> str:
        return OWNER if self._context.options.owner == (record.platform, record.id) else "user"

    async def apply(self, record: FoundPerson, item: PlannedItem, _known: LedgerEntry | None) -> str:
        role = self._role(record)
        entry = self._context.entry(item, "made", item.target, role)
        await self._rows.add((record.platform, record.id, record.name, role, record.added), entry)
        return ""

    async def check(self, entry: LedgerEntry) -> str:
        platform, _, person = entry.target.partition(":")
        role = await self._context.store.people.role(platform, person)
        if role is None:
            return "their access was revoked here"
        return "" if role == entry.target_hash else f"they are {role} here now"

    async def undo(self, entry: LedgerEntry) -> str:
        if why := await self.check(entry):
            return why
        platform, _, person = entry.target.partition(":")
        await self._context.store.people.revoke_access(platform, person)
        await self._context.ledger.remove(entry)
        return ""
