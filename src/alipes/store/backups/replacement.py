"""Replaces the database of a home that no process uses by another file, and keeps the present one."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from alipes.config.paths import sync_to_disk
from alipes.kernel.errors import StoreError
from alipes.store.backups.backup import CancelFlag, copy_database, run_in_thread, write_atomically
from alipes.store.sqlite.files import DATABASE_FILE
from alipes.store.sqlite.peers import open_processes


def list_processes(home: Path) -> list[int]:
    """The processes that use the database of this home."""
    return [each.pid for each in open_processes(home, timeout_s=1.0).list_peers()] if (home / "run").is_dir() else []


async def replace_database(home: Path, new: Path, kept: Path) -> None:
    """Move `new` to the place of the database, which is copied to `kept` before. Raises `StoreError`; then nothing
    changed.

    A kill in between leaves one of the two, whole.
    """
    if living := list_processes(home):
        raise StoreError(f"alipes is running on {home} (process {living[0]}); stop it first")

    def work(flag: CancelFlag) -> None:
        database = home / DATABASE_FILE
        with write_atomically(kept) as part:
            copy_database(database, part, flag)
        _keep_secrets(kept, new)
        try:
            with closing(sqlite3.connect(database, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = DELETE")  # moves the log into the file and removes it
            sync_to_disk(new)
            os.replace(new, database)
            sync_to_disk(home)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"could not replace {database}: {error}") from error

    await run_in_thread(work)


def _keep_secrets(now: Path, new: Path) -> None:
    """Copy the secrets of webhooks, which no backup contains."""
    try:
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute("ATTACH ? AS present", (str(now),))
            db.execute(
                "UPDATE webhooks SET secret = coalesce("
                "(SELECT secret FROM present.webhooks AS other WHERE other.name = webhooks.name), secret)"
            )
    except sqlite3.Error as error:
        raise StoreError(f"could not copy the secrets of webhooks into {new}: {error}") from error
