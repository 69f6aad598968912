"""What `alipes doctor` reports about other agents. None is started."""

from collections.abc import Iterator

from alipes.config.extras import explain_missing, is_installed
from alipes.config.settings import Settings
from alipes.features.agents.launch import find_command
from alipes.kernel.checks import CheckResult
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    return tuple(_check(settings))


def _check(settings: Settings) -> Iterator[CheckResult]:
    if settings.agents and not is_installed("acp"):
        yield CheckResult("agents", "wrong", explain_missing("acp"))
    for name, config in settings.agents.items():
        command = find_command(name, config)
        if not command.program:
            yield CheckResult("agents", "wrong", f"{name} has no command", f"set agents.{name}.command")
        elif not command.path:
            fix = command.preset.install or f"correct agents.{name}.command"
            yield CheckResult("agents", "wrong", f"{name}: the program {command.program} was not found", fix)
        else:
            yield CheckResult("agents", "ok", f"{name}: {command.path}")
