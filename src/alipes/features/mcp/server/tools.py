"""Conversations as tools for MCP clients: ask, follow, read, stop, approve, reply, search, send. Knows no protocol."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from alipes.core.app import App
from alipes.features.mcp.server.texts import ConversationTexts
from alipes.kernel.approvals import describe_question
from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message
from alipes.kernel.tool_labels import describe_tool
from alipes.kernel.turns import (
    AnswerApproval,
    AnswerQuestion,
    ApprovalAsked,
    Event,
    Notice,
    QuestionAsked,
    Said,
    Stop,
    ToolFinished,
    ToolStarted,
    TurnParked,
    TurnStarted,
)
from alipes.store.sql.api_runs import ApiSession, SessionQuery
from alipes.web.admission import TurnAdmission
from alipes.web.endpoint import Caller, HttpProblem, Scope, ServerState, problem_from_error
from alipes.web.runs.events import LiveRun, LiveRuns
from alipes.web.runs.lookup import Name, Run, RunLookup, VisibleRun, find_session, visible_scope
from alipes.web.templates import expand_input

MAX_MESSAGE_CHARS = 4000
"""Characters of one message that `read` returns; the whole is in the export."""
ENDED = ("answered", "stopped", "out_of_steps", "failed", "steered", "gave_up")
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_000_000)]
Conversation: TypeAlias = Annotated[Name, Meta(description="Id or name of the conversation.")]


class SendToChat(Protocol):
    async def __call__(self, to: str, text: str) -> str:
        """Queue a message for a chat; returns what happens with it. Raises `AlipesError` if there is no such chat."""


class ToolRequest(Struct, frozen=True):
    """Who calls a tool, and how it reports."""

    caller: Caller
    report: Callable[[int, str], Awaitable[None]]
    """Sends progress: a growing number and a few words."""
    check_person: Callable[[], Awaitable[None]]
    """Raises `HttpProblem` if a process of the agent calls, which may not act as a person."""


class ToolAnswer(Struct, frozen=True):
    text: str
    data: Any = None
    """The same for programs."""
    failed: bool = False


class AskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    prompt: Annotated[Text, Meta(description="The question or the task.")]
    conversation: Annotated[Name, Meta(description="Id or name of a conversation to continue; empty: a new one.")] = ""
    model: Annotated[Name, Meta(description="Model for this prompt alone; empty: the default.")] = ""


class ConversationArguments(Struct, frozen=True, forbid_unknown_fields=True):
    conversation: Conversation


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    conversation: Conversation
    limit: Annotated[int, Meta(ge=1, le=200, description="How many of the latest messages.")] = 20


class ApproveArguments(Struct, frozen=True, forbid_unknown_fields=True):
    conversation: Conversation
    choice: Annotated[
        Literal["once", "session", "no"],
        Meta(description="Allow this call once, allow it in this conversation, or deny it."),
    ]
    ask: Annotated[Name, Meta(description="Id of the question; may be empty if only one is open.")] = ""
    note: Annotated[str, Meta(max_length=4000, description="With no: the reason, for the model.")] = ""


class ReplyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    conversation: Conversation
    text: Annotated[Text, Meta(description="The answer, or the number of a choice.")]
    ask: Annotated[Name, Meta(description="Id of the question; may be empty if only one is open.")] = ""


class SearchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=1000, description="Words; messages contain all of them.")]
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class ListArguments(Struct, frozen=True, forbid_unknown_fields=True):
    words: Annotated[str, Meta(max_length=200, description="Words in the title or the first message.")] = ""
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SendArguments(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[Name, Meta(description="PLATFORM:CHAT, a platform with a default chat, or home.")]
    text: Text


class ConversationTool(Struct, frozen=True):
    name: str
    description: str
    arguments: type[Struct]
    scope: Scope
    run: Callable[[Any, ToolRequest], Awaitable[ToolAnswer]]
    reads: bool = False
    """It changes nothing."""
    helps_to_end: bool = False
    """It is accepted during shutdown."""
    for_people: bool = False
    """A process of the agent may not call it."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        whole: dict[str, Any] = msgspec.json.schema(self.arguments)
        schema: dict[str, Any] = whole["$defs"][self.arguments.__name__]
        return schema


