"""How errors end: one sentence for the person, the traceback in the log. The last word of the program."""

import logging
import sys
import traceback
from types import TracebackType

from alipes.config.paths import find_home
from alipes.config.settings import Settings, load
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.runtime.log_file import open_log

log = logging.getLogger(__name__)


def report(error: AlipesError | ExceptionGroup[Exception]) -> int:
    """Tell what happened and return the exit status; an error that is not ours is raised on."""
    errors = _leaves(error)
    if any(not isinstance(one, AlipesError) for one in errors):
        raise error
    for sentence in dict.fromkeys(str(one) for one in errors):
        _tell(sentence)
    return 2 if any(isinstance(one, ConfigError) for one in errors) else 1


def unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Instead of a traceback on the screen: where it was written, and what to do with it."""
    if issubclass(kind, KeyboardInterrupt):
        return
    settings = _settings()
    if settings is None or settings.log_level == "debug":
        traceback.print_exception(kind, error, trace)
        return
    path = settings.paths.log
    try:
        with open_log(path, settings.log_level, settings.secrets()) as mask:
            log.critical("unforeseen", exc_info=(kind, error, trace))
    except ConfigError:
        traceback.print_exception(kind, error, trace)
    else:
        what = mask(f"{kind.__name__}: {error}")
        _tell(f"this should not have happened: {what}. The log tells more: {path}")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _settings() -> Settings | None:
    """The settings, or their defaults where a broken file cannot say; None when there is no home."""
    try:
        return load()
    except AlipesError:
        pass
    try:
        return Settings(home=find_home())
    except AlipesError:
        return None


def _tell(sentence: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"alipes: {sentence}\n")
