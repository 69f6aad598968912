"""Running `git` and `pip` to fetch something: quiet, without questions, and gone when we are."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from alipes.config.variables import inherited
from alipes.kernel.errors import ConfigError
from alipes.runtime.process import open_child

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.hooksPath",
    "GIT_CONFIG_VALUE_0": "/dev/null",
    "GIT_CONFIG_KEY_1": "protocol.ext.allow",
    "GIT_CONFIG_VALUE_1": "never",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_LEFT_OUT = (
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "PIP_TARGET",
    "PIP_USER",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
)
_TELLING = ("fatal:", "error:", "could not", " depends on ", "(constraint)")
_CONSTRAINT = "The user requested (constraint)"


async def run_program(argv: Sequence[str], cwd: Path, *, what: str, may_fail: bool = False) -> str:
    """What it printed. Raises ConfigError, with its own words, when it is not there or fails.

    `may_fail`: then it gave nothing.
    """
    kept: Mapping[str, str] = {name: value for name, value in inherited().items() if name not in _LEFT_OUT}
    said = b""
    try:
        async with open_child(argv, cwd=str(cwd), env={**kept, **_QUIET}) as child:
            while piece := await child.read():
                said += piece
            status = await child.wait()
    except FileNotFoundError as error:
        raise ConfigError(f"{what}: {argv[0]} is not installed.") from error
    text = said.decode("utf-8", "replace")
    if status and may_fail:
        return ""
    if status:
        raise ConfigError(f"{what}:\n{_complaint(text) or f'{argv[0]} ended with status {status}'}")
    return text


def pip(*words: str) -> list[str]:
    """Pip of the Python that runs us."""
    return [sys.executable, "-I", "-m", "pip", *words]


def _complaint(text: str) -> str:
    """The lines that tell what went wrong; all of the last ones where none does."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line.lower() for word in _TELLING)]
    shown = [line for line in telling if "resolutionimpossible" not in line.lower()] or lines
    return "\n".join(f"  {line.replace(_CONSTRAINT, 'alipes stands on')}" for line in shown[-6:])
