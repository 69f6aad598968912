import os
import socket

import pytest

from tests.unit.store.postgres.cluster import create_tables
from tests.world.postgres_pair import DATABASE, USER, PostgresNode


@pytest.fixture
async def server(tmp_path_factory):
    """A running PostgreSQL of the test."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("postgres")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    os.chmod(folder, 0o777)
    node = PostgresNode(folder, port, {"fsync": "off"})
    await node.create()
    await node.start()
    await node.query(f"CREATE DATABASE {DATABASE} OWNER {USER}", "postgres")
    yield node
    await node.stop_immediate()


@pytest.fixture
async def url(server):
    return await create_tables(server.url(), "cluster")
