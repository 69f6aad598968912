"""`alipes update`: installs another version, or goes back."""

import argparse
import asyncio
import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path

from alipes import __version__
from alipes.config.loader import load_settings
from alipes.console.common import confirm, print_json
from alipes.console.options import OptionParser
from alipes.features.update.help import UPDATE
from alipes.features.update.update import Updater, UpdateResult

NEWER = 1
"""Exit status of --check if there is a newer version."""


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes update", UPDATE, {"channel": {"choices": ("stable", "next"), "default": None}})
    args = parser.parse_args(argv)
    if args.restore and not args.back:
        parser.error("--restore goes with --back")
    if sum(map(bool, (args.check, args.back, args.notes, args.to))) > 1:
        parser.error("use one of --check, --to, --back and --notes")
    if args.notes:
        print(read_notes(__version__))
        return 0
    updater = Updater(load_settings(), _show, source=args.source or "", channel=args.channel)
    if args.check:
        given = (("--channel", args.channel), ("--source", args.source))
        options = [word for option in given if option[1] for word in option]
        return asyncio.run(_check(updater, shlex.join(("alipes", "update", *options)), json=args.json))
    updater.refuse_image()
    if not args.yes:
        question = "Go back to the version before the last update?" if args.back else "Install another version?"
        if not confirm(question, "update"):
            return 0
    return _print(asyncio.run(_change(updater, args)), args)


async def _change(updater: Updater, args: argparse.Namespace) -> UpdateResult:
    return await (updater.back(restore=args.restore) if args.back else updater.update(args.to or ""))


def _show(step: str) -> None:
    sys.stderr.write(f"  {step}\n")
    sys.stderr.flush()


async def _check(updater: Updater, again: str, *, json: bool) -> int:
    """`again`: the command that installs it."""
    found = await updater.check()
    if json:
        print_json(found)
    elif found.newer:
        print(f"alipes {found.newest} is available in {found.source}; you have {found.version}. Install: {again}")
    else:
        print(f"alipes {found.version} is up to date ({found.source}).")
    return NEWER if found.newer else 0


def _print(result: UpdateResult, args: argparse.Namespace) -> int:
    if args.json:
        print_json(result)
        return 0
    if result.before == result.after:
        print(f"alipes {result.after} is installed already; nothing changed.")
        return 0
    print(f"alipes is now {result.after} (before: {result.before}).")
    if result.backup:
        print(f"  Your home as it was before: {result.backup}")
    for step in result.next_steps:
        print(f"  {step}")
    if result.way_back:
        print(f"  What is new: alipes update --notes. To go back: {result.way_back}")
    return 0


def read_notes(version: str) -> str:
    """The section of the change log about a version; of its base, if it is before a release."""
    text = _read_changelog()
    base = re.match(r"[\d.]+", version)
    found = re.search(rf"^## {re.escape(base[0] if base else version)}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0].strip() if found else f"There are no release notes of alipes {version}."


def _read_changelog() -> str:
    """It is in the package; in a checkout beside it."""
    inside = Path(str(files("alipes") / "CHANGELOG.md"))
    beside = inside.parents[2] / inside.name
    return next((each.read_text() for each in (inside, beside) if each.is_file()), "")
