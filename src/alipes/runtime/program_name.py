"""The name of the program in messages that tell the user what to type."""

import re
import shlex
import shutil
import sys
from pathlib import Path

_COMMAND = re.compile(r"(?<=[`!])alipes(?= [a-z-])")


def program_name() -> str:
    """The program as the user can type it here: `alipes`, or its path if that is not on the PATH."""
    started = Path(sys.argv[0])
    if shutil.which("alipes") or started.name != "alipes":
        return "alipes"
    return shlex.quote(str(started.relative_to(Path.cwd()) if started.is_relative_to(Path.cwd()) else started))


def name_program(text: str) -> str:
    """The text with its commands, such as `alipes doctor`, as the user can type them here."""
    return _COMMAND.sub(lambda _: program_name(), text) if "alipes " in text else text
