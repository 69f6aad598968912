"""Reports errors that end the program: one sentence on standard error, the traceback in the log."""

import errno
import logging
import sys
import textwrap
import traceback
from contextlib import suppress
from types import TracebackType

from alipes.config.loader import load_settings
from alipes.config.paths import find_home
from alipes.config.settings import Settings
from alipes.console.stdio import terminal_width
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.formatting import strip_object_addresses
from alipes.runtime.log_file import open_log
from alipes.runtime.process_setup import TOO_MANY_FILES
from alipes.runtime.program_name import name_program

log = logging.getLogger(__name__)


def report_errors(error: AlipesError | ExceptionGroup[Exception]) -> int:
    """Print the errors and return the exit status. Errors of other libraries are raised again."""
    errors = _flatten(error)
    if any(not isinstance(one, AlipesError) for one in errors):
        raise error
    for sentence in dict.fromkeys(str(one) for one in errors):
        _print(sentence)
    return 2 if any(isinstance(one, ConfigError) for one in errors) else 1


def report_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log an unexpected error and print where, instead of a traceback."""
    if issubclass(kind, KeyboardInterrupt):
        return
    if any(isinstance(one, OSError) and one.errno in (errno.EMFILE, errno.ENFILE) for one in _flatten(error)):
        _print(TOO_MANY_FILES)
        return
    settings = _load_settings()
    if settings is None or settings.log_level == "debug":
        traceback.print_exception(kind, error, trace)
        return
    path = settings.paths.log
    try:
        with open_log(path, settings.log_level, settings.secrets()) as mask:
            log.critical("internal error", exc_info=(kind, error, trace))
    except ConfigError:
        traceback.print_exception(kind, error, trace)
    else:
        message = mask(f"{kind.__name__}: {error}")
        _print(f"internal error: {message}. See the log: {path}")


def _flatten(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _flatten(inner)]
    return [error]


def _load_settings() -> Settings | None:
    """The settings, the defaults if the file is broken, or None if there is no home."""
    with suppress(AlipesError):
        return load_settings()
    with suppress(AlipesError):
        return Settings(home=find_home())
    return None


def _print(sentence: str) -> None:
    if sys.stderr is not None:
        text = f"alipes: {name_program(strip_object_addresses(sentence))}"
        width = terminal_width(sys.stderr)
        lines = text.split("\n") if not width else _wrap(text, width)
        sys.stderr.write("".join(f"{line}\n" for line in lines))


def _wrap(text: str, width: int) -> list[str]:
    """The lines, broken between words."""
    return [part for line in text.split("\n") for part in textwrap.wrap(
        line, width, subsequent_indent=" " * (len(line) - len(line.lstrip())), break_long_words=False,
        break_on_hyphens=False, drop_whitespace=True, replace_whitespace=False) or [""]]  # fmt: skip