class ConversationTools:
    """The tools over one set of sessions. `runs` must be running."""

    def __init__(
        self,
        app: App,
        runs: LiveRuns,
        admission: TurnAdmission,
        *,
        send: SendToChat | None = None,
        state: ServerState | None = None,
    ) -> None:
        """`send`: queues messages for chats; without it, there is no such tool."""
        self._app, self._runs, self._admission, self._send = app, runs, admission, send
        self._state = state or ServerState()
        self._store, self._lookup = app.store.api_runs, RunLookup(app, runs)
        self._tools = {tool.name: tool for tool in self._list()}
        self.texts = ConversationTexts(app)

    def _list(self) -> list[ConversationTool]:
        tools = [
            ConversationTool("ask", _ASK, AskArguments, "run", self.ask),
            ConversationTool("follow", _FOLLOW, ConversationArguments, "read", self.follow, reads=True),
            ConversationTool("read", _READ, ReadArguments, "read", self.read, reads=True),
            ConversationTool("stop", _STOP, ConversationArguments, "run", self.stop, helps_to_end=True),
            ConversationTool(
                "approve", _APPROVE, ApproveArguments, "run", self.approve, helps_to_end=True, for_people=True
            ),
            ConversationTool("reply", _REPLY, ReplyArguments, "run", self.reply, helps_to_end=True, for_people=True),
            ConversationTool("search", _SEARCH, SearchArguments, "read", self.search, reads=True),
            ConversationTool("conversations", _CONVERSATIONS, ListArguments, "read", self.conversations, reads=True),
        ]
        if self._send is not None:
            tools.append(ConversationTool("send", _SEND, SendArguments, "admin", self.send, for_people=True))
        return tools

    def for_caller(self, caller: Caller) -> list[ConversationTool]:
        """The tools that the caller may use."""
        return [tool for tool in self._tools.values() if caller.may(tool.scope)]

    async def call(self, name: str, arguments: dict[str, Any], request: ToolRequest) -> ToolAnswer | None:
        """The answer of a tool; None if there is no such tool. Errors are answers too."""
        tool = self._tools.get(name)
        if tool is None:
            return None
        try:
            return await self._run(tool, arguments, request)
        except HttpProblem as problem:
            return ToolAnswer(problem.detail, failed=True)
        except AlipesError as error:
            return ToolAnswer(problem_from_error(error).detail, failed=True)

    async def _run(self, tool: ConversationTool, arguments: dict[str, Any], request: ToolRequest) -> ToolAnswer:
        if not request.caller.may(tool.scope):
            raise HttpProblem(403, f"this key lacks the scope {tool.scope}", code="scope")
        if (why := self._state.shutdown_reason) and not tool.reads and not tool.helps_to_end:
            raise HttpProblem(503, f"{why}; try again", code="leaving")
        if tool.for_people:
            await request.check_person()
        try:
            parsed = msgspec.convert(arguments, tool.arguments)
        except msgspec.ValidationError as error:
            raise HttpProblem(422, f"invalid arguments: {error}", code="body") from error
        return await tool.run(parsed, request)

    async def ask(self, args: AskArguments, request: ToolRequest) -> ToolAnswer:
        model = await self._admission.resolve_model(args.model)
        place = await self._lookup.place(request.caller, args.conversation)
        inbound = place.make_inbound(f"mcp:{os.urandom(12).hex()}", args.prompt)
        inbound = await expand_input(self._app, structs.replace(inbound, model=model, attended=True))
        async with self._admission.open_slot(request.caller):
            turn = await self._runs.begin(inbound, "queue")
        assert turn is not None  # its id is new
        try:
            await self._watch(self._runs.find(turn), request)
        except asyncio.CancelledError:  # by the client, or it disconnected
            self._runs.stop_soon(place.address.key, Stop("user_stop", "session_interrupt", turn))
            raise
        return await self._describe(turn)

    async def follow(self, args: ConversationArguments, request: ToolRequest) -> ToolAnswer:
        row = await find_session(self._store, request.caller, args.conversation)
        turn = await self._running_turn(row)
        if turn is None:  # it has ended already
            said = await self._app.store.archive.messages(row.id)
            last = next((each.text for each in reversed(said) if each.role == "assistant" and each.text), "")
            return ToolAnswer(last or "Nothing is running.", {"conversation": row.id, "status": "idle", "text": last})
        run = await self._lookup.find(turn, request.caller)
        await self._watch(await self._runs.follow(turn, run.inbound), request)
        return await self._describe(turn)

    async def read(self, args: ReadArguments, request: ToolRequest) -> ToolAnswer:
        return await self._read(await find_session(self._store, request.caller, args.conversation), args.limit)

    async def stop(self, args: ConversationArguments, request: ToolRequest) -> ToolAnswer:
        row = await find_session(self._store, request.caller, args.conversation)
        stopped = await self._app.sessions.stop(row.address.key, Stop("user_stop", "session_interrupt"))
        held = f" {len(stopped.held)} queued messages are kept back." if stopped.held else ""
        text = f"Stopped.{held}" if stopped.turn else f"Nothing is running.{held}"
        return ToolAnswer(text, {"stopped": bool(stopped.turn), "held": [each.id for each in stopped.held]})

    async def approve(self, args: ApproveArguments, request: ToolRequest) -> ToolAnswer:
        run, asked = await self._find_question(args.conversation, args.ask, request.caller, ApprovalAsked)
        answer = AnswerApproval(asked, args.choice, request.caller.name, note=args.note)
        await self._post(run, answer)
        done = "Denied." if args.choice == "no" else "Allowed."
        return ToolAnswer(f"{done} Use follow to wait for the answer.", {"ask": asked, "choice": args.choice})

    async def reply(self, args: ReplyArguments, request: ToolRequest) -> ToolAnswer:
        run, asked = await self._find_question(args.conversation, args.ask, request.caller, QuestionAsked)
        question = self._questions(run).get(asked)
        text = question.interpret(args.text) if isinstance(question, QuestionAsked) else args.text
        await self._post(run, AnswerQuestion(asked, text, request.caller.name))
        return ToolAnswer("Answered. Use follow to wait for the answer.", {"ask": asked})

    async def _post(self, run: VisibleRun, answer: AnswerApproval | AnswerQuestion) -> None:
        await self._app.sessions.post(run.key, answer)
        if (live := self._runs.find(run.turn)) is not None:
            live.log.waits_for.pop(answer.ask, None)  # a `follow` that comes now waits for what is next

    async def search(self, args: SearchArguments, request: ToolRequest) -> ToolAnswer:
        scope = visible_scope(request.caller)
        hits = await self._app.search.search(args.query, args.limit, scope=scope, marks=("", ""))
        lines = [f"{hit.session} {hit.title}: {hit.snippet}" for hit in hits]
        return ToolAnswer("\n".join(lines) or "No matches.", {"hits": msgspec.to_builtins(hits)})

    async def conversations(self, args: ListArguments, request: ToolRequest) -> ToolAnswer:
        wanted = SessionQuery(args.limit, args.words)
        found = await self._store.sessions(visible_scope(request.caller).owner, wanted)
        listed = [
            {
                "id": row.id,
                "name": row.address.chat,
                "platform": row.address.platform,
                "title": row.title,
                "updated": row.updated,
                "running": row.unfinished > 0,
            }
            for row in found
        ]
        lines = [f"{row.id} ({row.address.platform}) {row.title or row.address.chat}" for row in found]
        return ToolAnswer("\n".join(lines) or "No conversations yet.", {"conversations": listed})

    async def send(self, args: SendArguments, _request: ToolRequest) -> ToolAnswer:
        assert self._send is not None
        return ToolAnswer(await self._send(args.to, args.text))

    async def _watch(self, live: LiveRun | None, request: ToolRequest) -> None:
        """Report the progress of a run, until it has ended or waits for a person."""
        if live is None:
            return
        log, sent, count = live.log, "", 0
        seen: Event | None = None
        with log.listen():
            while True:
                while log.latest is not seen:
                    seen = log.latest
                    words = _describe_event(seen)
                    if words and words != sent:
                        sent, count = words, count + 1
                        await request.report(count, words)
                if log.closed or log.waits_for:
                    return
                await log.wait_for_events()

    async def _describe(self, turn: str) -> ToolAnswer:
        """The state of a run: the answer, or the question that it waits for."""
        run = await self._lookup.describe(turn)
        live = self._runs.find(turn)
        if live is not None and live.log.waits_for and run.status not in ENDED:
            run = structs.replace(run, status="waiting", waits_for=tuple(live.log.waits_for.values()))
        data: dict[str, Any] = {
            "conversation": run.session_id or run.session,
            "run": run.id,
            "status": run.status,
            "text": run.text,
        }
        if run.detail:
            data["detail"] = run.detail
        if run.waits_for:
            data["questions"] = [_question_data(each) for each in run.waits_for]
        return ToolAnswer(_describe_run(run), data, failed=run.status in ("failed", "gave_up"))

    async def _read(self, row: ApiSession, limit: int) -> ToolAnswer:
        said = [each for each in await self._app.store.archive.messages(row.id) if each.role in ("user", "assistant")]
        shown = [_message_data(each) for each in said[-limit:]]
        turn = await self._running_turn(row)
        run = None if turn is None else await self._lookup.describe(turn)
        state = f"A turn is {run.status}." if run is not None else ""
        lines = [f"{each['role']}: {each['text']}" for each in shown]
        data = {"conversation": row.id, "messages": shown, "earlier": len(said) - len(shown)}
        return ToolAnswer("\n\n".join(filter(None, (*lines, state))), data | {"status": run.status if run else "idle"})

    async def _running_turn(self, row: ApiSession) -> str | None:
        """The first turn of the conversation that has not ended."""
        unfinished = await self._app.store.sessions.unfinished(row.address.key)
        return next((each.id for each in unfinished if each.session == row.id and not each.held), None)

    async def _find_question(
        self, conversation: str, named: str, caller: Caller, kind: type[ApprovalAsked] | type[QuestionAsked]
    ) -> tuple[VisibleRun, str]:
        row = await find_session(self._store, caller, conversation)
        turn = await self._running_turn(row)
        if turn is None:
            raise HttpProblem(409, "nothing is running in this conversation, so no question is open", code="over")
        run = await self._lookup.find_live(turn, caller)
        waiting = [ask for ask, asked in self._questions(run).items() if isinstance(asked, kind)]
        if not named and len(waiting) == 1:
            return run, waiting[0]
        return run, named if named in waiting else self._lookup.find_question(run, named, kind)

    def _questions(self, run: VisibleRun) -> dict[str, ApprovalAsked | QuestionAsked]:
        """The open questions of a run, also if another process runs it and we follow it."""
        live = self._runs.find(run.turn)
        here = {each.ask: each for each in self._runs.questions(run.key, run.turn)}
        return {**(live.log.waits_for if live is not None else {}), **here}


