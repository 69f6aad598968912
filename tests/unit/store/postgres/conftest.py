import psycopg
import pytest

from alipes.store.postgres.migrate import migrate
from tests.world.postgres_server import PostgresServer, postgres_schema, postgres_server


@pytest.fixture(scope="session", autouse=True)
def server():
    """Started before the first test, so that it does not count as left over by one."""
    return postgres_server()


def _migrate(url):
    with psycopg.connect(url, autocommit=True) as db:
        migrate(db)


@pytest.fixture
def url(server):
    """A schema with the tables of the store."""
    with postgres_schema(server) as made:
        _migrate(made)
        yield made


@pytest.fixture
def own_server():
    """A server with the tables of the store, which the test may restart."""
    server = PostgresServer()
    try:
        server.start()
        _migrate(server.url)
        yield server
    finally:
        server.close()
