"""`alipes plugins doctor`: loads each enabled plugin and scans its code."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from alipes.cli.plugins.describe import KIND_LABELS
from alipes.cli.plugins.list import PluginEntry, added_by, check_needs, format_added
from alipes.config.settings import Settings
from alipes.console.stdio import divert_stdout
from alipes.core.standalone import make_registry, open_host
from alipes.features.all import FEATURES
from alipes.kernel.checks import CheckResult
from alipes.plugins.discovery import DiscoveredPlugin, PluginStatus, enabled_plugins, find_plugins
from alipes.plugins.dispatch import Hooks
from alipes.plugins.foreign_loaders import foreign_loaders
from alipes.plugins.install.code_check import check_code
from alipes.plugins.install.install_dir import InstalledPlugin, read_installed
from alipes.plugins.instance import LoadEnvironment, PluginInstance
from alipes.plugins.native_loader import NativeLoader


async def check_plugins(settings: Settings, name: str, taken: Collection[str]) -> list[CheckResult]:
    """Check all plugins, or only `name`, which is loaded even if it is not enabled.

    `taken`: names of built-in commands.
    """
    enabled, unknown = enabled_plugins(settings)
    chosen = [each for each in find_plugins(settings) if not name or each.name == name]
    to_open = chosen if name else list(enabled)
    installed_plugins = read_installed(settings.home / "plugins")
    findings = [
        CheckResult(each, "wrong", "enabled, but not installed", f"`alipes plugins disable {each}`")
        for each in unknown
        if not name
    ]
    with divert_stdout():  # what they print is not part of the report
        opened = await _open_plugins(settings, to_open)
    for found in chosen:
        status = opened.get(found.name)
        if status is None:
            says = f"not enabled; only its code was scanned (load it with `alipes plugins doctor {found.name}`)"
            findings.append(CheckResult(found.name, "note", says))
        else:
            findings.append(_opened_result(found, status[0]))
            warnings = [line for line in status[1] if not line.startswith(f"plugin {found.name} needs ")]
            findings += [CheckResult(found.name, "note", line) for line in warnings]
        on = status is not None and status[0].state == "on"
        needs = check_needs(found, settings)
        findings += [CheckResult(found.name, "note", f"it needs {each.says}", each.advice) for each in needs]
        findings += check_code(found, installed_plugins.get(found.name), opened=on)
        for command in [each for each in (status[0].cli if status else ()) if each in {*taken}]:
            says = f"its command `alipes {command}` is hidden by the built-in one"
            findings.append(CheckResult(found.name, "note", says))
    used = {each.name: installed_plugins[each.name] for each in enabled if each.name in installed_plugins}
    findings += [each for each in _check_versions(used) if name in ("", each.about)]
    return findings


def _check_versions(used: Mapping[str, InstalledPlugin]) -> Iterator[CheckResult]:
    """One note for each plugin that brings another version of a package than the plugin before it."""
    first: dict[str, tuple[str, str]] = {}
    for plugin, installed in used.items():
        for package in (*installed.now.packages[1:], *installed.now.dependencies):
            version, other = first.setdefault(package.name, (package.version, plugin))
            if version != package.version:
                says = f"it brings {package.name} {package.version}, but {other} brings {version}"
                yield CheckResult(plugin, "note", f"{says}: the version that is imported first serves both")


async def _open_plugins(
    settings: Settings, to_open: Iterable[DiscoveredPlugin]
) -> dict[str, tuple[PluginStatus, list[str]]]:
    """Load the plugins one after the other, as in a conversation, and unload them at the end."""
    status: dict[str, tuple[PluginStatus, list[str]]] = {}
    async with open_host(settings) as host, asyncio.TaskGroup() as group:
        native = NativeLoader(settings.paths)
        loaders = {"native": lambda: native, **foreign_loaders(host, settings)}
        host_services = LoadEnvironment(settings, Hooks(), make_registry(FEATURES), host, loaders)
        instances = []
        for found in to_open:
            instance = PluginInstance(found, host_services)
            instances.append(instance)
            with _collect_warnings() as warnings:
                group.create_task(instance.run(), name=f"plugin {found.name}")
                await instance.ready.wait()
                instance.activate(lambda _owner: None)
            status[found.name] = instance.status(), warnings
        for instance in reversed(instances):
            instance.deactivate()
            instance.request_close()
    return status


@contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """The warnings that are logged while a plugin is loaded."""
    warnings: list[str] = []

    class WarningCollector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not record.exc_info and (line := record.getMessage()) not in warnings:
                warnings.append(line)

    collector, log = WarningCollector(logging.WARNING), logging.getLogger("alipes")
    log.addHandler(collector)
    try:
        yield warnings
    finally:
        log.removeHandler(collector)


def _opened_result(found: DiscoveredPlugin, facts: PluginStatus) -> CheckResult:
    if facts.state != "on":
        return CheckResult(found.name, "wrong", facts.why or "it could not be loaded")
    status = format_added(PluginEntry(found.name, "on", adds=added_by(facts))) or "it adds nothing"
    version = f"{found.manifest.version}, " if found.manifest.version else ""
    return CheckResult(found.name, "ok", f"{version}{KIND_LABELS[found.kind]}: {status}")
