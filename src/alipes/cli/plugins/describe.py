"""Describes a plugin before its installation: its source and what it can do."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from alipes.config.environment import Variables
from alipes.console.common import DescriptionRow
from alipes.kernel.formatting import format_count, format_size
from alipes.plugins.discovery import DiscoveredPlugin
from alipes.plugins.install.code_check import missing_modules, scan_plugin
from alipes.plugins.install.fetch import FetchedPlugin
from alipes.plugins.install.install_dir import measure_tree
from alipes.plugins.install.packages import PackagePlan
from alipes.plugins.install.scan import POWER_LABELS, CodeScan
from alipes.plugins.install.sources import Source

KIND_LABELS = {
    "native": "a native plugin",
    "hermes": "a Hermes plugin",
    "file-hook": "a Hermes file hook",
    "shell-hooks": "shell hooks in config.toml",
}
ADDED_KINDS = ("tools", "hooks", "commands", "programs", "skills", "provides")
_MAX_PLACES = 3


def list_abilities(found: DiscoveredPlugin, seen: CodeScan) -> dict[str, list[str]]:
    """What the plugin adds and uses, by the label shown."""
    abilities = {kind: list(seen.adds.get(kind, {})) for kind in ADDED_KINDS}
    abilities["tools"] = _merge(abilities["tools"], found.manifest.provides_tools)
    abilities["hooks"] = _merge(abilities["hooks"], found.manifest.provides_hooks)
    abilities["commands"] = [f"/{name}" for name in abilities["commands"]]
    abilities["programs"] = [f"alipes {name}" for name in abilities["programs"]]
    for power, name in POWER_LABELS.items():
        abilities[name] = [_format_power(what, places) for what, places in seen.powers.get(power, {}).items()]
    return {name: items for name, items in abilities.items() if items}


def describe_plugin(
    fetched: FetchedPlugin, source: Source, variables: Variables, news: Iterable[DescriptionRow] = ()
) -> Iterator[DescriptionRow]:
    """The description of a plugin; `news`: what is new compared with the current version."""
    seen = scan_plugin(fetched.folder, fetched.packages)
    found, about = fetched.found, fetched.found.manifest
    by = f", by {about.author}" if about.author else ""
    yield "", f"{found.name} {about.version}{by}"
    if about.description:
        yield "", about.description
    yield "", ""
    exact = f" ({fetched.exact})" if fetched.exact else ""
    count, size = measure_tree(fetched.folder)
    yield "from", f"{source.kind} {source}{exact}"
    yield "is", f"{KIND_LABELS[found.kind]}; {format_count(count, 'file')}, {format_size(size)}"
    if fetched.packages[1:]:
        yield "brings", ", ".join(f"{each.name} {each.version}" for each in fetched.packages[1:])
    for name, items in list_abilities(found, seen).items():
        yield name, ", ".join(items)
    yield from _describe_variables(found, seen, variables)
    yield from _describe_packages(fetched.plan)
    if missing := {} if fetched.plan.missing else missing_modules(fetched.folder, seen):
        places = ", ".join(f"{name} ({place})" for name, place in missing.items())
        yield "missing", f"{places}: needed for its import"
    for name in seen.unread:
        yield "unreadable", name
    if seen.not_served:
        yield "not served", ", ".join(seen.not_served)
    for remark in seen.unsupported:
        yield "unsupported", f"{remark.place} {remark.says}"
    yield from news
    yield "", ""
    yield ("", "Read from its code, which did not run. An enabled plugin has all your permissions.")


def new_abilities(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Iterator[DescriptionRow]:
    """What the new version can do that the old one could not."""
    for name, items in after.items():
        known = {item.partition(" (")[0] for item in before.get(name, ())}
        if new := [item for item in items if item.partition(" (")[0] not in known]:
            yield "new", f"{name}: {', '.join(new)}"


def _describe_packages(plan: PackagePlan) -> Iterator[DescriptionRow]:
    if plan.missing:
        names = ", ".join(f"{each.name} {each.version}" for each in plan.installed)
        yield "packages", f"{names}: would be installed into its own folder"
    elif plan.error:
        names = ", ".join(each.text for each in plan.requirements.packages)
        yield "packages", f"{names}: {plan.error}"
    if plan.requirements.refused:
        refused = ", ".join(plan.requirements.refused)
        yield "ignored", f"{refused}: only packages with a name and a version are installed"


def _describe_variables(found: DiscoveredPlugin, seen: CodeScan, variables: Variables) -> Iterator[DescriptionRow]:
    needed = found.manifest.requires_env
    if needed:
        shown = [name if variables.get(name) else f"{name} (not set)" for name in needed]
        yield "needs", ", ".join(shown)
    if reads := [name for name in _merge(found.manifest.optional_env, seen.variables) if name not in needed]:
        yield "may read", ", ".join(reads)


def _format_power(what: str, places: list[str]) -> str:
    if places == [what]:
        return what
    more = f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
    return f"{what} ({', '.join(places[:_MAX_PLACES])}{more})"


def _merge(*names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(chain(*names)))
