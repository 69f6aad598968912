"""What a place here is for one kind of imported things: compares, writes, checks and takes back."""

from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.features.importer.journal import FileJournal
from alipes.features.importer.plan import ConflictChoice, PlannedItem, State
from alipes.features.importer.records import RecordSource
from alipes.features.importer.source_home import SourceHome
from alipes.features.importer.store.ledger import LedgerEntry, LedgerStore
from alipes.store.sql.store import Store


class ImportOptions(Struct, frozen=True, kw_only=True):
    """What a person chose."""

    conflicts: ConflictChoice = "keep"
    since: float = 0.0
    start: bool = False
    """Schedules run from now on."""
    owner: tuple[str, str] = ("", "")
    """Platform and id of the person who owns this home."""


class ImportContext(Struct, frozen=True, kw_only=True):
    """What all targets work with."""

    settings: Settings
    store: Store
    ledger: LedgerStore
    options: ImportOptions
    program: str
    title: str
    scope: str
    import_id: str = ""
    """Empty while planning."""
    source: SourceHome | None = None
    journal: FileJournal | None = None
    """None while planning."""

    @property
    def home(self) -> Path:
        return self.settings.home

    def entry(self, item: PlannedItem, action: Any, target: str, target_hash: str, **details: Any) -> LedgerEntry:
        """What the ledger has of an item."""
        return LedgerEntry(
            self.import_id, self.scope, item.kind, item.id, item.source, item.hash, action, target, target_hash, details
        )


PENDING = "pending"
"""Instead of a hash, while something is written: after a crash it is written again."""


class Target(Protocol):
    """Records of one kind. `known`: what was imported of a record before."""

    async def plan(self, record: Any, known: LedgerEntry | None) -> PlannedItem:
        """What would become of it; nothing is written."""

    async def apply(self, record: Any, item: PlannedItem, known: LedgerEntry | None) -> str:
        """Write it, and its entry in the ledger. Returns why not, as a sentence; empty if it was."""

    async def check(self, entry: LedgerEntry) -> str:
        """How it differs from what was imported, as a clause; empty if it does not."""

    async def undo(self, entry: LedgerEntry) -> str:
        """Take it back. Returns why it was kept, as a clause; empty if it was taken back."""


def compare(known: LedgerEntry | None, source_hash: str, present: str, wanted: str) -> State:
    """`present`: a hash of what is here now, empty if there is nothing; `wanted`: of what would be imported."""
    if known is not None and known.source_hash == source_hash:
        return "same"
    if present == wanted:
        return "same"
    if known is None:
        return "conflict" if present else "new"
    return "newer" if present == known.target_hash else "conflict"


def describe_item(  # noqa: PLR0913
    source: RecordSource, kind: Any, what: str, target: str, state: State, why: str = "", *, sensitive: bool = False
) -> PlannedItem:
    return PlannedItem(
        kind=kind,
        id=source.id,
        source=source.file,
        hash=source.hash,
        what=what,
        target=target,
        state=state,
        why=why,
        sensitive=sensitive,
    )
