"""The store that the contract suites of the ports use."""

from contextlib import suppress
from functools import partial

import pytest

from tests.world.postgres_server import PostgresServer, postgres_server
from tests.world.stores import STORES


@pytest.fixture(scope="session", autouse=True)
def shared_postgres(request: pytest.FixtureRequest) -> PostgresServer | None:
    """It starts before the first test, so that it does not count as left behind by one that uses it. Without
    PostgreSQL only the tests that use it are skipped."""
    with suppress(pytest.skip.Exception):
        if any("[postgres" in item.name for item in request.session.items):
            return postgres_server()
    return None


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Call it to open the store of one home; each call acts as another process."""
    return partial(STORES[request.param], tmp_path / "home")
