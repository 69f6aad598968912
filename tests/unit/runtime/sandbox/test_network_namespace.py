"""A process without any network reaches allowed hosts, and no others, through a listener in its namespace."""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE

from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.proxy_environment import proxy_environment
from tests.unit.runtime.test_egress_proxy import Decisions, Server, open_proxy, run_with_names
from tests.world.environment import environment, require, skip

PORT = 3128
INSIDE = f"""
import fcntl, socket, struct, sys, urllib.error, urllib.request
with socket.socket() as control:  # ip link set lo up
    fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 1))
listener = socket.create_server(("127.0.0.1", {PORT}))
with socket.socket(fileno=int(sys.argv[1])) as parent:
    socket.send_fds(parent, [b"x"], [listener.fileno()])
listener.close()
for url in sys.argv[2:]:
    try:
        print(urllib.request.urlopen(url).read().decode())
    except urllib.error.HTTPError as error:
        print(error.reason)
with socket.socket() as direct:
    print(direct.connect_ex(("192.0.2.1", 443)) != 0)
"""


async def can_unshare(unshare):
    process = await asyncio.create_subprocess_exec(unshare, "-rn", "true", stderr=PIPE)
    await process.communicate()
    return process.returncode == 0


async def receive_listener(ours):
    """The listening socket that the process sends."""
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, ready.set)
    await ready.wait()
    loop.remove_reader(ours)
    _, [handle], _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=handle)


def test_a_process_without_a_network_reaches_only_allowed_hosts(tmp_path):
    decide = Decisions(evil="evil.test is not allowed.")

    unshare = require("unshare", "util-linux")

    async def main():
        if not await can_unshare(unshare):
            skip("this machine does not allow network namespaces")
        ours, theirs = socket.socketpair()
        async with Server().listen() as at, open_proxy("good.test", decide=decide) as (proxy, _):
            with ours, theirs:
                process = await asyncio.create_subprocess_exec(
                    *(unshare, "-rn", sys.executable, "-c", INSIDE, str(theirs.fileno())),
                    *(f"http://good.test:{at}/", "http://evil.test/"),
                    stdout=PIPE,
                    pass_fds=[theirs.fileno()],
                    env=environment(tmp_path) | proxy_environment(PORT),
                )
                proxy.serve(await receive_listener(ours), CommandScope("inside"))
            out, _ = await process.communicate()
            return out.decode().splitlines()

    assert run_with_names(main, good=[["127.0.0.1"]]) == ["ok", "evil.test is not allowed.", "True"]
    assert [host for host, _, _ in decide.asked] == ["good.test", "evil.test"]
