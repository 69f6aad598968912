"""A conversation line by line: over a pipe, from a file, or at a terminal with `--plain` or `TERM=dumb`."""

import asyncio
import re
import sys
import textwrap
from collections.abc import Coroutine
from typing import Any, TypeVar

from msgspec import structs

from alipes.app import open_app
from alipes.cli import resume
from alipes.cli.ask import (
    EXIT_STOPPED,
    AnswerOutput,
    InterruptSignals,
    PromptClient,
    keyboard,
    make_inbound,
    print_warnings,
    run_logged,
)
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console import caller
from alipes.console.inbound import current_directory, describe_return, new_id
from alipes.console.interrupted import NO, YES, InterruptedTurn, find_interrupted, format_left, format_offer
from alipes.console.line_input import LineReader
from alipes.console.line_questions import LineQuestions
from alipes.console.options import ConversationChoice, TalkOptions, parse_talk
from alipes.console.render import format_choice, sanitize
from alipes.console.stdio import StandardStreams, is_terminal, use_colour
from alipes.core.app import App
from alipes.kernel.errors import MessageRejected
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Inbound
from alipes.runtime.program_name import program_name
from alipes.runtime.tasks import handle_uncaught_errors
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import CommandReply, CopyText, PutText, Quit, RunSetup, SendFile, ShowConversation
from alipes.sessions.user_shell import is_shell_command, parse_command, split_status, to_notice

Result = TypeVar("Result")
PROMPT = "> "
HELP_KEY = "?"
"""Means /help if it is typed alone."""
_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")
_RECENT = 2
"""Messages shown of a resumed conversation."""


def run(argv: list[str]) -> int:
    options = parse_talk(argv)
    trusted = options.trusted or options.mode in ("edits", "all")
    if caller.refuse_conversation(trusted=trusted, named=options.conversation != ConversationChoice()):
        return 2
    if is_terminal(sys.stdin):
        chosen = resume.choose(argv)
        if chosen is None:
            return 1
        options = parse_talk(chosen)
    reading = read_config()
    settings = with_plugins(build_settings(reading), not options.safe)
    colour = use_colour(reading.variables) and not options.plain
    return run_logged(settings, lambda streams: _run(settings, options, streams), colour=colour)


async def _run(settings: Settings, options: TalkOptions, streams: StandardStreams) -> int:
    here = settings.workdir or current_directory()
    attended = is_terminal(sys.stdin) and not caller.is_agent_child()
    message: Inbound | None = None
    with InterruptSignals() as signals, handle_uncaught_errors(streams.error), keyboard(not attended) as typed:
        lines = LineReader(sys.stdin)
        questions = None if typed is None else LineQuestions(lines.next, streams.note, streams.prompt)
        while True:
            async with open_app(settings, workdir=here) as app:
                await print_warnings(app, streams)
                note, again = "", message is not None
                if message is None:
                    message, note = await make_inbound(app, options, here)
                client = PromptClient(app, streams, signals, AnswerOutput(), questions)
                conversation = PlainConversation(app, streams, client, message, signals if attended else None)
                if attended:
                    await conversation.greet(note, () if again else await find_interrupted(app, here))
                status = await _answer_lines(conversation, lines, signals, attended)
                if status is None:
                    return EXIT_STOPPED
                if not conversation.settings_changed:
                    await client.wait_for_recovered()
                    await conversation.say_how_to_return()
                    return status
            settings = with_plugins(build_settings(read_config()), not options.safe)


async def _answer_lines(
    conversation: "PlainConversation", lines: LineReader, signals: InterruptSignals, attended: bool
) -> int | None:
    """Handle each line until the input ends, the user quits or the settings change; the status of the last one, None
    if stopped."""
    status = 0
    while not conversation.left and not conversation.settings_changed:
        conversation.prompt(PROMPT if attended else "")
        line = await lines.next()
        if line is None:
            conversation.prompt("\n" if attended else "")
            break
        if line.strip():
            status = await conversation.handle(line)
        if signals.stop_requested.is_set():  # even if the answer was just completed
            if not attended:
                return status or None
            signals.reset()
    return status


