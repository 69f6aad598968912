"""`alipes ask`, and `alipes` without a terminal: prompts in, answers on standard output."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TextIO, TypeAlias

import msgspec
from msgspec import structs

from alipes.app import App, open_app
from alipes.cli import caller
from alipes.cli.inbound import add_context, current_directory, find_conversation, new_id, read_image, read_piped
from alipes.cli.line_questions import LineQuestions
from alipes.cli.options import AskOptions, ConversationChoice, TalkOptions, parse_ask, parse_talk
from alipes.cli.render import TurnPrinter, format_choice, to_one_line
from alipes.cli.stdio import StandardStreams, divert_stdout, is_terminal, use_colour
from alipes.config.environment import readable_by_others
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.kernel.errors import MessageRejected
from alipes.kernel.messages import Image
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    Inbound,
    QuestionAnswered,
    QuestionAsked,
    Stop,
    TurnEnded,
)
from alipes.runtime import tasks
from alipes.runtime.log_file import open_log
from alipes.runtime.processes.ancestors import name_agent_process
from alipes.runtime.tasks import handle_uncaught_errors
from alipes.sessions.event_stream import TurnFollower
from alipes.sessions.subagents.text import describe_interrupted

_REASONS = {
    signal.SIGINT: ("user_stop", "session_interrupt"),
    signal.SIGTERM: ("shutdown", "shutdown"),
    signal.SIGHUP: ("disconnected", "disconnected"),
}


class InterruptSignals:
    """Handles SIGINT, SIGTERM and SIGHUP while entered. Enter it in the task to be cancelled.

    While no turn is running, the first signal exits at once.
    """

    def __init__(self) -> None:
        self.stop_requested = asyncio.Event()
        self.exit_requested = asyncio.Event()
        self.reason = ("user_stop", "session_interrupt")
        self._stoppable = False
        self._count = 0
        self._main: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _REASONS:
            # nohup ignores SIGHUP: keep that. Shells ignore SIGINT for background jobs: handle it anyway.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _REASONS:
            loop.remove_signal_handler(number)

    def turn_started(self) -> None:
        """A turn is running: the first signal stops it."""
        self._stoppable = True

    def turn_ended(self) -> None:
        self._stoppable = False

    def ask(self, *reason: str) -> None:
        """Request a stop without a signal, for example when the reader is gone."""
        if not self.stop_requested.is_set():
            self.reason = (reason[0], reason[-1])
            self.stop_requested.set()

    def cancel_main(self) -> None:
        """Cancel the main task, which closes everything and exits."""
        assert self._main is not None
        self._main.cancel()

    def stop(self, turn: str) -> Stop:
        return Stop(*self.reason, turn=turn)

    def _on_signal(self, number: signal.Signals) -> None:
        self._count += 1
        if self._count > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._stoppable:
            self.cancel_main()
        elif self.stop_requested.is_set():
            self.exit_requested.set()
        else:
            self.ask(*_REASONS[number])


EXIT_STATUS = {"answered": 0, "steered": 0, "failed": 1, "out_of_steps": 1, "stopped": 130}
EXIT_STOPPED, EXIT_UNREAD = 130, 141


class PromptClient:
    """Sends prompts to the sessions and prints their turns, which may run in another process."""

    def __init__(
        self,
        app: App,
        streams: StandardStreams,
        signals: InterruptSignals,
        *,
        json: bool = False,
        verbose: bool = False,
        quiet: bool = False,
    ) -> None:
        self._app, self._streams, self._signals = app, streams, signals
        self.questions: LineQuestions | None = None
        """Asks the person at the terminal; None: nobody can be asked."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._printer = TurnPrinter(streams.write_answer, streams.note, verbose=verbose, quiet=quiet or json)
        self._encode = msgspec.json.Encoder().encode if json else None

    async def ask(self, inbound: Inbound, *, last: bool = False) -> int:
        """Send the message, print the turn until it ended and return the exit status.

        `last`: the process exits afterwards.
        """
        key = inbound.address.key
        async with self._app.sessions.ask(inbound, "queue") as following, asyncio.TaskGroup() as watching:
            if last and following.turn is not None:
                self._app.sessions.activity.final_turns[key] = following.turn
            self._signals.turn_started()
            watches = (
                watching.create_task(self._stop_on_signal(following, key)),
                watching.create_task(self._stop_when_unread()),
            )
            try:
                status = await self._follow(following, key, watching)
            finally:
                self._signals.turn_ended()
                for watch in (*watches, *self._asking.values()):
                    watch.cancel()
        await self._streams.drain()
        if self._streams.failure:
            self._streams.error(f"cannot write the answer: {self._streams.failure}")
            return 1
        return EXIT_UNREAD if self._streams.reader_gone.is_set() else status

    async def wait_for_recovered(self) -> None:
        """Wait for interrupted turns of other processes that were resumed here."""
        if others := self._app.sessions.recovered:
            names = to_one_line(describe_interrupted(others), 100)
            self._streams.note(f"· resuming interrupted conversations: {names}")
            await self._app.sessions.wait_idle()

    async def _follow(self, following: TurnFollower, key: str, group: asyncio.TaskGroup) -> int:
        async for event in following:
            if isinstance(event, ApprovalAsked | QuestionAsked) and self.questions is not None:
                self._asking[event.ask] = group.create_task(self._ask_person(self.questions, event, key))
            elif isinstance(event, ApprovalAnswered | QuestionAnswered) and event.ask in self._asking:
                self._asking.pop(event.ask).cancel()  # perhaps answered elsewhere, or the turn was stopped
            if self._encode is not None:
                self._streams.write_line(self._encode(event))
            else:
                self._printer.show_event(event)
            if isinstance(event, TurnEnded):
                return EXIT_STATUS[event.ending]
        return 1

    async def _ask_person(self, questions: LineQuestions, asked: ApprovalAsked | QuestionAsked, key: str) -> None:
        await self._app.sessions.post(key, await questions.ask(asked))

    async def _stop_on_signal(self, following: TurnFollower, key: str) -> None:
        await self._signals.stop_requested.wait()
        assert following.turn is not None
        stop = self._signals.stop(following.turn)
        await self._app.sessions.post(key, stop)
        await self._signals.exit_requested.wait()
        # The process that resumes the turn must see that it was stopped.
        await self._app.store.turns.put_op(key, stop)
        self._signals.cancel_main()

    async def _stop_when_unread(self) -> None:
        await self._streams.reader_gone.wait()
        self._signals.ask("disconnected")


