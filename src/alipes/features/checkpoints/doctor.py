"""What `alipes doctor` reports about checkpoints."""

import asyncio

from alipes.config.settings import Settings
from alipes.features.checkpoints.git import find_git
from alipes.features.checkpoints.prune import list_stored_folders
from alipes.kernel.checks import CheckResult
from alipes.kernel.formatting import format_count, format_size
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    """The size of the checkpoint store, or why there are no checkpoints."""
    return (await asyncio.to_thread(_check, settings),)


def _check(settings: Settings) -> CheckResult:
    if not settings.checkpoints.enabled:
        return CheckResult("checkpoints", "note", "off (checkpoints.enabled = false)")
    if not find_git():
        return CheckResult("checkpoints", "note", "off: git is not installed", "install git (apt install git)")
    stored = list_stored_folders(settings.paths.checkpoints)
    limit = format_size(settings.checkpoints.max_mb << 20)
    if not stored:
        return CheckResult("checkpoints", "ok", f"none yet (limit {limit})")
    count = format_count(sum(each.checkpoints for each in stored), "checkpoint")
    folders, size = format_count(len(stored), "folder"), format_size(sum(each.size for each in stored))
    return CheckResult("checkpoints", "ok", f"{count} of {folders}, {size} (limit {limit})")
