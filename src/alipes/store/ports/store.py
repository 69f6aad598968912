"""The open store: one port for each subject. It is the only thing of the store that others are given."""

from typing import TYPE_CHECKING, Protocol

from alipes.kernel.usage import CompactionStore, UsageLedger

if TYPE_CHECKING:  # a command imports only what it uses
    from alipes.features.schedules.run import ScheduleRunStore, ScheduleStore
    from alipes.store.ports.api import ApiHistoryStore, ApiRunStore, ResponseStore, TranscriptStore
    from alipes.store.ports.approvals import ApprovalStore, QuestionStore, UntrustedSourceStore
    from alipes.store.ports.archive import Archive
    from alipes.store.ports.cluster import (
        ClusterView,
        Dispatcher,
        EventBus,
        HomeChangeFeed,
        LeaderElection,
        PlatformStates,
        ScheduleChangeFeed,
    )
    from alipes.store.ports.conversations import (
        PromptSectionStore,
        SessionStore,
        SkillChoiceStore,
        TodoStore,
        ToolChoiceStore,
    )
    from alipes.store.ports.health import StoreHealth
    from alipes.store.ports.inbox import InboxStore
    from alipes.store.ports.memory import MemoryStore, ProposalStore
    from alipes.store.ports.outbox import DraftStore, OutboxStore
    from alipes.store.ports.people import PeopleStore
    from alipes.store.ports.search import SearchIndexer
    from alipes.store.ports.turns import BackgroundProcessStore, SubagentStore, TurnStore
    from alipes.store.ports.usage import SkillUseStore, UsageReports
    from alipes.store.ports.web import ApiKeyStore, BrowserStore, WebhookStore


class Store(Protocol):
    """The parts of an open store; they are usable while it is open only."""

    @property
    def host(self) -> str:
        """The name of this process among those of the home."""

    @property
    def clustered(self) -> bool:
        """True if other processes may serve the same store."""

    def check_lease(self) -> None:
        """Call it before each act that others can see. Raises `LeaseLost` once others may have taken over."""

    @property
    def leaders(self) -> "LeaderElection": ...

    @property
    def platform_states(self) -> "PlatformStates | None":
        """None if no other process serves the store."""

    @property
    def cluster(self) -> "ClusterView | None":
        """None if no other process serves the store."""

    @property
    def turns(self) -> "TurnStore": ...

    @property
    def sessions(self) -> "SessionStore": ...

    @property
    def approvals(self) -> "ApprovalStore": ...

    @property
    def questions(self) -> "QuestionStore": ...

    @property
    def sources(self) -> "UntrustedSourceStore": ...

    @property
    def archive(self) -> "Archive": ...

    @property
    def outbox(self) -> "OutboxStore": ...

    @property
    def drafts(self) -> "DraftStore": ...

    @property
    def people(self) -> "PeopleStore": ...

    @property
    def inbox(self) -> "InboxStore": ...

    @property
    def todos(self) -> "TodoStore": ...

    @property
    def tool_choices(self) -> "ToolChoiceStore": ...

    @property
    def skill_choices(self) -> "SkillChoiceStore": ...

    @property
    def prompt_sections(self) -> "PromptSectionStore": ...

    @property
    def subagents(self) -> "SubagentStore": ...

    @property
    def background_processes(self) -> "BackgroundProcessStore": ...

    @property
    def memory(self) -> "MemoryStore": ...

    @property
    def proposals(self) -> "ProposalStore": ...

    @property
    def skill_uses(self) -> "SkillUseStore": ...

    @property
    def search_indexer(self) -> "SearchIndexer": ...

    @property
    def dispatcher(self) -> "Dispatcher": ...

    @property
    def bus(self) -> "EventBus": ...

    @property
    def changes(self) -> "HomeChangeFeed": ...

    @property
    def schedule_changes(self) -> "ScheduleChangeFeed": ...

    @property
    def schedules(self) -> "ScheduleStore": ...

    @property
    def schedule_runs(self) -> "ScheduleRunStore": ...

    @property
    def usage_reports(self) -> "UsageReports": ...

    @property
    def api_keys(self) -> "ApiKeyStore": ...

    @property
    def webhooks(self) -> "WebhookStore": ...

    @property
    def browsers(self) -> "BrowserStore": ...

    @property
    def api_runs(self) -> "ApiRunStore": ...

    @property
    def api_history(self) -> "ApiHistoryStore": ...

    @property
    def responses(self) -> "ResponseStore": ...

    @property
    def transcripts(self) -> "TranscriptStore": ...

    @property
    def health(self) -> "StoreHealth": ...

    @property
    def usage_ledger(self) -> UsageLedger: ...

    @property
    def compaction(self) -> CompactionStore: ...