Prompt: TypeAlias = tuple[str, tuple[Image, ...]]


def run(argv: list[str]) -> int:
    options = parse_ask(argv)
    trusted = options.trusted or options.mode in ("edits", "all")
    if caller.refuse_conversation(trusted=trusted, named=options.conversation != ConversationChoice()):
        return 2
    reading = read_config()
    settings = with_plugins(build_settings(reading), not options.safe)
    question = _read_prompt(options)
    if not question[0].strip() and not question[1]:
        sys.stderr.write("alipes ask: no prompt given\nTry `alipes ask --help`.\n")
        return 2
    colour = use_colour(reading.variables)
    return _run_logged(settings, lambda out: _ask(settings, options, question, out, colour))


def _run_logged(settings: Settings, start: Callable[[TextIO | None], Coroutine[Any, Any, int]]) -> int:
    name_agent_process()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()), divert_stdout() as out:
        try:
            return tasks.run_event_loop(start(out))
        except asyncio.CancelledError:  # by a signal; everything is closed
            return EXIT_STOPPED


def _read_prompt(options: AskOptions) -> Prompt:
    """The prompt with piped text, and the images."""
    images = tuple(read_image(name) for name in options.images)
    if sys.stdin is None or sys.stdin.isatty():
        return options.prompt, images
    piped = read_piped(sys.stdin.buffer)
    shown = images if piped.image is None else (*images, piped.image)
    return add_context(options.prompt, piped.text), shown


async def _ask(settings: Settings, options: AskOptions, question: Prompt, out: TextIO | None, colour: bool) -> int:
    streams = StandardStreams(out, sys.stderr, colour=colour)
    try:
        with InterruptSignals() as signals, handle_uncaught_errors(streams.error):
            questions = _questions_at_terminal(options, streams)
            async with open_app(settings, answers=questions is not None) as app:
                client = PromptClient(
                    app, streams, signals, json=options.json, verbose=options.verbose, quiet=options.quiet
                )
                client.questions = questions
                if not options.quiet:
                    _print_warnings(app, streams)
                inbound = await _make_inbound(app, options, *question)
                if not (options.quiet or options.json):
                    await _print_model_note(app, options, inbound, streams)
                status = await client.ask(inbound, last=True)
                if not signals.stop_requested.is_set():
                    await client.wait_for_recovered()
                return status
    finally:
        streams.close()


