"""Finds the runs and conversations that a caller may see, and describes them."""

import os
import re
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from alipes.core.app import App
from alipes.kernel.messages import Image
from alipes.kernel.turns import SCHEDULED, Address, ApprovalAsked, Ending, Inbound, QuestionAsked, Usage
from alipes.store.ports.archive import TurnFacts
from alipes.store.ports.search import EVERYTHING, SearchScope, SessionOwner
from alipes.store.sql.api_runs import ApiRunStore, ApiSession
from alipes.web.endpoint import PLATFORM, Caller, HttpProblem
from alipes.web.runs.events import LiveRuns

Name: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Status: TypeAlias = Literal["queued", "held", "running", "waiting"] | Ending
"""`held`: queued, and kept back when the run before it was stopped. `waiting`: for an answer from a person; see
`waits_for`."""


class Run(Struct, frozen=True, omit_defaults=True):
    id: str
    session: str
    """Name of its conversation."""
    status: Status
    session_id: str = ""
    input: str = ""
    text: str = ""
    """The last answer."""
    detail: str = ""
    """Reason of the ending."""
    created: float | None = None
    ended: float | None = None
    attempts: int = 0
    """Number of starts; more than one after a restart of the process."""
    usage: Usage | None = None
    waits_for: tuple[ApprovalAsked | QuestionAsked, ...] = ()
    resumes_at: float | None = None
    """When it continues, if it waits for the limit of its model's provider."""
    held: tuple[str, ...] = ()
    """In the answer to a stop: the queued runs of the conversation that are kept back."""


PAGE = "page"
"""The caller name of browsers, and the surface of what is typed there."""
_UNATTENDED = (SCHEDULED, "webhook", "subagent", "plugin")
"""Surfaces whose conversations nobody continues."""
_ID = re.compile(r"[0-9a-f]{12}")


class VisibleRun(Struct, frozen=True):
    """A run that the caller may see."""

    turn: str
    inbound: Inbound
    facts: TurnFacts | None
    """Facts from the store; None for a live run that was found without it."""

    @property
    def key(self) -> str:
        return self.inbound.address.key

    @property
    def has_ended(self) -> bool:
        return self.facts is not None and self.facts.ending is not None


