"""The front door: which command is meant. It loads that command's room and nothing else."""

import os
import sys
from types import TracebackType

from alipes import __version__
from alipes.cli import help_text
from alipes.kernel.errors import AlipesError

TYPE_CHECKING = False  # known to mypy by its name; `typing` would be a third of what `--version` costs
if TYPE_CHECKING:
    from typing import TextIO

    from alipes.cli.terminal.start import Serve

ROOMS = {
    "ask": "ask",
    "setup": "setup.command",
    "sessions": "commands.sessions",
    "model": "commands.model",
    "config": "commands.config",
    "plugins": "plugins.command",
    "skills": "commands.skills",
    "doctor": "doctor",
    "usage": "commands.usage",
    "backup": "commands.backup",
    "restore": "commands.restore",
    "serve": "serve.command",
    "pair": "commands.pair",
    "send": "commands.send",
    "webhook": "commands.webhook",
}
"""Where the `run` of each command is."""
EXTRAS = {"serve": "alipes[serve]", "webhook": "alipes[serve]"}
"""What has to be installed for a command, where that is more than alipes itself."""
COMMANDS = tuple(ROOMS)
LATER = {
    "schedule": "comes with the schedules",
    "import": "comes with the import of other agents' homes",
}


def enter() -> None:
    """The `alipes` command: `main`, and out, whatever a plugin's thread may still be waiting for."""
    status = main()
    if "concurrent.futures.thread" in sys.modules:
        from alipes.runtime.threads import leave  # noqa: PLC0415

        leave(status)
    sys.exit(status)


def main(argv: list[str] | None = None) -> int:
    """Do what the words say; the exit status. Errors end as one sentence on standard error."""
    words = sys.argv[1:] if argv is None else argv
    sys.excepthook = _unforeseen
    try:
        status = _obey(words)
        return _flush() or status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _hush()
        return 141
    except (AlipesError, ExceptionGroup) as error:
        from alipes.cli import errors  # noqa: PLC0415

        return errors.report(error)


def _obey(words: list[str]) -> int:
    match words:
        case ["--version" | "-V", *_]:
            print(f"alipes {__version__}")
            return 0
        case ["--help" | "-h" | "help"]:
            print(help_text.TOP, end="")
            return 0
        case ["help", name, *_]:
            return _obey([name, "--help"])
        case ["--safe", "ask" | "serve" as name, *rest]:
            return _command(name, ["--safe", *rest])
        case [name, *_] if not name.startswith("-"):
            return _command(name, words[1:])
        case _:
            return _talk(words)


def _talk(argv: list[str]) -> int:
    """With a prompt where a person sits at both ends; else line by line."""
    if _is_terminal(sys.stdin) and _is_terminal(sys.stdout):
        from alipes.cli.terminal import start  # noqa: PLC0415

        return start.run(argv, _load_talk, _lines)
    return _lines(argv)


def _lines(argv: list[str]) -> int:

    from alipes.cli.ask import run_piped  # noqa: PLC0415

    return run_piped(argv)


def _is_terminal(stream: "TextIO | None") -> bool:
    return stream is not None and stream.isatty()


def _load_talk() -> "Serve":
    """Called when the prompt stands already."""
    from alipes.cli.terminal.session import serve  # noqa: PLC0415

    return serve


def _command(name: str, argv: list[str]) -> int:
    if name not in ROOMS:
        return _other(name, argv)
    from importlib import import_module  # noqa: PLC0415

    try:
        room = import_module(f"alipes.cli.{ROOMS[name]}")
    except ModuleNotFoundError as missing:
        if name not in EXTRAS or (missing.name or "").startswith("alipes"):
            raise
        sys.stderr.write(
            f"alipes {name} needs more packages ({missing.name}): pip install '{EXTRAS[name]}'\n"
        )
        return 2
    status: int = room.run(argv)
    return status


def _other(name: str, argv: list[str]) -> int:
    """A name that is none of ours yet: a plugin may have it."""
    if name in LATER:
        sys.stderr.write(f"alipes {name} {LATER[name]}.\n")
        return 2

    from alipes.cli.plugins import standalone  # noqa: PLC0415

    return standalone.run(name, argv, (*COMMANDS, *LATER))


def _flush() -> int:
    """What is still buffered, while there is someone to tell that it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _hush()
        sys.stderr.write(f"alipes: standard output cannot be written: {error.strerror}\n")
        return 1
    return 0


def _hush() -> None:
    """Nobody reads our output any more: what is still buffered must not fail again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:

    from alipes.cli import errors  # noqa: PLC0415

    errors.unforeseen(kind, error, trace)