class PlainConversation:
    """Sends lines as messages, and runs commands."""

    def __init__(
        self,
        app: App,
        streams: StandardStreams,
        client: PromptClient,
        message: Inbound,
        signals: InterruptSignals | None = None,
    ) -> None:
        """`signals`: a person is there, and their Ctrl-C."""
        self._app, self._streams, self._client, self._message = app, streams, client, message
        self._attacher, self._signals = app.files, signals
        self._interrupted: tuple[InterruptedTurn, ...] = ()
        self.left = False
        """The user quit."""
        self.settings_changed = False
        """The setup was completed."""

    async def greet(self, note: str, interrupted: tuple[InterruptedTurn, ...]) -> None:
        """Say which model answers, and what was interrupted elsewhere."""
        using, hint = f"Using {self._message.model}.", ""
        if not self._message.model:
            choice = await self._app.models.default()
            using, hint = format_choice(choice, setup="/setup"), choice.hint
        for line in filter(None, (using, hint, note, "Type a message, or /help for commands. Ctrl-D quits.")):
            self._streams.note(f"· {line}")
        if interrupted:
            self._interrupted = interrupted
            self._streams.note(f"· {format_offer(interrupted)}")

    def prompt(self, sign: str) -> None:
        self._streams.prompt(sign)

    async def handle(self, line: str) -> int:
        """Handle one line and return its status."""
        offered, self._interrupted = self._interrupted, ()
        if offered and line.strip().lower() in (*YES, *NO):
            return await self._resume(offered, line.strip().lower() in YES)
        inbound = structs.replace(self._message, id=new_id(), text=line)
        if self._signals is not None and is_shell_command(line):
            return await self._run_shell_command(parse_command(line), inbound, self._signals)
        asks_help = self._signals is not None and line.strip() == HELP_KEY
        parsed = commands.parse("/help" if asks_help else line, self._app.contributions)
        if parsed is not None:
            return await self._run_command(parsed, inbound)
        inbound, files = await self._attacher.attach(inbound, line)
        for problem in files.problems:
            self._streams.error(problem)
        try:
            return await self._client.ask(inbound)
        except MessageRejected as refused:  # only this message; continue with the next
            self._streams.error(str(refused))
            return 1

    async def _resume(self, offered: tuple[InterruptedTurn, ...], wanted: bool) -> int:
        if not wanted:
            self._streams.note(f"· {format_left(offered)}")
            return 0
        for turn in offered:
            await self._app.sessions.wake(turn.key)
            self._streams.note(f"· Resuming in {turn}")
        return 0

    async def say_how_to_return(self) -> None:
        """Tell a person how to come back to this conversation."""
        message = self._message
        if self._signals and (note := await describe_return(self._app, message.address.key, message.workdir)):
            self._streams.note(note)

    async def _run_shell_command(self, command: str, inbound: Inbound, signals: InterruptSignals) -> int:
        """Run the command of the person, print its output and keep it for the model."""
        result = await _run_until_stopped(self._app.user_shell.run(command, inbound), signals)
        result = result or ToolResult("", "[killed by the user]")
        text, failure = split_status(result)
        if text:
            self._streams.write_answer(f"{sanitize(text).rstrip()}\n")
            await self._streams.drain()
        if failure:
            self._streams.note(f"· {sanitize(failure)}")
        if (notice := to_notice(command, result, inbound)) is not None:
            await self._app.sessions.submit(notice, "steer", ruled=True)
        return int(bool(failure))

    async def _run_setup(self) -> int:
        if self._signals is None:
            self._streams.error(f"/setup needs a terminal; run `{program_name()} setup`")
            return 1
        from alipes.cli.setup.command import UNCHANGED, run_inside  # noqa: PLC0415

        status = await _run_until_stopped(run_inside(plain=True), self._signals)
        if status is None:
            self._streams.note(f"\n{UNCHANGED}")
        self.settings_changed = status == 0
        return 0

    async def _run_command(self, parsed: commands.Parsed, inbound: Inbound) -> int:
        if parsed.command.name == "jobs":  # printed lines cannot follow a job: show what it printed so far
            parsed = structs.replace(parsed, args=parsed.args.removeprefix("follow").strip())
        if parsed.command.chooses_model and parsed.args:
            self._message = structs.replace(self._message, model="")
        reply = await commands.run(self._app.context(inbound), parsed)
        if reply.failed:
            self._streams.error(sanitize(reply.text))
            return 1
        await self._show_reply(reply)
        status = await self._run_setup() if isinstance(reply.action, RunSetup) else 0
        for turn in reply.turns:
            status = await self._client.follow(inbound.address.key, turn)
        return status

    async def _show_reply(self, reply: CommandReply) -> None:
        text = reply.text
        match reply.action:
            case Quit():
                self.left = True
            case CopyText(answer) | SendFile(_, answer):
                text = answer
            case PutText(message):
                text = f"{text}\n\n{message}"
            case ShowConversation(session):
                messages = await self._app.store.archive.messages(session)
                said = [one for one in messages if one.role in ("user", "assistant") and one.text.strip()]
                shown = [f"{PROMPT}{one.text}" if one.role == "user" else one.text for one in said[-_RECENT:]]
                text = "\n\n".join([text, *shown])
        if text and self._signals is not None and reply.action is None and not reply.diff:
            text = _wrap_columns(text, self._streams.size().columns)
        if text:
            self._streams.write_answer(f"{sanitize(text).rstrip()}\n")
            await self._streams.drain()


def _wrap_columns(text: str, columns: int) -> str:
    """The lines wrapped at words; the second of two columns is wrapped beside the first."""
    rows: list[str] = []
    for line in text.split("\n"):
        found = _COLUMN.match(line)
        indent = found.end() if found else len(line) - len(line.lstrip())
        below = " " * (indent if indent <= columns // 2 else 4)
        rows += textwrap.wrap(line, columns, subsequent_indent=below, break_on_hyphens=False) or [""]
    return "\n".join(rows)


async def _run_until_stopped(work: Coroutine[Any, Any, Result], signals: InterruptSignals) -> Result | None:
    """The result of the work; None if Ctrl-C stopped it."""
    signals.turn_started()
    try:
        async with asyncio.TaskGroup() as group:
            task, stop = group.create_task(work), group.create_task(signals.stop_requested.wait())
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            for each in (task, stop):
                each.cancel()
    finally:
        signals.turn_ended()
        signals.reset()
    return None if task.cancelled() else task.result()