class RunLookup:
    """What the endpoints of runs and the MCP tools share."""

    def __init__(self, app: App, runs: LiveRuns) -> None:
        self._app, self._runs = app, runs
        self._store = app.store.api_runs

    def find_question(self, run: VisibleRun, named: str, kind: type[ApprovalAsked] | type[QuestionAsked]) -> str:
        """The id of the question to answer. Raises `HttpProblem` if it is not open."""
        if named and not self._app.sessions.is_busy(run.key):
            return named  # the run is in another process, which knows its questions
        questions = self._runs.questions(run.key, run.turn)
        waiting = [each.ask for each in questions if isinstance(each, kind)]
        if named in waiting or (not named and len(waiting) == 1):
            return named or waiting[0]
        ambiguous = "several questions are open: choose one with `ask`"
        raise HttpProblem(409, ambiguous if waiting and not named else "no such open question", code="no_question")

    async def find(self, turn: str, caller: Caller) -> VisibleRun:
        """The run, if the caller may see it."""
        live = self._runs.find(turn)
        facts = None if live is not None else await self._app.store.archive.turn(turn)
        inbound = live.inbound if live is not None else facts and facts.inbound
        if not inbound or not may_see(caller, inbound.address):
            raise HttpProblem(404, f"no run {turn}", code="no_run")
        return VisibleRun(turn, inbound, facts)

    async def find_live(self, turn: str, caller: Caller) -> VisibleRun:
        run = await self.find(turn, caller)
        if run.has_ended:
            raise HttpProblem(409, "the run has ended", code="over")
        return run

    async def describe(self, turn: str) -> Run:
        facts = await self._app.store.archive.turn(turn)
        if facts is None:
            raise HttpProblem(404, f"no run {turn}", code="no_run")
        waits_for = self._runs.questions(facts.inbound.address.key, turn)
        queued: Status = "held" if facts.held else "queued"
        unfinished: Status = "waiting" if waits_for or facts.resume_at else "running" if facts.attempts else queued
        answers = (each.text for each in reversed(facts.said) if each.role == "assistant")
        return Run(
            id=facts.id,
            session=facts.inbound.address.chat,
            status=facts.ending or unfinished,
            session_id=facts.session,
            input=facts.inbound.text,
            text=next(answers, ""),
            detail=facts.detail,
            created=facts.created,
            ended=facts.ended,
            attempts=facts.attempts,
            usage=facts.spent.usage if facts.spent.calls else None,
            waits_for=waits_for,
            resumes_at=facts.resume_at or None,
        )

    async def platform(self, session: str) -> str:
        """The platform of the conversation with this name or id."""
        row = await self._store.session(session) if _ID.fullmatch(session) else None
        return PLATFORM if row is None else row.address.platform

    async def place(self, caller: Caller, session: str) -> "RunPlace":
        """Where a run takes place: the conversation with this name or id. An admin may continue those of other
        surfaces."""
        if not _ID.fullmatch(session):
            address = Address(PLATFORM, session or f"run-{os.urandom(6).hex()}", user=caller.name)
            return RunPlace(address, caller.name, self._runs.workdir, caller.may("admin"))
        row = await self._store.session(session)
        if row is None or not may_see(caller, row.address):
            raise HttpProblem(404, f"no session {session}", code="no_session")
        elsewhere = row.address.platform != PLATFORM
        if not row.is_current or (elsewhere and (not caller.may("admin") or row.address.platform in _UNATTENDED)):
            raise HttpProblem(409, "that conversation cannot be continued here; fork it", code="elsewhere")
        if not elsewhere:
            return RunPlace(row.address, caller.name, self._runs.workdir, caller.may("admin"))
        last = await self._app.store.transcripts.last_inbound(row.id)
        return self.other_place(caller, row.address, last)

    def other_place(self, caller: Caller, address: Address, last: Inbound | None) -> "RunPlace":
        """A place of another surface. `last`: its own last message. The owner's message has its rights and notes, so
        that a guest's conversation gets neither."""
        via = PAGE if caller.sees_all else PLATFORM
        if last is None:
            return RunPlace(address, caller.name, self._runs.workdir, via=via)
        workdir = last.workdir or self._runs.workdir
        return RunPlace(address, last.sender, workdir, last.owner, untrusted=last.untrusted, via=via)


class RunPlace(Struct, frozen=True):
    """The conversation of a run, and as whom its message is sent."""

    address: Address
    sender: str
    workdir: str
    owner: bool = False
    untrusted: str = ""
    via: str = ""
    """Not empty: the conversation belongs to another surface."""

    def make_inbound(self, id: str, text: str, images: tuple[Image, ...] = ()) -> Inbound:
        shared = self.via and self.address.chat_type != "dm" and not self.address.user
        return Inbound(
            id,
            self.address,
            self.sender,
            f"Owner: {text}" if shared else text,
            images,
            workdir=self.workdir,
            owner=self.owner,
            untrusted=self.untrusted,
            via=self.via,
        )


async def find_session(store: ApiRunStore, caller: Caller, name: str) -> ApiSession:
    """The session with this id or name, if the caller may see it. Raises `HttpProblem`."""
    row = await store.session(name)
    if row is None or not may_see(caller, row.address):
        row = await store.find_current(Address(PLATFORM, name, user=caller.name))
    if row is None:
        raise HttpProblem(404, f"no session {name}", code="no_session")
    return row


_LABELS = {"api": "API", "irc": "IRC", "email": "Email"}


def describe_origin(address: Address, person: str = "") -> str:
    """Where a conversation takes place, for people: "Telegram · Ann", "terminal", "API · ci"."""
    platform = address.platform
    if platform == PLATFORM and person == PAGE:
        return PAGE
    if platform in ("terminal", "webhook", SCHEDULED, "plugin"):
        return f"{platform} · {person or address.chat}" if platform != "terminal" else platform
    label = _LABELS.get(platform) or platform[:1].upper() + platform[1:]
    return f"{label} · {person or address.user or address.chat}"


def may_see(caller: Caller, address: Address) -> bool:
    return caller.may("admin") or caller.sees_all or owner(caller).has(address)


def visible_scope(caller: Caller) -> SearchScope:
    """The conversations that the caller may see."""
    return EVERYTHING if caller.may("admin") or caller.sees_all else SearchScope(owner=owner(caller))


def owner(caller: Caller) -> SessionOwner:
    return SessionOwner(PLATFORM, caller.name)
