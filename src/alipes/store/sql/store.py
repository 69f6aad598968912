"""The ports of an open store, over one database. Those that few commands use are imported with their first use."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.memory.store import SqlMemory
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
from alipes.store.search.indexer import SqlSearchIndexer
from alipes.store.sql.approvals import SqlApprovals, SqlUntrustedSources
from alipes.store.sql.background import SqlBackgroundProcesses
from alipes.store.sql.changes import HomeChanges
from alipes.store.sql.connection import Database
from alipes.store.sql.conversations import SqlPromptSections, SqlSessions, SqlSkillChoices, SqlTodos, SqlToolChoices
from alipes.store.sql.health import SqlHealth
from alipes.store.sql.history import SqlCompactionStore
from alipes.store.sql.inbox import SqlInbox
from alipes.store.sql.outbox import SqlDrafts, SqlOutbox
from alipes.store.sql.people import SqlPeople
from alipes.store.sql.proposals import SqlProposals
from alipes.store.sql.questions import SqlQuestions
from alipes.store.sql.subagents import SqlSubagents
from alipes.store.sql.turns import SqlTurns
from alipes.store.sql.usage import SqlSkillUses, SqlUsageLedger

if TYPE_CHECKING:
    from alipes.features.schedules.store.jobs import SqlSchedules
    from alipes.features.schedules.store.runs import SqlScheduleRuns
    from alipes.features.usage.store import SqlUsageReports
    from alipes.store.sql.api_history import SqlApiHistory
    from alipes.store.sql.api_keys import SqlApiKeys, SqlWebhooks
    from alipes.store.sql.api_runs import SqlApiRuns, SqlResponses
    from alipes.store.sql.browsers import SqlBrowsers
    from alipes.store.sql.transcript import SqlTranscripts


class LocalLeaders:
    """The only process that serves a home leads everything: a lock file keeps others from serving it."""

    async def lead(self, _name: str, work: Callable[[], Awaitable[None]]) -> None:
        await work()


class SqlStore:
    """See `kernel.store.store.Store`. An engine adds `archive` and `search_indexer`.

    `database` and `processes` are for the store itself and its tests.
    """

    clustered = False
    leaders: LeaderElection = LocalLeaders()
    platform_states: PlatformStates | None = None
    archive: Archive
    search_indexer: SqlSearchIndexer
    cluster: ClusterView | None = None

    def __init__(
        self,
        database: Database,
        processes: Liveness,
        turns: SqlTurns,
        *,
        dispatcher: Dispatcher,
        bus: EventBus,
        schedule_changes: ScheduleChangeFeed,
    ) -> None:
        self.database, self.processes, self.host = database, processes, processes.own_name
        self.turns, self.dispatcher, self.bus = turns, dispatcher, bus
        self.changes, self.schedule_changes = HomeChanges(database, bus), schedule_changes
        self.sessions = SqlSessions(database, processes)
        self.approvals, self.sources = SqlApprovals(database), SqlUntrustedSources(database)
        self.questions = SqlQuestions(database)
        self.outbox, self.drafts, self.inbox = SqlOutbox(database), SqlDrafts(database), SqlInbox(database)
        self.people, self.todos, self.subagents = SqlPeople(database), SqlTodos(database), SqlSubagents(database)
        self.tool_choices, self.skill_choices = SqlToolChoices(database), SqlSkillChoices(database)
        self.prompt_sections, self.skill_uses = SqlPromptSections(database), SqlSkillUses(database)
        self.memory, self.proposals = SqlMemory(database), SqlProposals(database)
        self.usage_ledger, self.compaction = SqlUsageLedger(database), SqlCompactionStore(database)
        self.health = SqlHealth(database)
        self.background_processes = SqlBackgroundProcesses(database, processes)

    def check_lease(self) -> None:
        self.processes.check_lease()

    @cached_property
    def schedules(self) -> "SqlSchedules":
        from alipes.features.schedules.store.jobs import SqlSchedules  # noqa: PLC0415

        return SqlSchedules(self.database, self.schedule_changes)

    @cached_property
    def schedule_runs(self) -> "SqlScheduleRuns":
        from alipes.features.schedules.store.runs import SqlScheduleRuns  # noqa: PLC0415

        return SqlScheduleRuns(self.database, self.schedule_changes)

    @cached_property
    def usage_reports(self) -> "SqlUsageReports":
        from alipes.features.usage.store import SqlUsageReports  # noqa: PLC0415

        return SqlUsageReports(self.database)

    @cached_property
    def transcripts(self) -> "SqlTranscripts":
        from alipes.store.sql.transcript import SqlTranscripts  # noqa: PLC0415

        return SqlTranscripts(self.database)

    @cached_property
    def api_keys(self) -> "SqlApiKeys":
        from alipes.store.sql.api_keys import SqlApiKeys  # noqa: PLC0415

        return SqlApiKeys(self.database)

    @cached_property
    def webhooks(self) -> "SqlWebhooks":
        from alipes.store.sql.api_keys import SqlWebhooks  # noqa: PLC0415

        return SqlWebhooks(self.database)

    @cached_property
    def browsers(self) -> "SqlBrowsers":
        from alipes.store.sql.browsers import SqlBrowsers  # noqa: PLC0415

        return SqlBrowsers(self.database)

    @cached_property
    def api_runs(self) -> "SqlApiRuns":
        from alipes.store.sql.api_runs import SqlApiRuns  # noqa: PLC0415

        return SqlApiRuns(self.database)

    @cached_property
    def responses(self) -> "SqlResponses":
        from alipes.store.sql.api_runs import SqlResponses  # noqa: PLC0415

        return SqlResponses(self.database, self.archive)

    @cached_property
    def api_history(self) -> "SqlApiHistory":
        from alipes.store.sql.api_history import SqlApiHistory  # noqa: PLC0415

        return SqlApiHistory(self.database)
