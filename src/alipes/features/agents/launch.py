"""What is needed to start an agent: its program, its environment, and what its sandbox shows and lets it change."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, structs

from alipes.features.agents.presets import MARKERS, PRESETS, Preset
from alipes.features.agents.settings import AgentConfig
from alipes.kernel.errors import ConfigError

NO_PRESET = Preset(title="", package="", install="", command="", home=(("XDG_CONFIG_HOME", "config"),))
NO_SETTINGS = AgentConfig()


class AgentCommand(Struct, frozen=True):
    """How an agent is started: by its settings, else by the preset of its name."""

    preset: Preset
    program: str
    """As it was given; empty: nothing is known of it."""
    args: tuple[str, ...]
    path: str
    """Where it is installed; empty: nowhere."""

    @property
    def line(self) -> str:
        return shlex.join((self.program, *self.args))


def find_command(name: str, config: AgentConfig = NO_SETTINGS, *, path: str | None = None) -> AgentCommand:
    """`path`: where programs are, if not in that of this process."""
    preset = PRESETS.get(name, NO_PRESET)
    program = os.path.expanduser(config.command or preset.command)
    args = config.args or (preset.args if program == preset.command else ())
    return AgentCommand(preset, program, args, (shutil.which(program, path=path) or "") if program else "")


class ProgramLaunch(Struct, frozen=True):
    name: str
    preset: Preset
    argv: tuple[str, ...]
    env: dict[str, str]
    home: str
    """Its own folder, in which it keeps its login and its sessions."""
    write: tuple[str, ...]
    """That folder and those in it which the sandbox would protect in a project."""
    read: tuple[str, ...]
    """Where it is installed, if the sandbox would not show it."""
    protect: tuple[str, ...]
    """Its settings and hooks, which it can only read."""
    hosts: tuple[str, ...]
    """Hosts that it cannot work without: its vendor's, and those of addresses that its variables name."""
    mode: str
    """The mode that its sessions begin with; empty: its own."""

    def with_words(self, argv: tuple[str, ...], env: Mapping[str, str] | None = None) -> "ProgramLaunch":
        """The same with other words, for its login."""
        return structs.replace(self, argv=argv, env={**self.env, **(env or {})})


def prepare_launch(name: str, config: AgentConfig, *, folder: Path, environ: Mapping[str, str]) -> ProgramLaunch:
    """Make its folder below `folder`. `environ`: the environment of commands, without secrets.

    Raises `ConfigError` if the program is not installed.
    """
    command = find_command(name, config, path=environ.get("PATH", os.defpath))
    preset = command.preset
    if not command.program:
        known = ", ".join(PRESETS)
        raise ConfigError(f"[agents.{name}] has no command, and there is no preset of that name ({known}).")
    if not command.path:
        how = f" Install it: {preset.install}" if preset.install else ""
        raise ConfigError(f"{name}: the program {command.program} was not found.{how}")
    home = folder / name / "home"
    protect = tuple(_make_home(home, preset))
    env = {key: value for key, value in environ.items() if not key.startswith(MARKERS)}
    env |= {variable: str(home / below) for variable, below in preset.home} | dict(preset.env) | config.env
    inner = {name.partition("/")[0] for name in (*preset.folders, *dict(preset.files)) if "/" in name}
    return ProgramLaunch(
        name,
        preset,
        (command.path, *command.args),
        env,
        str(home),
        write=(str(home), *(str(home / each) for each in sorted(inner))),
        read=tuple(_find_install(command.path)),
        protect=protect,
        hosts=(*preset.hosts, *filter(None, map(_find_host, config.env.values()))),
        mode=config.mode or preset.mode,
    )


def _find_host(text: str) -> str:
    """The host of a URL as a pattern of `egress.allow`; empty for any other text."""
    try:
        url = urlsplit(text)
        port = f":{url.port}" if url.port else ""
    except ValueError:
        return ""
    return f"{url.hostname}{port}" if url.scheme in ("http", "https") and url.hostname else ""


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