def _describe_event(event: Event | None) -> str:
    """A few words about what a turn does; empty for what is not worth a message."""
    match event:
        case TurnStarted():
            return "started"
        case ToolStarted(call):
            return describe_tool(call).text[:200]
        case ToolFinished(call):
            return f"{describe_tool(call).text[:180]}: done"
        case ApprovalAsked():
            return "waiting for approval"
        case QuestionAsked():
            return "waiting for an answer"
        case Notice(text) | TurnParked(text=text):
            return text
        case Said(message) if message.role == "assistant" and message.calls:
            return message.text.strip()[:200]
    return ""


def _describe_run(run: Run) -> str:
    if run.waits_for:
        questions = "\n\n".join(_question_text(each) for each in run.waits_for)
        return f"{questions}\n\nThe turn waits. Let a person decide, then use approve or reply, and follow."
    if run.status in ("answered", "steered"):
        return run.text or "(no text)"
    if run.status in ENDED:
        why = f": {run.detail}" if run.detail else ""
        return "\n\n".join(filter(None, (run.text, f"The turn ended as {run.status}{why}.")))
    return f"The turn is {run.status}. Use follow to wait for it."


def _question_text(asked: ApprovalAsked | QuestionAsked) -> str:
    if isinstance(asked, QuestionAsked):
        choices = (f"{number}. {choice}" for number, choice in enumerate(asked.choices, 1))
        return "\n".join((f"Question {asked.ask}: {asked.question}", *choices))
    call = describe_question(asked)
    return f"Approval {asked.ask}: {call.title}\n{call.text}\nWhy: {asked.reason}"


