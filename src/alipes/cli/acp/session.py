"""One conversation in an editor: sends its prompts to the session and the session's events to the editor."""

import asyncio
import os

from acp import RequestError
from acp.interfaces import Client
from acp.schema import CurrentModeUpdate, PromptResponse, StopReason
from msgspec import Struct, structs

from alipes.agent.approval.taint import describe_untrusted_file
from alipes.agent.attachments import FileAttacher
from alipes.cli.acp.content import ContentBlock, PromptContent, read_prompt
from alipes.cli.acp.handshake import EditorFeatures
from alipes.cli.acp.options import EditorChoices
from alipes.cli.acp.panel import EditorPanel
from alipes.cli.acp.questions import EditorQuestions
from alipes.cli.acp.tool_calls import fence
from alipes.cli.acp.updates import PLAN_TOOL, EventTranslator, commands_update
from alipes.console.inbound import new_id
from alipes.console.render import sanitize
from alipes.core.app import App
from alipes.kernel.errors import MessageRejected, ToolError
from alipes.kernel.turns import (
    Address,
    ApprovalAnswered,
    ApprovalAsked,
    Ending,
    Event,
    Inbound,
    ModeChanged,
    QuestionAnswered,
    QuestionAsked,
    QueueChanged,
    Said,
    Stop,
    ToolFinished,
    TurnEnded,
)
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import CommandReply, CopyText, PutText, Quit, RunSetup, SendFile, ShowConversation
from alipes.sessions.event_stream import SessionFollower

STOP_REASONS: dict[Ending, StopReason] = {
    "answered": "end_turn",
    "steered": "end_turn",
    "stopped": "cancelled",
    "out_of_steps": "max_turn_requests",
    "gave_up": "end_turn",
}
RECHECK_S = 10.0
"""Seconds between two looks at the journal while a prompt waits; events may be lost if another process runs it."""
INTERNAL_ERROR, INVALID_PARAMS = -32603, -32602


class _Prompt(Struct, eq=False):
    """A prompt that the editor waits for."""

    turn: str = ""
    cancelled: bool = False


