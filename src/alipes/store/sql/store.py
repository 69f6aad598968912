"""The open store: one object for each subject. Those that few commands use are imported with their first use."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from alipes.store.ports.archive import Archive
from alipes.store.ports.cluster import (
    ClusterView,
    Dispatcher,
    EventBus,
    LeaderElection,
    Liveness,
    PlatformStates,
    ScheduleChangeFeed,
)
from alipes.store.ports.outbox import OutboxStore
from alipes.store.ports.search import SearchIndexer
from alipes.store.ports.turns import TurnStore
from alipes.store.sql.approvals import ApprovalStore, UntrustedSourceStore
from alipes.store.sql.background import BackgroundProcessStore
from alipes.store.sql.changes import HomeChangeFeed
from alipes.store.sql.connection import Database
from alipes.store.sql.conversations import (
    PromptSectionStore,
    SessionStore,
    SkillChoiceStore,
    TodoStore,
    ToolChoiceStore,
)
from alipes.store.sql.health import StoreHealth
from alipes.store.sql.history import CompactionStore
from alipes.store.sql.inbox import InboxStore
from alipes.store.sql.outbox import DraftStore, SqlOutbox
from alipes.store.sql.people import PeopleStore
from alipes.store.sql.proposals import ProposalStore
from alipes.store.sql.questions import QuestionStore
from alipes.store.sql.subagents import SubagentStore
from alipes.store.sql.usage import UsageLedger

if TYPE_CHECKING:
    from alipes.store.sql.api_history import ApiHistoryStore
    from alipes.store.sql.api_keys import ApiKeyStore
    from alipes.store.sql.api_runs import ApiRunStore, ResponseStore
    from alipes.store.sql.browsers import BrowserStore
    from alipes.store.sql.provider_keys import ProviderKeyStore
    from alipes.store.sql.shares import ShareStore
    from alipes.store.sql.transcript import TranscriptStore

Given = ParamSpec("Given")
Tables = TypeVar("Tables")


class LocalLeaders:
    """The only process that serves a home leads everything: a lock file keeps others from serving it."""

    async def lead(self, _name: str, work: Callable[[], Awaitable[None]]) -> None:
        await work()


class Store:
    """The parts of an open store; they are usable while it is open only. An engine adds `archive` and `search_indexer`.

    `database` and `processes` are for the store itself and its tests.
    """

    clustered = False
    """True if other processes may serve the same store."""
    leaders: LeaderElection = LocalLeaders()
    platform_states: PlatformStates | None = None
    """None if no other process serves the store."""
    cluster: ClusterView | None = None
    """None if no other process serves the store."""
    turns: TurnStore
    outbox: OutboxStore
    archive: Archive
    search_indexer: SearchIndexer

    def __init__(
        self,
        database: Database,
        processes: Liveness,
        turns: TurnStore,
        *,
        dispatcher: Dispatcher,
        bus: EventBus,
        schedule_changes: ScheduleChangeFeed,
    ) -> None:
        self.database, self.processes = database, processes
        self.host = processes.own_name
        """The name of this process among those of the home."""
        self.turns, self.dispatcher, self.bus = turns, dispatcher, bus
        self.changes, self.schedule_changes = HomeChangeFeed(database, bus), schedule_changes
        self.sessions = SessionStore(database, processes)
        self.approvals, self.sources = ApprovalStore(database), UntrustedSourceStore(database)
        self.questions = QuestionStore(database)
        self.outbox, self.drafts, self.inbox = SqlOutbox(database), DraftStore(database), InboxStore(database)
        self.people, self.todos, self.subagents = PeopleStore(database), TodoStore(database), SubagentStore(database)
        self.tool_choices, self.skill_choices = ToolChoiceStore(database), SkillChoiceStore(database)
        self.prompt_sections, self.proposals = PromptSectionStore(database), ProposalStore(database)
        self.usage_ledger, self.compaction = UsageLedger(database), CompactionStore(database)
        self.health = StoreHealth(database)
        self.background_processes = BackgroundProcessStore(database, processes)

    def tables(
        self, kind: Callable[Concatenate[Database, Given], Tables], *given: Given.args, **more: Given.kwargs
    ) -> Tables:
        """The tables of a feature: `kind` is a class in its `store`, which gets the database first."""
        return kind(self.database, *given, **more)

    def check_lease(self) -> None:
        """Call it before each act that others can see. Raises `LeaseLost` once others may have taken over."""
        self.processes.check_lease()

    @cached_property
    def transcripts(self) -> "TranscriptStore":
        from alipes.store.sql.transcript import TranscriptStore  # noqa: PLC0415

        return TranscriptStore(self.database)

    @cached_property
    def api_keys(self) -> "ApiKeyStore":
        from alipes.store.sql.api_keys import ApiKeyStore  # noqa: PLC0415

        return ApiKeyStore(self.database)

    @cached_property
    def provider_keys(self) -> "ProviderKeyStore":
        from alipes.store.sql.provider_keys import ProviderKeyStore  # noqa: PLC0415

        return ProviderKeyStore(self.database)

    @cached_property
    def browsers(self) -> "BrowserStore":
        from alipes.store.sql.browsers import BrowserStore  # noqa: PLC0415

        return BrowserStore(self.database)

    @cached_property
    def shares(self) -> "ShareStore":
        from alipes.store.sql.shares import ShareStore  # noqa: PLC0415

        return ShareStore(self.database)

    @cached_property
    def api_runs(self) -> "ApiRunStore":
        from alipes.store.sql.api_runs import ApiRunStore  # noqa: PLC0415

        return ApiRunStore(self.database)

    @cached_property
    def responses(self) -> "ResponseStore":
        from alipes.store.sql.api_runs import ResponseStore  # noqa: PLC0415

        return ResponseStore(self.database, self.archive)

    @cached_property
    def api_history(self) -> "ApiHistoryStore":
        from alipes.store.sql.api_history import ApiHistoryStore  # noqa: PLC0415

        return ApiHistoryStore(self.database)
