"""A conversation line by line: over a pipe, from a file, or at a terminal with `--plain` or `TERM=dumb`."""

import sys

from msgspec import structs

from alipes.app import App, open_app
from alipes.cli import caller, resume
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
from alipes.cli.inbound import current_directory, new_id
from alipes.cli.interrupted import NO, YES, InterruptedTurn, find_interrupted, format_left, format_offer
from alipes.cli.line_input import LineReader
from alipes.cli.line_questions import LineQuestions
from alipes.cli.options import ConversationChoice, TalkOptions, parse_talk
from alipes.cli.render import format_choice, sanitize
from alipes.cli.stdio import StandardStreams, is_terminal, use_colour
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.kernel.errors import MessageRejected
from alipes.kernel.turns import Inbound
from alipes.runtime.tasks import handle_uncaught_errors
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import CommandReply, CopyText, Quit, SendFile, ShowConversation

PROMPT = "> "
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
    with InterruptSignals() as signals, handle_uncaught_errors(streams.error), keyboard(not attended) as typed:
        async with open_app(settings, workdir=here) as app:
            print_warnings(app, streams)
            message, note = await make_inbound(app, options, here)
            lines = LineReader(sys.stdin)
            questions = None if typed is None else LineQuestions(lines.next, streams.note, streams.prompt)
            client = PromptClient(app, streams, signals, AnswerOutput(), questions)
            conversation = PlainConversation(app, streams, client, message)
            if attended:
                await conversation.greet(note, await find_interrupted(app, here))
            status = await _answer_lines(conversation, lines, signals, attended)
            if status is None:
                return EXIT_STOPPED
            await client.wait_for_recovered()
            return status


async def _answer_lines(
    conversation: "PlainConversation", lines: LineReader, signals: InterruptSignals, attended: bool
) -> int | None:
    """Handle each line until the input ends or the user quits; the status of the last one, None if stopped."""
    status = 0
    while not conversation.left:
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

    def __init__(self, app: App, streams: StandardStreams, client: PromptClient, message: Inbound) -> None:
        self._app, self._streams, self._client, self._message = app, streams, client, message
        self._attacher = app.files
        self._interrupted: tuple[InterruptedTurn, ...] = ()
        self.left = False
        """The user quit."""

    async def greet(self, note: str, interrupted: tuple[InterruptedTurn, ...]) -> None:
        """Say which model answers, and what was interrupted elsewhere."""
        using = f"Using {self._message.model}." if self._message.model else format_choice(await self._app.choice())
        for line in filter(None, (using, note, "Type a message, or /help for commands. Ctrl-D quits.")):
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
        parsed = commands.parse(line, self._app.contributions)
        inbound = structs.replace(self._message, id=new_id(), text=line)
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

    async def _run_command(self, parsed: commands.Parsed, inbound: Inbound) -> int:
        if parsed.command.name == "model" and parsed.args:  # overrides --model
            self._message = structs.replace(self._message, model="")
        reply = await commands.run(self._app.context(inbound), parsed)
        if reply.failed:
            self._streams.error(sanitize(reply.text))
            return 1
        await self._show_reply(reply)
        status = 0
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
            case ShowConversation(session):
                messages = await self._app.store.archive.messages(session)
                said = [one for one in messages if one.role in ("user", "assistant") and one.text.strip()]
                shown = [f"{PROMPT}{one.text}" if one.role == "user" else one.text for one in said[-_RECENT:]]
                text = "\n\n".join([text, *shown])
        if text:
            self._streams.write_answer(f"{sanitize(text).rstrip()}\n")
            await self._streams.drain()
