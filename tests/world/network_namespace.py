"""A network of its own for a program, connected to this machine by one link that a test can cut. Only root may.

A cut link loses packets silently, in both directions: connections stay open and neither side notices.
"""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

from tests.world.environment import skip

NETWORK = IPv4Address("198.18.0.0")
"""Reserved for measurements, so nothing else uses these addresses. Each link has four of its 131,072."""
LINKS = 1 << 15
_numbers = itertools.count(1)


class NetworkNamespace:
    """`enter` is the start of the command of a program inside; it reaches this machine at `host_address`."""

    def __init__(self, program: str, number: int) -> None:
        self._program = program
        self.name = f"al{os.getpid()}n{number}"
        self._outer, self._inner = f"{self.name}o", f"{self.name}i"
        first = NETWORK + 4 * ((os.getpid() * 8 + number) % LINKS)
        self.host_address, self.own_address = str(first + 1), str(first + 2)
        self.enter = (program, "netns", "exec", self.name)

    def cut(self) -> None:
        self._run("link", "set", self._outer, "down")

    def restore(self) -> None:
        self._run("link", "set", self._outer, "up")

    def create(self) -> None:
        self._run("netns", "add", self.name)
        self._run("link", "add", self._outer, "type", "veth", "peer", "name", self._inner, "netns", self.name)
        self._run("address", "add", f"{self.host_address}/30", "dev", self._outer)
        self._run("-n", self.name, "address", "add", f"{self.own_address}/30", "dev", self._inner)
        self._run("-n", self.name, "link", "set", "lo", "up")
        self._run("-n", self.name, "link", "set", self._inner, "up")
        self.restore()

    def remove(self) -> None:
        """Remove what was made so far. The link goes at once, the rest with the last program inside."""
        for words in (("link", "delete", self._outer), ("netns", "delete", self.name)):
            subprocess.run([self._program, *words], capture_output=True, check=False)

    def _run(self, *words: str) -> None:
        done = subprocess.run([self._program, *words], capture_output=True, check=False)
        if done.returncode:
            raise OSError(f"ip {' '.join(words)}: {done.stderr.decode().strip()}")


@contextmanager
def open_network_namespace() -> Iterator[NetworkNamespace]:
    """The test is skipped where this cannot be made."""
    if os.geteuid():
        skip("only root may make network namespaces")
    program = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        skip("ip is not installed (make services)")
    namespace = NetworkNamespace(program, next(_numbers))
    try:
        try:
            namespace.create()
        except OSError as error:
            skip(f"network namespaces cannot be made here: {error}")
        yield namespace
    finally:
        namespace.remove()
