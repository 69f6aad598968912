"""The name of the program in messages that tell the user what to type."""

import shlex
import shutil
import sys
from pathlib import Path


def program_name() -> str:
    """The program as the user can type it here: `alipes`, or its path if that is not on the PATH."""
    started = Path(sys.argv[0])
    if shutil.which("alipes") or started.name != "alipes":
        return "alipes"
    return shlex.quote(str(started.relative_to(Path.cwd()) if started.is_relative_to(Path.cwd()) else started))
