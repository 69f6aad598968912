"""Which plugins there are and how they fare, as the files tell and the last process that opened them told."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from alipes.cli import render
from alipes.cli.common import Finding
from alipes.cli.plugins.describe import KINDS, abilities, look_into
from alipes.cli.plugins.install_dir import Installed, read_pins
from alipes.config.editor import change
from alipes.config.loader import Reading, read
from alipes.config.settings import Settings, build
from alipes.config.validation import Way
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import ago, did_you_mean
from alipes.plugins.discovery import Found, LastKnown, PluginFacts, find, last_known

ENABLED: Way = ("plugins", "enabled")
DISABLED: Way = ("plugins", "disabled")
_VARIABLE = "ALIPES_PLUGINS_ENABLED"


def known(name: str) -> Found:
    """The plugin of that name, enabled or not. Raises ConfigError with near ones."""
    settings = build(read())
    found = {each.name: each for each in find(settings)}
    if name not in found:
        told = "`alipes plugins list` shows them all." if found else "There are none yet."
        meant = did_you_mean(name, [*found, *settings.plugins.enabled])
        raise ConfigError(f"There is no plugin {name}.{meant} {told}")
    return found[name]


def enable(name: str) -> bool:
    """Write it down; False when it was enabled already."""
    reading = read()
    enabled, disabled = _names(reading, ENABLED), _names(reading, DISABLED)
    if name in enabled and name not in disabled:
        return False
    _refuse_variable(reading, name)
    changed: dict[Way, str | None] = {ENABLED: _written([*enabled, name] if name not in enabled else enabled)}
    if name in disabled:
        changed[DISABLED] = _written(each for each in disabled if each != name)
    change(changed)
    return True


def disable(name: str) -> bool:
    """Write it down; False when it was not in use. One that is gone can be disabled too."""
    reading = read()
    enabled, disabled = _names(reading, ENABLED), _names(reading, DISABLED)
    if name in enabled:
        _refuse_variable(reading, name)
        change({ENABLED: _written(each for each in enabled if each != name)})
        return True
    if known(name).kind in ("native", "hermes") or name in disabled:
        return False
    change({DISABLED: _written([*disabled, name])})  # it is in use unless it is told otherwise
    return True


def _names(reading: Reading, way: Way) -> list[str]:
    """What the file itself says; a variable that goes over it is left alone."""
    value = reading.values.get(way, [])
    return [str(name) for name in value] if isinstance(value, list) else []


def _written(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _refuse_variable(reading: Reading, name: str) -> None:
    """What we write would change nothing where a variable goes over it."""
    if reading.picked(*ENABLED).layer == "variable":
        where = reading.variables.where(_VARIABLE)
        raise ConfigError(f"{_VARIABLE} ({where}) goes over config.toml: change {name} there.")


State: TypeAlias = Literal["on", "enabled", "failed", "off", "disabled"]
"""`on`: a process that runs has it open; `enabled`: the next one will; `off`: it failed too often."""
_OWN = ("file-hook", "shell-hooks")
_NAMED = ("commands", "programs", "provides")
"""Told by name in a summary; others are counted."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: State
    version: str = ""
    kind: str = ""
    description: str = ""
    source: str = ""
    """Where it is from: what was installed, or where it was found."""
    path: str = ""
    why: str = ""
    """What is wrong with it."""
    adds: dict[str, tuple[str, ...]] = {}
    """By kind, names; as told when it was last open, else as its code says."""


def entries(settings: Settings) -> list[Entry]:
    """All of them, by name; also those that are enabled and not there."""
    found = find(settings)
    pins, last = read_pins(settings.home / "plugins"), last_known(settings.paths)
    known = [_entry(each, settings, pins.get(each.name), last) for each in found]
    gone = [
        Entry(name, "failed", why="it is enabled, and there is no plugin of this name")
        for name in settings.plugins.enabled
        if name not in {each.name for each in found} and name not in settings.plugins.disabled
    ]
    return sorted([*known, *gone], key=lambda entry: entry.name)


