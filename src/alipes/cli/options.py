"""Words of the command line in, frozen options out. Wrong words end the program with status 2."""

import argparse
import sys
from typing import NoReturn

from msgspec import Struct

from alipes.cli import help_text

ACTIONS = ("list", "show", "search", "export", "delete")


class Where(Struct, frozen=True):
    """Which conversation is meant; neither named nor continued means a new one."""

    name: str = ""
    latest: bool = False


class AskOptions(Struct, frozen=True):
    prompt: str
    where: Where = Where()
    model: str = ""
    images: tuple[str, ...] = ()
    trusted: bool = False
    safe: bool = False
    """No plugin is loaded."""
    json: bool = False
    verbose: bool = False
    quiet: bool = False


class TalkOptions(Struct, frozen=True):
    where: Where = Where()
    model: str = ""
    trusted: bool = False
    safe: bool = False


class SessionsOptions(Struct, frozen=True):
    action: str
    name: str = ""
    """The conversation, or for `search` the words looked for."""
    limit: int = 20
    json: bool = False
    format: str = "md"
    output: str = ""
    yes: bool = False


class DoctorOptions(Struct, frozen=True):
    live: bool = False
    json: bool = False


class Words(argparse.ArgumentParser):
    """A parser whose help is a page of the manual, written by hand and equal under every Python."""

    def __init__(self, name: str, page: str) -> None:
        super().__init__(prog=name, add_help=False, allow_abbrev=False)
        self._page = page
        self.add_argument("-h", "--help", action="help")

    def format_help(self) -> str:
        return self._page

    def format_usage(self) -> str:
        return self._page

    def split(self, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """Options from anywhere, and the other words in order; after `--` everything is a word."""
        end = argv.index("--") if "--" in argv else len(argv)
        self.add_argument("words", nargs="*")
        given = self.parse_intermixed_args(argv[:end])
        return given, given.words + argv[end + 1 :]

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\nTry `{self.prog} --help`.\n")
        raise SystemExit(2)


def ask(argv: list[str]) -> AskOptions:
    words = Words("alipes ask", help_text.ASK)
    _conversation(words)
    words.add_argument("-i", "--image", action="append", default=[])
    words.add_argument("--json", action="store_true")
    words.add_argument("-v", "--verbose", action="store_true")
    words.add_argument("-q", "--quiet", action="store_true")
    given, prompt = words.split(argv)
    if given.quiet and given.verbose:
        words.error("--quiet and --verbose contradict each other")
    return AskOptions(
        prompt=" ".join(prompt),
        where=_where(words, given),
        model=given.model,
        images=tuple(given.image),
        trusted=given.yes,
        safe=given.safe,
        json=given.json,
        verbose=given.verbose,
        quiet=given.quiet,
    )


def talk(argv: list[str]) -> TalkOptions:
    words = Words("alipes", help_text.TOP)
    _conversation(words)
    given = words.parse_args(argv)
    return TalkOptions(_where(words, given), given.model, given.yes, given.safe)


def sessions(argv: list[str]) -> SessionsOptions:
    words = Words("alipes sessions", help_text.SESSIONS)
    words.add_argument("-n", "--limit", type=_count, default=20)
    words.add_argument("-f", "--format", choices=("md", "json"), default="md")
    words.add_argument("-o", "--output", default="")
    words.add_argument("-y", "--yes", action="store_true")
    words.add_argument("--json", action="store_true")
    given, named = words.split(argv)
    action, *name = named or ["list"]
    if action not in ACTIONS:
        words.error(f"no such action: {action} (there are {', '.join(ACTIONS)})")
    if action == "list" and name:
        words.error("`list` takes no name; `show NAME` shows one conversation")
    if action != "list" and not name:
        words.error(f"`{action}` needs {'words to look for' if action == 'search' else 'a NAME'}")
    if action not in ("list", "search") and len(name) > 1:
        words.error(f"`{action}` takes one NAME, got {len(name)}")
    return SessionsOptions(
        action, " ".join(name), given.limit, given.json, given.format, given.output, given.yes
    )


def doctor(argv: list[str]) -> DoctorOptions:
    words = Words("alipes doctor", help_text.DOCTOR)
    words.add_argument("--live", action="store_true")
    words.add_argument("--json", action="store_true")
    given = words.parse_args(argv)
    return DoctorOptions(given.live, given.json)


def backup(argv: list[str]) -> str:
    """The file to write to."""
    words = Words("alipes backup", help_text.BACKUP)
    words.add_argument("file")
    file: str = words.parse_args(argv).file
    return file


def _conversation(words: Words) -> None:
    words.add_argument("-m", "--model", default="")
    words.add_argument("--session", default=None)
    words.add_argument("-c", "--continue", dest="latest", action="store_true")
    words.add_argument("-y", "--yes", action="store_true")
    words.add_argument("--safe", action="store_true")


def _where(words: Words, given: argparse.Namespace) -> Where:
    if given.session is not None and not given.session.strip():
        words.error("--session needs a name")
    if given.session and given.latest:
        words.error("--session and --continue contradict each other")
    return Where(given.session or "", given.latest)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count from 1 up")
    return int(text)
