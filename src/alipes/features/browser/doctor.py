"""What `alipes doctor` reports about the browser: whether what its tools need is there."""

from alipes.config.environment import process_environment
from alipes.config.settings import Settings
from alipes.features.browser.chromium import find_chromium, find_obstacle, uses_sandbox
from alipes.kernel.checks import CheckResult
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    return (_check(settings),) if settings.browser.enabled else ()


def _check(settings: Settings) -> CheckResult:
    config, environ = settings.browser, process_environment()
    if why := find_obstacle(config, environ):
        return CheckResult("browser", "wrong", why)
    program = find_chromium(config, environ)
    if uses_sandbox(config):
        return CheckResult("browser", "ok", program)
    says = f"{program}, without its own sandbox: a page with an exploit gets the rights of this user"
    advice = "run alipes as another user than root" if config.sandbox == "auto" else "set browser.sandbox = auto"
    return CheckResult("browser", "note", says, advice)
