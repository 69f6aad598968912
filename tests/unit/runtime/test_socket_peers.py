"""The process behind a loopback connection: our own children are found, everybody else is not."""

import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.socket_peers import find_connected_child
from alipes.web.auth import Authenticator
from alipes.web.endpoint import HttpProblem

CONNECT = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as client:
    client.connect((sys.argv[1], int(sys.argv[2])))
    client.recv(1)
"""


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((request.param, 0))
        server.listen()
        yield server


@asynccontextmanager
async def connected_child(listener: socket.socket, *under: str) -> AsyncIterator[socket.socket]:
    """Our end of a connection that a child of ours made."""
    host, port = listener.getsockname()[:2]
    command = [*under, sys.executable, "-c", CONNECT, host, str(port)]
    async with open_child(command, cwd="/", env=dict(os.environ)):
        connection, _ = listener.accept()
        with connection:
            yield connection


def ends(connection: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    return connection.getpeername()[:2], connection.getsockname()[:2]


async def test_a_child_is_found_by_its_connection(listener, tmp_path):
    async with connected_child(listener) as connection:
        assert find_connected_child(*ends(connection), tmp_path) is not None


async def test_a_grandchild_in_a_session_of_its_own_is_found(listener, tmp_path):
    async with connected_child(listener, "setsid", "-w") as connection:
        assert find_connected_child(*ends(connection), tmp_path) is not None


async def test_a_connection_of_this_process_is_no_child(listener, tmp_path):
    async with open_child(["sleep", "100"], cwd="/", env=dict(os.environ)):
        with socket.create_connection(listener.getsockname()[:2]):
            connection, _ = listener.accept()
            with connection:
                assert find_connected_child(*ends(connection), tmp_path) is None


async def test_the_api_refuses_a_child_that_has_the_key_of_the_operator(listener, tmp_path: Path):
    keys = Authenticator("k" * 40, run=tmp_path)
    async with connected_child(listener) as connection:
        client, server = ends(connection)
        with pytest.raises(HttpProblem, match="was started by alipes, and may not act as a person") as refused:
            await keys.refuse_own_child({"client": client, "server": server})
        assert refused.value.status == 403


async def test_the_api_accepts_everybody_else(listener, tmp_path: Path):
    keys = Authenticator("k" * 40, run=tmp_path)
    with socket.create_connection(listener.getsockname()[:2]):
        connection, _ = listener.accept()
        with connection:
            client, server = ends(connection)
            await keys.refuse_own_child({"client": client, "server": server})