def table(known: Sequence[Entry]) -> Iterator[str]:
    """As lines: a row for each, and beneath it what is wrong with it."""
    head = ("NAME", "VERSION", "STATE", "FROM", "ADDS")
    rows = [
        (each.name, each.version, each.state, render.cut(each.source, 40), summary(each)) for each in known
    ]
    first, *lines = render.table([head, *rows])
    yield first
    for line, entry in zip(lines, known, strict=True):
        yield line.rstrip()
        if entry.why:
            yield f"    {render.one_line(entry.why)}"


def summary(entry: Entry) -> str:
    """`2 tools, 1 hook, /way, alipes way`"""
    return ", ".join(
        text
        for kind, names in entry.adds.items()
        for text in (map(render.one_line, names) if kind in _NAMED else [_count(kind, len(names))])
    )


def examine_plugins(settings: Settings) -> list[Finding]:
    """For `alipes doctor`: one line, and one for each that failed. Nothing is opened."""
    known = entries(settings)
    if not known:
        return []
    in_use = [each.name for each in known if each.state in ("on", "enabled")]
    others = sum(each.state == "disabled" for each in known)
    told = ", ".join(in_use) or "none enabled"
    if others and in_use:
        told += f"; {others} more not enabled"
    safe = "; safe mode is on, so none is loaded" if settings.plugins.safe else ""
    return [
        Finding("plugins", "note" if safe else "ok", told + safe),
        *(
            Finding("plugins", "wrong", f"{each.name}: {each.why}", f"`alipes plugins doctor {each.name}`")
            for each in known
            if each.state in ("failed", "off")
        ),
    ]


def _entry(found: Found, settings: Settings, installed: Installed | None, last: LastKnown | None) -> Entry:
    told = next((each for each in last.plugins if each.name == found.name), None) if last else None
    if told is not None and told.version != found.manifest.version:
        told = None  # of another version
    state, why = _state(found, settings, told, alive=last is not None and _lives(last.pid))
    if why and last and state in ("failed", "off") and not found.manifest.trouble:
        why = f"{why} (opened {ago(last.when)})"
    now = installed.now if installed else None
    return Entry(
        name=found.name,
        state=state,
        version=found.manifest.version,
        kind=found.kind,
        description=found.manifest.description,
        source=f"{now.source.kind} {now.source}" if now else _place(found),
        path=str(found.path or ""),
        why=why,
        adds=_adds(found, told if told and told.state == "on" else None, installed),
    )


def _state(found: Found, settings: Settings, told: PluginFacts | None, *, alive: bool) -> tuple[State, str]:
    plugins = settings.plugins
    if found.name in plugins.disabled or not (found.name in plugins.enabled or found.kind in _OWN):
        return "disabled", found.manifest.trouble
    if found.manifest.trouble:
        return "failed", found.manifest.trouble
    if told is None or told.state in ("disabled", "on"):
        return ("on" if told and told.state == "on" and alive else "enabled"), ""
    return told.state, told.why


def adds_of(told: PluginFacts) -> dict[str, tuple[str, ...]]:
    """What it registered, by kind."""
    names = {
        "tools": told.tools,
        "hooks": told.hooks,
        "commands": tuple(f"/{name}" for name in told.commands),
        "programs": tuple(f"alipes {name}" for name in told.cli),
        "skills": told.skills,
        "provides": tuple(name.replace(":", " ") for name in told.provides),
    }
    return {kind: each for kind, each in names.items() if each}


def _adds(found: Found, told: PluginFacts | None, installed: Installed | None) -> dict[str, tuple[str, ...]]:
    if told is not None:
        return adds_of(told)
    if found.path is None:
        return {}
    said = abilities(found, look_into(found.path, installed.now.packages if installed else ()))
    return {kind: tuple(said[kind]) for kind in KINDS if kind in said}


def _place(found: Found) -> str:
    """For a person: where it lies, if that is not where it should."""
    return "by hand" if found.source == "home" else found.source or str(found.path or Path())


def _count(kind: str, count: int) -> str:
    return f"{count} {kind if count != 1 else kind.removesuffix('s')}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
