"""What others may ask about the files of a store without opening it."""

from pathlib import Path

from alipes.store.database import files
from alipes.store.database.files import DATABASE_FILE


def store_exists(home: Path) -> bool:
    """True if the home has a store."""
    return (home / DATABASE_FILE).exists()


def is_store_writable(home: Path) -> bool:
    """False if the store exists and this user may not write to it."""
    return files.is_writable(home / DATABASE_FILE)


def find_store_loss(home: Path) -> str:
    """What is wrong if the store was here and is gone; else empty."""
    return files.find_loss(home / DATABASE_FILE)


def store_files(home: Path) -> tuple[Path, ...]:
    """The files of the store, which must be private; those that exist at times included."""
    return tuple(Path(f"{home / DATABASE_FILE}{suffix}") for suffix in ("", "-wal", "-shm"))
