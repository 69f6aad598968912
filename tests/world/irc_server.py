"""A real ngircd on loopback, and a small IRC client for the people on it."""

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from alipes.platforms.irc.protocol import IrcLine, encode_line, fold_name, parse_line, strip_formatting
from tests.world.environment import require
from tests.world.tls import authority

CONF = """[Global]
Name = irc.test
Info = for tests
AdminInfo1 = nobody
Listen = 127.0.0.1
{ports}
ServerUID = {uid}
ServerGID = {gid}
MotdPhrase = welcome
{password}
[Limits]
MaxPenaltyTime = 0
MaxConnectionsIP = 0
MaxJoins = 0
MaxNickLength = 30
[Options]
DNS = no
Ident = no
PAM = no
{tls}
"""


class Ngircd:
    """`host:port`; `down` and `up` again at the same port."""

    def __init__(self, folder: Path, *, tls: bool = False, password: str = "") -> None:
        self.program = require("ngircd")
        self.folder, self.tls, self.password = folder, tls, password
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Ngircd":
        self.folder.mkdir(exist_ok=True, parents=True)
        ssl = ""
        if self.tls:
            issued = authority().issue_cert("127.0.0.1", "localhost")
            issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
            issued.cert_chain_pems[0].write_to_path(str(self.folder / "cert.pem"))
            ssl = f"[SSL]\nCertFile = {self.folder}/cert.pem\nKeyFile = {self.folder}/key.pem\nPorts = {self.port}\n"
        conf = CONF.format(
            ports="" if self.tls else f"Ports = {self.port}",
            uid=os.getuid() or 65534,
            gid=os.getgid() or 65534,
            password=f"Password = {self.password}" if self.password else "",
            tls=ssl,
        )
        (self.folder / "ngircd.conf").write_text(conf)
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            self.program, "-n", "-f", str(self.folder / "ngircd.conf"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert self._process.stdout is not None
        said = b""
        while b" ready." not in (line := await self._process.stdout.readline()):
            said += line
            assert line, said.decode()

    async def down(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await process.communicate()

    def freeze(self) -> None:
        """Make it hang; connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @asynccontextmanager
    async def person(self, nick: str, *channels: str) -> AsyncIterator["Person"]:
        made = await self.enter(nick, *channels)
        try:
            yield made
        finally:
            await made.leave()

    async def enter(self, nick: str, *channels: str) -> "Person":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        made = Person(nick, reader, writer)
        await made.until(lambda: any(line.command in ("001", "433") for line in made.lines))  # in, or nick taken
        for channel in channels:
            await made.join(channel)
        return made


class Person:
    """A person with an IRC client. Received lines are recorded."""

    def __init__(self, nick: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.nick, self._reader, self._writer = nick, reader, writer
        self.lines: list[IrcLine] = []
        self.raw: list[bytes] = []
        self.sent: list[tuple[int, str, str]] = []
        """(lines read before, target, text) of each message sent."""
        self._news = asyncio.Event()
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read())
        self.write("NICK", nick)
        self.write("USER", nick.lower()[:9], "0", "*", nick)

    def write(self, command: str, *params: str) -> None:
        self._writer.write(encode_line(command, *params))

    async def _read(self) -> None:
        with suppress(OSError):
            while raw := await self._reader.readline():
                line = parse_line(raw)
                if line.command == "PING":
                    self.write("PONG", line.last)
                    continue
                self.raw.append(raw)
                self.lines.append(line)
                self._news.set()

    async def leave(self) -> None:
        self.write("QUIT", "bye")
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        await self._reading

    async def join(self, channel: str) -> None:
        self.write("JOIN", channel)
        await self.until(lambda: any(line.command == "366" and line.params[1] == channel for line in self.lines))

    def say(self, target: str, text: str) -> None:
        self.sent.append((len(self.lines), target, text))
        self.write("PRIVMSG", target, text)

    async def settled(self) -> None:
        """Wait until the server has read everything sent so far."""
        token = f"t{next(self._numbers)}"
        self.write("PING", token)
        await self.until(lambda: any(line.command == "PONG" and line.last == token for line in self.lines))

    async def sees(self, nick: str) -> None:
        """Wait until someone of this name is online."""
        while True:
            before = len(self.lines)
            self.write("ISON", nick)
            await self.until(lambda before=before: any(line.command == "303" for line in self.lines[before:]))
            if any(
                fold_name(nick) in fold_name(line.last).split() for line in self.lines[before:] if line.command == "303"
            ):
                return
            await asyncio.sleep(0.02)

    def heard(self, source: str, target: str = "") -> list[str]:
        """Messages of `source`, direct or in a channel."""
        return [
            strip_formatting(line.last)
            for line in self.lines
            if line.command == "PRIVMSG" and fold_name(line.nick) == fold_name(source)
            and fold_name(line.params[0]) == fold_name(target or self.nick)
        ]  # fmt: skip

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            self._news.clear()
            await self._news.wait()
