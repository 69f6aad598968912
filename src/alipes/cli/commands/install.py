"""`alipes install`: lists the extras and installs their packages."""

import sys

from msgspec import Struct

from alipes.config import extras
from alipes.console import help_text
from alipes.console.common import print_list
from alipes.console.extras import install_extras
from alipes.console.options import OptionParser, print_config_errors
from alipes.kernel.formatting import did_you_mean, format_count


class ExtraState(Struct, frozen=True):
    name: str
    purpose: str
    installed: bool
    missing: tuple[str, ...]
    """Packages that would be installed."""
    megabytes: int
    """What they take on the disk."""


@print_config_errors
def run(argv: list[str]) -> int:
    parser = OptionParser("alipes install", help_text.INSTALL)
    args, named = parser.parse_with_words(argv)
    if not named:
        _print_extras(json=args.json)
        return 0
    try:
        wanted = tuple(dict.fromkeys(extras.expand(named)))
    except KeyError as unknown:
        name = str(unknown.args[0])
        hint = did_you_mean(name, extras.EXTRAS)
        sys.stderr.write(f"alipes install: there is no extra {name}.{hint} `alipes install` lists them.\n")
        return 2
    missing = {package for name in wanted for package in extras.list_missing(name)}
    if not missing:
        print(f"{', '.join(wanted)}: already installed.")
        return 0
    print(f"installing {format_count(len(missing), 'package')} ({extras.megabytes(missing)} MB): {', '.join(wanted)}")
    install_extras(wanted)
    print("done.")
    return 0


def _print_extras(*, json: bool) -> None:
    found = []
    for name, extra in extras.EXTRAS.items():
        missing = () if extras.is_installed(name) else extras.list_missing(name)
        found.append(ExtraState(name, extra.purpose, not missing, missing, extras.megabytes(missing) if missing else 0))
    rows = [
        (each.name, "installed" if each.installed else f"{each.megabytes} MB", each.purpose)
        for each in sorted(found, key=lambda each: not each.installed)
    ]
    if print_list(found, ("EXTRA", "SIZE", "FOR"), rows, json=json):
        print("Install with `alipes install NAME`.")