class EditorSession:
    """`run` must be running. `announced` is set once the editor knows the id."""

    def __init__(self, id: str, inbound: Inbound, *, app: App, client: Client, features: EditorFeatures) -> None:
        """`inbound`: a message without text, for the conversation and its folder."""
        self.id, self._inbound, self._app = id, inbound, app
        self.announced = asyncio.Event()
        self.choices = EditorChoices(app, inbound.address)
        self.panel = EditorPanel(id, inbound.address, app=app, client=client, choices=self.choices, features=features)
        self._attacher = FileAttacher(app.settings, mask=app.secrets)
        self._translator = EventTranslator(inbound.workdir, features)
        self._questions = EditorQuestions(
            id, self.key, sessions=app.sessions, client=client, features=features, workdir=inbound.workdir
        )
        self._events: asyncio.Queue[tuple[str, Event]] = asyncio.Queue()
        self._follower = SessionFollower(self.key, app.sessions, app.store, self._on_event)
        self._prompts: list[_Prompt] = []
        self._submitting = 0
        self._endings: dict[str, asyncio.Future[TurnEnded]] = {}

    @property
    def address(self) -> Address:
        return self._inbound.address

    @property
    def key(self) -> str:
        return self.address.key

    async def run(self) -> None:
        """Pass events to the editor, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run(lambda _turn: None))
            await self.announced.wait()
            await self.panel.send(commands_update(self._app.contributions))
            while True:
                await self._handle(group, *await self._events.get())

    async def resume_interrupted(self) -> None:
        """Resume a turn of the conversation that no process runs."""
        if await self._app.store.turns.is_abandoned(self.key):
            await self._app.sessions.wake(self.key)

    async def replay(self, session: str) -> None:
        """Send the whole conversation; messages of unfinished turns come as events."""
        store = self._app.store
        unfinished = [await store.archive.turn(each.id) for each in await store.sessions.unfinished(self.key)]
        running = sum(len(facts.said) for facts in unfinished if facts is not None and facts.session == session)
        messages = await store.archive.messages(session)
        for message in messages[: len(messages) - running]:
            for update in self._translator.translate("", Said(message)):
                await self.panel.send(update)
        await self.panel.send_plan()

    async def prompt(self, blocks: list[ContentBlock]) -> PromptResponse:
        """Answer a prompt, and return when its turn has ended. Raises `RequestError` if it failed."""
        waiting = _Prompt()
        self._prompts.append(waiting)
        try:
            await self._follower.subscribed.wait()
            return await self._answer(read_prompt(blocks), waiting)
        except ToolError as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error
        finally:
            self._prompts.remove(waiting)

    async def stop(self) -> None:
        """Stop the running turn, and drop the prompts behind it."""
        waiting = list(self._prompts)
        for prompt in waiting:
            prompt.cancelled = True
        turns = [prompt.turn for prompt in reversed(waiting) if prompt.turn] or ([] if waiting else [""])
        for turn in turns:
            await self._app.sessions.stop(self.key, Stop("user_stop", "session_interrupt", turn))

    async def _answer(self, content: PromptContent, waiting: _Prompt) -> PromptResponse:
        inbound = structs.replace(self._inbound, id=new_id(), text=content.text, attachments=content.images)
        parsed = commands.parse(content.text.strip(), self._app.contributions)
        if parsed is not None:
            return await self._run_command(parsed, inbound, waiting)
        inbound, files = await self._attacher.attach(inbound, content.text)
        for problem in files.problems:
            await self.panel.say(f"*{problem}*\n\n")
        received = str(self._app.settings.paths.files)
        origins = (describe_untrusted_file(path, received) for path in content.paths if os.path.isabs(path))
        inbound = structs.replace(
            inbound,
            text=inbound.text + self._app.secrets(content.blocks),
            untrusted=inbound.untrusted or next(filter(None, origins), ""),
        )
        if waiting.cancelled:
            return PromptResponse(stop_reason="cancelled")
        return await self._submit(inbound, waiting)

    async def _submit(self, inbound: Inbound, waiting: _Prompt) -> PromptResponse:
        self._translator.expect(inbound.text)
        self._submitting += 1
        try:
            turn = await self._app.sessions.submit(inbound)
        except MessageRejected as refused:
            await self.panel.say(f"*{refused}*\n")
            return PromptResponse(stop_reason="refusal")
        finally:
            self._submitting -= 1
        assert turn is not None  # its id is new
        return await self._finish(turn, waiting)

    async def _run_command(self, parsed: commands.Parsed, inbound: Inbound, waiting: _Prompt) -> PromptResponse:
        context = structs.replace(self._app.context(inbound), on_submit=self._translator.expect)
        self._submitting += 1
        try:
            reply = await commands.run(context, parsed)
        finally:
            self._submitting -= 1
        if text := await self._describe_reply(reply):
            await self.panel.say(f"{text}\n")
        response = PromptResponse(stop_reason="end_turn")
        for turn in reply.turns:
            response = await self._finish(turn, waiting)
        await self.panel.refresh_options()
        await self.panel.send(commands_update(self._app.contributions))
        return response

    async def _describe_reply(self, reply: CommandReply) -> str:
        text = sanitize(reply.text).strip()
        match reply.action:
            case Quit():
                return "Close the thread in the editor; the conversation is kept."
            case RunSetup():
                return "Run `alipes setup` in a terminal."
            case CopyText(answer) | SendFile(_, answer) | PutText(answer):
                return answer
            case ShowConversation(session):
                await self.replay(session)
        return fence(text, "diff" if reply.diff else "") if "\n" in text else text

    async def _finish(self, turn: str, waiting: _Prompt) -> PromptResponse:
        """Wait for the end of the turn. By then, all its updates are sent."""
        waiting.turn = turn
        self._translator.claim(turn)
        if waiting.cancelled:
            await self.stop()
        try:
            end = await self._wait_for_end(turn)
        finally:
            self._endings.pop(turn, None)
        if end.ending == "failed":
            raise RequestError(INTERNAL_ERROR, end.detail or "the turn failed")
        await self.panel.send_facts()
        return PromptResponse(stop_reason=STOP_REASONS[end.ending])

    async def _wait_for_end(self, turn: str) -> TurnEnded:
        ending = self._ending(turn)
        while not ending.done():
            await asyncio.wait({ending}, timeout=RECHECK_S)
            facts = None if ending.done() else await self._app.store.archive.turn(turn)
            if facts is not None and facts.ending is not None and not ending.done() and self._events.empty():
                return TurnEnded(turn, facts.ending, facts.detail)
        return ending.result()

    def _ending(self, turn: str) -> "asyncio.Future[TurnEnded]":
        return self._endings.setdefault(turn, asyncio.get_running_loop().create_future())

    def _on_event(self, turn: str, event: Event) -> None:
        self._events.put_nowait((turn, event))

    async def _handle(self, group: asyncio.TaskGroup, turn: str, event: Event) -> None:
        if isinstance(event, TurnEnded) and self._submitting:  # perhaps that of a prompt whose turn has no id here yet
            self._translator.claim(turn)
        for update in self._translator.translate(turn, event):
            await self.panel.send(update)
        match event:
            case ApprovalAsked() | QuestionAsked():
                self._questions.ask(group, event)
            case ApprovalAnswered(ask) | QuestionAnswered(ask):
                self._questions.withdraw(ask)
            case ToolFinished(call) if call.name == PLAN_TOOL:
                await self.panel.send_plan()
            case ModeChanged(mode):
                await self.panel.send(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode))
                await self.panel.refresh_options()
            case QueueChanged(messages):
                self._settle_held({each.turn for each in messages if each.held})
            case TurnEnded():
                self._settle(event)

    def _settle(self, end: TurnEnded) -> None:
        known = end.turn in self._endings or any(prompt.turn == end.turn for prompt in self._prompts)
        if (known or self._submitting) and not (ending := self._ending(end.turn)).done():
            ending.set_result(end)

    def _settle_held(self, held: set[str]) -> None:
        """A stop kept our prompts back: the editor need not wait for them. `/queue send` starts them."""
        for prompt in self._prompts:
            if prompt.turn in held:
                self._settle(TurnEnded(prompt.turn, "stopped", "held"))
                self._translator.release(prompt.turn)
