"""Endpoints for the messages of a conversation: pages of them, whole results, pictures."""

import asyncio
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

from msgspec import Meta, Struct, structs
from starlette.responses import FileResponse, PlainTextResponse, Response

from alipes.agent.approval.assessment import COMMAND_TOOLS
from alipes.core.app import App
from alipes.kernel.attachments import collapse_attachments, split_saved_files
from alipes.kernel.errors import SessionError
from alipes.kernel.messages import (
    MODEL_IMAGE_TYPES,
    Image,
    Json,
    Message,
    Role,
    Thinking,
    ToolCall,
    ToolResult,
    WebSource,
    image_type,
)
from alipes.kernel.tool_labels import describe_tool, find_problem
from alipes.kernel.turns import Ending, Inbound, Usage
from alipes.store.sql.transcript import PageQuery, TranscriptMessage, TranscriptPage, TranscriptStore, TranscriptTurn
from alipes.web.endpoint import NO_STORE, ApiCall, ApiEndpoint, HttpProblem, json_response
from alipes.web.files import FileReference, refer_to_files
from alipes.web.runs.lookup import Status, find_session

MAX_RESULT_CHARS = 16_384
"""Characters of a result in a page; more is cut off and can be fetched whole."""
MAX_TEXT_CHARS = 200_000
"""The same for what a person or the model wrote."""
MAX_NUMBER = 2**62
Number: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]


class MessagesQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: Number = 0
    """Only messages before this number; for the previous page, `first`."""
    after: Number = 0
    """Only messages after this number; for the next page, `last`."""
    around: Number = 0
    """The messages next to this number, on both sides."""


class ImageReference(Struct, frozen=True):
    """A picture of a message: `GET /v1/sessions/{id}/messages/{number}/images/{n}`, where n is its `id`."""

    id: int
    type: str
    size: int


class AttachedFile(Struct, frozen=True):
    """A file of a person's message: `GET /v1/sessions/{id}/messages/{number}/attached/{n}`, where n is its `id`."""

    id: int
    name: str
    details: str
    """Its type and size, in words."""


