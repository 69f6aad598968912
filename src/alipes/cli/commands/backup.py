"""`alipes backup` and `alipes restore`: a whole home in one verified file."""

import asyncio
import os
import shutil
import time
from pathlib import Path

from msgspec import Struct

from alipes import __version__
from alipes.agent.transcript_repair import close_transcript
from alipes.config.loader import load_settings
from alipes.config.paths import PROFILES, Paths, all_homes, find_home, make_private, profile_name
from alipes.config.sections.cluster import without_password
from alipes.config.settings import Settings
from alipes.console import help_text
from alipes.console.options import OptionParser
from alipes.features.webhooks.store import WebhookStore
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_count, format_size
from alipes.store.backups import backup_archive
from alipes.store.ports.archive import StoreFacts
from alipes.store.ports.outbox import RESTORED_REASON
from alipes.store.sqlite.peers import open_processes
from alipes.store.sqlite.store import open_archive, open_store


def run_backup(argv: list[str]) -> int:
    parser = OptionParser("alipes backup", help_text.BACKUP)
    parser.add_argument("file")
    target = Path(parser.parse_args(argv).file).expanduser().absolute()
    if target.exists():
        raise ConfigError(f"{target} already exists; choose another name or move it away")
    settings = load_settings()
    if settings.store:
        raise ConfigError(
            "the conversations are in PostgreSQL: back them up with pg_dump, or copy them into a file with "
            "`alipes store move FILE` while alipes is stopped"
        )
    manifest = asyncio.run(_write(settings, target))
    size = f"{format_count(len(manifest.entries), 'file')}, {format_size(target.stat().st_size)}"
    print(f"Saved conversations, settings, plugins and files to {target} ({size}, verified).")
    print("  Keys (.env) and secrets of webhooks are not included. Restore it with `alipes restore`.")
    if settings.cluster.folder:
        print(f"  Memory, skills and files in {settings.cluster.folder} (cluster.folder) are not included.")
    home = find_home()
    if others := [profile_name(each) for each in all_homes(home) if each != home]:
        print(f"  This is the profile {profile_name(home)} only. Others, each with its own backup: {', '.join(others)}")
    return 0


async def _write(settings: Settings, target: Path) -> backup_archive.ArchiveManifest:
    async with open_archive(settings.home):  # creates or migrates the database, if that is possible
        return await backup_archive.pack_home(settings.home, target, version=__version__)


class RestoreOptions(Struct, frozen=True):
    file: Path
    home: Path
    dry: bool
    force: bool
    keep: bool


def run_restore(argv: list[str]) -> int:
    parser = OptionParser("alipes restore", help_text.RESTORE, {"continue": {"dest": "keep"}})
    parser.add_argument("file")
    args = parser.parse_args(argv)
    home = Path(args.to).expanduser().absolute() if args.to else find_home()
    options = RestoreOptions(Path(args.file).expanduser().absolute(), home, args.dry_run, args.force, args.keep)
    return asyncio.run(_restore(options))


async def _restore(options: RestoreOptions) -> int:
    manifest = await backup_archive.read_archive(options.file)
    if backup_archive.is_newer(manifest):
        raise ConfigError(f"{options.file} was written by a newer alipes ({manifest.version}); upgrade first")
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.made))
    print(f"{options.file} was made on {made} by alipes {manifest.version}, from {manifest.home}:")
    content = f"{format_count(len(manifest.entries), 'file')}, {format_size(manifest.size)}"
    print(f"  {content}, verified; contains no secrets")
    home = options.home  # it is in use if it has content that the user might miss
    occupied = home.is_dir() and any(each.name not in ("run", "logs") for each in home.iterdir())
    _refuse(options, occupied)
    if options.dry:
        aside = f"; the current home would be moved to {_moved_home(options.home)}" if occupied else ""
        print(f"  it would be restored to {options.home}{aside}. Nothing changed.")
        if occupied and (running := _describe_running(options.home)):
            print(f"  {running}: stop it before you restore.")
        return 0
    await _install_home(options, occupied)
    return 0


