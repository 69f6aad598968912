"""`alipes import`: shows the plan, imports, checks and takes back."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from alipes.config.loader import load_settings
from alipes.config.paths import current_environ
from alipes.config.paths import find_home as find_own_home
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.common import confirm, print_json, print_list
from alipes.console.options import OptionParser
from alipes.console.stdio import is_terminal
from alipes.features.importer.copies import lock_imports, open_copies
from alipes.features.importer.databases import copy_database
from alipes.features.importer.formats import SourceError
from alipes.features.importer.help import IMPORT
from alipes.features.importer.importer import (
    Importer,
    ImportResult,
    check_import,
    find_folder,
    make_context,
    undo_import,
)
from alipes.features.importer.plan import ConflictChoice, Plan, format_plan
from alipes.features.importer.reader import READERS, HomeReader, find_home, load_reader
from alipes.features.importer.records import KINDS, Kind
from alipes.features.importer.report import mark_undone, next_steps, sum_results, write_report
from alipes.features.importer.source_home import SourceHome
from alipes.features.importer.store.ledger import LedgerStore
from alipes.features.importer.targets.target import ImportOptions
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_ago, format_excerpt
from alipes.store.open import open_home_store
from alipes.store.sql.store import Store

DATABASE = "alipes.db"
CONFLICTS = ("keep", "replace", "both")
_PAGE = IMPORT.format(
    programs="\n".join(f"  {name}" for name in READERS),
    kinds=", ".join(KINDS[:7]) + ",\n                        " + ", ".join(KINDS[7:]),
)


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes import", _PAGE, {"conflict": {"choices": CONFLICTS, "default": "keep"}})
    args, words = parser.parse_with_words(argv)
    action, *rest = words or [""]
    actions: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {"list": _list, "check": _check, "undo": _undo}
    if action in actions:
        if len(rest) != (0 if action == "list" else 1):
            parser.error(f"{action} takes {'no words' if action == 'list' else 'the id of an import'}")
        return asyncio.run(actions[action](_own_settings(args), args, *rest))
    if action not in READERS or len(rest) > 1:
        known = (*READERS, *actions)
        parser.error(f"give a program to import from: {', '.join(READERS)}.{did_you_mean(action, known)}")
    path = Path(rest[0]).expanduser() if rest else None
    try:
        return asyncio.run(_import(args, action, path, _choose_kinds(args, parser)))
    except SourceError as error:
        raise ConfigError(f"{error}.") from error


def _own_settings(args: argparse.Namespace) -> Settings:
    return load_settings(Path(args.into).expanduser().absolute() if args.into else None)


def _choose_kinds(args: argparse.Namespace, parser: OptionParser) -> tuple[Kind, ...]:
    only, skip = _split(args.only), _split(args.skip)
    for name in (*only, *skip):
        if name not in KINDS:
            parser.error(f"unknown kind {name!r}.{did_you_mean(name, KINDS)} There is {', '.join(KINDS)}.")
    return tuple(kind for kind in KINDS if (not only or kind in only) and kind not in skip)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


async def _import(args: argparse.Namespace, program: str, path: Path | None, kinds: Collection[Kind]) -> int:
    settings, home = _own_settings(args), _find(program, path)
    options = _read_options(args)
    with open_copies() as copies, nullcontext() if args.dry_run else lock_imports(settings):
        reader = _open_reader(args, program, home, copies)
        async with _open_store(settings, copies, writes=not args.dry_run) as store:
            progress = Progress(quiet=args.json)
            plan = await Importer(settings, store, reader, options, kinds).plan(progress, secrets=args.secrets)
            progress.clear()
            if not args.json:
                print("\n".join(map(render.sanitize, format_plan(plan, verbose=args.verbose))))
            _check_owner(plan, options)
            if args.dry_run or not plan.has_work:
                if args.json:
                    print_json({"plan": plan, "sums": plan.sums()})
                elif not plan.has_work:
                    print("\nThere is nothing new to import.")
                return 0
            if not args.yes:
                options = _ask_owner(plan, options)
                if not confirm("\nImport this?", "import"):
                    return 0
            importer = Importer(settings, store, reader, options, kinds)
            try:
                result = await importer.apply(plan, progress)
            except asyncio.CancelledError:
                progress.clear()
                sys.stderr.write("Stopped. Run the same command again to continue, or undo it: alipes import list\n")
                raise
            progress.clear()
    return _show(settings, result, args)


def _show(settings: Settings, result: ImportResult, args: argparse.Namespace) -> int:
    page = write_report(find_folder(settings, result.id), result) if result.id else None
    problems = [each for each in result.results if each.problem]
    if args.json:
        print_json(
            {"id": result.id, "sums": sum_results(result), "next": next_steps(result), "report": str(page or "")}
        )
    else:
        print()
        for kind, counts in sum_results(result).items():
            if done := counts.get("imported", 0):
                print(f"  {kind:14}{done:>8,} imported")
        for each in problems[:20]:
            what = format_excerpt(each.item.what, 80)[1:-1]
            print(render.sanitize(f"  not imported: {each.item.kind}: {what}: {each.problem}"))
        for line in result.differences[:20]:
            print(render.sanitize(f"  differs: {line}"))
        for line in result.plugins[:20]:
            print(render.sanitize(f"  plugin {line}"))
        print(f"\nReport: {page}\nTo take it back: alipes import undo {result.id}" if page else "Nothing was imported.")
        for step in next_steps(result):
            print(f"  {step}")
    return 1 if problems or result.differences else 0


def _find(program: str, path: Path | None) -> Path:
    """The home to read. Raises ConfigError."""
    reader = load_reader(program)
    if path is None:
        found = find_home(program, current_environ(), Path.home())
        if found is None:
            places = ", ".join(str(place) for place in reader.places(current_environ(), Path.home()))
            raise ConfigError(f"No home of {reader.title} was found ({places}): give its path.")
        return found
    if not path.is_dir():
        raise ConfigError(f"There is no folder {path}: give the path of a home of {reader.title}.")
    if path.resolve() == find_own_home().resolve():
        raise ConfigError(f"{path} is your home of alipes itself.")
    if not reader.recognises(path):
        others = [name for name in READERS if name != program and load_reader(name).recognises(path)]
        hint = f" It looks like one of {others[0]}: alipes import {others[0]} {path}" if others else ""
        raise ConfigError(f"{path} is no home of {reader.title}.{hint}")
    return path


def _open_reader(args: argparse.Namespace, program: str, path: Path, copies: Path) -> HomeReader:
    kind, home = load_reader(program), SourceHome(path, copies)
    given = {"profile": args.profile, "agent": args.agent}
    wrong = [name for name, value in given.items() if value and name != kind.part]
    if wrong:
        raise ConfigError(f"{kind.title} has no {wrong[0]}s: leave out --{wrong[0]}.")
    part = given.get(kind.part, "")
    if part and part not in (known := kind(home).list_parts()):
        listed = ", ".join(known) or "none"
        raise ConfigError(f"There is no {kind.part} {part!r} in {path}.{did_you_mean(part, known)} There is {listed}.")
    return kind(home, part)


def _read_options(args: argparse.Namespace) -> ImportOptions:
    since = 0.0
    if args.since:
        try:
            since = datetime.fromisoformat(args.since).astimezone().timestamp()
        except ValueError as error:
            raise ConfigError(f"--since {args.since} is no date: write it as 2026-01-31.") from error
    platform, _, person = args.owner.partition(":")
    if args.owner and not person:
        raise ConfigError(f"--owner {args.owner}: name the platform too, as in telegram:1001.")
    conflicts = cast("ConflictChoice", args.conflict)
    return ImportOptions(conflicts=conflicts, since=since, start=args.start, owner=(platform, person))


def _check_owner(plan: Plan, options: ImportOptions) -> None:
    """Raises ConfigError if the owner that was given is nobody who is known there."""
    platform, person = options.owner
    people = [item.target for item in plan.items if item.kind == "people" and item.target]
    if person and people and (wanted := f"{platform}:{person}") not in people:
        raise ConfigError(f"--owner {wanted}: they are not among the people there: {', '.join(people[:20])}.")


def _ask_owner(plan: Plan, options: ImportOptions) -> ImportOptions:
    """Who of the new people is the person at this terminal."""
    people = [item for item in plan.items if item.kind == "people" and item.state == "new"]
    if options.owner[1] or not people or not is_terminal(sys.stdin):
        return options
    sys.stderr.write("\nWhich of them is you? Owners may approve others and use your notes.\n")
    for number, item in enumerate(people, 1):
        sys.stderr.write(f"  {number}  {render.sanitize(item.target)}\n")
    sys.stderr.write("Number (Enter: none): ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if not answer.isdecimal() or not 0 < int(answer) <= len(people):
        return options
    platform, _, person = people[int(answer) - 1].target.partition(":")
    return structs.replace(options, owner=(platform, person))


@asynccontextmanager
async def _open_store(settings: Settings, copies: Path, *, writes: bool) -> AsyncIterator[Store]:
    """The store of the home; to plan only, a copy, so that not even an old schema is migrated."""
    if not writes and not settings.store:
        home = copies / "home"
        home.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            own = settings.home / DATABASE
            own.stat()
            copy = await asyncio.to_thread(copy_database, own, home, str(own))
            for path in list(home.glob(f"{copy.name}*")):
                path.rename(home / path.name.replace(copy.name, DATABASE))
        settings = structs.replace(settings, home=home)
    async with open_home_store(settings) as store:
        yield store


async def _list(settings: Settings, args: argparse.Namespace) -> int:
    async with open_home_store(settings) as store:
        found = await store.tables(LedgerStore).list()
    rows = [(each.id, each.scope, format_ago(each.started), "" if each.finished else "broken off") for each in found]
    print_list(found, ("id", "from", "when", ""), rows, json=args.json, empty="Nothing was imported.")
    return 0


async def _check(settings: Settings, args: argparse.Namespace, id: str) -> int:
    async with open_home_store(settings) as store:
        scope = await _find_scope(store, id)
        lines = [line async for line in check_import(make_context(settings, store, id, scope), id)]
        count = len(await store.tables(LedgerStore).of_import(id))
    if args.json:
        print_json({"id": id, "items": count, "differences": lines})
    else:
        print("\n".join(map(render.sanitize, lines)) or f"All {count:,} things are as they were imported.")
    return 1 if lines else 0


async def _undo(settings: Settings, args: argparse.Namespace, id: str) -> int:
    async with open_home_store(settings) as store:
        await _find_scope(store, id)
        if not args.yes and not confirm(f"Take back everything that {id} imported?", "undo"):
            return 0
        with lock_imports(settings):
            result = await undo_import(settings, store, id)
    mark_undone(find_folder(settings, id), result.kept)
    if args.json:
        print_json(result)
        return 0
    for kind, count in result.removed.items():
        print(f"  {kind:14}{count:>8,} taken back")
    _print_kept(result.kept)
    return 0


def _print_kept(kept: Iterable[str]) -> None:
    for line in kept:
        print(render.sanitize(f"  kept: {line}"))


async def _find_scope(store: Store, id: str) -> str:
    found = {each.id: each.scope for each in await store.tables(LedgerStore).list()}
    if id not in found:
        raise ConfigError(f"There is no import {id!r}.{did_you_mean(id, found)} `alipes import list` lists them.")
    return found[id]


class Progress:
    """A line that is written again and again while it runs, on a terminal only."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and is_terminal(sys.stderr)

    def __call__(self, kind: str, done: int, total: int) -> None:
        if self._shown and (done % 20 == 0 or done == total):
            of = f" of {total:,}" if total else ""
            sys.stderr.write(f"\r  {kind}: {done:,}{of:<40}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write(f"\r{'':<60}\r")
