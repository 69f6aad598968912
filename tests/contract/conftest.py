"""The server that tests share starts before the first of them, so that it does not count as left behind by one."""

import pytest

from tests.world.postgres_server import postgres_server


@pytest.fixture(scope="session", autouse=True)
def shared_postgres(request: pytest.FixtureRequest) -> None:
    if any("[postgres" in item.name for item in request.session.items):
        postgres_server()