def _question_data(asked: ApprovalAsked | QuestionAsked) -> dict[str, Any]:
    kind = "question" if isinstance(asked, QuestionAsked) else "approval"
    return {"ask": asked.ask, "kind": kind, "text": _question_text(asked)}


def _message_data(message: Message) -> dict[str, Any]:
    text = message.text or ", ".join(describe_tool(call).text for call in message.calls)
    cut = len(text) - MAX_MESSAGE_CHARS
    return {"role": message.role, "text": f"{text[:MAX_MESSAGE_CHARS]}\n[{cut:,} more characters]" if cut > 0 else text}


_ASK = (
    "Ask alipes, a personal agent, and wait for its answer. It keeps the conversation: pass its id to continue. "
    "If the answer says that it waits for approval, a person must decide (approve), then use follow. "
    "Cancelling the call stops the agent."
)
_FOLLOW = "Wait until the running turn of a conversation ends or waits for a person, and return its answer."
_READ = "Return the latest messages of a conversation, and whether a turn is running, without waiting."
_STOP = "Stop the running turn of a conversation."
_APPROVE = (
    "Answer an open approval of a tool call. Only with the decision of a person who has seen the call: ask them first."
)
_REPLY = "Answer an open question that the agent asks a person."
_SEARCH = "Search all messages of the conversations."
_CONVERSATIONS = "List the conversations, latest first."
_SEND = "Send a message to a chat (Telegram, Discord and others) without a model."
