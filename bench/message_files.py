"""Source files that one message runs through: `python -m bench.message_files [-v]`.

Counts the files of alipes whose functions run during `alipes ask hello`, from the message to the exit.
"""

import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import alipes
from alipes.cli.main import main

SRC = str(Path(alipes.__file__).parent)


def run() -> list[str]:
    """The files, in the order in which they are first used after `submit`."""
    files: dict[str, None] = {}
    submitted = False

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal submitted
        if event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(SRC) or code.co_name == "<module>":
            return
        submitted = submitted or code.co_name == "submit"
        if submitted:
            files.setdefault(os.path.relpath(code.co_filename, SRC))

    with tempfile.TemporaryDirectory() as home:
        os.environ.update(ALIPES_HOME=home, HOME=home, ALIPES_MODEL="scripted/echo", ALIPES_DEBUGGABLE="true")
        os.environ["ALIPES_TEST_PROVIDER"] = "scripted_provider"
        sys.setprofile(profile)
        try:
            main(["ask", "hello"])
        finally:
            sys.setprofile(None)
    return list(files)


if __name__ == "__main__":
    found = run()
    if "-v" in sys.argv:
        print("\n".join(found))
    print(f"{len(found)} files from submit to end")
