"""Parses command lines into frozen options. Wrong usage exits with status 2."""

import argparse
import re
import sys
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from msgspec import Struct

from alipes.config.paths import DEFAULT_PROFILE, choose_profile
from alipes.console import help_text
from alipes.kernel.errors import ConfigError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.turns import PermissionMode

SESSION_ACTIONS = ("list", "show", "search", "export", "delete")
OPTION = lazy_pattern(r"^  (?:(-\w), )?--([\w-]+)(?: (\[?[A-Z]+\]?))?  +(.*)$", re.MULTILINE)
"""A line of a help page: short name, name, value (in brackets if it may be missing) and description of an option."""
PROFILE_OPTION = ("-P", "--profile")
MISSING = "\0"
"""The value of an option that was given without its optional value."""


class ConversationChoice(Struct, frozen=True):
    """Which conversation to use: a named one, the latest one, or (default) a new one."""

    name: str = ""
    latest: bool = False
    """Of the current folder."""
    resume: str = ""
    """An existing one by its name, title or id."""
    pick: bool = False
    """Ask which one."""


class AskOptions(Struct, frozen=True):
    prompt: str
    conversation: ConversationChoice = ConversationChoice()
    model: str = ""
    images: tuple[str, ...] = ()
    trusted: bool = False
    mode: PermissionMode | Literal[""] = ""
    """The permission mode of the conversation; empty: as before."""
    safe: bool = False
    """Do not load plugins."""
    plain: bool = False
    """Print the answer as the model wrote it, also at a terminal."""
    schema: str = ""
    """What the answer must match: JSON, or a file; empty: any text."""
    json: bool = False
    verbose: bool = False
    quiet: bool = False


class TalkOptions(Struct, frozen=True):
    conversation: ConversationChoice = ConversationChoice()
    model: str = ""
    trusted: bool = False
    safe: bool = False
    mode: PermissionMode | Literal[""] = ""
    plain: bool = False
    """Lines instead of a screen."""


class SessionsOptions(Struct, frozen=True):
    action: str
    name: str = ""
    """The conversation; for `search` the search words."""
    limit: int = 20
    json: bool = False
    format: str = ""
    """md, html or json; empty: by the name of the file."""
    output: str = ""
    yes: bool = False
    here: bool = False
    """Only conversations of this folder."""


