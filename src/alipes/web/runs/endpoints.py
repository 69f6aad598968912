"""Endpoints for runs: start, get, follow, stop, steer, approve and reply. A run is a turn."""

import asyncio
import binascii
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Literal, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta, Struct, structs
from starlette.responses import Response

from alipes.agent.approval.patterns import find_problem
from alipes.core.app import App
from alipes.kernel.messages import Image, ToolCall
from alipes.kernel.turns import (
    AnswerApproval,
    AnswerQuestion,
    ApprovalAsked,
    ApprovalChoice,
    BusyMode,
    PermissionMode,
    QuestionAsked,
    Stop,
    TurnEnded,
)
from alipes.store.sql.api_runs import ApiRunStore, RunQuery
from alipes.web.admission import TurnAdmission
from alipes.web.endpoint import PLATFORM, ApiCall, ApiEndpoint, Caller, HttpProblem, json_response, no_content
from alipes.web.files import ApiFiles
from alipes.web.runs.events import END_ID, LiveRuns, parse_position, replay_events
from alipes.web.runs.lookup import Name, Run, RunLookup, RunPlace, Status, VisibleRun, find_session, visible_scope
from alipes.web.sse import EventStream, finished_stream
from alipes.web.templates import expand_input

InputText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_000_000)]
ImageDataUrl: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^data:image/(png|jpeg|gif|webp);base64,"
        r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
        description="An image as a data URL.",
    ),
]


class RunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A new run."""

    input: InputText
    session: Name = ""
    """Name (created if needed) or id of a conversation; empty means a new one."""
    model: Name = ""
    instructions: str = ""
    """Added to the system prompt of this run."""
    images: tuple[ImageDataUrl, ...] = ()
    files: Annotated[tuple[Name, ...], Meta(max_length=50)] = ()
    """Ids of uploaded files."""
    tools: tuple[str, ...] | None = None
    """Names of the tools it may use; null means all."""
    permission_mode: PermissionMode | None = None
    """The permission mode of the conversation from now on; null means as before. `all` needs an admin key."""
    busy: BusyMode | None = None
    """If the session is busy: wait, stop the current run, or join it. Null means the mode of the conversation, which
    is `steer` unless it was changed."""
    on_disconnect: Literal["continue", "stop"] = "continue"
    """When the last client disconnects from its events: continue or stop."""


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Another message for a live run, read at its next step."""

    input: InputText
    images: tuple[ImageDataUrl, ...] = ()


class ApprovalBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to an approval request."""

    choice: ApprovalChoice
    ask: Name = ""
    """Id of the request; may be empty if only one is open."""
    pattern: Annotated[str, Meta(max_length=500)] = ""
    """With `always`: the pattern of commands to allow, such as `git push *`, instead of exactly this call."""
    note: Annotated[str, Meta(max_length=4000)] = ""
    """With `no`: the reason, for the model."""


class ReplyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a question of the model."""

    text: InputText
    ask: Name = ""
    """Id of the question; may be empty if only one is open."""


class RunList(Struct, frozen=True):
    runs: tuple[Run, ...]
    more: bool
    """True if there are older ones."""


class RunListQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    session: Name = ""
    """Name or id of a conversation."""
    status: Status | Literal[""] = ""
    before: Name = ""
    """Only those before this run; for the next page, the id of the last one."""


class SteerResult(Struct, frozen=True):
    run: str
    message: str
    """Id of the message: a run of its own that ends as `steered` when it is read."""


def decode_images(urls: tuple[ImageDataUrl, ...]) -> tuple[Image, ...]:
    parts = (url.removeprefix("data:").split(";base64,") for url in urls)
    return tuple(Image(kind, binascii.a2b_base64(data)) for kind, data in parts)


MAX_KEY_CHARS = 255
"""Maximum length of an `Idempotency-Key`."""
_LAST_EVENT_ID = {"Last-Event-ID": "The id of the last event received; the stream continues after it."}


