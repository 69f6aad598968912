"""`alipes plugins doctor`: each enabled plugin is really opened, and closed again; all code is read."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from alipes.cli.common import Finding
from alipes.cli.plugins.describe import DOORS, lacking, look_into
from alipes.cli.plugins.install_dir import Installed, hash_tree, read_pins
from alipes.cli.plugins.list import Entry, adds_of, summary
from alipes.cli.plugins.scan import Survey
from alipes.cli.plugins.standalone import doors, new_offers, open_host
from alipes.config.settings import Settings
from alipes.plugins.discovery import Found, PluginFacts, find, wanted
from alipes.plugins.dispatch import Hooks
from alipes.plugins.instance import House, Lodging
from alipes.plugins.native_loader import NativeDoor

_SCOPE = "out of scope: nothing of the original stands behind it here"


async def examine(settings: Settings, name: str = "", taken: Iterable[str] = ()) -> list[Finding]:
    """What is found about all plugins, or the one called `name`, which is then opened even if not enabled.

    `taken`: commands of `alipes` that are ours.
    """
    enabled, unknown = wanted(settings)
    chosen = [each for each in find(settings) if not name or each.name == name]
    to_open = chosen if name else list(enabled)
    pins = read_pins(settings.home / "plugins")
    findings = [
        Finding(
            each,
            "wrong",
            "it is enabled, and there is no plugin of this name",
            f"`alipes plugins disable {each}`",
        )
        for each in unknown
        if not name
    ]
    opened = await _open(settings, to_open)
    for found in chosen:
        told = opened.get(found.name)
        findings += [_how_it_went(found, *told)] if told else [_not_opened(found)]
        findings += [Finding(found.name, "note", line) for line in (told[1] if told else ())]
        findings += _read(found, pins.get(found.name), opened=bool(told and told[0].state == "on"))
        findings += _unreachable(told[0] if told else None, taken)
    return findings


async def _open(settings: Settings, to_open: Iterable[Found]) -> dict[str, tuple[PluginFacts, list[str]]]:
    """One after the other, each beside those before it, as in a conversation; closed at the end."""
    told: dict[str, tuple[PluginFacts, list[str]]] = {}
    async with open_host(settings) as host, asyncio.TaskGroup() as group:
        native = NativeDoor(settings.paths)
        house = House(
            settings, Hooks(), new_offers(), host, {"native": lambda: native, **doors(host, settings)}
        )
        lodgings = []
        for found in to_open:
            lodging = Lodging(found, house)
            lodgings.append(lodging)
            with _listening() as said:
                group.create_task(lodging.run(), name=f"plugin {found.name}")
                await lodging.ready.wait()
                lodging.settled(lambda _owner: None)
            told[found.name] = lodging.facts(), said
        for lodging in reversed(lodgings):
            lodging.withdraw()
            lodging.leave()
    return told


@contextmanager
def _listening() -> Iterator[list[str]]:
    """What is said in warning while a plugin is opened."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not record.exc_info and (line := record.getMessage()) not in said:
                said.append(line)

    ear, log = Ear(logging.WARNING), logging.getLogger("alipes")
    log.addHandler(ear)
    try:
        yield said
    finally:
        log.removeHandler(ear)


def _how_it_went(found: Found, facts: PluginFacts, _said: list[str]) -> Finding:
    if facts.state != "on":
        return Finding(found.name, "wrong", facts.why or "it could not be opened")
    told = summary(Entry(found.name, "on", adds=adds_of(facts))) or "it adds nothing"
    version = f"{found.manifest.version}, " if found.manifest.version else ""
    return Finding(found.name, "ok", f"{version}{DOORS[found.kind]}: {told}")


def _not_opened(found: Found) -> Finding:
    says = f"not enabled; its code was read and not run (`alipes plugins doctor {found.name}` opens it)"
    return Finding(found.name, "note", says)


def _read(found: Found, installed: Installed | None, *, opened: bool) -> Iterator[Finding]:
    if found.path is None or found.kind in ("file-hook", "shell-hooks"):
        return
    if installed and hash_tree(found.path) != installed.now.sha256:
        yield Finding(found.name, "note", "its files were changed since it was installed")
    seen: Survey = look_into(found.path, installed.now.packages if installed else ())
    for remark in seen.outside:
        ready = remark.says.endswith("without it")
        says = f"{found.path / remark.place} {remark.says}"
        yield Finding(found.name, "note" if ready else "wrong", says, "" if ready else _SCOPE)
    for line in seen.unread:
        yield Finding(found.name, "wrong", f"{found.path / line}")
    for module, place in lacking(found.path, seen).items():
        says = f"{found.path / place} imports {module}, which is not installed"
        yield Finding(found.name, "note" if opened else "wrong", says, f"pip install {module}")


def _unreachable(facts: PluginFacts | None, taken: Iterable[str]) -> Iterator[Finding]:
    ours = {*taken}
    for name in facts.cli if facts else ():
        if name in ours:
            yield Finding(
                facts.name if facts else "", "note", f"`alipes {name}` is ours, so its own is never reached"
            )
