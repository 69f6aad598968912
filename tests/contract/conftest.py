"""The server that tests share starts before the first of them, so that it does not count as left behind by one."""

import pytest

from tests.world.postgres_server import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def shared_postgres() -> PostgresServer:
    return postgres_server()


@pytest.fixture(autouse=True)
def postgres_if_needed(request: pytest.FixtureRequest) -> None:
    if "[postgres" in request.node.name:
        request.getfixturevalue("shared_postgres")