class IdempotentRequests:
    def __init__(self, store: ApiRunStore) -> None:
        self._store = store
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lane(self, call: ApiCall, platform: str) -> AsyncIterator[tuple[str, str]]:
        """The id of the request, and the turn that an earlier copy of it started, or empty.

        Copies have the same `Idempotency-Key`; they wait for each other. `platform`: where the turn takes place.
        """
        key = call.request.headers.get("idempotency-key", "").strip()
        if len(key) > MAX_KEY_CHARS:
            why = f"Idempotency-Key is too long; the limit is {MAX_KEY_CHARS} characters"
            raise HttpProblem(422, why, code="idempotency_key")
        if not key:
            yield f"{os.urandom(8).hex()}:{os.urandom(8).hex()}", ""
            return
        name = hashlib.sha256(f"{call.caller.name}\0{key}".encode()).hexdigest()[:32]
        sent = msgspec.json.encode((call.request.url.path, call.body))
        id = f"{name}:{hashlib.sha256(sent).hexdigest()[:32]}"
        async with self._lanes.setdefault(name, asyncio.Lock()):
            turn, before = await self._store.find_by_prefix(platform, f"{name}:") or ("", "")
            if turn and before != id:
                why = "this Idempotency-Key was already used for a different request"
                raise HttpProblem(409, why, code="idempotency_key_conflict")
            yield id, turn


