"""Endpoints for the inbox: open questions of every surface and process, each answered once."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.agent.approval.patterns import find_problem
from alipes.core.app import App
from alipes.kernel.approvals import answers_to, describe_call
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import AnswerApproval, AnswerQuestion, ApprovalAsked, ApprovalChoice
from alipes.store.sql.approvals import Approval
from alipes.store.sql.questions import OpenQuestion, StoredQuestion
from alipes.web.endpoint import ApiCall, ApiEndpoint, Caller, HttpProblem, json_response
from alipes.web.runs.lookup import describe_origin, may_see

_DECISIONS: dict[ApprovalChoice, str] = {
    "once": "allowed once",
    "session": "allowed for this conversation",
    "always": "always allowed",
    "no": "denied",
}


class QuestionDocument(Struct, frozen=True, omit_defaults=True):
    """A question to a person: about a tool call (`approval`), or of the model (`question`)."""

    ask: str
    kind: Literal["approval", "question"]
    run: str
    """The run that waits; a subagent's own run if it asks."""
    session: str
    title: str
    origin: str
    created: float
    until: float = 0.0
    """When it expires; zero: it does not."""
    tool: str = ""
    args: dict[str, Json] = {}
    command: str = ""
    """The whole call in words."""
    reason: str = ""
    rule: str = ""
    """Exactly what `session` and `always` would allow."""
    workdir: str = ""
    diff: str = ""
    """What a write would change; only for runs of this process."""
    pattern: str = ""
    """A pattern of commands that `always` could allow instead."""
    files: str = ""
    """The files that the command reads, and their content; only for runs of this process."""
    once: str = ""
    """Why only `once` and `no` can be answered."""
    question: str = ""
    choices: tuple[str, ...] = ()
    """Suggestions; any other text is valid too."""
    answers: tuple[ApprovalChoice, ...] = ()
    """What you may answer to an approval."""


class Inbox(Struct, frozen=True):
    questions: tuple[QuestionDocument, ...]
    """Oldest first."""
    proposals: int
    """Proposed notes and skills that wait for a decision."""
    pairing: int
    """People who ask for access."""


class InboxAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer: `choice` to an approval, `text` to a question."""

    choice: ApprovalChoice | None = None
    pattern: Annotated[str, Meta(max_length=500)] = ""
    """With `always`: the pattern of commands to allow, such as `git push *`, instead of exactly this call."""
    note: Annotated[str, Meta(max_length=4000)] = ""
    """With `no`: the reason, for the model."""
    text: Annotated[str, Meta(max_length=1_000_000)] | None = None


class AnswerTaken(Struct, frozen=True):
    done: bool = True


class InboxEndpoints:
    def __init__(self, app: App) -> None:
        self._app = app
        self._sessions = app.store.api_runs

    @ApiEndpoint("GET", "/v1/inbox", "read", answer=Inbox)
    async def list(self, call: ApiCall) -> Response:
        """List the open questions of every surface, oldest first."""
        caller, store = call.caller, self._app.store
        questions = await self.list_questions(caller=caller)
        if not (caller.may("admin") or caller.sees_all):
            return json_response(Inbox(questions, 0, 0))
        proposals, pairing = await store.proposals.count_pending(), await store.people.list_requests()
        return json_response(Inbox(questions, proposals, len(pairing)))

    @ApiEndpoint("POST", "/v1/inbox/{ask}", "run", body=InboxAnswer, answer=AnswerTaken, errors=(400, 403, 409))
    async def answer(self, call: ApiCall) -> Response:
        """Answer a question. Only the first answer counts; the error of a second one says what was decided."""
        body: InboxAnswer = call.body
        asked = await self._find(call)
        if isinstance(asked, Approval):
            await self._approve(call.caller, asked, body)
        elif body.text is None or not body.text.strip():
            raise HttpProblem(400, "this question needs `text`", code="answer")
        else:
            op = AnswerQuestion(asked.id, body.text, call.caller.name)
            if asked.answered_at is not None or not await self._app.sessions.answer(asked.key, op):
                raise await self._answered(asked.id)
        return json_response(AnswerTaken())

    async def _approve(self, caller: Caller, asked: Approval, body: InboxAnswer) -> None:
        if body.choice is None:
            raise HttpProblem(400, "this question needs `choice`: once, session, always or no", code="answer")
        if body.choice == "always" and not caller.may("admin"):
            raise HttpProblem(403, "`always` applies to everybody and needs an admin key", code="scope")
        if body.pattern:
            call = ToolCall("", asked.tool, msgspec.json.decode(asked.arguments))
            problem = "" if body.choice == "always" else "a pattern needs the choice `always`"
            if problem := problem or find_problem(body.pattern, call):
                raise HttpProblem(400, problem, code="pattern")
        op = AnswerApproval(asked.id, body.choice, caller.name, pattern=body.pattern, note=body.note)
        if asked.choice is not None or not await self._app.sessions.answer(asked.key, op):
            raise await self._answered(asked.id)

    async def list_questions(self, session: str = "", *, caller: Caller | None = None) -> tuple[QuestionDocument, ...]:
        """The open questions of a conversation, or all that the caller may see."""
        found = await self._app.store.questions.list_open(session)
        visible = (each for each in found if caller is None or may_see(caller, each.address))
        return tuple([await self._describe(each) for each in visible])

    async def _describe(self, found: OpenQuestion) -> QuestionDocument:
        asked, row = found.asked, await self._sessions.session(found.session)
        origin = describe_origin(found.address, "" if row is None else row.person)
        place = (asked.turn, found.session, found.title, origin, asked.asked_at)
        if isinstance(asked, StoredQuestion):
            return QuestionDocument(
                asked.id, "question", *place, until=asked.until, question=asked.question, choices=asked.choices
            )
        shown = self._app.sessions.questions.find_open(asked.id)
        live = shown if isinstance(shown, ApprovalAsked) else None
        call = ToolCall("", asked.tool, msgspec.json.decode(asked.arguments))
        return QuestionDocument(
            asked.id,
            "approval",
            *place,
            tool=asked.tool,
            args=call.args,
            command=describe_call(call).text,
            reason=asked.reason,
            rule=asked.rule,
            workdir=asked.workdir,
            diff="" if live is None else live.diff,
            pattern="" if live is None else live.pattern,
            files="" if live is None else live.files,
            once="" if live is None else live.once,
            answers=("once", "session", "always", "no") if live is None else answers_to(live),
        )

    async def _find(self, call: ApiCall) -> Approval | StoredQuestion:
        """The question in the path, open or not, if the caller may see its conversation."""
        asked = await self._app.store.questions.find(call.path["ask"])
        row = None if asked is None else await self._sessions.session(asked.session)
        if asked is None or row is None or not may_see(call.caller, row.address):
            raise HttpProblem(404, "no such question", code="no_question")
        return asked

    async def _answered(self, ask: str) -> HttpProblem:
        return HttpProblem(409, describe_decision(await self._app.store.questions.find(ask)), code="answered")


def describe_decision(asked: Approval | StoredQuestion | None) -> str:
    """What was decided, and by whom."""
    if asked is None or asked.answered_by in ("stop", "nobody") or asked.answered_at is None:
        return "This question is no longer open: its run was stopped, or it expired."
    by = f" by {asked.answered_by}" if asked.answered_by else ""
    if isinstance(asked, StoredQuestion):
        return f"This question was already answered{by}: {asked.answer[:200]}"
    return f"This was already decided{by}: {_DECISIONS[asked.choice or 'no']}."
