"""`alipes backup`: a whole home in one file, checked, while everything runs."""

import asyncio
from pathlib import Path

from alipes import __version__
from alipes.cli import options, render
from alipes.config.settings import Settings, load
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import count
from alipes.store import backup_archive
from alipes.store.database.migrations import SCHEMA
from alipes.store.store import open_store


def run(argv: list[str]) -> int:
    target = Path(options.backup(argv)).expanduser().absolute()
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name or move it away")
    table = asyncio.run(_write(load(), target))
    told = f"{count(len(table.entries), 'file')}, {render.size(target.stat().st_size)}, checked"
    print(f"{target} holds conversations, settings, plugins and files ({told}).")
    print("  Keys are not in it: .env stays where it is. `alipes restore` brings it back.")
    return 0


async def _write(settings: Settings, target: Path) -> backup_archive.Table:
    async with open_store(settings.home):  # it is there, and of our schema
        return await backup_archive.pack(settings.home, target, version=__version__, schema=SCHEMA)
