"""Installs extras from the command line, and offers to when a command lacks one."""

import importlib
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from alipes.config import extras
from alipes.config.loader import load_settings
from alipes.config.paths import find_home, find_root
from alipes.config.settings import Settings
from alipes.console.caller import is_agent_child
from alipes.console.stdio import is_terminal
from alipes.kernel.errors import ConfigError, MissingExtra
from alipes.runtime.packages import InstallError, install
from alipes.runtime.program_name import name_program

WIDTH = 72


def install_extras(names: Iterable[str]) -> None:
    """Install what they need, in the pinned versions, and remember them. Raises ConfigError."""
    names = tuple(names)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(extras.select_missing(names))
        file.flush()
        try:
            install(Path(file.name), _show)
        except InstallError as error:
            raise ConfigError(str(error)) from error
        finally:
            if is_terminal(sys.stderr):
                sys.stderr.write(f"\r{'':<{WIDTH}}\r")
    importlib.invalidate_caches()
    if lacking := [name for name in names if not extras.is_installed(name)]:
        raise ConfigError(f"{', '.join(lacking)} was installed, but Python does not find it: start alipes again.")
    extras.remember_added(find_root(find_home()), names)


def _show(step: str) -> None:
    text = f"  {step}"
    sys.stderr.write(f"\r{text[:WIDTH]:<{WIDTH}}" if is_terminal(sys.stderr) else f"{text}\n")
    sys.stderr.flush()


def offer_messengers(settings: Settings) -> None:
    """Offer what the configured messengers lack. Those that are left without it report it when they are opened."""
    _offer_each(settings.messengers.configured)


def offer_browser(settings: Settings) -> None:
    """Offer what the browser lacks if it is switched on: its tools are listed only if that is there."""
    _offer_each(("browser",) if settings.browser.enabled else ())


def _offer_each(names: Iterable[str]) -> None:
    for name in names:
        if name in extras.EXTRAS and not extras.is_installed(name) and _may_install(name):
            install_extras((name,))


def offer_extra(name: str) -> bool:
    """True if the extra is there, or is installed now. Otherwise a sentence is printed.

    It is installed if the settings say so, or after a yes: one of now, or one that was given before an upgrade.
    """
    if extras.is_installed(name):
        return True
    if not _may_install(name):
        sys.stderr.write(f"{name_program(extras.explain_missing(name))}\n")
        return False
    install_extras((name,))
    return True


def install_missing(error: BaseException) -> bool:
    """True if a command failed for want of an extra that is installed now, so that it can be tried again."""
    if isinstance(error, BaseExceptionGroup):
        return any([install_missing(each) for each in error.exceptions])
    if not isinstance(error, MissingExtra) or extras.is_installed(error.extra) or not _may_install(error.extra):
        return False
    install_extras((error.extra,))
    return True


def _installs_without_asking() -> bool:
    """The setting; without one if the settings themselves need the extra."""
    try:
        return load_settings().install.auto
    except ConfigError:
        return False


def _may_install(name: str) -> bool:
    if is_agent_child():
        return False
    if name in extras.read_added(find_root(find_home())) or _installs_without_asking():
        return True
    if not is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        return False
    sys.stderr.write(f"alipes: {extras.describe_need(name)}. Install them now? [Y/n] ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    return bool(line) and line.strip().lower() in ("", "y", "yes")