class RunEndpoints:
    def __init__(self, app: App, runs: LiveRuns, admission: TurnAdmission, files: ApiFiles) -> None:
        self._app, self._runs, self._admission, self._files = app, runs, admission, files
        self._store, self._lookup = app.store.api_runs, RunLookup(app, runs)
        self._idempotency = IdempotentRequests(self._store)

    @ApiEndpoint("POST", "/v1/runs", "run", body=RunBody, answer=Run, status=202, errors=(400, 404, 409))
    async def begin(self, call: ApiCall) -> Response:
        """Start a run. Repeating it with the same Idempotency-Key returns the same run."""
        body: RunBody = call.body
        if body.permission_mode == "all" and not call.caller.may("admin"):
            raise HttpProblem(403, "the mode `all` needs an admin key", code="scope")
        platform = await self._lookup.platform(body.session)
        async with self._idempotency.lane(call, platform) as (request_id, before):
            if before:
                return _accepted(await self._lookup.describe(before), {"idempotent-replayed": "true"})
            model = await self._admission.resolve_model(body.model)
            place = await self._lookup.place(call.caller, body.session)
            inbound = structs.replace(
                place.make_inbound(request_id, body.input, decode_images(body.images)),
                model=model,
                instructions=body.instructions,
                only=body.tools,
                permission_mode=body.permission_mode or "",
                attended=body.on_disconnect == "stop",
            )
            inbound = await self._files.attach(await expand_input(self._app, inbound), call.caller, body.files)
            async with self._admission.open_slot(call.caller):
                turn = await self._runs.begin(inbound, body.busy)
        assert turn is not None  # the id is new
        return _accepted(Run(turn, place.address.chat, "queued", input=body.input))

    @ApiEndpoint("GET", "/v1/runs", "read", query=RunListQuery, answer=RunList, errors=(404,))
    async def list(self, call: ApiCall) -> Response:
        """List runs, newest first."""
        query: RunListQuery = call.query
        session = (await find_session(self._store, call.caller, query.session)).id if query.session else ""
        state = "running" if query.status == "waiting" else query.status
        wanted = RunQuery(query.limit + 1, session, state, query.before)
        found = await self._store.list_runs(visible_scope(call.caller).owner, wanted)
        runs = [await self._lookup.describe(id) for id in found[: query.limit]]
        shown = tuple(run for run in runs if query.status in ("", run.status))
        return json_response(RunList(shown, len(found) > query.limit))

    @ApiEndpoint("GET", "/v1/runs/{id}", "read", answer=Run)
    async def look(self, call: ApiCall) -> Response:
        """Get the state of a run."""
        run = await self._lookup.find(call.path["id"], call.caller)
        return json_response(await self._lookup.describe(run.turn))

    @ApiEndpoint("GET", "/v1/runs/{id}/events", "read", headers=_LAST_EVENT_ID, streams=True)
    async def listen(self, call: ApiCall) -> Response:
        """Stream the events of a run after Last-Event-ID, to its end."""
        last_event_id = call.request.headers.get("last-event-id", "")
        run = await self._lookup.find(call.path["id"], call.caller)
        if last_event_id.strip() == END_ID:
            return no_content()  # so that a browser does not reconnect
        since = parse_position(last_event_id)
        if (facts := run.facts) is not None and facts.ending is not None:
            ended = TurnEnded(run.turn, facts.ending, facts.detail, facts.spent.usage)
            return finished_stream(replay_events(facts.said, ended, since))
        live = await self._runs.follow(run.turn, run.inbound)
        write = partial(self._runs.stream_events, live, since)
        return EventStream(write, left=partial(self._runs.handle_disconnect, live))

    @ApiEndpoint("POST", "/v1/runs/{id}/stop", "run", answer=Run, status=202)
    async def stop(self, call: ApiCall) -> Response:
        """Stop a run. Messages so far are kept, and runs queued behind it are held."""
        run, held = await self._lookup.find(call.path["id"], call.caller), tuple[str, ...]()
        if not run.has_ended:
            stopped = await self._app.sessions.stop(run.key, Stop("user_stop", "session_interrupt", run.turn))
            held = tuple(each.id for each in stopped.held if each.id != run.turn)
        return json_response(structs.replace(await self._lookup.describe(run.turn), held=held), 202)

    @ApiEndpoint(
        "POST", "/v1/runs/{id}/steer", "run", body=SteerBody, answer=SteerResult, status=202, errors=(400, 409)
    )
    async def steer(self, call: ApiCall) -> Response:
        """Send another message to a live run."""
        body: SteerBody = call.body
        platform = (await self._lookup.find(call.path["id"], call.caller)).inbound.address.platform
        async with self._idempotency.lane(call, platform) as (request_id, before):
            if before:
                return json_response(SteerResult(call.path["id"], before), 202)
            run = await self._lookup.find_live(call.path["id"], call.caller)
            inbound = self._place_of(call.caller, run).make_inbound(request_id, body.input, decode_images(body.images))
            message = await self._runs.begin(await expand_input(self._app, inbound), "steer")
        assert message is not None
        return json_response(SteerResult(run.turn, message), 202)

    @ApiEndpoint("POST", "/v1/runs/{id}/approval", "run", body=ApprovalBody, answer=Run, status=202, errors=(409,))
    async def approve(self, call: ApiCall) -> Response:
        """Approve or deny a tool call that waits for approval."""
        body: ApprovalBody = call.body
        if body.choice == "always" and not call.caller.may("admin"):
            raise HttpProblem(403, "`always` applies to everybody and needs an admin key", code="scope")
        run = await self._lookup.find_live(call.path["id"], call.caller)
        ask = self._lookup.find_question(run, body.ask, ApprovalAsked)
        if body.pattern and (problem := await self._check_pattern(ask, body)):
            raise HttpProblem(400, problem, code="pattern")
        answer = AnswerApproval(ask, body.choice, call.caller.name, pattern=body.pattern, note=body.note)
        await self._app.sessions.post(run.key, answer)
        return json_response(await self._lookup.describe(run.turn), 202)

    @ApiEndpoint("POST", "/v1/runs/{id}/reply", "run", body=ReplyBody, answer=Run, status=202, errors=(409,))
    async def reply(self, call: ApiCall) -> Response:
        """Answer a question of the model."""
        body: ReplyBody = call.body
        run = await self._lookup.find_live(call.path["id"], call.caller)
        ask = self._lookup.find_question(run, body.ask, QuestionAsked)
        await self._app.sessions.post(run.key, AnswerQuestion(ask, body.text, call.caller.name))
        return json_response(await self._lookup.describe(run.turn), 202)

    def _place_of(self, caller: Caller, run: VisibleRun) -> RunPlace:
        """The conversation of a run that is steered."""
        if run.inbound.address.platform != PLATFORM:
            return self._lookup.other_place(caller, run.inbound.address, run.inbound)
        return RunPlace(run.inbound.address, caller.name, run.inbound.workdir, caller.may("admin"))

    async def _check_pattern(self, ask: str, body: ApprovalBody) -> str:
        """Why the pattern cannot be saved; empty if it can."""
        if body.choice != "always":
            return "a pattern needs the choice `always`"
        asked = await self._app.store.approvals.find(ask)
        return find_problem(body.pattern, ToolCall("", asked.tool, msgspec.json.decode(asked.arguments)))


def _accepted(run: Run, headers: dict[str, str] | None = None) -> Response:
    return json_response(run, 202, {"location": f"/v1/runs/{run.id}", **(headers or {})})
