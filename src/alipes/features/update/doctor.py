"""What `alipes doctor` reports about the installation and its versions."""

from alipes import __version__
from alipes.config.settings import Settings
from alipes.features.update.installation import find_installation
from alipes.features.update.versions import Versions
from alipes.kernel.checks import CheckResult
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    versions = Versions(settings.home)
    installation = find_installation(versions.folder)
    says = f"{__version__}, {installation.describe()}"
    names, current = [each.name for each in versions.list()], versions.current()
    if len(names) > 1:
        says += f"; installed: {', '.join(names)}"
    found = CheckResult("version", "ok", says)
    if current and current != installation.prefix.name:
        advice = f"start {versions.launcher}, or run `alipes update --back`"
        return (found, CheckResult("version", "note", f"this is not the current version ({current})", advice))
    return (found,)
