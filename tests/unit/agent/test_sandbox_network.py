"""Commands in a network of their own: the SSH agent is lent for one connection, and a no ends the command."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import pytest

from alipes.agent.approval.egress import EgressRights
from alipes.agent.sandbox_network import SandboxNetwork
from alipes.config.settings import EgressConfig
from alipes.kernel.conversations import DeniedBecause
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.http.upstream import ByteStream, UpstreamConnector
from alipes.runtime.processes import child as child_module
from alipes.runtime.processes.child import open_child
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import SandboxLimits
from alipes.tools.shell.terminal import OutputProgress, describe_exit, read_until_exit
from tests.unit.runtime.sandbox.test_agent_relay import Agent
from tests.unit.runtime.test_egress_proxy import Server
from tests.world.environment import environment, require, skip

TURN = Turn("t1", "s1", Inbound("m1", Address("cli", "c"), "ann", "go"))
PROGRAM = r"""
import os, socket, struct, subprocess, sys, time

def connect(host, port):
    proxy = socket.create_connection(("127.0.0.1", 3128))
    proxy.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    print(proxy.recv(4096).split(b"\r\n")[0].decode().split(" ", 2)[1], flush=True)
    return proxy

def string(data):
    return struct.pack(">I", len(data)) + data

def sign(data):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(os.environ["AGENT"])
        body = b"\x0d" + string(b"key") + string(data) + bytes(4)
        agent.sendall(struct.pack(">I", len(body)) + body)
        print("signed" if agent.recv(4096)[4] == 12 else "refused", flush=True)

def login(session=b"session"):
    return string(session) + b"\x32" + string(b"git") + string(b"ssh-connection") + string(b"publickey") + b"\1"

