"""What `alipes doctor` reports about other agents. None is started."""

import os
import shutil
from collections.abc import Iterator

from alipes.config.extras import explain_missing, is_installed
from alipes.config.settings import Settings
from alipes.features.agents.presets import PRESETS
from alipes.kernel.checks import CheckResult
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    return tuple(_check(settings))


def _check(settings: Settings) -> Iterator[CheckResult]:
    if settings.agents and not is_installed("acp"):
        yield CheckResult("agents", "wrong", explain_missing("acp"))
    for name, config in settings.agents.items():
        preset = PRESETS.get(name)
        command = os.path.expanduser(config.command or (preset.command if preset else ""))
        if not command:
            yield CheckResult("agents", "wrong", f"{name} has no command", f"set agents.{name}.command")
        elif shutil.which(command) is None:
            fix = preset.install if preset and not config.command else f"correct agents.{name}.command"
            yield CheckResult("agents", "wrong", f"{name}: the program {command} was not found", fix)
        else:
            yield CheckResult("agents", "ok", f"{name}: {command}")
