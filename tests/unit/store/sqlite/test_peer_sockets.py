"""The sockets of a home answer its own processes, and not the commands that these run."""

import os
import sys
from pathlib import Path

from alipes.runtime.processes.child import open_child
from alipes.store.sql.store import Store
from alipes.store.sqlite import peers
from alipes.store.sqlite.peers import SubscribeFrame, open_connection
from alipes.store.sqlite.store import open_store

CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    try:
        client.sendall(b'{"type":"listen","key":"test:me"}\\n')
        print(client.recv(100))
    except ConnectionError:
        print(b"")
"""
NESTED = """
import asyncio, sys
from pathlib import Path
from alipes.store.sqlite.peers import SubscribeFrame, send_request
from alipes.store.sqlite.store import open_store

async def main(home, host):
    async with open_store(Path(home)) as store:
        print(await send_request(store.processes, host, SubscribeFrame("test:me")))

asyncio.run(main(*sys.argv[1:]))
"""


def socket_path(store: Store) -> str:
    (path,) = store.processes._run.glob("*.sock")
    return str(path)


async def run_child(*words: str) -> str:
    env = {"PATH": os.defpath, "PYTHONPATH": str(Path(peers.__file__).parents[2])}
    said = b""
    async with open_child([sys.executable, "-c", *words], cwd="/", env=env) as child:
        while piece := await child.read():
            said += piece
    return said.decode()


async def test_a_command_of_the_agent_is_refused(tmp_path):
    async with open_store(tmp_path) as store:
        assert await run_child(CONNECT, socket_path(store)) == "b''\n"


async def test_an_alipes_that_the_agent_runs_is_answered(tmp_path):
    async with open_store(tmp_path) as store:
        assert await run_child(NESTED, str(tmp_path), store.host) == "True\n"


async def test_another_process_of_the_home_is_answered(tmp_path):
    async with open_store(tmp_path) as store, open_connection(socket_path(store)) as (reader, writer):
        writer.write(peers.encode_line(SubscribeFrame("test:me")))
        assert b"done" in await reader.readline()
