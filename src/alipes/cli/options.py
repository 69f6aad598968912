"""Parses command lines into frozen options. Wrong usage exits with status 2."""

import argparse
import sys
from typing import NoReturn

from msgspec import Struct

from alipes.cli import help_text

SESSION_ACTIONS = ("list", "show", "search", "export", "delete")


class ConversationChoice(Struct, frozen=True):
    """Which conversation to use: a named one, the latest one, or (default) a new one."""

    name: str = ""
    latest: bool = False


class AskOptions(Struct, frozen=True):
    prompt: str
    conversation: ConversationChoice = ConversationChoice()
    model: str = ""
    images: tuple[str, ...] = ()
    trusted: bool = False
    safe: bool = False
    """Do not load plugins."""
    json: bool = False
    verbose: bool = False
    quiet: bool = False


class TalkOptions(Struct, frozen=True):
    conversation: ConversationChoice = ConversationChoice()
    model: str = ""
    trusted: bool = False
    safe: bool = False


class SessionsOptions(Struct, frozen=True):
    action: str
    name: str = ""
    """The conversation; for `search` the search words."""
    limit: int = 20
    json: bool = False
    format: str = "md"
    output: str = ""
    yes: bool = False


class DoctorOptions(Struct, frozen=True):
    live: bool = False
    json: bool = False


class OptionParser(argparse.ArgumentParser):
    """A parser with a hand-written help page, so that it is the same in every Python version."""

    def __init__(self, name: str, page: str) -> None:
        super().__init__(prog=name, add_help=False, allow_abbrev=False)
        self._page = page
        self.add_argument("-h", "--help", action="help")

    def format_help(self) -> str:
        return self._page

    def format_usage(self) -> str:
        return self._page

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
    parser = OptionParser("alipes ask", help_text.ASK)
    _add_conversation_options(parser)
    parser.add_argument("-i", "--image", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    args, prompt = parser.parse_with_words(argv)
    if args.quiet and args.verbose:
        parser.error("use either --quiet or --verbose")
    return AskOptions(
        prompt=" ".join(prompt),
        conversation=_conversation_choice(parser, args),
        model=args.model,
        images=tuple(args.image),
        trusted=args.yes,
        safe=args.safe,
        json=args.json,
        verbose=args.verbose,
        quiet=args.quiet,
    )


def parse_talk(argv: list[str]) -> TalkOptions:
    parser = OptionParser("alipes", help_text.TOP)
    _add_conversation_options(parser)
    args = parser.parse_args(argv)
    return TalkOptions(_conversation_choice(parser, args), args.model, args.yes, args.safe)


def parse_sessions(argv: list[str]) -> SessionsOptions:
    parser = OptionParser("alipes sessions", help_text.SESSIONS)
    parser.add_argument("-n", "--limit", type=parse_count, default=20)
    parser.add_argument("-f", "--format", choices=("md", "json"), default="md")
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("-y", "--yes", action="store_true")
    parser.add_argument("--json", action="store_true")
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
    return SessionsOptions(action, " ".join(name), args.limit, args.json, args.format, args.output, args.yes)


def parse_doctor(argv: list[str]) -> DoctorOptions:
    parser = OptionParser("alipes doctor", help_text.DOCTOR)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    return DoctorOptions(args.live, args.json)


def _add_conversation_options(parser: OptionParser) -> None:
    parser.add_argument("-m", "--model", default="")
    parser.add_argument("--session", default=None)
    parser.add_argument("-c", "--continue", dest="latest", action="store_true")
    parser.add_argument("-y", "--yes", action="store_true")
    parser.add_argument("--safe", action="store_true")


def _conversation_choice(parser: OptionParser, args: argparse.Namespace) -> ConversationChoice:
    if args.session is not None and not args.session.strip():
        parser.error("--session needs a name")
    if args.session and args.latest:
        parser.error("use either --session or --continue")
    return ConversationChoice(args.session or "", args.latest)


def parse_count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
