"""A plugin as a person sees it before it may run: where it is from, and what it will be able to do."""

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from alipes.cli import render
from alipes.cli.plugins.fetch import Fetched, code_of
from alipes.cli.plugins.install_dir import Package, measure
from alipes.cli.plugins.packages import SITE
from alipes.cli.plugins.scan import POWERS, Survey, is_original, survey
from alipes.cli.plugins.sources import Source
from alipes.cli.stdio import terminal_width
from alipes.config.environment import Variables
from alipes.plugins.discovery import Found

Row: TypeAlias = tuple[str, str]
"""Without a name, the text is a line of its own."""
_NARROWEST = 40


def show(rows: Iterable[Row]) -> None:
    for line in lines(list(rows), terminal_width(sys.stdout)):
        print(line)


def lines(rows: list[Row], width: int = 0) -> Iterator[str]:
    """As lines; `width` 0: no text is broken."""
    indent = 4 + max((render.columns(name) for name, _ in rows), default=0)
    for name, text in rows:
        head = f"  {render.pad(name, indent - 4)}  " if name else ""
        first, *rest = _broken(render.one_line(text), width - len(head)) or [""]
        yield head + first
        for line in rest:
            yield " " * len(head) + line


def _broken(text: str, room: int) -> list[str]:
    if room < _NARROWEST:
        return [text]
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


DOORS = {
    "native": "a native plugin",
    "hermes": "a Hermes plugin, through the compatible door",
    "file-hook": "a file hook, through the compatible door",
    "shell-hooks": "shell hooks of config.toml, through the compatible door",
}
KINDS = ("tools", "hooks", "commands", "programs", "skills", "provides")
_MOST = 3


def look_into(folder: Path, packages: tuple[Package, ...] = ()) -> Survey:
    """What its own code says, without that of packages it brought along."""
    return survey(folder, code_of(folder, packages))


def abilities(found: Found, seen: Survey) -> dict[str, list[str]]:
    """What it adds and reaches for, by what it is called on the page."""
    told = {kind: list(seen.adds.get(kind, {})) for kind in KINDS}
    told["tools"] = _merged(told["tools"], found.manifest.provides_tools)
    told["hooks"] = _merged(told["hooks"], found.manifest.provides_hooks)
    told["commands"] = [f"/{name}" for name in told["commands"]]
    told["programs"] = [f"alipes {name}" for name in told["programs"]]
    for power, name in POWERS.items():
        told[name] = [_shown(what, places) for what, places in seen.powers.get(power, {}).items()]
    return {name: items for name, items in told.items() if items}


def page(fetched: Fetched, source: Source, variables: Variables, news: Iterable[Row] = ()) -> Iterator[Row]:
    """All that is known of it before it may run; `news`: how it differs from the version in use."""
    seen = look_into(fetched.folder, fetched.packages)
    found, about = fetched.found, fetched.found.manifest
    by = f", by {about.author}" if about.author else ""
    yield "", f"{found.name} {about.version}{by}"
    if about.description:
        yield "", about.description
    yield "", ""
    exact = f" ({fetched.exact})" if fetched.exact else ""
    count, size = measure(fetched.folder)
    yield "from", f"{source.kind} {source}{exact}"
    yield "is", f"{DOORS[found.kind]}; {count} file{'s' * (count != 1)}, {render.size(size)}"
    if fetched.packages[1:]:
        yield "brings", ", ".join(f"{each.name} {each.version}" for each in fetched.packages[1:])
    for name, items in abilities(found, seen).items():
        yield name, ", ".join(items)
    yield from _asks(found, seen, variables)
    if missing := lacking(fetched.folder, seen):
        yield "lacks", f"{_listed(missing)}: without that it cannot be imported"
    for name in seen.unread:
        yield "unread", name
    for remark in seen.outside:
        yield "outside", f"{remark.place} {remark.says}"
    yield from news
    yield "", ""
    yield (
        "",
        "Read from its code, which was not run. Enabled, it runs inside alipes and can do all that you can.",
    )


def differences(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Iterator[Row]:
    """What a new version can do that the old one could not; places in the code do not count."""
    for name, items in after.items():
        known = {item.partition(" (")[0] for item in before.get(name, ())}
        if new := [item for item in items if item.partition(" (")[0] not in known]:
            yield "new", f"{name}: {', '.join(new)}"


def lacking(folder: Path, seen: Survey) -> dict[str, str]:
    """Modules that it needs and that are not here, and where it imports them."""
    site = folder / SITE
    own = {path.stem for place in (folder, site) if place.is_dir() for path in place.iterdir()}
    return {
        name: place
        for name, place in seen.imports.items()
        if name not in own and not is_original(name) and not _there(name)
    }


def unset(found: Found, variables: Variables) -> list[str]:
    """Variables that it cannot do without and that are not set."""
    return [name for name in found.manifest.requires_env if not variables.get(name)]


def _asks(found: Found, seen: Survey, variables: Variables) -> Iterator[Row]:
    needed = found.manifest.requires_env
    if needed:
        told = [name if variables.get(name) else f"{name} (not set)" for name in needed]
        yield "needs", ", ".join(told)
    if reads := [name for name in _merged(found.manifest.optional_env, seen.variables) if name not in needed]:
        yield "may read", ", ".join(reads)


def _shown(what: str, places: list[str]) -> str:
    if places == [what]:
        return what
    more = f" and {len(places) - _MOST} more" if len(places) > _MOST else ""
    return f"{what} ({', '.join(places[:_MOST])}{more})"


def _listed(missing: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({place})" for name, place in missing.items())


def _merged(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for each in names for name in each))


def _there(name: str) -> bool:
    if name in sys.stdlib_module_names:
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
