"""The store that the contract suites of the ports use."""

from functools import partial

import pytest

from tests.world.postgres_server import PostgresServer, postgres_server
from tests.world.stores import STORES


@pytest.fixture(scope="session")
def shared_postgres() -> PostgresServer:
    """It starts before the first test that uses it, so that it does not count as left behind by that one."""
    return postgres_server()


@pytest.fixture(autouse=True)
def postgres_if_needed(request: pytest.FixtureRequest) -> None:
    if "[postgres" in request.node.name:
        request.getfixturevalue("shared_postgres")


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Call it to open the store of one home; each call acts as another process."""
    return partial(STORES[request.param], tmp_path / "home")