def _questions_at_terminal(options: AskOptions, streams: StandardStreams) -> LineQuestions | None:
    """Asks the person at the terminal; None if there is none, or if the agent itself started this."""
    if options.json or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)) or caller.is_agent_child():
        return None
    return LineQuestions(LineReader(sys.stdin).next, streams.note)


async def _make_inbound(
    app: App, options: AskOptions | TalkOptions, text: str = "", images: tuple[Image, ...] = ()
) -> Inbound:
    if options.model:
        await app.models.open(options.model)  # report a wrong name before anything is saved
    place = await find_conversation(options.conversation, app.store.archive)
    here = app.settings.workdir or current_directory()
    message = Inbound(new_id(), place, "owner", text, model=options.model, workdir=here, trusted=options.trusted)
    return structs.replace(message, attachments=images, permission_mode=options.mode)


def _print_warnings(app: App, streams: StandardStreams) -> None:
    """Print what is wrong at the start: a `.env` that others can read, and plugins that are not loaded."""
    for each in filter(None, (readable_by_others(app.settings.paths.env), *app.broken_plugins)):
        streams.error(each)


async def _print_model_note(app: App, options: AskOptions, inbound: Inbound, streams: StandardStreams) -> None:
    """Print the model if it is a surprise, and with --verbose the name of the conversation."""
    choice = None if options.model else await app.choice()
    if choice is not None and options.verbose:
        streams.note(f"· {format_choice(choice)}")
    elif choice is not None and choice.toy:
        streams.note(f"· Using {choice.model}, a toy model; run `alipes model` to choose another")
    if options.verbose:
        streams.note(f"· session {inbound.address.chat}")


READ_SIZE = 65_536


def run_piped(argv: list[str]) -> int:
    options = parse_talk(argv)
    trusted = options.trusted or options.mode in ("edits", "all")
    if caller.refuse_conversation(trusted=trusted, named=options.conversation != ConversationChoice()):
        return 2
    reading = read_config()
    settings = with_plugins(build_settings(reading), not options.safe)
    colour = use_colour(reading.variables)
    return _run_logged(settings, lambda out: _run_lines(settings, options, out, colour))


async def _run_lines(settings: Settings, options: TalkOptions, out: TextIO | None, colour: bool) -> int:
    """Answer each line until the input ends; the status of the last answer."""
    streams = StandardStreams(out, sys.stderr, colour=colour)
    status = 0
    try:
        with InterruptSignals() as signals, handle_uncaught_errors(streams.error):
            async with open_app(settings) as app:
                _print_warnings(app, streams)
                message = await _make_inbound(app, options)
                client, lines = PromptClient(app, streams, signals), LineReader(sys.stdin)
                while (line := await lines.next()) is not None:
                    try:
                        if line.strip():
                            status = await client.ask(structs.replace(message, id=new_id(), text=line))
                    except MessageRejected as refused:  # only this message; continue with the next
                        streams.error(str(refused))
                        status = 1
                    if signals.stop_requested.is_set():  # even if the answer was just completed
                        return status or EXIT_STOPPED
                await client.wait_for_recovered()
                return status
    finally:
        streams.close()


class LineReader:
    """Reads the lines of a pipe, file or terminal as they arrive."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fd = None if stream is None else stream.fileno()
        self._pending = b""
        self._ended = stream is None

    async def next(self) -> str | None:
        """The next line without its line break; None at the end."""
        while b"\n" not in self._pending and not self._ended:
            piece = await self._read()
            self._ended = not piece
            self._pending += piece
        line, found, rest = self._pending.partition(b"\n")
        self._pending = rest
        return line.decode("utf-8", "replace") if line or found else None

    async def _read(self) -> bytes:
        assert self._fd is not None
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except PermissionError:  # a regular file cannot be watched and is always ready
            return os.read(self._fd, READ_SIZE)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, READ_SIZE)