class CallDocument(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    args: dict[str, Json]
    label: str
    """The call in plain words, such as `Run npm test`."""
    raw: str = ""
    """The model's arguments, if they were not a JSON object."""


class ResultDocument(Struct, frozen=True, omit_defaults=True):
    call_id: str
    name: str
    text: str
    length: int
    """Characters of the whole text."""
    outcome: str = "ok"
    problem: str = ""
    """How a command failed, such as `exit code 2`: its outcome is `ok`, because it ran."""
    truncated: bool = False
    """The text is the start of it; `GET .../messages/{number}/results/{call_id}` returns all."""
    error: bool = False
    seconds: float = 0.0
    """From the call to its result; only if it was the only call of its step."""
    images: tuple[ImageReference, ...] = ()
    files: tuple[FileReference, ...] = ()
    sources: tuple[WebSource, ...] = ()


class MessageDocument(Struct, frozen=True, omit_defaults=True):
    number: int
    """Stable and ascending, but not without gaps."""
    run: str
    role: Role
    text: str
    created: float
    said: int
    """Its place among the messages of its run: the id of its `said` event in the events of the run."""
    truncated: bool = False
    """The text is longer than what is shown here; the export has all of it."""
    length: int = 0
    """Characters of the whole text, if it is cut off."""
    model: str = ""
    usage: Usage | None = None
    thinking: str = ""
    calls: tuple[CallDocument, ...] = ()
    results: tuple[ResultDocument, ...] = ()
    images: tuple[ImageReference, ...] = ()
    attached: tuple[AttachedFile, ...] = ()
    """Files that were received with a person's message."""
    partial: bool = False
    """The run ended before the model had said all of it."""
    sender: str = ""
    """Who sent it; `owner` if the owner wrote it on another surface."""
    via: str = ""
    """That surface, such as `page`."""


class RunFacts(Struct, frozen=True, omit_defaults=True):
    status: Status
    created: float
    ended: float | None = None
    detail: str = ""
    attempts: int = 0
    usage: Usage | None = None
    versions: tuple[str, ...] = ()
    """The runs that were in its place, itself included, in order: `POST /v1/sessions/{id}/versions` shows another."""


class MessagePage(Struct, frozen=True):
    messages: tuple[MessageDocument, ...]
    """Oldest first."""
    runs: dict[str, RunFacts]
    """By id, the runs of these messages."""
    first: int
    """Number of the first message here; 0 if there is none."""
    last: int
    total: int
    """Messages of the conversation, without those of undone runs."""
    more_before: bool
    more_after: bool


class MessageEndpoints:
    def __init__(self, app: App) -> None:
        self._app = app
        self._sessions = app.store.api_runs
        self._transcripts = app.store.transcripts

    @ApiEndpoint("GET", "/v1/sessions/{id}/messages", "read", query=MessagesQuery, answer=MessagePage)
    async def page(self, call: ApiCall) -> Response:
        """Get messages of a conversation, without undone runs: the newest, or those before, after or around one."""
        query: MessagesQuery = call.query
        if sum(map(bool, (query.before, query.after, query.around))) > 1:
            raise HttpProblem(422, "give only one of before, after and around", code="query")
        row = await find_session(self._sessions, call.caller, call.path["id"])
        wanted = PageQuery(query.limit, query.before, query.after, query.around)
        page = await self._transcripts.page(row.id, wanted)
        folder = str(self._app.settings.paths.files)
        return json_response(to_page(page, row.id, self._app.sessions.questions.is_waiting, folder))

    @ApiEndpoint("GET", "/v1/sessions/{id}/messages/{number}/results/{call_id}", "read")
    async def result(self, call: ApiCall) -> Response:
        """Get the whole text of a tool result."""
        message = await self._find(call)
        wanted = call.path["call_id"]
        found = next((part for part in message.parts if isinstance(part, ToolResult) and part.call_id == wanted), None)
        if found is None:
            raise HttpProblem(404, "this message has no such result", code="no_message")
        return PlainTextResponse(found.text.encode("utf-8", "replace"), headers=NO_STORE)

    @ApiEndpoint("GET", "/v1/sessions/{id}/messages/{number}/images/{n}", "read")
    async def image(self, call: ApiCall) -> Response:
        """Get a picture of a message."""
        pictures, n = list_images(await self._find(call)), call.path["n"]
        if not n.isascii() or not n.isdecimal() or len(n) > 6 or int(n) >= len(pictures):
            raise HttpProblem(404, "this message has no such picture", code="no_message")
        image = pictures[int(n)]
        kind = image_type(image.data[:16])
        if kind not in MODEL_IMAGE_TYPES:
            raise HttpProblem(404, "this picture is damaged, or of an unknown type", code="no_message")
        headers = {"cache-control": "private, max-age=31536000, immutable", "content-security-policy": "sandbox"}
        return Response(image.data, headers=headers, media_type=kind)

    @ApiEndpoint("GET", "/v1/sessions/{id}/messages/{number}/attached/{n}", "read")
    async def attached(self, call: ApiCall) -> Response:
        """Get a file that was received with a person's message."""
        folder = self._app.settings.paths.files
        text = collapse_attachments((await self._find(call)).text)
        files, n = split_saved_files(text, str(folder))[1], call.path["n"]
        place = int(n) if n.isascii() and n.isdecimal() and len(n) < 6 else len(files)
        path = Path(files[place].path) if place < len(files) else None
        if path is None or not await asyncio.to_thread(_is_inside, path, folder):
            raise HttpProblem(404, "this message has no such file, or it no longer exists", code="no_message")
        headers = {**NO_STORE, "content-security-policy": "sandbox"}
        return FileResponse(path, headers=headers, media_type="application/octet-stream", filename=files[place].name)

    async def _find(self, call: ApiCall) -> Message:
        row = await find_session(self._sessions, call.caller, call.path["id"])
        return await find_message(self._transcripts, row.id, call.path["number"])


def _is_inside(path: Path, folder: Path) -> bool:
    """True if it is a file, and no link leads out of the folder: a message may contain any path."""
    real = path.resolve()
    return real.is_file() and real.is_relative_to(folder.resolve())


async def find_message(transcripts: TranscriptStore, session: str, number: str) -> Message:
    """The message with this number. Raises `HttpProblem`."""
    if not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise HttpProblem(404, "this conversation has no such message", code="no_message")
    try:
        return await transcripts.message(session, int(number))
    except SessionError as error:
        raise HttpProblem(404, str(error), code="no_message") from error


def list_images(message: Message) -> list[Image]:
    """All pictures of a message, also those in its results."""
    found: list[Image] = []
    for part in message.parts:
        match part:
            case Image():
                found.append(part)
            case ToolResult(images=images):
                found += images
    return found


class IsWaiting(Protocol):
    def __call__(self, turn: str) -> bool: ...


def to_page(page: TranscriptPage, session: str, is_waiting: IsWaiting, folder: str = "") -> MessagePage:
    """`folder`: where received files are."""
    items: list[MessageDocument] = []
    steered = {id: list(turn.steered) for id, turn in page.turns.items()}
    before = page.calls
    for each in page.messages:
        turn = page.turns[each.turn]
        document = _to_document(each, turn, before, session, _find_inbound(each, turn, steered[each.turn]))
        items.append(_take_files(document, folder) if folder and document.role == "user" else document)
        before = each
    runs = {id: _to_facts(turn, waiting=is_waiting(id)) for id, turn in page.turns.items()}
    numbers = [each.number for each in page.messages] or [0]
    return MessagePage(tuple(items), runs, numbers[0], numbers[-1], page.total, page.more_before, page.more_after)


def _find_inbound(each: TranscriptMessage, turn: TranscriptTurn, steered: list[Inbound]) -> Inbound | None:
    """The message as it was received; None if it is not a person's."""
    if each.message.role != "user":
        return None
    if each.message == turn.inbound.message:
        return turn.inbound
    found = next((inbound for inbound in steered if inbound.message == each.message), None)
    if found is not None:
        steered.remove(found)
    return found


def _to_document(
    each: TranscriptMessage,
    turn: TranscriptTurn,
    before: TranscriptMessage | None,
    session: str,
    inbound: Inbound | None,
) -> MessageDocument:
    message, text = each.message, each.message.text
    if message.role == "user":
        text = collapse_attachments(text)
    numbered = {
        id(image): ImageReference(n, image.media_type, len(image.data)) for n, image in enumerate(list_images(message))
    }
    cut_off = message.role == "assistant" and each.usage is None and turn.ending in ("stopped", "failed")
    long = len(text) > MAX_TEXT_CHARS
    return MessageDocument(
        number=each.number,
        run=each.turn,
        role=message.role,
        text=text[:MAX_TEXT_CHARS],
        created=each.created,
        said=each.place,
        truncated=long,
        length=len(text) if long else 0,
        model=each.model,
        usage=each.usage,
        thinking="\n\n".join(part.text for part in message.parts if isinstance(part, Thinking) and part.text),
        calls=tuple(map(_to_call, message.calls)),
        results=_to_results(each, before, session, numbered),
        images=tuple(numbered[id(part)] for part in message.parts if isinstance(part, Image)),
        partial=cut_off,
        sender="" if inbound is None else "owner" if inbound.via else inbound.sender,
        via="" if inbound is None else inbound.via,
    )


def _take_files(document: MessageDocument, folder: str) -> MessageDocument:
    """With the files that were received with it, instead of their lines with paths of this machine."""
    text, files = split_saved_files(document.text, folder)
    attached = tuple(AttachedFile(n, each.name, each.details) for n, each in enumerate(files))
    return structs.replace(document, text=text, attached=attached) if files else document


def _to_call(call: ToolCall) -> CallDocument:
    return CallDocument(call.id, call.name, call.args, describe_tool(call).text, call.raw)


def _to_results(
    each: TranscriptMessage, before: TranscriptMessage | None, session: str, numbered: dict[int, ImageReference]
) -> tuple[ResultDocument, ...]:
    results = [part for part in each.message.parts if isinstance(part, ToolResult)]
    if not results:
        return ()
    calls = () if before is None else before.message.calls
    names = {call.id: call.name for call in calls}
    seconds = max(each.created - before.created, 0.0) if before is not None and len(calls) == 1 else 0.0
    files = refer_to_files(session, each.number, results)
    return tuple(
        ResultDocument(
            call_id=result.call_id,
            name=names.get(result.call_id, ""),
            text=result.text[:MAX_RESULT_CHARS],
            length=len(result.text),
            outcome=result.outcome,
            problem=find_problem(result) if names.get(result.call_id) in COMMAND_TOOLS else "",
            truncated=len(result.text) > MAX_RESULT_CHARS,
            error=result.outcome != "ok",
            seconds=round(seconds, 3),
            images=tuple(numbered[id(image)] for image in result.images),
            files=files[place],
            sources=result.sources,
        )
        for place, result in enumerate(results)
    )


def _to_facts(turn: TranscriptTurn, *, waiting: bool) -> RunFacts:
    unfinished: Status = "waiting" if waiting else "running" if turn.attempts else "held" if turn.held else "queued"
    ending: Ending | None = turn.ending
    return RunFacts(
        ending or unfinished, turn.created, turn.ended, turn.detail, turn.attempts, turn.usage, turn.versions
    )
