"""`alipes restore`: a home from a backup, checked first; what was there before is moved aside, never lost."""

import asyncio
import os
import shutil
import time
from pathlib import Path

from msgspec import Struct

from alipes.agent.transcript_repair import close
from alipes.cli import help_text, render
from alipes.cli.options import Words
from alipes.config.paths import Paths, find_home, make_private
from alipes.config.settings import load
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import count
from alipes.store import backup_archive
from alipes.store.database.migrations import SCHEMA
from alipes.store.export import StoreFacts
from alipes.store.outbox import WHY, give_up
from alipes.store.peers.peers import open_hosts
from alipes.store.store import open_store


class Wish(Struct, frozen=True):
    file: Path
    home: Path
    dry: bool
    force: bool
    keep: bool


def run(argv: list[str]) -> int:
    words = Words("alipes restore", help_text.RESTORE)
    words.add_argument("file")
    words.add_argument("--to", default="")
    words.add_argument("--dry-run", action="store_true")
    words.add_argument("--force", action="store_true")
    words.add_argument("--continue", dest="keep", action="store_true")
    given = words.parse_args(argv)
    home = Path(given.to).expanduser().absolute() if given.to else find_home()
    wish = Wish(Path(given.file).expanduser().absolute(), home, given.dry_run, given.force, given.keep)
    return asyncio.run(_restore(wish))


async def _restore(wish: Wish) -> int:
    table = await backup_archive.look(wish.file)
    if table.schema > SCHEMA:
        raise ConfigError(f"{wish.file} was written by a newer alipes ({table.version}); upgrade first")
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(table.made))
    print(f"{wish.file} was made on {made} by alipes {table.version}, from {table.home}:")
    told = f"{count(len(table.entries), 'file')}, {render.size(table.size)}"
    print(f"  {told}, every byte checked; no secrets are in it")
    taken = _taken(wish.home)
    _refuse(wish, taken)
    if wish.dry:
        aside = f"; what is there now would be moved to {_aside(wish.home)}" if taken else ""
        print(f"  it would be restored to {wish.home}{aside}. Nothing was changed.")
        return 0
    await _put(wish, taken)
    return 0


def _taken(home: Path) -> bool:
    """Is something there that a person might miss?"""
    return home.is_dir() and any(each.name not in ("run", "logs") for each in home.iterdir())


def _refuse(wish: Wish, taken: bool) -> None:
    if wish.home.exists() and not wish.home.is_dir():
        raise ConfigError(f"{wish.home} is no folder; name another with --to")
    if not taken:
        return
    if not wish.force and not wish.dry:
        raise ConfigError(
            f"{wish.home} is in use: restore elsewhere with --to HOME, or say --force to move it aside"
        )
    if living := open_hosts(wish.home, within=1.0).others():
        raise ConfigError(f"alipes runs on {wish.home} ({count(len(living), 'process')}); end it first")


async def _put(wish: Wish, taken: bool) -> None:
    part = wish.home.with_name(f".{wish.home.name}.{os.urandom(4).hex()}.part")
    make_private(part)
    try:
        await backup_archive.unpack(wish.file, part)
        settled = await _settle(part, keep=wish.keep)
        shutil.rmtree(part / "run", ignore_errors=True)
        if taken:
            before, kept = _aside(wish.home), Paths(wish.home).env
            if kept.is_file():  # keys belong to the machine, not to the backup
                shutil.copy2(kept, part / kept.name)
            wish.home.rename(before)  # nothing between this and the next: killed there, no home is left
            part.rename(wish.home)
            print(f"  what was there is in {before} now")
        else:
            if wish.home.exists():
                shutil.rmtree(wish.home)
            part.rename(wish.home)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    facts = settled.facts
    told = f"{count(facts.sessions, 'conversation')}, {count(facts.messages, 'message')}"
    print(f"Restored to {wish.home}: {told}.")
    _tell(wish, settled)


class Settled(Struct, frozen=True):
    """What the restored home has, and what it had under way."""

    facts: StoreFacts
    turns: int = 0
    debts: int = 0


async def _settle(home: Path, *, keep: bool) -> Settled:
    """Bring it to rest: what was under way when the backup was made may have been done since."""
    async with open_store(home) as store:
        if keep:
            return Settled(await store.archive.facts())
        turns = 0
        for key in await store.turns.orphans():
            while (turn := await store.turns.next_turn(key)) is not None:
                closing = close(turn.said, turn.acts, WHY)
                await store.turns.finish(turn, "failed", WHY, *closing)
                turns += 1
            await store.turns.release(key)
        return Settled(await store.archive.facts(), turns, await give_up(store.database))


def _tell(wish: Wish, settled: Settled) -> None:
    """What a person should know before the first start."""
    if settled.turns:
        print(f"  over now, though under way then: {count(settled.turns, 'turn')}; /retry asks one again")
    if settled.debts:
        print(f"  not sent then, and given up: {count(settled.debts, 'message')}; see `alipes serve outbox`")
    env = Paths(wish.home).env
    if not env.is_file():
        print(f"  keys are not in a backup: put them into {env}, or run `alipes setup`")
    try:
        load(wish.home)
    except ConfigError as error:
        print(f"  the settings do not fit this machine yet:\n{error}")


def _aside(home: Path) -> Path:
    return home.with_name(f"{home.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
