"""Endpoints for what a conversation has at work: queue, plan, subagents, background processes, questions."""

from typing import Literal

from msgspec import Struct
from starlette.responses import Response

from alipes.agent.builtin_tools import StoredTodos
from alipes.core.app import App
from alipes.kernel.errors import ToolError
from alipes.sessions.commands.jobs import STOP_GRACE_S
from alipes.tools.shell.background import BackgroundProcess, stop_processes
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response
from alipes.web.inbox import InboxEndpoints, QuestionDocument
from alipes.web.runs.lookup import find_session

MAX_QUEUED_CHARS = 2000
SHOWN_LINES = 40


class QueuedRun(Struct, frozen=True):
    run: str
    text: str
    held: bool


class TodoDocument(Struct, frozen=True):
    id: str
    text: str
    status: str


class SubagentDocument(Struct, frozen=True):
    run: str
    session: str
    goal: str
    status: Literal["queued", "running"]
    started: float | None
    background: bool
    """It continues after the run that started it."""


class ProcessDocument(Struct, frozen=True):
    name: str
    command: str
    status: str
    running: bool
    started: float
    output: str
    """Its last lines."""


class Activity(Struct, frozen=True):
    run: str
    """The running run; empty if there is none."""
    queue: tuple[QueuedRun, ...]
    todos: tuple[TodoDocument, ...]
    subagents: tuple[SubagentDocument, ...]
    processes: tuple[ProcessDocument, ...]
    questions: tuple[QuestionDocument, ...]


class ActivityEndpoints:
    def __init__(self, app: App, inbox: InboxEndpoints) -> None:
        self._app, self._inbox = app, inbox
        self._store = app.store.api_runs

    @ApiEndpoint("GET", "/v1/sessions/{id}/activity", "read", answer=Activity)
    async def show(self, call: ApiCall) -> Response:
        """Get what a conversation has at work: queue, plan, subagents, background processes, open questions."""
        row, store = await find_session(self._store, call.caller, call.path["id"]), self._app.store
        pending = [each for each in await store.sessions.unfinished(row.address.key) if each.session == row.id]
        running = next((each.id for each in pending if each.started_at is not None), "")
        queued = (each for each in pending if each.started_at is None)
        living = await store.subagents.unfinished(place=row.address.key)
        found = self._app.background.processes_of(row.id)
        activity = Activity(
            run=running,
            queue=tuple(QueuedRun(each.id, each.text[:MAX_QUEUED_CHARS], each.held) for each in queued),
            todos=tuple(
                TodoDocument(each.id, each.content, each.status) for each in await StoredTodos(store.todos).read(row.id)
            ),
            subagents=tuple(
                SubagentDocument(
                    each.id,
                    each.session,
                    each.inbound.origin.goal or each.inbound.text[:200],
                    "queued" if each.started is None else "running",
                    each.started,
                    bool(each.inbound.origin.reports),
                )
                for each in living
                if each.inbound.origin is not None and each.inbound.origin.session == row.id
            ),
            processes=tuple([await _describe(each) for each in found]),
            questions=await self._inbox.list_questions(row.id),
        )
        return json_response(activity)

    @ApiEndpoint("POST", "/v1/sessions/{id}/processes/{name}/stop", "run", answer=ProcessDocument)
    async def stop(self, call: ApiCall) -> Response:
        """Stop a background process of a conversation."""
        row = await find_session(self._store, call.caller, call.path["id"])
        try:
            process = self._app.background.find(row.id, call.path["name"])
        except ToolError as error:
            raise HttpProblem(404, str(error), code="no_process") from error
        await stop_processes([process], STOP_GRACE_S)
        return json_response(await _describe(process))


async def _describe(process: BackgroundProcess) -> ProcessDocument:
    return ProcessDocument(
        process.name,
        process.command,
        process.status.removeprefix("is "),
        not process.is_finished,
        process.started,
        await process.log.read_lines(0, SHOWN_LINES),
    )
