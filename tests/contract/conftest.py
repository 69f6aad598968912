"""The store that the contract suites of the ports use."""

from contextlib import suppress
from functools import partial

import pytest

from tests.world.postgres_server import postgres_server
from tests.world.stores import STORES


@pytest.fixture(scope="session", autouse=True)
def shared_postgres(request: pytest.FixtureRequest) -> None:
    """It starts before the first test, so that it does not count as left behind by the first one that uses it."""
    if any("[postgres" in item.name for item in request.session.items):
        with suppress(pytest.skip.Exception):  # each test that needs it is skipped
            postgres_server()


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Call it to open the store of one home; each call acts as another process."""
    return partial(STORES[request.param], tmp_path / "home")


@pytest.fixture
def opened_sqlite(tmp_path):
    """`opened` on SQLite only: for the sockets between its processes. The workers of a cluster have none."""
    return partial(STORES["sqlite"], tmp_path / "home")
