"""Endpoints for scheduled jobs: list, preview, add, change, run, pause, stop, history, delete."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, structs
from starlette.responses import Response

from alipes.core.app import App
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.job import JobRun, OverlapPolicy, RunState, Schedule
from alipes.features.schedules.schedules import (
    ALL_TOOLS,
    MAX_DELAY_S,
    MAX_PROMPT_CHARS,
    MAX_RETRIES,
    Schedules,
    ScheduleView,
)
from alipes.features.schedules.timetable import TimetableKind
from alipes.features.server import Server
from alipes.kernel.turns import PermissionMode
from alipes.web.control import refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response, no_content

NEXT_TIMES = 5
JobState: TypeAlias = Literal["active", "paused", "done"]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]
Short: TypeAlias = Annotated[str, Meta(max_length=1000)]
Delay: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DELAY_S)]
_FIELDS = {"deliver": "targets", "folder": "workdir", "permission_mode": "mode"}
"""Fields that have another name in a request to `Schedules`."""


class JobChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """What is not given stays as it is."""

    when: Short | UnsetType = UNSET
    """Such as `every weekday at 9`, `in 30m`, `0 9 * * 1-5`, `after NAME` or `manual`."""
    prompt: Text | UnsetType = UNSET
    script: Text | UnsetType = UNSET
    """Shell commands that run without a model. Either a prompt or a script."""
    name: Short | UnsetType = UNSET
    zone: Short | UnsetType = UNSET
    """Time zone, such as `Europe/Berlin`."""
    deliver: tuple[Short, ...] | UnsetType = UNSET
    """Who gets the answer: `home`, a platform, `platform:chat`, an https address, `files`, `none`."""
    model: Short | UnsetType = UNSET
    tools: tuple[Short, ...] | UnsetType | None = UNSET
    """null: all."""
    skills: tuple[Short, ...] | UnsetType = UNSET
    folder: Short | UnsetType = UNSET
    permission_mode: PermissionMode | UnsetType = UNSET
    budget: Short | UnsetType = UNSET
    """For one run, such as `$0.50` or `200k tokens`; empty: no limit."""
    daily_budget: Short | UnsetType = UNSET
    quiet_hours: Short | UnsetType = UNSET
    """Such as `22:00-07:00`."""
    missed: Short | UnsetType = UNSET
    """`once`, `skip`, or the age up to which a missed run still starts, such as `2h`."""
    overlap: OverlapPolicy | UnsetType = UNSET
    jitter: Delay | UnsetType = UNSET
    """Seconds by which a run may start later."""
    retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] | UnsetType = UNSET
    retry: Delay | UnsetType = UNSET
    """Seconds before the first retry."""
    together: bool | UnsetType = UNSET
    """All runs share one conversation."""
    output_schema: dict[str, Any] | UnsetType | None = UNSET
    """A JSON schema that the answer must match; null: any text."""


class NewJob(JobChanges, frozen=True, forbid_unknown_fields=True):
    """A job needs a time, and either a prompt or a script."""

    when: Short


class PreviewBody(Struct, frozen=True, forbid_unknown_fields=True):
    when: Short
    zone: Short = ""
    """Empty: the time zone of the settings."""


class SchedulePreview(Struct, frozen=True):
    when_text: str
    """The time in words."""
    next: tuple[float, ...]
    zone: str


class LastRun(Struct, frozen=True):
    """The latest run of a job."""

    id: int
    status: RunState
    time: float
    detail: str
    session: str
    run: str


class JobDocument(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    kind: Literal["prompt", "script"]
    trigger: TimetableKind
    when: str
    """The time as it was written."""
    when_text: str
    """The time in words."""
    zone: str
    state: JobState
    next: tuple[float, ...]
    """The next times, while it is active; empty if something else starts it."""
    deliver: tuple[str, ...]
    missed: str
    overlap: OverlapPolicy
    permission_mode: PermissionMode
    prompt: str = ""
    script: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    skills: tuple[str, ...] = ()
    folder: str = ""
    budget: str = ""
    daily_budget: str = ""
    quiet_hours: str = ""
    jitter: float = 0.0
    retries: int = 0
    retry: float = 0.0
    together: bool = False
    output_schema: dict[str, Any] = {}
    after: str = ""
    """The job that it follows."""
    owner: str = ""
    untrusted: str = ""
    """Whose text it may contain, if the conversation in which it was made had read text of strangers."""
    fixed: bool = False
    """The heartbeat: it is set in config.toml, and can only be paused and run here."""
    last: LastRun | None = None


class JobList(Struct, frozen=True):
    jobs: tuple[JobDocument, ...]
    zone: str
    """The time zone of new jobs."""


class HistoryQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 20


class JobRunDocument(Struct, frozen=True):
    id: int
    due: float
    started: float | None
    ended: float | None
    status: RunState
    attempt: int
    cause: str
    """Why it ran, if not because of the time: `manual`, `after NAME` and so on."""
    detail: str
    session: str
    run: str
    name: str


class JobHistory(Struct, frozen=True):
    runs: tuple[JobRunDocument, ...]


class StartedJob(Struct, frozen=True):
    run: int
    """The number of the run in the history."""


class StoppedJob(Struct, frozen=True):
    stopped: int
    """How many runs were stopped."""


class ScheduleEndpoints:
    def __init__(self, app: App, schedules: Schedules) -> None:
        self._app, self._schedules = app, schedules

    @ApiEndpoint("GET", "/v1/schedules", "admin", readable=True, answer=JobList)
    async def list(self, _call: ApiCall) -> Response:
        """List the scheduled jobs."""
        schedules = self._schedules
        views = await schedules.list(count=NEXT_TIMES)
        return json_response(JobList(tuple(map(job_document, views)), schedules.default_zone))

    @ApiEndpoint("POST", "/v1/schedules", "admin", body=NewJob, answer=JobDocument, status=201)
    async def add(self, call: ApiCall) -> Response:
        """Add a job."""
        schedules, request = self._schedules, _request(call.body)
        request.setdefault("workdir", self._app.workdir)
        request.setdefault("targets", await schedules.default_targets())
        with refuse_invalid():
            view = await schedules.add(request, owner=call.caller.name, by_owner=True)
        return await self._answer(view.schedule.id, 201)

    @ApiEndpoint("POST", "/v1/schedules/preview", "admin", readable=True, body=PreviewBody, answer=SchedulePreview)
    async def preview(self, call: ApiCall) -> Response:
        """Get a time in words and its next five moments, without adding a job."""
        body: PreviewBody = call.body
        schedules = self._schedules
        with refuse_invalid():
            text, moments = schedules.preview(body.when, body.zone, NEXT_TIMES)
        return json_response(SchedulePreview(text, moments, body.zone or schedules.default_zone))

    @ApiEndpoint("GET", "/v1/schedules/{id}", "admin", readable=True, answer=JobDocument)
    async def look(self, call: ApiCall) -> Response:
        """Get a job by id or name."""
        return await self._answer((await self._find(call)).id)

    @ApiEndpoint("PATCH", "/v1/schedules/{id}", "admin", body=JobChanges, answer=JobDocument)
    async def change(self, call: ApiCall) -> Response:
        """Change a job."""
        schedule = await self._find(call)
        with refuse_invalid():
            await self._schedules.edit(schedule.id, _request(call.body))
        return await self._answer(schedule.id)

    @ApiEndpoint("DELETE", "/v1/schedules/{id}", "admin", status=204, errors=(409,))
    async def delete(self, call: ApiCall) -> Response:
        """Delete a job; a run that has started goes to its end."""
        schedule = await self._find(call)
        with refuse_invalid(409):
            await self._schedules.remove(schedule.id)
        return no_content()

    @ApiEndpoint("POST", "/v1/schedules/{id}/run", "admin", answer=StartedJob)
    async def run(self, call: ApiCall) -> Response:
        """Run a job now."""
        return json_response(StartedJob(await self._schedules.run_now((await self._find(call)).id)))

    @ApiEndpoint("POST", "/v1/schedules/{id}/pause", "admin", answer=JobDocument)
    async def pause(self, call: ApiCall) -> Response:
        """Pause a job."""
        schedule = await self._find(call)
        await self._schedules.pause(schedule.id)
        return await self._answer(schedule.id)

    @ApiEndpoint("POST", "/v1/schedules/{id}/resume", "admin", answer=JobDocument, errors=(409,))
    async def resume(self, call: ApiCall) -> Response:
        """Resume a job; times that passed meanwhile are left out."""
        schedule = await self._find(call)
        with refuse_invalid(409):
            await self._schedules.resume(schedule.id)
        return await self._answer(schedule.id)

    @ApiEndpoint("POST", "/v1/schedules/{id}/stop", "admin", answer=StoppedJob)
    async def stop(self, call: ApiCall) -> Response:
        """Stop the running runs of a job."""
        return json_response(StoppedJob(await self._schedules.stop((await self._find(call)).id)))

    @ApiEndpoint("GET", "/v1/schedules/{id}/history", "admin", readable=True, query=HistoryQuery, answer=JobHistory)
    async def history(self, call: ApiCall) -> Response:
        """Get the latest runs of a job, latest first."""
        query: HistoryQuery = call.query
        runs = await self._schedules.runs.latest((await self._find(call)).id, query.limit)
        return json_response(JobHistory(tuple(map(_run_document, runs))))

    async def _find(self, call: ApiCall) -> Schedule:
        with refuse_invalid(404, "no_job"):
            return await self._schedules.find(call.path["id"])

    async def _answer(self, id: str, status: int = 200) -> Response:
        try:
            with refuse_invalid(404, "no_job"):
                view = await self._schedules.view(id, count=NEXT_TIMES)
        except HttpProblem as problem:
            raise HttpProblem(409, "the job was deleted meanwhile", code="no_job") from problem
        headers = {"location": f"/v1/schedules/{id}"} if status == 201 else None
        return json_response(job_document(view), status, headers)


def job_document(view: ScheduleView) -> JobDocument:
    schedule, job = view.schedule, view.schedule.job
    return JobDocument(
        schedule.id,
        job.name,
        "script" if job.script else "prompt",
        job.timetable.kind,
        job.when,
        view.when_text,
        job.zone,
        "active" if schedule.state == "on" else schedule.state,
        view.next_times if schedule.state == "on" else (),
        job.targets,
        job.missed,
        job.overlap,
        job.mode,
        prompt=job.prompt,
        script=job.script,
        model=job.model,
        tools=job.tools,
        skills=job.skills,
        folder=job.workdir,
        budget=job.budget,
        daily_budget=job.daily_budget,
        quiet_hours=job.quiet_hours,
        jitter=job.jitter_s,
        retries=job.retries,
        retry=job.retry_s,
        together=job.together,
        output_schema=job.output_schema,
        after=job.timetable.job,
        owner=job.owner,
        untrusted=job.untrusted,
        fixed=view.is_fixed,
        last=None if view.last is None else _last_run(view.last),
    )


def _last_run(run: JobRun) -> LastRun:
    moment = run.finished or run.started or run.created
    return LastRun(run.number, run.state, moment, run.detail, run.session, run.turn)


def _run_document(run: JobRun) -> JobRunDocument:
    return JobRunDocument(
        run.number,
        run.fire_at,
        run.started,
        run.finished,
        run.state,
        run.attempt,
        run.cause,
        run.detail,
        run.session,
        run.turn,
        run.job.name,
    )


def _request(body: JobChanges) -> dict[str, Any]:
    """The fields that are given, by their names in `Schedules`."""
    given = {_FIELDS.get(name, name): value for name, value in structs.asdict(body).items() if value is not UNSET}
    if given.get("tools", ()) is None:
        given["tools"] = [ALL_TOOLS]
    for name in ("jitter", "retry"):
        if name in given:
            given[name] = f"{given[name]:.3f}s"
    return given


def endpoints(feature: SchedulesFeature, _server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(ScheduleEndpoints(feature.app, feature.schedules))
