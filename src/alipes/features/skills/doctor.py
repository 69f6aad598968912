"""What `alipes doctor` reports about skills."""

import os
from collections.abc import Iterator

from alipes.config.settings import Settings
from alipes.features.skills.catalog import make_skill_catalog, usable
from alipes.kernel.checks import CheckResult
from alipes.kernel.formatting import format_count
from alipes.store.sql.store import Store


async def check(settings: Settings, _store: Store | None) -> tuple[CheckResult, ...]:
    return tuple(_check_skills(settings))


def _check_skills(settings: Settings) -> Iterator[CheckResult]:
    """Skills of the home and of this folder; those of plugins are checked with their plugins."""
    listed = make_skill_catalog(settings).load(settings.workdir or os.getcwd())
    if listed:
        on = len(usable(listed))
        yield CheckResult("skills", "ok", f"{on} of {format_count(len(listed), 'skill')} can be used")
    for each in listed:
        if each.state in ("broken", "new", "changed"):
            yield CheckResult("skills", "note", f"{each.name}: {each.reason}")
