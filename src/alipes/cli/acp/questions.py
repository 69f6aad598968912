"""Questions to the person at an editor: approvals as permission requests, the model's questions as forms or choices."""

import asyncio
import logging

from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ContentToolCallContent,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallProgress,
    ToolCallUpdate,
)

from alipes.cli.acp.handshake import EditorFeatures
from alipes.cli.acp.tool_calls import ToolContent, fence, read_diffs, text_block, tool_kind, tool_locations
from alipes.kernel.approvals import answers_to, describe_question, list_reasons
from alipes.kernel.turns import AnswerApproval, AnswerQuestion, ApprovalAsked, QuestionAsked
from alipes.sessions.sessions import Sessions

log = logging.getLogger(__name__)
BY = "editor"
ONCE, SESSION, ALWAYS, NO = "once", "session", "always", "no"
NO_ANSWER = "no-answer"
CANNOT_ASK = "this editor cannot show a question; put it into your answer instead"


class EditorQuestions:
    """Asks in tasks of a group. The first answer counts, wherever it is given."""

    def __init__(
        self, session: str, key: str, *, sessions: Sessions, client: Client, features: EditorFeatures, workdir: str
    ) -> None:
        self._session, self._key, self._sessions, self._client = session, key, sessions, client
        self._features, self._workdir = features, workdir
        self._asking: dict[str, asyncio.Task[None]] = {}

    def ask(self, group: asyncio.TaskGroup, asked: ApprovalAsked | QuestionAsked) -> None:
        if asked.ask not in self._asking:
            self._asking[asked.ask] = group.create_task(self._ask(asked), name=f"question {asked.ask}")

    def withdraw(self, ask: str) -> None:
        """It was answered here or elsewhere, or its turn was stopped."""
        if (task := self._asking.pop(ask, None)) is not None:
            task.cancel()

    async def _ask(self, asked: ApprovalAsked | QuestionAsked) -> None:
        answer: AnswerApproval | AnswerQuestion
        try:
            answer = await (self._approve(asked) if isinstance(asked, ApprovalAsked) else self._reply(asked))
        except ConnectionError:  # the editor is gone; the question stays open
            return
        except RequestError as error:
            log.warning("the editor could not ask: %s", error)
            why = f"the editor could not ask: {error}"
            approval = isinstance(asked, ApprovalAsked)
            answer = AnswerApproval(asked.ask, "no", unasked=why) if approval else _unasked(asked.ask, why)
        await self._sessions.post(self._key, answer)

    async def _approve(self, asked: ApprovalAsked) -> AnswerApproval:
        response = await self._client.request_permission(
            session_id=self._session, tool_call=self._describe_call(asked), options=approval_options(asked)
        )
        chosen = response.outcome.option_id if isinstance(response.outcome, AllowedOutcome) else NO
        return to_answer(asked, chosen)

    def _describe_call(self, asked: ApprovalAsked) -> ToolCallUpdate:
        """All of the call, as it will run, and why it is asked about."""
        call, question = asked.call, describe_question(asked)
        workdir = asked.workdir or self._workdir
        why = "\n".join(f"Why: {reason}" for reason in list_reasons(asked))
        body = fence(question.text) if question.text and not asked.diff else ""
        text = "\n\n".join(filter(None, (question.title, body, why)))
        diffs: list[ToolContent] = [*read_diffs(asked.diff, workdir)]
        return ToolCallUpdate(
            tool_call_id=call.id or f"ask-{asked.ask}",
            title=question.title if not question.body else f"{question.title} {' '.join(question.body.split())}"[:200],
            kind=tool_kind(call.name),
            status="pending",
            content=[ContentToolCallContent(type="content", content=text_block(text)), *diffs],
            locations=tool_locations(call, workdir) or None,
            raw_input=call.args,
        )

    async def _reply(self, asked: QuestionAsked) -> AnswerQuestion:
        if self._features.forms:
            return await self._fill_form(asked)
        if asked.choices:
            return await self._choose(asked)
        return _unasked(asked.ask, CANNOT_ASK)

    async def _fill_form(self, asked: QuestionAsked) -> AnswerQuestion:
        about = "; ".join(f"{number}. {choice}" for number, choice in enumerate(asked.choices, 1))
        field = ElicitationStringPropertySchema(type="string", title="Answer", description=about or None)
        schema = ElicitationSchema(properties={"answer": field}, required=["answer"])
        mode = ElicitationFormSessionMode(session_id=self._session, requested_schema=schema)
        response = await self._client.create_elicitation(asked.question, mode)
        if not isinstance(response, AcceptElicitationResponse):
            return _unasked(asked.ask, "the user declined to answer")
        return AnswerQuestion(asked.ask, asked.interpret(str((response.content or {}).get("answer") or "")), BY)

    async def _choose(self, asked: QuestionAsked) -> AnswerQuestion:
        """The choices as a permission request, which every editor can show."""
        options = [PermissionOption(option_id=str(n), name=each, kind="allow_once") for n, each in _number(asked)]
        options.append(PermissionOption(option_id=NO_ANSWER, name="No answer", kind="reject_once"))
        call = ToolCallUpdate(tool_call_id=f"ask-{asked.ask}", title=asked.question, kind="other", status="pending")
        response = await self._client.request_permission(session_id=self._session, tool_call=call, options=options)
        chosen = response.outcome.option_id if isinstance(response.outcome, AllowedOutcome) else NO_ANSWER
        done = ToolCallProgress(
            session_update="tool_call_update", tool_call_id=call.tool_call_id, status="completed", title=asked.question
        )
        await self._client.session_update(session_id=self._session, update=done)
        texts = {str(number): choice for number, choice in _number(asked)}
        return AnswerQuestion(asked.ask, texts[chosen], BY) if chosen in texts else _unasked(asked.ask, "no answer")


def approval_options(asked: ApprovalAsked) -> list[PermissionOption]:
    """The answers to an approval question, the narrowest first."""
    options = [
        PermissionOption(option_id=ONCE, name="Allow once", kind="allow_once"),
        PermissionOption(option_id=SESSION, name="Allow in this conversation", kind="allow_always"),
        PermissionOption(option_id=ALWAYS, name="Always allow exactly this", kind="allow_always"),
        PermissionOption(option_id=NO, name="Deny", kind="reject_once"),
    ]
    return [option for option in options if option.option_id in answers_to(asked)]


def to_answer(asked: ApprovalAsked, chosen: str) -> AnswerApproval:
    """The answer for a chosen option; an unknown one is a no."""
    match chosen:
        case "once" | "session" | "always":
            return AnswerApproval(asked.ask, chosen, BY)
    return AnswerApproval(asked.ask, "no", BY)


def _number(asked: QuestionAsked) -> list[tuple[int, str]]:
    return list(enumerate(asked.choices, 1))


def _unasked(ask: str, why: str) -> AnswerQuestion:
    return AnswerQuestion(ask, "", unasked=why)
