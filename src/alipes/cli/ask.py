"""`alipes ask`, and `alipes` without a terminal: prompts in, answers on standard output."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TextIO

import msgspec
from msgspec import Struct, structs

from alipes.app import open_app
from alipes.config.environment import readable_by_others
from alipes.config.loader import build_settings, with_plugins
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console import caller
from alipes.console.common import choose_theme
from alipes.console.inbound import (
    add_context,
    current_directory,
    find_conversation,
    new_id,
    read_image,
    read_piped,
    read_schema,
)
from alipes.console.interrupted import find_interrupted
from alipes.console.line_input import LineReader, open_keyboard
from alipes.console.line_questions import LineQuestions
from alipes.console.options import AskOptions, ConversationChoice, TalkOptions, parse_ask
from alipes.console.render import DocumentPrinter, TurnPrinter, format_choice, to_one_line
from alipes.console.stdio import StandardStreams, divert_stdout, is_terminal, use_colour
from alipes.console.theme import Theme
from alipes.core.app import App
from alipes.kernel.messages import Image, Json
from alipes.kernel.turns import (
    ASKED,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Inbound,
    QuestionAnswered,
    QuestionAsked,
    Stop,
    ToolFinished,
    TurnEnded,
)
from alipes.runtime import tasks
from alipes.runtime.log_file import open_log
from alipes.runtime.processes.ancestors import name_agent_process
from alipes.runtime.program_name import program_name
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

    def reset(self) -> None:
        """The stop was handled, and the conversation continues."""
        self._count = 0
        self.stop_requested.clear()
        self.exit_requested.clear()

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


EXIT_STATUS = {"answered": 0, "steered": 0, "failed": 1, "out_of_steps": 1, "gave_up": 4, "stopped": 130}
_UNREAD = "disconnected"
EXIT_DENIED, EXIT_STOPPED, EXIT_UNREAD = 3, 130, 141


class AnswerOutput(Struct, frozen=True):
    """How turns are printed."""

    json: bool = False
    """Every event as a line of JSON, and nothing else."""
    verbose: bool = False
    quiet: bool = False
    theme: Theme | None = None
    """Render the answer as Markdown, for a terminal."""
    document: bool = False
    """Only the JSON document that the turn ends with."""


class PromptClient:
    """Sends prompts to the sessions and prints their turns, which may run in another process."""

    def __init__(
        self,
        app: App,
        streams: StandardStreams,
        signals: InterruptSignals,
        output: AnswerOutput,
        questions: LineQuestions | None = None,
    ) -> None:
        """`questions`: a person is there to answer."""
        self._app, self._streams, self._signals, self._questions = app, streams, signals, questions
        self._printer = _make_printer(streams, output)
        self._encode = msgspec.json.Encoder().encode if output.json else None
        self._denied = False
        if questions is not None:
            app.sessions.questions.allow_asking()

    async def ask(self, inbound: Inbound, *, last: bool = False) -> int:
        """Send the message, print the turn until it ended and return the exit status.

        `last`: the process exits afterwards.
        """
        async with self._app.sessions.ask(inbound, "queue") as following:
            if last and following.turn is not None:
                self._app.sessions.activity.final_turns[inbound.address.key] = following.turn
            return await self._print_turn(following, inbound.address.key)

    async def follow(self, key: str, turn: str) -> int:
        """Print a turn that a command started."""
        async with self._app.sessions.follow(key, turn) as following:
            return await self._print_turn(following, key)

    async def wait_for_recovered(self) -> None:
        """Wait for interrupted turns of other processes that were resumed here."""
        if others := self._app.sessions.recovered:
            names = to_one_line(describe_interrupted(others), 100)
            self._streams.note(f"· resuming interrupted conversations: {names}")
            await self._app.sessions.wait_idle()

    async def _print_turn(self, following: TurnFollower, key: str) -> int:
        self._denied = False
        async with asyncio.TaskGroup() as watching:
            self._signals.turn_started()
            watches = (
                watching.create_task(self._stop_on_signal(following, key)),
                watching.create_task(self._stop_when_unread()),
            )
            asking: dict[str, asyncio.Task[None]] = {}
            try:
                status = await self._follow(following, lambda asked: self._ask_person(watching, asking, key, asked))
            finally:
                self._signals.turn_ended()
                for task in (*watches, *asking.values()):
                    task.cancel()
        await self._streams.drain()
        if self._streams.failure:
            self._streams.error(f"cannot write the answer: {self._streams.failure}")
            return 1
        return EXIT_UNREAD if self._streams.reader_gone.is_set() else status

    async def _follow(self, following: TurnFollower, on_question: Callable[[Event], None]) -> int:
        async for event in following:
            if isinstance(event, TurnEnded) and event.detail == _UNREAD:
                return EXIT_UNREAD  # the person ended the pipe: nothing to report
            if self._encode is not None:
                self._streams.write_line(self._encode(event))
            else:
                self._printer.show_event(event)
            on_question(event)
            if isinstance(event, ToolFinished) and event.result.outcome == "denied":
                self._denied = True
            if isinstance(event, TurnEnded):
                status = EXIT_STATUS[event.ending]
                return EXIT_DENIED if self._denied and not status else status
        return 1

    def _ask_person(
        self, group: asyncio.TaskGroup, asking: dict[str, asyncio.Task[None]], key: str, event: Event
    ) -> None:
        """Ask the question in a task of its own; it ends if the question was answered elsewhere or withdrawn."""
        if self._questions is None:
            return
        if isinstance(event, ApprovalAsked | QuestionAsked):
            asking[event.ask] = group.create_task(self._answer(self._questions, key, event))
        elif isinstance(event, ApprovalAnswered | QuestionAnswered) and (task := asking.pop(event.ask, None)):
            task.cancel()

    async def _answer(self, questions: LineQuestions, key: str, asked: ApprovalAsked | QuestionAsked) -> None:
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
        self._signals.ask(_UNREAD)


def _make_printer(streams: StandardStreams, output: AnswerOutput) -> TurnPrinter:
    quiet = output.quiet or output.json
    if output.document:
        return DocumentPrinter(streams.write_answer, streams.note, verbose=output.verbose, quiet=quiet)
    if output.theme is None:
        return TurnPrinter(streams.write_answer, streams.note, verbose=output.verbose, quiet=quiet)
    from alipes.console.markdown.answer_view import AnswerView  # noqa: PLC0415

    view = AnswerView(streams.write_styled, output.theme, streams.size)
    return TurnPrinter(view.write, streams.note, verbose=output.verbose, quiet=quiet, end_line=view.finish)


class AskedText(Struct, frozen=True):
    """What is asked, with pictures, and the schema of the answer."""

    text: str
    images: tuple[Image, ...] = ()
    schema: dict[str, Json] = {}


def run(argv: list[str]) -> int:
    options = parse_ask(argv)
    trusted = options.trusted or options.mode in ("edits", "all")
    if caller.refuse_conversation(trusted=trusted, named=options.conversation != ConversationChoice()):
        return 2
    reading = read_config()
    settings = with_plugins(build_settings(reading), not options.safe)
    question = _read_prompt(options)
    if not question.text.strip() and not question.images:
        sys.stderr.write("alipes ask: no prompt given\nTry `alipes ask --help`.\n")
        return 2
    schema = read_schema(options.schema)
    theme = None if options.json or schema else choose_theme(reading, settings, plain=options.plain)
    output = AnswerOutput(options.json, options.verbose, options.quiet, theme, bool(schema))
    prompt = structs.replace(question, schema=schema)
    colour = use_colour(reading.variables)
    return run_logged(settings, lambda streams: _ask(settings, options, prompt, streams, output), colour=colour)


def run_logged(
    settings: Settings, start: Callable[[StandardStreams], Coroutine[Any, Any, int]], *, colour: bool
) -> int:
    """Run with the log open; what other code prints goes there. Returns the exit status."""

    async def run_with_streams(out: TextIO | None) -> int:
        streams = StandardStreams(out, sys.stderr, colour=colour)
        try:
            return await start(streams)
        finally:
            streams.close()

    name_agent_process()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()), divert_stdout() as out:
        try:
            return tasks.run_event_loop(run_with_streams(out))
        except asyncio.CancelledError:  # by a signal; everything is closed
            return EXIT_STOPPED


def _read_prompt(options: AskOptions) -> AskedText:
    """The prompt with piped text, and the images."""
    images = tuple(read_image(name) for name in options.images)
    if sys.stdin is None or sys.stdin.isatty():
        return AskedText(options.prompt, images)
    piped = read_piped(sys.stdin.buffer)
    shown = images if piped.image is None else (*images, piped.image)
    return AskedText(add_context(options.prompt, piped.text), shown)


async def _ask(
    settings: Settings, options: AskOptions, question: AskedText, streams: StandardStreams, output: AnswerOutput
) -> int:
    here, silent = settings.workdir or current_directory(), options.quiet or options.json
    with InterruptSignals() as signals, handle_uncaught_errors(streams.error), keyboard(options.json) as typed:
        async with open_app(settings, workdir=here) as app:
            questions = None if typed is None else LineQuestions(LineReader(typed).next, streams.note, streams.prompt)
            client = PromptClient(app, streams, signals, output, questions)
            if not options.quiet:
                await print_warnings(app, streams)
            inbound, note = await make_inbound(app, options, here)
            inbound = structs.replace(inbound, text=question.text, attachments=question.images)
            inbound = structs.replace(inbound, output_schema=question.schema)
            inbound = await _expand_message(app, inbound)
            inbound, files = await app.files.attach(inbound, options.prompt)
            for problem in files.problems:
                streams.error(problem)
            if not silent:
                await _print_model_note(app, options, inbound, streams)
                await _print_folder_notes(app, here, note, streams)
            status = await client.ask(inbound, last=True)
            if not signals.stop_requested.is_set():
                await client.wait_for_recovered()
            return status


@contextmanager
def keyboard(nobody: bool = False) -> Iterator[TextIO | None]:
    """Where a person types who can answer questions; None if `nobody` is there."""
    stream = None if nobody or caller.is_agent_child() else open_keyboard()
    try:
        yield stream
    finally:
        if stream is not None and stream is not sys.stdin:
            stream.close()


async def _expand_message(app: App, inbound: Inbound) -> Inbound:
    """The message, or the one that a template makes of it. The commands are imported for a message with a slash."""
    if not inbound.text.lstrip().startswith("/"):
        return inbound
    from alipes.sessions.commands.registry import expand_message  # noqa: PLC0415

    return await expand_message(app.context(inbound))


async def make_inbound(app: App, options: AskOptions | TalkOptions, here: str) -> tuple[Inbound, str]:
    """A message without text for the chosen conversation, and a note if that was in another folder than `here`."""
    if options.model:
        await app.models.open(options.model)  # report a wrong name before anything is saved
    prefix = ASKED if isinstance(options, AskOptions) else ""
    place = await find_conversation(options.conversation, app, here, prefix)
    message = Inbound(
        new_id(), place.address, "owner", "", model=options.model, workdir=here, trusted=options.trusted, owner=True
    )
    return structs.replace(message, permission_mode=options.mode), place.note


async def _print_folder_notes(app: App, here: str, note: str, streams: StandardStreams) -> None:
    if note:
        streams.note(f"· {note}")
    if is_terminal(sys.stderr):  # of no use in a script
        for turn in await find_interrupted(app, here):
            streams.note(f"· interrupted in {turn}; start alipes there to resume it")


async def print_warnings(app: App, streams: StandardStreams) -> None:
    """Print what is wrong at the start: the sandbox, a `.env` that others can read, plugins that are not loaded."""
    await app.backend.choose()
    warnings = (app.backend.warning, readable_by_others(app.settings.paths.env), *app.broken_plugins)
    for each in filter(None, warnings):
        streams.error(each)


async def _print_model_note(app: App, options: AskOptions, inbound: Inbound, streams: StandardStreams) -> None:
    """Print the model if it is a surprise, and with --verbose the name of the conversation."""
    choice = None if options.model else await app.models.default()
    if choice is not None and options.verbose:
        streams.note(f"· {format_choice(choice)}")
    elif choice is not None and choice.toy:
        streams.note(f"· Using {choice.model}, a tiny demo model; run `{program_name()} setup` to connect a real one")
    if choice is not None and choice.hint:
        streams.note(f"· {choice.hint}")
    if options.verbose:
        streams.note(f"· session {inbound.address.chat}")
