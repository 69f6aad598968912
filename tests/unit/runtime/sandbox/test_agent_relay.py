"""The relay of the SSH agent: it passes on identities and signatures, and nothing else."""

import asyncio
import os
import socket
import struct
from contextlib import asynccontextmanager

from alipes.runtime.sandbox.agent_relay import FAILURE, SshAgentRelay
from alipes.runtime.sandbox.backend import CommandScope

ANSWER = struct.pack(">IB", 3, 12) + b"ok"


def message(kind, body=b"data"):
    return struct.pack(">IB", len(body) + 1, kind) + body


def strings(*parts):
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def to_sign(data):
    return message(13, strings(b"key", data) + bytes(4))


def login(service=b"ssh-connection", method=b"publickey"):
    return strings(b"session") + b"\x32" + strings(b"git", service, method) + b"\1" + strings(b"ssh-ed25519", b"key")


class Agent:
    """An agent that records what reaches it."""

    def __init__(self):
        self.seen = []

    async def serve(self, reader, writer):
        try:
            while head := await reader.readexactly(4):
                self.seen.append((await reader.readexactly(struct.unpack(">I", head)[0]))[0])
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def open_relay(tmp_path, *, yes=True):
    agent, asked = Agent(), []

    async def may_sign(scope, login):
        asked.append((scope.session, login.pid == os.getpid(), login.session))
        return yes

    server = await asyncio.start_unix_server(agent.serve, tmp_path / "agent")
    async with server, SshAgentRelay(str(tmp_path / "agent"), may_sign) as relay:
        relay.serve(str(tmp_path / "relay"), CommandScope("s1"))
        yield agent, asked, relay


async def ask(tmp_path, *messages):
    reader, writer = await asyncio.open_unix_connection(tmp_path / "relay")
    answers = []
    for each in messages:
        writer.write(each)
        head = await reader.readexactly(4)
        answers.append(head + await reader.readexactly(struct.unpack(">I", head)[0]))
    writer.close()
    await writer.wait_closed()
    return answers


async def test_identities_are_listed_without_a_question_and_signatures_after_a_yes(tmp_path):
    async with open_relay(tmp_path) as (agent, asked, _):
        assert await ask(tmp_path, message(11, b""), to_sign(login())) == [ANSWER, ANSWER]
        assert agent.seen == [11, 13] and asked == [("s1", True, b"session")]


async def test_nothing_but_a_login_is_signed(tmp_path):
    others = (b"", b"SSHSIG" + strings(b"file"), login(b"sudo"), login(method=b"password"), login()[:20], b"\xff" * 99)
    async with open_relay(tmp_path) as (agent, asked, _):
        assert await ask(tmp_path, *map(to_sign, others), message(13), message(13, b"")) == [FAILURE] * 8
        assert agent.seen == [] and asked == []
        bound = to_sign(login(method=b"publickey-hostbound-v00@openssh.com"))
        assert await ask(tmp_path, bound) == [ANSWER]


async def test_after_a_no_nothing_is_signed(tmp_path):
    async with open_relay(tmp_path, yes=False) as (agent, _, _):
        assert await ask(tmp_path, to_sign(login())) == [FAILURE]
        assert agent.seen == []


async def test_keys_cannot_be_added_removed_or_locked(tmp_path):
    async with open_relay(tmp_path) as (agent, asked, _):
        assert await ask(tmp_path, *(message(kind) for kind in (17, 18, 19, 20, 21, 22, 23, 25, 27))) == [FAILURE] * 9
        assert agent.seen == [] and asked == []


async def test_a_message_that_is_too_long_ends_the_connection(tmp_path):
    async with open_relay(tmp_path) as (agent, _, _):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "relay")
        writer.write(struct.pack(">I", 2**31))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert agent.seen == []


async def test_a_closed_conversation_is_no_longer_served(tmp_path):
    async with open_relay(tmp_path) as (_, _, relay):
        await relay.close_scope("s1")
        with socket.socket(socket.AF_UNIX) as client:
            assert client.connect_ex(os.fspath(tmp_path / "relay")) != 0
