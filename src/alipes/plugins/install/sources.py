"""Sources of plugins and skills (folder, Git, archive, package), and running git and pip."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.config.environment import process_environment
from alipes.kernel.errors import ConfigError
from alipes.runtime.processes.child import open_child

_SAFE_ENVIRONMENT = {
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
_DROPPED = ("PYTHONPATH", "PYTHONWARNINGS", "PIP_TARGET", "PIP_USER", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
_ERROR_MARKS = ("fatal:", "error:", "could not", " depends on ", "(constraint)")
_CONSTRAINT = "The user requested (constraint)"


async def run_program(argv: Sequence[str], cwd: Path, *, what: str, may_fail: bool = False) -> str:
    """Run a program and return its output. Raises ConfigError with its error message if it fails.

    `may_fail`: return an empty string instead.
    """
    kept = {name: value for name, value in process_environment().items() if name not in _DROPPED}
    said = b""
    try:
        async with open_child(argv, cwd=str(cwd), env={**kept, **_SAFE_ENVIRONMENT}) as child:
            while piece := await child.read():
                said += piece
            status = await child.wait()
    except FileNotFoundError as error:
        raise ConfigError(f"{what}: {argv[0]} is not installed.") from error
    text = said.decode("utf-8", "replace")
    if status and may_fail:
        return ""
    if status:
        raise ConfigError(f"{what}:\n{_error_lines(text) or f'{argv[0]} exited with status {status}'}")
    return text


def pip_command(*words: str) -> list[str]:
    """Pip of the current Python."""
    return [sys.executable, "-I", "-m", "pip", *words]


def _error_lines(text: str) -> str:
    """The lines with an error message, or the last lines if there are none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line.lower() for word in _ERROR_MARKS)]
    shown = [line for line in telling if "resolutionimpossible" not in line.lower()] or lines
    return "\n".join(f"  {line.replace(_CONSTRAINT, 'alipes requires')}" for line in shown[-6:])


SourceKind: TypeAlias = Literal["folder", "git", "archive", "package"]
ARCHIVES = (".zip", ".skill", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
_WEB = ("http://", "https://")
_SCP = r"(?:[\w.-]+@)[\w.-]+:(?!//).+"
_REQUIREMENT = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:\[[\w,. -]+\])?\s*(?:(?:[=!<>~]=?|===)\s*[\w.*+!,<>=~ -]+)?"
_GITHUB = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/(?!\.)[\w.-]{1,100}"
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"


class Source(Struct, frozen=True, omit_defaults=True):
    """Where a plugin or skill comes from, so that it can be fetched again."""

    kind: SourceKind
    place: str
    """A path, a URL, a requirement such as `notes>=2`, or the path of a wheel."""
    ref: str = ""
    """For Git: a branch, tag or commit; empty for the default branch."""
    folder: str = ""
    """The folder of the plugin inside the source; empty for its root."""
    entry: str = ""
    """The name of one plugin, if entry points declare several."""

    def __str__(self) -> str:
        ref = f" at {self.ref}" if self.ref else ""
        folder = f", folder {self.folder}" if self.folder else ""
        return f"{self.place}{ref}{folder}"


def parse_source(text: str, *, ref: str = "", folder: str = "", entry: str = "") -> Source:
    """Parse a SOURCE argument. An existing folder takes precedence over a package of the same name.

    Raises ConfigError if it is invalid or contains a password.
    """
    kind, place = _detect_kind(text.strip())
    if kind in ("git", "archive") and (split := urlsplit(place)).password:
        raise ConfigError(
            f"The URL of {split.hostname} contains a password, which would be saved: "
            "remove it and use Git's credential store."
        )
    if ref and kind != "git":
        raise ConfigError(f"--ref only works with a Git repository; {place} is a {kind}.")
    if folder and kind == "package":
        raise ConfigError(f"--folder only works with a folder or repository; {place} is a package.")
    if folder and (Path(folder).is_absolute() or ".." in Path(folder).parts):
        raise ConfigError(f"--folder {folder} is outside of {place}: use a path inside it.")
    return Source(kind, place, ref, folder.strip("/"), entry)


def check_name(name: str) -> str:
    """The name if it is safe for a folder and a config table. Raises ConfigError."""
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise ConfigError(f"{name[:80]!r} is not a valid plugin name: use letters, digits, - and _.")
    return name


def _detect_kind(text: str) -> tuple[SourceKind, str]:
    if not text or text.startswith("-") or any(not c.isprintable() for c in text):
        raise ConfigError(f"{text!r} is not a folder, Git URL or package.")
    here = Path(text).expanduser()
    if here.is_dir():
        bare = (here / "HEAD").is_file() and (here / "objects").is_dir() and (here / "refs").is_dir()
        return ("git" if bare else "folder"), str(here.absolute())
    if here.suffix == ".whl" and here.is_file():
        return "package", str(here.absolute())
    if text.startswith("git+"):
        return "git", text.removeprefix("git+")
    if urlsplit(text).path.lower().endswith(ARCHIVES) and (text.startswith(_WEB) or here.is_file()):
        return "archive", text if text.startswith(_WEB) else str(here.absolute())
    if "://" in text or re.fullmatch(_SCP, text):
        return "git", text
    if address := github_address(text):
        return "git", address
    if re.fullmatch(_REQUIREMENT, text):
        return "package", text
    raise ConfigError(_not_found_message(text))


def strip_suffix(name: str) -> str:
    """The name of a repository or archive without `.git`, `.zip` and the like."""
    return next((name[: -len(end)] for end in (".git", *ARCHIVES) if name.lower().endswith(end)), name)


def github_address(text: str) -> str:
    """The full address of `owner/name`; empty for anything else, and if there is such a folder."""
    if not re.fullmatch(_GITHUB, text) or Path(text).exists():
        return ""
    return f"https://github.com/{text.removesuffix('.git')}.git"


def _not_found_message(text: str) -> str:
    if os.sep in text or text.startswith("."):
        return f"There is no folder, archive or wheel at {text}."
    return f"{text!r} is not a folder, Git URL or package."
