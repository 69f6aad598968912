"""What `alipes doctor` reports about the web: what searches it, and whether pages can be read."""

from alipes.config.settings import Settings
from alipes.config.urls import strip_credentials
from alipes.features.web_search.search_services import NAMES, choose_service
from alipes.kernel.checks import CheckResult
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> list[CheckResult]:
    web = settings.web
    chosen = choose_service(web, has_plugin=web.search == "plugin")
    if chosen.problem:
        found = [CheckResult("web", "wrong", chosen.problem, 'set it, or choose web.search = "auto"')]
    else:
        place = f" at {strip_credentials(web.searxng_url)}" if chosen.name == "searxng" else ""
        found = [CheckResult("web", "ok", f"searches with {NAMES[chosen.name]}{place}")]
    return found
