"""`alipes backup`: all conversations into one file, checked, while everything runs."""

import asyncio
from pathlib import Path

from alipes.cli import arguments, render
from alipes.config.settings import Settings, load
from alipes.kernel.errors import ConfigError
from alipes.store.opening import open_store


def run(argv: list[str]) -> int:
    target = Path(arguments.backup(argv)).expanduser().absolute()
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name or move it away")
    asyncio.run(_write(load(), target))
    print(f"{target} holds all conversations ({render.size(target.stat().st_size)}, checked)")
    return 0


async def _write(settings: Settings, target: Path) -> None:
    async with open_store(settings.home) as store:
        await store.archive.backup(target)
