import pytest

from tests.unit.store.postgres.cluster import create_tables
from tests.world.postgres_server import PostgresServer, postgres_schema, postgres_server


@pytest.fixture
def url():
    """An address of PostgreSQL with the tables that workers use."""
    with postgres_schema() as url:
        create_tables(url)
        yield url


@pytest.fixture
def server():
    return postgres_server()


@pytest.fixture
def own_server():
    """A server that the test may restart."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()