def print_config_errors(run: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Decorates a command that edits the settings: their errors are printed without a prefix."""

    @wraps(run)
    def run_command(argv: list[str]) -> int:
        try:
            return run(argv)
        except ConfigError as error:
            print(error, file=sys.stderr)
            return 2
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 2

    return run_command


Details: TypeAlias = dict[str, dict[str, Any]]
"""Arguments of `add_argument` that a help page does not show, by option."""


class OptionParser(argparse.ArgumentParser):
    """Parses the options that a hand-written help page lists.

    An option with a value is a text, or a list of texts if it is repeatable; any other is a flag.
    """

    def __init__(self, name: str, page: str, details: Details | None = None) -> None:
        super().__init__(prog=name, add_help=False, allow_abbrev=False)
        self._page = page
        known = {"help": {"action": "help"}, **(details or {})}
        for short, option, value, about in OPTION.findall(page):
            if option == "version":  # only as the first word; see main.py
                continue
            kind: dict[str, Any] = {"default": ""} if value else {"action": "store_true"}
            if value.startswith("["):
                kind |= {"nargs": "?", "const": MISSING}
            if about.endswith("repeatable)"):
                kind = {"action": "append", "default": []}
            self.add_argument(*filter(None, (short, f"--{option}")), **kind | known.get(option, {}))

    def format_help(self) -> str:
        return self._page

    format_usage = format_help

    def parse_with_words(self, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """The options and the other words in order; everything after `--` is a word."""
        end = argv.index("--") if "--" in argv else len(argv)
        self.add_argument("words", nargs="*")
        args = self.parse_intermixed_args(argv[:end])
        return args, args.words + argv[end + 1 :]

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\nTry `{self.prog} --help`.\n")
        raise SystemExit(2)


def parse_ask(argv: list[str]) -> AskOptions:
    parser = OptionParser("alipes ask", help_text.ASK, _CONVERSATION)
    args, prompt = parser.parse_with_words(argv)
    if args.quiet and args.verbose:
        parser.error("use either --quiet or --verbose")
    return AskOptions(
        " ".join(prompt),
        _conversation_choice(parser, args),
        images=tuple(args.image),
        trusted=args.yes,
        **{
            name: getattr(args, name)
            for name in ("model", "mode", "safe", "plain", "schema", "json", "verbose", "quiet")
        },
    )


def parse_talk(argv: list[str]) -> TalkOptions:
    parser = OptionParser("alipes", help_text.TOP, _CONVERSATION)
    args = parser.parse_args(argv)
    return TalkOptions(_conversation_choice(parser, args), args.model, args.yes, args.safe, args.mode, args.plain)


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """The options before a command or a question, and the words from there on."""
    values: dict[str, str] = {}
    for short, option, value, _about in OPTION.findall(help_text.ASK + help_text.TOP):
        values |= {name: value for name in (short, f"--{option}") if name}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        value = values.get(words[at], "")
        at += 1
        if value and at < len(words) and not (value.startswith("[") and words[at].startswith("-")):
            at += 1
    return words[:at], words[at:]


def take_profile(words: list[str], commands: Collection[str]) -> list[str]:
    """The words of a command line without `-P NAME`, whose profile is used from now on.

    Several of them stay, for `serve`. Raises ConfigError.
    """
    given, rest = split_words(words)
    names, given = _take_names(given, len(given))
    if rest and rest[0] in commands:
        end = rest.index("--") if "--" in rest else len(rest)
        if rest[0] == "import":
            end = 1  # its --profile is one of the other program
        inner, rest = _take_names(rest, 3 if rest[:2] == ["config", "set"] else end)  # a value may be -P
        names += inner
    if len(names) == 1:
        choose_profile(names[0])
    elif names and rest[:1] != ["serve"]:
        raise ConfigError("Only `alipes serve` takes several profiles; give -P once.")
    elif names:
        choose_profile(DEFAULT_PROFILE)
        rest += [word for name in names for word in (PROFILE_OPTION[0], name)]
    return [*given, *rest]


def _take_names(words: list[str], end: int) -> tuple[list[str], list[str]]:
    """The profiles named in the first `end` words, and the words without them."""
    names, rest, at = list[str](), list[str](), 0
    while at < len(words):
        word, at = words[at], at + 1
        option, equals, value = word.partition("=")
        if at > end or not (option in PROFILE_OPTION or (word.startswith("-P") and not word.startswith("--"))):
            rest.append(word)
            continue
        if word in PROFILE_OPTION:
            value, at = words[at] if at < min(end, len(words)) else "", at + 1
        elif option not in PROFILE_OPTION or not equals:
            value = word[2:]
        if not value or value.startswith("-"):
            raise ConfigError(f"{option[:2] if option not in PROFILE_OPTION else option} needs the name of a profile.")
        names.append(value)
    return names, rest


def parse_sessions(argv: list[str]) -> SessionsOptions:
    details: Details = {
        "limit": {"type": whole_number(1, sys.maxsize, "a positive number"), "default": 20},
        "format": {"choices": ("md", "html", "json"), "default": ""},
    }
    parser = OptionParser("alipes sessions", help_text.SESSIONS, details)
    args, named = parser.parse_with_words(argv)
    action, *name = named or ["list"]
    if action not in SESSION_ACTIONS:
        parser.error(f"unknown action: {action} (use {', '.join(SESSION_ACTIONS)})")
    if action == "list" and name:
        parser.error("`list` takes no NAME; use `show NAME` for one conversation")
    if action != "list" and not name:
        parser.error(f"`{action}` needs {'search words' if action == 'search' else 'a NAME'}")
    if action not in ("list", "search") and len(name) > 1:
        parser.error(f"`{action}` takes one NAME, got {len(name)}")
    return SessionsOptions(action, " ".join(name), args.limit, args.json, args.format, args.output, args.yes, args.here)


def parse_doctor(argv: list[str]) -> argparse.Namespace:
    return OptionParser("alipes doctor", help_text.DOCTOR).parse_args(argv)


_CONVERSATION: Details = {
    "session": {"default": None},
    "continue": {"dest": "latest"},
    "mode": {"choices": get_args(PermissionMode), "default": ""},
}


def _conversation_choice(parser: OptionParser, args: argparse.Namespace) -> ConversationChoice:
    if args.session is not None and not args.session.strip():
        parser.error("--session needs a name")
    if sum(map(bool, (args.session, args.latest, args.resume))) > 1:
        parser.error("use either --session, --continue or --resume")
    pick = args.resume == MISSING
    return ConversationChoice(args.session or "", args.latest, "" if pick else args.resume, pick)


def whole_number(least: int, most: int, what: str) -> Callable[[str], int]:
    """A parser of numbers from `least` to `most`; `what` is expected, says the error."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return int(text)

    return parse
