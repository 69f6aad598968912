"""Entry point of `alipes`: finds the command and imports only its module."""

import gc
import os
import sys
from types import TracebackType

from alipes import __version__
from alipes.console import help_text
from alipes.kernel.errors import AlipesError

TYPE_CHECKING = False  # mypy knows it by its name; importing `typing` would cost a third of `--version`
if TYPE_CHECKING:
    from typing import TextIO

    from alipes.cli.terminal.start import RunSession

COMMANDS = {
    "ask": "ask",
    "setup": "setup.command",
    "sessions": "commands.sessions",
    "model": "commands.model",
    "config": "commands.config",
    "secrets": "commands.secrets",
    "plugins": "plugins.command",
    "skills": "skills.command",
    "memory": "commands.memory",
    "mcp": "commands.mcp",
    "doctor": "doctor",
    "profile": "commands.profile",
    "usage": "commands.sessions:run_usage",
    "backup": "commands.backup:run_backup",
    "restore": "commands.backup:run_restore",
    "store": "commands.store",
    "serve": "serve.command",
    "page": "commands.page",
    "pair": "commands.pair",
    "approvals": "commands.approvals",
    "send": "commands.send",
    "webhook": "commands.webhook",
    "schedule": "commands.schedule",
    "acp": "acp.command",
    "completion": "commands.completion",
    "man": "commands.man",
}
"""Module of each command, and its function unless that is `run`."""
EXTRAS = {"serve": "alipes[serve]", "webhook": "alipes[serve]", "mcp": "alipes[mcp,serve]"}
"""Optional dependencies of commands."""
PLANNED_COMMANDS = {"import": "importing the homes of other agents is not available yet"}


def run_and_exit() -> None:
    """The `alipes` command: run `main` and exit even if a thread of a plugin still waits."""
    status = main()
    if "concurrent.futures.thread" in sys.modules:
        from alipes.runtime.tasks import exit_process  # noqa: PLC0415

        exit_process(status)
    sys.exit(status)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status. Errors become one sentence on standard error."""
    words = sys.argv[1:] if argv is None else argv
    sys.excepthook = _report_crash
    try:
        status = _dispatch(_choose_profile(words))
        return _flush() or status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except (AlipesError, ExceptionGroup) as error:
        from alipes.cli import errors  # noqa: PLC0415

        return errors.report_errors(error)


def _choose_profile(words: list[str]) -> list[str]:
    """The words without `-P NAME`, whose profile is used from now on."""
    if not any(word.startswith(("-P", "--profile")) for word in words):
        return words
    from alipes.console import options  # noqa: PLC0415

    return options.take_profile(words, COMMANDS)


def _dispatch(words: list[str]) -> int:
    match words:
        case ["--version" | "-V", *_]:
            print(f"alipes {__version__}")
            return 0
        case ["--help" | "-h" | "help"]:
            print(help_text.TOP, end="")
            return 0
        case ["help", name]:
            return _dispatch([name, "--help"])
        case [name, *rest] if not name.startswith("-"):
            return _run_command(name, rest)
        case []:
            return _start_conversation([])
        case _:
            return _run_with_options(words)


def _run_with_options(words: list[str]) -> int:
    """Options come first: they belong to the command or question behind them, else to the conversation."""
    from alipes.console import options  # noqa: PLC0415

    given, rest = options.split_words(words)
    asks = [word for word in given if word in ("-p", "--print")]
    given = [word for word in given if word not in asks]
    if asks or rest[:1] == ["--"]:
        return _run_command("ask", [*given, *rest])
    return _run_command(rest[0], rest[1:], given) if rest else _start_conversation(given)


def _start_conversation(argv: list[str]) -> int:
    """Open the prompt if input and output are terminals of a person; otherwise read line by line."""
    from alipes.console import caller  # noqa: PLC0415

    if caller.refuse_profile():
        return 2
    if not _is_terminal(sys.stdin) or caller.is_agent_child():
        return _run_plain(argv)
    if "--plain" in argv or not _is_terminal(sys.stdout):
        return _run_plain(argv)
    if any(word.startswith(("-r", "--resume")) for word in argv):
        from alipes.cli import resume  # noqa: PLC0415

        chosen = resume.choose(argv, pick=False)
        if chosen is None:
            return 1
        argv = chosen
    from alipes.cli.terminal import start  # noqa: PLC0415

    return start.run(argv, _load_session, _run_plain)


def _run_plain(argv: list[str]) -> int:
    from alipes.cli import plain  # noqa: PLC0415

    return plain.run(argv)


def _is_terminal(stream: "TextIO | None") -> bool:
    return stream is not None and stream.isatty()


def _load_session() -> "RunSession":
    """Called once the prompt is visible."""
    with _CollectionPaused():
        from alipes.cli.terminal.session import run_session  # noqa: PLC0415

    return run_session


class _CollectionPaused:
    """No garbage collection meanwhile: among imported modules it finds nothing, and takes a tenth of the start."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *error: object) -> None:
        gc.freeze()
        gc.enable()


def _run_command(name: str, argv: list[str], given: list[str] | None = None) -> int:
    """Run the command, or ask the question that the words are. `given`: options before the command."""
    if name not in COMMANDS:
        return _run_other(name, argv, given or [])
    argv = [*(given or []), *argv]
    from importlib import import_module  # noqa: PLC0415

    from alipes.console import caller  # noqa: PLC0415

    if caller.refuse_profile():
        return 2
    if caller.is_for_people(name, argv) and caller.refuse_agent(caller.describe_command(name, argv)):
        return 2
    path, _, function = COMMANDS[name].partition(":")
    try:
        with _CollectionPaused():
            module = import_module(f"alipes.cli.{path}")
    except ModuleNotFoundError as missing:
        if name not in EXTRAS or (missing.name or "").startswith("alipes"):
            raise
        sys.stderr.write(f"alipes {name} needs the package {missing.name}: pip install '{EXTRAS[name]}'\n")
        return 2
    status: int = getattr(module, function or "run")(argv)
    return status


def _run_other(name: str, argv: list[str], given: list[str]) -> int:
    """Run a command of a plugin, or ask: a sentence, or several words whose first is not like a command."""
    if name in PLANNED_COMMANDS:
        sys.stderr.write(f"alipes {name}: {PLANNED_COMMANDS[name]}.\n")
        return 2
    question = [*given, name, *argv]
    if not name.replace("-", "").replace("_", "").isalnum():
        return _run_command("ask", question)

    from alipes.cli.plugins import standalone  # noqa: PLC0415
    from alipes.console import caller  # noqa: PLC0415

    if caller.refuse_profile():
        return 2

    is_question = bool(given) or any(not word.startswith("-") for word in argv)
    status = standalone.run(name, argv, (*COMMANDS, *PLANNED_COMMANDS), is_question=is_question)
    return _run_command("ask", question) if status is None else status


def _flush() -> int:
    """Flush standard output and report a failure."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        sys.stderr.write(f"alipes: cannot write to standard output: {error.strerror}\n")
        return 1
    return 0


def _discard_output() -> None:
    """The reader is gone: redirect the buffered output so that it does not fail again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _report_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    from alipes.cli import errors  # noqa: PLC0415

    errors.report_crash(kind, error, trace)
