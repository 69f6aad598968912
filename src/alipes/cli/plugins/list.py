"""Lists plugins and their state, and enables and disables them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from alipes.cli.plugins.describe import ADDED_KINDS, list_abilities
from alipes.config.editor import change
from alipes.config.environment import current_variables
from alipes.config.loader import build_settings
from alipes.config.reader import KeyPath, RawConfig, read_config
from alipes.config.settings import Settings
from alipes.console import render
from alipes.kernel.checks import CheckResult
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_ago, format_count
from alipes.plugins.discovery import DiscoveredPlugin, PluginStatus, SavedPluginStatus, find_plugins, read_status
from alipes.plugins.install.code_check import scan_plugin
from alipes.plugins.install.install_dir import InstalledPlugin, read_installed
from alipes.plugins.install.packages import missing_packages
from alipes.plugins.install.project import read_requirements
from alipes.plugins.install.scan import POWER_LABELS
from alipes.plugins.private_packages import PACKAGES

ENABLED: KeyPath = ("plugins", "enabled")
DISABLED: KeyPath = ("plugins", "disabled")
_VARIABLE = "ALIPES_PLUGINS_ENABLED"


def find_plugin(name: str) -> DiscoveredPlugin:
    """The plugin `name`, enabled or not. Raises ConfigError with similar names."""
    settings = build_settings(read_config())
    found = {each.name: each for each in find_plugins(settings)}
    if name not in found:
        hint = "List them with `alipes plugins list`." if found else "No plugins are installed."
        meant = did_you_mean(name, [*found, *settings.plugins.enabled])
        raise ConfigError(f"Unknown plugin {name}.{meant} {hint}")
    return found[name]


def enable(name: str) -> bool:
    """Enable it in config.toml; False if it was enabled already."""
    reading = read_config()
    enabled, disabled = _names_in_file(reading, ENABLED), _names_in_file(reading, DISABLED)
    if name in enabled and name not in disabled:
        return False
    _refuse_variable(reading, name)
    changed: dict[KeyPath, str | None] = {ENABLED: _to_json([*enabled, name] if name not in enabled else enabled)}
    if name in disabled:
        changed[DISABLED] = _to_json(each for each in disabled if each != name)
    change(changed)
    return True


def disable(name: str) -> bool:
    """Disable it in config.toml; False if it was not enabled. Also works for a deleted plugin."""
    reading = read_config()
    enabled, disabled = _names_in_file(reading, ENABLED), _names_in_file(reading, DISABLED)
    if name in enabled:
        _refuse_variable(reading, name)
        change({ENABLED: _to_json(each for each in enabled if each != name)})
        return True
    if find_plugin(name).kind in ("native", "hermes") or name in disabled:
        return False
    change({DISABLED: _to_json([*disabled, name])})  # it is enabled by default
    return True


def _names_in_file(reading: RawConfig, way: KeyPath) -> list[str]:
    """The names in config.toml, ignoring the environment variable."""
    value = reading.values.get(way, [])
    return [str(name) for name in value] if isinstance(value, list) else []


def _to_json(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _refuse_variable(reading: RawConfig, name: str) -> None:
    """Refuse a change that an environment variable would override."""
    if reading.effective(*ENABLED).layer == "variable":
        where = reading.variables.where(_VARIABLE)
        raise ConfigError(f"{_VARIABLE} ({where}) overrides config.toml: change {name} there.")


PluginState: TypeAlias = Literal["on", "enabled", "failed", "off", "disabled"]
"""`on`: loaded in a running process; `enabled`: from the next start; `off`: failed too often."""
_ALWAYS_ENABLED = ("file-hook", "shell-hooks")
_NAMED_KINDS = ("commands", "programs", "provides")
"""Kinds listed by name; others are counted."""


class PluginEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    state: PluginState
    version: str = ""
    kind: str = ""
    description: str = ""
    source: str = ""
    """The source it was installed from, or where it was found."""
    path: str = ""
    why: str = ""
    """The problem, if there is one."""
    adds: dict[str, tuple[str, ...]] = {}
    """Names by kind: from the last time it was loaded, else from its code."""


def list_plugins(settings: Settings) -> list[PluginEntry]:
    """All plugins by name, including enabled ones that are missing."""
    found = find_plugins(settings)
    installed_plugins, last = read_installed(settings.home / "plugins"), read_status(settings.paths)
    known = [_make_entry(each, settings, installed_plugins.get(each.name), last) for each in found]
    gone = [
        PluginEntry(name, "failed", why="enabled, but not installed")
        for name in settings.plugins.enabled
        if name not in {each.name for each in found} and name not in settings.plugins.disabled
    ]
    return sorted([*known, *gone], key=lambda entry: entry.name)


def format_plugins(known: Sequence[PluginEntry]) -> Iterator[str]:
    """The table lines, each followed by the problem of the plugin."""
    head = ("NAME", "VERSION", "STATE", "FROM", "ADDS")
    rows = [
        (each.name, each.version, each.state, render.truncate(each.source, 40), format_added(each)) for each in known
    ]
    first, *lines = render.format_table([head, *rows])
    yield first
    for line, entry in zip(lines, known, strict=True):
        yield line.rstrip()
        if entry.why:
            yield f"    {render.to_one_line(entry.why)}"


def format_added(entry: PluginEntry) -> str:
    """`2 tools, 1 hook, /way, alipes way`"""
    return ", ".join(
        ", ".join(map(render.to_one_line, names))
        if kind in _NAMED_KINDS
        else format_count(len(names), kind.removesuffix("s"))
        for kind, names in entry.adds.items()
    )


def check_plugins_state(settings: Settings) -> list[CheckResult]:
    """Results for `alipes doctor`: a summary, and one for each failed plugin. Loads nothing."""
    known = list_plugins(settings)
    if not known:
        return []
    in_use = [each.name for each in known if each.state in ("on", "enabled")]
    others = sum(each.state == "disabled" for each in known)
    summary = ", ".join(in_use) or "none enabled"
    if others and in_use:
        summary += f"; {others} more not enabled"
    safe = "; not loaded because of --safe" if settings.plugins.safe else ""
    results = [CheckResult("plugins", "note" if safe else "ok", summary + safe)]
    for each in known:
        if each.state in ("failed", "off"):
            advice = f"`alipes plugins doctor {each.name}`"
            results.append(CheckResult("plugins", "wrong", f"{each.name}: {each.why}", advice))
    used = {*in_use, *(each.name for each in known if each.state in ("failed", "off"))}
    for found in find_plugins(settings):
        for need in check_needs(found, settings) if found.name in used else ():
            results.append(CheckResult("plugins", "note", f"{found.name} needs {need.says}", need.advice))
    return results


def check_needs(found: DiscoveredPlugin, settings: Settings) -> list[CheckResult]:
    """Required variables that are not set and declared packages that are not installed, each with its fix."""
    variables = current_variables(settings.paths)
    needs = [
        CheckResult(found.name, "note", f"{name}, which is not set", f"`alipes config set {name} -`")
        for name in found.manifest.requires_env
        if name and not variables.get(name)
    ]
    if found.path is None or found.kind in _ALWAYS_ENABLED:
        return needs
    missing = missing_packages(found.path, read_requirements(found.path, found.manifest))
    if missing:
        installed = found.name in read_installed(settings.home / "plugins")
        texts = " ".join(f"'{each.text}'" for each in missing)
        place = found.path / PACKAGES
        advice = f"alipes plugins update {found.name}" if installed else f"pip install --target {place} {texts}"
        verb = "is" if len(missing) == 1 else "are"
        says = f"{', '.join(each.text for each in missing)}, which {verb} not installed"
        needs.append(CheckResult(found.name, "note", says, f"`{advice}`"))
    return needs


def list_powers(found: DiscoveredPlugin, settings: Settings) -> list[str]:
    """What the code of a plugin uses, such as `network (plugin.py:3)`, and the variables it needs."""
    variables = [f"variable {name}" for name in found.manifest.requires_env if name]
    if found.path is None:
        return variables
    installed = read_installed(settings.home / "plugins").get(found.name)
    said = list_abilities(found, scan_plugin(found.path, installed.now.packages if installed else ()))
    return [*(f"{label}: {item}" for label in POWER_LABELS.values() for item in said.get(label, ())), *variables]


def _make_entry(
    found: DiscoveredPlugin, settings: Settings, installed: InstalledPlugin | None, last: SavedPluginStatus | None
) -> PluginEntry:
    status = next((each for each in last.plugins if each.name == found.name), None) if last else None
    if status is not None and status.version != found.manifest.version:
        status = None  # of another version
    state, why = _plugin_state(found, settings, status, alive=last is not None and _is_alive(last.pid))
    if why and last and state in ("failed", "off") and not found.manifest.error:
        why = f"{why} (loaded {format_ago(last.when)})"
    now = installed.now if installed else None
    place = "manual" if found.source == "home" else found.source or str(found.path or Path())
    return PluginEntry(
        name=found.name,
        state=state,
        version=found.manifest.version,
        kind=found.kind,
        description=found.manifest.description,
        source=f"{now.source.kind} {now.source}" if now else place,
        path=str(found.path or ""),
        why=why,
        adds=_added(found, status if status and status.state == "on" else None, installed),
    )


def _plugin_state(
    found: DiscoveredPlugin, settings: Settings, status: PluginStatus | None, *, alive: bool
) -> tuple[PluginState, str]:
    plugins = settings.plugins
    if found.name in plugins.disabled or not (found.name in plugins.enabled or found.kind in _ALWAYS_ENABLED):
        return "disabled", found.manifest.error
    if found.manifest.error:
        return "failed", found.manifest.error
    if status is None or status.state in ("disabled", "on"):
        return ("on" if status and status.state == "on" and alive else "enabled"), ""
    return status.state, status.why


def added_by(status: PluginStatus) -> dict[str, tuple[str, ...]]:
    """The names it registered, by kind."""
    names = {
        "tools": status.tools,
        "hooks": status.hooks,
        "commands": tuple(f"/{name}" for name in status.commands),
        "programs": tuple(f"alipes {name}" for name in status.cli),
        "skills": status.skills,
        "provides": tuple(name.replace(":", " ") for name in status.provides),
    }
    return {kind: each for kind, each in names.items() if each}


def _added(
    found: DiscoveredPlugin, status: PluginStatus | None, installed: InstalledPlugin | None
) -> dict[str, tuple[str, ...]]:
    if status is not None:
        return added_by(status)
    if found.path is None:
        return {}
    said = list_abilities(found, scan_plugin(found.path, installed.now.packages if installed else ()))
    return {kind: tuple(said[kind]) for kind in ADDED_KINDS if kind in said}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
