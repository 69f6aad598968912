import pytest

from tests.world.postgres_server import postgres_server


@pytest.fixture(scope="session", autouse=True)
def server():
    """Started before the first test, so that it does not count as left over by one."""
    return postgres_server()
