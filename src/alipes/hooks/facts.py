"""How the plugins stand, for people and for other processes: values, and the file they are kept in."""

import os
import time
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from alipes.config.paths import Paths
from alipes.hooks.finding import Kind

State: TypeAlias = Literal["on", "off", "failed", "disabled"]
"""`off`: switched off after failures; `failed`: could not be opened; `disabled`: not asked for."""


class PluginFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: State
    why: str = ""
    """What is wrong, and what to do about it."""
    kind: Kind | Literal[""] = ""
    source: str = ""
    path: str = ""
    version: str = ""
    description: str = ""
    hooks: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    cli: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    """`kind:name` of everything else."""
    strikes: int = 0


class LastKnown(msgspec.Struct, frozen=True):
    """What the process that last opened plugins on this home knew of them."""

    pid: int
    when: float
    plugins: tuple[PluginFacts, ...]


def state_file(paths: Paths) -> Path:
    return paths.home / "plugins" / ".state.json"


def keep(paths: Paths, facts: tuple[PluginFacts, ...]) -> None:
    """Write it down for `alipes plugins list` of another process. Raises OSError."""
    file = state_file(paths)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f".state.{os.getpid()}.new")
    new.write_bytes(msgspec.json.encode(LastKnown(os.getpid(), time.time(), facts)))
    os.replace(new, file)


def last_known(paths: Paths) -> LastKnown | None:
    """What was kept; None where nothing readable was."""
    try:
        return msgspec.json.decode(state_file(paths).read_bytes(), type=LastKnown)
    except (OSError, msgspec.MsgspecError):
        return None
