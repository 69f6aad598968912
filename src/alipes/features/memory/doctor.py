"""What `alipes doctor` reports about the memory."""

from alipes.config.settings import Settings
from alipes.features.memory.change import OWNER
from alipes.features.memory.files import FILE_NAMES, MemoryFiles
from alipes.kernel.checks import CheckResult
from alipes.kernel.errors import ToolError
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    return (_check_memory(settings),)


def _check_memory(settings: Settings) -> CheckResult:
    """How full the owner's notes are."""
    if not settings.memory.enabled:
        return CheckResult("memory", "ok", "off (memory.enabled)")
    files, limits = MemoryFiles(settings.paths.memory, settings.paths.memory_lock), settings.memory
    try:
        sizes = {name: len(files.read(OWNER, target)) for target, name in FILE_NAMES.items()}
    except ToolError as error:
        return CheckResult("memory", "wrong", str(error))
    bounds = {FILE_NAMES["memory"]: limits.limit, FILE_NAMES["user"]: limits.user_limit}
    says = ", ".join(f"{name} {size:,} of {bounds[name]:,} characters" for name, size in sizes.items())
    if any(size > bounds[name] for name, size in sizes.items()):
        return CheckResult("memory", "note", says, "a longer file is cut in prompts: shorten it with /memory")
    return CheckResult("memory", "ok", says)
