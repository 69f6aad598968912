"""What is needed to start an agent: its program, its environment, and what its sandbox shows and lets it change."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from alipes.features.agents.presets import MARKERS, PRESETS, Preset
from alipes.features.agents.settings import AgentConfig
from alipes.kernel.errors import ConfigError

NO_PRESET = Preset(title="", package="", install="", command="", home=(("XDG_CONFIG_HOME", "config"),))


class ProgramLaunch(Struct, frozen=True):
    name: str
    preset: Preset
    argv: tuple[str, ...]
    env: dict[str, str]
    home: str
    """Its own folder, in which it keeps its login and its sessions."""
    read: tuple[str, ...]
    """Where it is installed, if the sandbox would not show it."""
    protect: tuple[str, ...]
    """Its settings and hooks, which it can only read."""

    def with_words(self, argv: tuple[str, ...], env: Mapping[str, str] | None = None) -> "ProgramLaunch":
        """The same with other words, for its login."""
        more = env or {}
        return ProgramLaunch(self.name, self.preset, argv, {**self.env, **more}, self.home, self.read, self.protect)


def prepare_launch(name: str, config: AgentConfig, *, folder: Path, environ: Mapping[str, str]) -> ProgramLaunch:
    """Make its folder below `folder`. `environ`: the environment of commands, without secrets.

    Raises `ConfigError` if the program is not installed.
    """
    preset = PRESETS.get(name, NO_PRESET)
    command = os.path.expanduser(config.command or preset.command)
    if not command:
        known = ", ".join(PRESETS)
        raise ConfigError(f"[agents.{name}] has no command, and there is no preset of that name ({known}).")
    program = shutil.which(command, path=environ.get("PATH", os.defpath))
    if program is None:
        how = f" Install it: {preset.install}" if preset.install else ""
        raise ConfigError(f"{name}: the program {command} was not found.{how}")
    home = folder / name / "home"
    protect = tuple(_make_home(home, preset))
    args = config.args if config.command or config.args else preset.args
    env = {key: value for key, value in environ.items() if not key.startswith(MARKERS)}
    env |= {variable: str(home / below) for variable, below in preset.home} | dict(preset.env) | config.env
    return ProgramLaunch(name, preset, (program, *args), env, str(home), tuple(_find_install(program)), protect)


def _make_home(home: Path, preset: Preset) -> Iterator[str]:
    """Make what is missing of its folder; the paths that it can only read."""
    for below in ("", *(below for _, below in preset.home)):
        (home / below).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in preset.folders:
        (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        yield str(home / name)
    for name, text in preset.files:
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
            file.write(text)
        yield str(path)


def _find_install(program: str) -> Iterator[str]:
    """The program, and the packages beside it."""
    for path in dict.fromkeys((program, os.path.realpath(program))):
        head, found, _ = path.rpartition("/node_modules/")
        yield f"{head}{found}".rstrip("/") if found else path
