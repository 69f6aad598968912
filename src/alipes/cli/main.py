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
    from alipes.features.feature import CliCommand


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
        from alipes.console.extras import install_missing  # noqa: PLC0415

        return main(words) if install_missing(error) else errors.report_errors(error)


def _choose_profile(words: list[str]) -> list[str]:
    """The words without `-P NAME`, whose profile is used from now on."""
    if not any(word.startswith(("-P", "--profile")) for word in words):
        return words
    from alipes.console import options  # noqa: PLC0415

    return options.take_profile(words, [command.name for command in list_commands()])


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


def list_commands() -> "tuple[CliCommand, ...]":
    """The commands of the core and of the features; those of two words belong to the command of the first."""
    return (*_core_commands(), *(each for each in _feature_commands() if " " not in each.name))


def command_names() -> tuple[str, ...]:
    """Names that plugins may not use."""
    return tuple(command.name for command in list_commands())


def _core_commands() -> "tuple[CliCommand, ...]":
    from alipes.features.feature import CliCommand  # noqa: PLC0415

    return (
        CliCommand("ask", "alipes.cli.ask", agent_actions="any words"),  # it checks its options itself
        CliCommand("setup", "alipes.cli.setup.command"),
        CliCommand("sessions", "alipes.cli.commands.sessions", names_action=True),
        CliCommand("model", "alipes.cli.commands.model", agent_actions=("--live", "--all"), every_word=True),
        CliCommand(
            "config", "alipes.cli.commands.config", agent_actions=("show", "get", "why", "path"), names_action=True
        ),
        CliCommand("secrets", "alipes.cli.commands.secrets"),
        CliCommand("plugins", "alipes.cli.plugins.command", agent_actions=("list", "doctor", "new"), names_action=True),
        CliCommand("install", "alipes.cli.commands.install"),
        CliCommand("doctor", "alipes.cli.doctor", agent_actions="any words"),
        CliCommand("profile", "alipes.cli.commands.profile"),
        CliCommand("backup", "alipes.cli.commands.backup", "run_backup"),
        CliCommand("restore", "alipes.cli.commands.backup", "run_restore"),
        CliCommand("store", "alipes.cli.commands.store"),
        CliCommand("serve", "alipes.cli.serve.command", names_action=True, extra="serve"),
        CliCommand("page", "alipes.cli.commands.page"),
        CliCommand("pair", "alipes.cli.commands.pair"),
        CliCommand("approvals", "alipes.cli.commands.approvals"),
        CliCommand("send", "alipes.cli.commands.send"),
        CliCommand("acp", "alipes.cli.acp.command"),
        CliCommand("completion", "alipes.cli.commands.completion", agent_actions=("bash", "zsh", "fish", "models")),
        CliCommand("man", "alipes.cli.commands.man", agent_actions="any words"),
    )


def _feature_commands() -> "tuple[CliCommand, ...]":
    from alipes.features.all import FEATURES  # noqa: PLC0415

    return tuple(command for feature in FEATURES for command in feature.cli_commands)


def _find_command(name: str) -> "CliCommand | None":
    """Features are imported only if the core has no such command."""
    loads = (_core_commands, _feature_commands)
    with _CollectionPaused():
        return next((command for load in loads for command in load() if command.name == name), None)


def _find_longer_command(name: str, words: list[str]) -> "tuple[CliCommand, list[str]] | None":
    """The command of two words that `name` and the first of `words` are, and the other words."""
    commands = {command.name: command for command in _feature_commands()}
    if not any(each.startswith(f"{name} ") for each in commands):
        return None
    from alipes.console import options  # noqa: PLC0415

    given, rest = options.split_words(words)
    found = commands.get(f"{name} {rest[0]}") if rest else None
    return None if found is None else (found, [*given, *rest[1:]])


def _run_command(name: str, argv: list[str], given: list[str] | None = None) -> int:
    """Run the command, or ask the question that the words are. `given`: options before the command."""
    command = _find_command(name)
    if command is None:
        return _run_other(name, argv, given or [])
    argv = [*(given or []), *argv]
    from importlib import import_module  # noqa: PLC0415

    from alipes.console import caller  # noqa: PLC0415

    if caller.refuse_profile():
        return 2
    if command.is_for_people(argv) and caller.refuse_agent(command.describe(argv)):
        return 2
    if command.module.startswith("alipes.features."):
        command, argv = _find_longer_command(name, argv) or (command, argv)
    try:
        with _CollectionPaused():
            module = import_module(command.module)
    except ModuleNotFoundError as missing:
        if not command.extra or (missing.name or "").startswith("alipes"):
            raise
        if not _install_extra(name, command.extra, missing.name or ""):
            return 2
        module = import_module(command.module)
    status: int = getattr(module, command.function)(argv)
    return status


def _install_extra(name: str, extra: str, missing: str) -> bool:
    """True if what the command lacks has been installed."""
    from alipes.config.extras import install_command, is_installed  # noqa: PLC0415
    from alipes.console.extras import offer_extra  # noqa: PLC0415
    from alipes.runtime.program_name import name_program  # noqa: PLC0415

    if is_installed(extra):  # but not all that it needs itself
        command = name_program(f"`{install_command(extra)}`")
        sys.stderr.write(f"alipes {name} needs the package {missing}: run {command}\n")
        return False
    return offer_extra(extra)


def _run_other(name: str, argv: list[str], given: list[str]) -> int:
    """Run a command of a plugin, or ask: a sentence, or several words whose first is not like a command."""
    question = [*given, name, *argv]
    if not name.replace("-", "").replace("_", "").isalnum():
        return _run_command("ask", question)

    from alipes.cli.plugins import contributed  # noqa: PLC0415
    from alipes.console import caller  # noqa: PLC0415

    if caller.refuse_profile():
        return 2

    is_question = bool(given) or any(not word.startswith("-") for word in argv)
    status = contributed.run(name, argv, command_names(), is_question=is_question)
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