def _refuse(options: RestoreOptions, occupied: bool) -> None:
    if options.home.exists() and not options.home.is_dir():
        raise ConfigError(f"{options.home} is not a directory; choose another one with --to")
    if store := _server_of(options.home):
        raise ConfigError(
            f"the store of {options.home} is {store}, which `alipes restore` does not write: restore to an empty "
            "folder with --to, then copy it to an empty database with `alipes store move`; or use PostgreSQL's backups"
        )
    if not occupied:
        return
    if not options.force and not options.dry:
        raise ConfigError(f"{options.home} is in use: use --to HOME to restore elsewhere, or --force to move it aside")
    if not options.dry and (running := _describe_running(options.home)):
        raise ConfigError(f"{running}; stop it first")


def _describe_running(folder: Path) -> str:
    """A home that would be moved and in which alipes runs; empty if there is none."""
    for home in _moved_homes(folder):
        if Paths(home).run.is_dir() and (living := open_processes(home, timeout_s=1.0).list_peers()):
            return f"alipes is running on {home} ({format_count(len(living), 'process')})"
    return ""


def _server_of(home: Path) -> str:
    """The PostgreSQL store of a home, without its password; empty if there is none."""
    try:
        return without_password(load_settings(home).store)
    except ConfigError:
        return ""


def _moved_homes(home: Path) -> list[Path]:
    """The homes that are moved if `home` is: a default home contains its profiles."""
    return [home, *(each for each in all_homes(home) if each != home and home in each.parents)]


async def _install_home(options: RestoreOptions, occupied: bool) -> None:
    part = options.home.with_name(f".{options.home.name}.{os.urandom(4).hex()}.part")
    make_private(part)
    try:
        await backup_archive.read_archive(options.file, part)
        outcome = await _end_open_work(part, keep=options.keep)
        shutil.rmtree(part / "run", ignore_errors=True)
        if occupied:
            before, kept = _moved_home(options.home), Paths(options.home).env
            if kept.is_file():  # keys belong to the machine, not to the backup
                shutil.copy2(kept, part / kept.name)
            options.home.rename(before)  # keep these two together: a kill between them leaves no home
            part.rename(options.home)
            if (before / PROFILES).is_dir():  # the other profiles are not part of the backup
                (before / PROFILES).rename(options.home / PROFILES)
            print(f"  the old home was moved to {before}")
        else:
            if options.home.exists():
                shutil.rmtree(options.home)
            part.rename(options.home)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    facts = outcome.facts
    content = f"{format_count(facts.sessions, 'conversation')}, {format_count(facts.messages, 'message')}"
    print(f"Restored to {options.home}: {content}.")
    _print_notes(options, outcome)


class RestoreOutcome(Struct, frozen=True):
    """Content of the restored home, and the turns and messages that were ended."""

    facts: StoreFacts
    turns: int = 0
    messages: int = 0
    webhooks: tuple[str, ...] = ()
    """Names of webhooks; their secrets are not in the backup."""


async def _end_open_work(home: Path, *, keep: bool) -> RestoreOutcome:
    """End open turns and messages of the backup: they may have finished since it was made."""
    async with open_store(home) as store:
        webhooks = tuple(each.webhook.name for each in await store.tables(WebhookStore).all())
        if keep:
            return RestoreOutcome(await store.archive.facts(), webhooks=webhooks)
        turns = 0
        for key in await store.turns.list_orphans():
            while (turn := await store.turns.claim_next(key)) is not None:
                closing = close_transcript(turn.said, turn.tool_results, RESTORED_REASON)
                await store.turns.finish(turn, "failed", RESTORED_REASON, *closing)
                turns += 1
            await store.turns.release(key)
        return RestoreOutcome(await store.archive.facts(), turns, await store.outbox.fail_unsent(), webhooks)


def _print_notes(options: RestoreOptions, outcome: RestoreOutcome) -> None:
    """What the user should know before the first start."""
    if outcome.turns:
        print(f"  ended {format_count(outcome.turns, 'turn')} still running at backup time; use /retry")
    if outcome.messages:
        print(f"  {format_count(outcome.messages, 'unsent message')} marked failed; see `alipes serve outbox`")
    for name in outcome.webhooks:
        print(f"  webhook {name} needs a secret: run `alipes webhook secret {name}`")
    env = Paths(options.home).env
    if not env.is_file():
        print(f"  backups contain no keys: add them to {env}, or run `alipes setup`")
    try:
        load_settings(options.home)
    except ConfigError as error:
        print(f"  the settings need changes for this machine:\n{error}")


def _moved_home(home: Path) -> Path:
    return home.with_name(f"{home.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
