"""A plugin brought here from where it is, into a folder where it is not in use yet. None of it is run."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.config.environment import inherited
from alipes.kernel.errors import ConfigError
from alipes.runtime.processes.child import open_child

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


Kind: TypeAlias = Literal["folder", "git", "package"]
_SCP = r"(?:[\w.-]+@)[\w.-]+:(?!//).+"
_REQUIREMENT = (
    r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:\[[\w,. -]+\])?\s*(?:(?:[=!<>~]=?|===)\s*[\w.*+!,<>=~ -]+)?"
)
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"


class Source(Struct, frozen=True, omit_defaults=True):
    """Where a plugin comes from, so that it can be fetched from there again."""

    kind: Kind
    place: str
    """A path, an address, a requirement such as `notes>=2`, or the path of a wheel."""
    ref: str = ""
    """For Git: a branch, a tag or a commit; empty means what the repository shows first."""
    folder: str = ""
    """Where in it the plugin is; empty means at its top."""
    entry: str = ""
    """For a package with several plugins: which."""

    def __str__(self) -> str:
        ref = f" at {self.ref}" if self.ref else ""
        folder = f", folder {self.folder}" if self.folder else ""
        return f"{self.place}{ref}{folder}"


def source_of(text: str, *, ref: str = "", folder: str = "", entry: str = "") -> Source:
    """What `text` means. A folder that is there goes before a package of the same name.

    Raises ConfigError when it means nothing, or holds a password.
    """
    kind, place = _kind(text.strip())
    if kind == "git" and (split := urlsplit(place)).password:
        raise ConfigError(
            f"The address of {split.hostname} holds a password, and we would keep it: "
            "leave it out and let Git's own credential store know it."
        )
    if ref and kind != "git":
        raise ConfigError(f"--ref says which commit of a Git repository; {place} is a {kind}.")
    if folder and kind == "package":
        raise ConfigError(f"--folder says where in a folder or repository; {place} is a package.")
    if entry and kind != "package":
        raise ConfigError(f"--entry says which plugin of a package; {place} is a {kind}.")
    if folder and (Path(folder).is_absolute() or ".." in Path(folder).parts):
        raise ConfigError(f"--folder {folder} leads out of {place}: give a path inside it.")
    return Source(kind, place, ref, folder.strip("/"), entry)


def check_name(name: str) -> str:
    """A name that is safe as that of a folder and of a table; ConfigError otherwise."""
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise ConfigError(f"{name[:80]!r} cannot be a plugin's name: use letters, digits, - and _.")
    return name


def _kind(text: str) -> tuple[Kind, str]:
    if not text or text.startswith("-") or any(not c.isprintable() for c in text):
        raise ConfigError(f"{text!r} is no folder, Git address or package.")
    here = Path(text).expanduser()
    if here.is_dir():
        return ("git" if _is_bare(here) else "folder"), str(here.absolute())
    if here.suffix == ".whl" and here.is_file():
        return "package", str(here.absolute())
    if text.startswith("git+"):
        return "git", text.removeprefix("git+")
    if "://" in text or re.fullmatch(_SCP, text):
        return "git", text
    if re.fullmatch(_REQUIREMENT, text):
        return "package", text
    raise ConfigError(_nothing(text))


def _nothing(text: str) -> str:
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return f"There is no folder {text}; if a repository is meant, give its address: https://HOST/{text}"
    if os.sep in text or text.startswith("."):
        return f"There is no folder or wheel at {text}."
    return f"{text!r} is no folder, Git address or package."


def _is_bare(folder: Path) -> bool:
    """A repository without a working copy, such as a server keeps."""
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()