def connect_in_child(host, port):
    reading, writing = os.pipe()
    if not os.fork():
        os.close(reading)
        proxy = connect(host, port)
        os.write(writing, b"x")
        proxy.recv(1)
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
"""
WAYS = {
    "a program that is connected": ("p = connect('git.test', 22); sign(login())", ["200", "signed"]),
    "a program whose child is connected": ("connect_in_child('git.test', 22); sign(login())", ["200", "signed"]),
    "another program": (
        "p = connect('git.test', 22); subprocess.run([sys.executable, '-c', os.environ['PROGRAM'] + 'sign(login())'])",
        ["200", "refused"],
    ),
    "a file": ("p = connect('git.test', 22); sign(b'SSHSIG' + string(b'file'))", ["200", "refused"]),
    "a second server": (
        "p = connect('git.test', 22); sign(login()); sign(login(b'another'))",
        ["200", "signed", "refused"],
    ),
    "no connection": ("sign(login())", ["refused"]),
    "a connection that failed": ("p = connect('down.test', 22); sign(login())", ["502", "refused"]),
    "a connection that ended": (
        "p = connect('git.test', 22); p.shutdown(2); p.close(); time.sleep(0.5); sign(login())",
        ["200", "refused"],
    ),
}


class Person:
    def __init__(self, answer="once"):
        self.answer, self.asked = answer, []

    async def ask(self, call, reason, turn):
        self.asked.append((call.name, call.args))
        return self.answer


class Sources:
    async def add(self, *source):
        return None


class Connector(UpstreamConnector):
    """Every host is a server on this machine, except one that is down."""

    def __init__(self, port):
        super().__init__(AddressGuard())
        self._port = port

    async def _connect_directly(self, host, port):
        if host.startswith("down"):
            raise OSError("nobody is there")
        return ByteStream(*await asyncio.open_connection("127.0.0.1", self._port))


class World:
    def __init__(self, network, namespaces, folder):
        self.network, self._namespaces, self._folder = network, namespaces, folder
        self.scope = CommandScope("s1", str(folder), TURN)

    @asynccontextmanager
    async def running(self, code, title="git fetch"):
        nsenter = require("nsenter", "util-linux")
        env = {**environment(self._folder), "AGENT": str(self._folder / "relay"), "PROGRAM": PROGRAM}
        starters = self._namespaces.starters
        async with (
            starters.enter(SandboxLimits(), None) as starter,
            self._namespaces.enter(self.scope, starter) as space,
        ):
            enter = (nsenter, f"--user=/proc/self/fd/{space.user}", f"--net=/proc/self/fd/{space.net}")
            argv = (*enter, "--preserve-credentials", "--", sys.executable, "-c", PROGRAM + code)
            opening = open_child(argv, cwd=str(self._folder), env=env, fds=(space.user, space.net))
            async with opening as child:
                with self.network.commands.add(self.scope, title, child):
                    yield child

    async def run(self, code, title="git fetch"):
        async with self.running(code, title) as child:
            output = b""
            while piece := await child.read():
                output += piece
        return output.decode().splitlines()


@asynccontextmanager
async def open_world(tmp_path, person, **settings):
    agent = Agent()
    async with Server(until_end=True).listen() as port:
        rights = EgressRights(EgressConfig(**settings), AddressGuard(), person.ask)
        path = tmp_path / "agent"
        network = SandboxNetwork(rights, Connector(port), person.ask, agent=str(path), sources=Sources())
        server = await asyncio.start_unix_server(agent.serve, path)
        async with server, rights, network.proxy, network.relay:
            scope = CommandScope("s1", str(tmp_path), TURN)
            os.symlink(tmp_path / network.offer_agent(scope, str(tmp_path)), tmp_path / "relay")
            namespaces = NetworkNamespaces(network)
            try:
                async with (
                    namespaces.starters.enter(SandboxLimits(), None) as starter,
                    namespaces.enter(scope, starter),
                ):
                    pass
            except OSError as error:
                skip(f"this machine does not allow network namespaces: {error}")
            try:
                yield World(network, namespaces, tmp_path)
            finally:
                await namespaces.close_all()


@pytest.mark.parametrize("way", WAYS)
async def test_the_ssh_agent_signs_only_for_the_program_that_has_made_the_connection(way, tmp_path):
    code, expected = WAYS[way]
    person = Person()
    async with open_world(tmp_path, person) as world:
        assert await world.run(code) == expected
    asked = [("network", {"host": "git.test", "port": 22, "keys": True, "command": "git fetch"})]
    assert person.asked == (asked if "git.test" in code else []) or "down.test" in code


async def test_a_yes_for_a_website_is_none_for_the_ssh_keys(tmp_path):
    person = Person()
    async with open_world(tmp_path, person) as world:
        assert await world.run("p = connect('git.test', 443); sign(login())") == ["200", "signed"]
        person.answer = "no"
        assert await world.run("p = connect('git.test', 443); sign(login())") == ["200", "refused"]
        assert (await world.run("p = connect('git.test', 22); sign(login())"))[-1] == "refused"
    assert [(name, args.get("keys")) for name, args in person.asked] == [
        ("network", None), ("ssh_agent", None), ("ssh_agent", None), ("network", True),
    ]  # fmt: skip
    assert person.asked[1][1] == {"host": "git.test", "port": 443}


async def test_a_host_that_the_settings_allow_is_asked_about_before_its_keys_are_used(tmp_path):
    person = Person()
    async with open_world(tmp_path, person, allow=("git.test",)) as world:
        assert await world.run("p = connect('git.test', 22); sign(login()); sign(login())") == ["200", *["signed"] * 2]
    assert person.asked == [("ssh_agent", {"host": "git.test", "port": 22})]


RETRIES = """
while True:
    connect('x.test', 443).close()
    time.sleep(0.1)
"""


class Act:
    async def progress(self, text):
        return None


async def run_in_foreground(child):
    assert await read_until_exit(child, 60, OutputProgress(Act(), str), Output(), None)


class Output:
    async def feed(self, piece):
        return None


async def test_a_no_to_a_connection_ends_the_command_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(child_module, "REFUSAL_GRACE_S", 0.05)
    person = Person(DeniedBecause("use the mirror"))
    async with open_world(tmp_path, person) as world:
        async with world.running(RETRIES) as child, world.running("time.sleep(600)", "sleep") as other:
            await run_in_foreground(child)
            said = describe_exit(child)
            assert other.refusal == "" and other.returncode is None, "another command continues"
    assert said == (
        'The user said no to a connection to x.test: "use the mirror". Do not try to work around this. '
        "The command was stopped."
    )
    assert [args["command"] for _, args in person.asked] == ["git fetch"]


async def test_a_command_that_ends_by_itself_after_a_no_is_not_reported_as_stopped(tmp_path):
    async with open_world(tmp_path, Person("no")) as world:
        async with world.running("connect('x.test', 443); sys.exit(3)") as child:
            await run_in_foreground(child)
    assert describe_exit(child) == "exit code 3"
    assert child.refusal == "The user said no to a connection to x.test. Do not try to work around this."


async def test_a_background_process_outlives_a_no(tmp_path, monkeypatch):
    monkeypatch.setattr(child_module, "REFUSAL_GRACE_S", 0.0)
    async with open_world(tmp_path, Person("no")) as world:
        out = await world.run("connect('x.test', 443); connect('x.test', 443); time.sleep(0.2); print('continues')")
    assert out == ["403", "403", "continues"]
