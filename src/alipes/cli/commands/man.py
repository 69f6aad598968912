"""`alipes man`: the manual page, made from the help pages. At a terminal it is shown, elsewhere printed as roff."""

import shutil
import subprocess
import sys
from collections.abc import Iterator

from alipes import __version__
from alipes.cli.commands.help_index import HelpPage, list_pages
from alipes.console import help_text
from alipes.console.options import OptionParser
from alipes.console.stdio import is_terminal

_FILES = (
    ("~/.alipes", "The home: settings, keys, conversations, plugins. ALIPES_HOME names another one."),
    ("~/.alipes/config.toml", "Settings; `alipes config` explains and changes them."),
    ("~/.alipes/.env", "Keys and passwords."),
    ("~/.alipes/profiles/NAME", "The home of the profile NAME."),
)
_ENVIRONMENT = (
    ("ALIPES_HOME", "The home to use instead of ~/.alipes."),
    ("ALIPES_PROFILE", "The profile to use, like the option -P."),
    ("NO_COLOR", "If set, no colours are used."),
    ("PAGER", "Shows long lists (default: less -FRX)."),
    ("VISUAL, EDITOR", "Edits a message."),
)


def run(argv: list[str]) -> int:
    OptionParser("alipes man", help_text.MAN).parse_args(argv)
    page = format_page()
    viewer = shutil.which("man")
    if not is_terminal(sys.stdout) or viewer is None:
        print(page, end="")
        return 0
    return subprocess.run([viewer, "-l", "-"], input=page, text=True, check=False).returncode


def format_page() -> str:
    """The page in the language of man(7)."""
    top, *commands = list_pages()
    return "\n".join([*_head(top), *_commands(commands), *_tail()]) + "\n"


def _head(top: HelpPage) -> Iterator[str]:
    yield f'.TH ALIPES 1 "" "alipes {__version__}" "User Commands"'
    yield from (".SH NAME", "alipes \\- a personal agent for the terminal, chats and HTTP")
    yield ".SH SYNOPSIS"
    yield from _preformatted(top.usage)
    yield ".SH DESCRIPTION"
    yield _escape(
        "alipes answers questions and works with files and commands. Without a command it starts a conversation: "
        "with a prompt at a terminal, otherwise line by line, each line of standard input one message. With a question "
        "it prints one answer. Answers go to standard output, everything else to standard error."
    )
    yield ".SH OPTIONS"
    yield from _options(top)


def _commands(pages: list[HelpPage]) -> Iterator[str]:
    yield ".SH COMMANDS"
    for page in pages:
        yield f".SS alipes {page.name}"
        yield from _preformatted(page.usage)
        for text in page.paragraphs:
            yield from (".PP", _escape(text))
        yield from _options(page)


def _tail() -> Iterator[str]:
    for title, items in (("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        yield f".SH {title}"
        for name, about in items:
            yield from (".TP", f".B {_escape(name)}", _escape(about))


def _options(page: HelpPage) -> Iterator[str]:
    for option in page.options:
        names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in option.names)
        value = f" \\fI{_escape(option.value)}\\fR" if option.value else ""
        yield from (".TP", names + value, _escape(option.about))


def _preformatted(lines: tuple[str, ...]) -> Iterator[str]:
    yield from (".PP", ".nf", *(_escape(line) for line in lines), ".fi")


def _escape(text: str) -> str:
    """Text that roff shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith(".") else text.replace("~", "\\(ti")
