"""Scripted IRC servers: login, accounts, message ids, hidden hosts and rejections."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.models import Secret
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.irc.platform import IrcPlatform
from alipes.platforms.irc.protocol import MAX_LINE_BYTES, IrcLine, parse_line
from alipes.platforms.irc.send import IrcRateLimit
from alipes.platforms.irc.settings import IrcConfig
from tests.world.recording_gateway import RecordingGateway, receive_once

WELCOME = ":s 001 {nick} :welcome {nick}"


class Door:
    """One connection from the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.heard: list[IrcLine] = []

    async def shut(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def tell(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())

    async def hears(self, command: str, *params: str) -> IrcLine:
        """The next line that starts like this; lines before it are kept."""
        while True:
            raw = await self._reader.readline()
            assert raw, f"they left before they said {command}"
            self.heard.append(line := parse_line(raw))
            if line.command == command and line.params[: len(params)] == params:
                return line

    async def enters(self, *, offered: str = "", granted: str = "") -> None:
        await self.hears("CAP", "LS")
        self.tell(f":s CAP * LS :{offered}")
        await self.hears("USER")
        for name in granted.split():
            await self.hears("CAP", "REQ", name)
            self.tell(f":s CAP * ACK :{name}")
        await self.hears("CAP", "END")
        self.tell(WELCOME.format(nick="alipes"))
        await self.hears("USERHOST")
        self.tell(":s 302 alipes :alipes=+~alipes@host.example ")

    async def takes(self) -> list[IrcLine]:
        """The messages up to the ping after them, which is answered."""
        before = len(self.heard)
        ping = await self.hears("PING")
        self.tell(f":s PONG s :{ping.last}")
        return [line for line in self.heard[before:] if line.command == "PRIVMSG"]


@asynccontextmanager
async def at_the_door(**more: Any) -> AsyncIterator[tuple[IrcPlatform, RecordingGateway, Door]]:
    came: asyncio.Queue[Door] = asyncio.Queue()
    server = await asyncio.start_server(lambda r, w: came.put_nowait(Door(r, w)), "127.0.0.1", 0)
    given = {"port": server.sockets[0].getsockname()[1], "pace": 0.0, "patience": 5.0, **more}
    platform = IrcPlatform(IrcConfig(host="127.0.0.1", tls=False, **given))
    door = None
    try:
        async with server, receive_once(platform) as ears:
            door = await came.get()
            yield platform, ears, door
    finally:
        if door is not None:
            await door.shut()


async def test_login_happens_before_registration_ends() -> None:
    async with at_the_door(password=Secret("pä ss")) as (_, ears, door):
        await door.hears("CAP", "LS")
        door.tell(":s CAP * LS * :message-tags", ":s CAP * LS :sasl=EXTERNAL,PLAIN")
        for name in ("message-tags", "sasl"):
            await door.hears("CAP", "REQ", name)
            door.tell(f":s CAP * ACK :{name}")
        await door.hears("AUTHENTICATE", "PLAIN")
        door.tell("AUTHENTICATE +")
        secret = await door.hears("AUTHENTICATE")
        assert base64.b64decode(secret.last) == "alipes\0alipes\0pä ss".encode()
        door.tell(":s 900 * * alipes :you are logged in", ":s 903 * :done")
        await door.hears("CAP", "END")
        door.tell(WELCOME.format(nick="alipes"))
        await ears.wait_status("ready")
        assert not any(line.command == "PASS" for line in door.heard)


async def test_a_rejected_password_is_a_config_error_that_does_not_show_it() -> None:
    async with at_the_door(password=Secret("wrong")) as (_, ears, door):
        await door.hears("CAP", "LS")
        door.tell(":s CAP * LS :sasl")
        await door.hears("CAP", "REQ", "sasl")
        door.tell(":s CAP * ACK :sasl")
        await door.hears("AUTHENTICATE", "PLAIN")
        door.tell("AUTHENTICATE +")
        await door.hears("AUTHENTICATE")
        door.tell(":s 904 * :SASL authentication failed")
        trouble = await ears.broken()
        assert isinstance(trouble, ConfigError) and "wrong" not in str(trouble)


async def test_a_server_without_password_logins_is_reported() -> None:
    async with at_the_door(password=Secret("x")) as (_, ears, door):
        await door.hears("CAP", "LS")
        door.tell(":s CAP * LS :sasl=EXTERNAL")
        await door.hears("CAP", "REQ", "sasl")
        door.tell(":s CAP * ACK :sasl")
        assert isinstance(await ears.broken(), ConfigError)


@pytest.mark.parametrize("answer", [":s 421 * CAP :Unknown command", ":s 451 * :Register first"])
async def test_an_old_server_without_capabilities_works(answer: str) -> None:
    async with at_the_door() as (_, ears, door):
        await door.hears("CAP", "LS")
        door.tell(answer)
        await door.hears("USER")
        door.tell(WELCOME.format(nick="alipes"))
        await ears.wait_status("ready")
        assert not any(line.params[:1] == ("END",) for line in door.heard)


@pytest.mark.parametrize(("number", "kind"), [("432", ConfigError), ("464", ConfigError), ("465", ConfigError)])
async def test_a_rejected_registration_says_why(number: str, kind: type[Exception]) -> None:
    async with at_the_door() as (_, ears, door):
        await door.hears("CAP", "LS")
        door.tell(":s CAP * LS :")
        await door.hears("USER")
        door.tell(f":s {number} * :this is the reason")
        trouble = await ears.broken()
        assert isinstance(trouble, kind) and "this is the reason" in str(trouble)


async def test_a_connection_lost_during_registration_is_retried() -> None:
    async with at_the_door() as (_, ears, door):
        await door.hears("CAP", "LS")
        door.tell("ERROR :Trying to reconnect too fast")
        assert isinstance(await ears.broken(), DeliveryError) and "too fast" in str(ears.trouble)


async def test_a_silent_server_times_out() -> None:
    async with at_the_door(patience=0.3) as (_, ears, _door):
        assert "did not accept the login" in str(await ears.broken())


async def test_accounts_and_ids_are_read_from_tags() -> None:
    tags, now = "message-tags account-tag server-time", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000}Z"
    async with at_the_door() as (_, ears, door):
        await door.enters(offered=tags, granted=tags)
        door.tell(
            "@account=Ada;msgid=abc\\:1 :Ada!a@h PRIVMSG alipes :one",
            "@msgid=2 :Ada!a@h PRIVMSG alipes :two",
            "@account=Ada;msgid=3 :Other!b@H.Example PRIVMSG alipes :three",
            "@account=* :ada[]!b@H PRIVMSG alipes :four",
            "@time=2020-01-01T00:00:00.000Z :Ada!a@h PRIVMSG alipes :from long ago",
            f"@time={now} :Ada!a@h PRIVMSG alipes :five",
            f"@time={now} :Ada!a@h PRIVMSG alipes :five",
        )
        came = await ears.heard(6)
        fifth, again = [each.id for each in came if each.text == "five"]
        assert fifth == again and fifth.startswith(now)
        by_text = {each.text: each for each in came}
        assert {text: each.sender for text, each in by_text.items()} == {
            "one": "ada",
            "two": "ada!a@h",  # not logged in: having the nick is not enough
            "three": "ada",
            "four": "ada{}!b@h",
            "five": "ada!a@h",
        }
        assert by_text["one"].id == "abc;1" and by_text["three"].id == "3"
        assert by_text["four"].id.startswith("heard-")
        assert by_text["one"].address != by_text["two"].address


async def test_without_tags_whois_identifies_people() -> None:
    async with at_the_door() as (platform, ears, door):
        await door.enters()
        door.tell(":Ada!a@h PRIVMSG alipes :one", ":Ada!a@h PRIVMSG alipes :two")
        assert (await door.hears("WHOIS")).last == "Ada"
        door.tell(
            ":s 311 alipes Ada a h * :Ada", ":s 330 alipes Ada adasaccount :is logged in as", ":s 318 alipes Ada :end"
        )
        came = await ears.heard(2)
        assert [(each.sender, each.text) for each in came] == [("adasaccount", "one"), ("adasaccount", "two")]
        door.tell(":Ada!a@elsewhere PRIVMSG alipes :under another mask")
        await door.hears("WHOIS")
        door.tell(":s 311 alipes Ada a h * :Ada", ":s 330 alipes Ada adasaccount :is", ":s 318 alipes Ada :end")
        came = await ears.heard(3)
        assert came[2].sender == "ada!a@elsewhere", "what the server says is of somebody else"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(platform.send(came[2].address, MessagePart("hello")))
            assert [line.last for line in await door.takes()] == ["hello"]


async def test_in_a_busy_channel_whois_is_not_used_for_other_conversations() -> None:
    async with at_the_door(channels=("#house",)) as (_, ears, door):
        await door.enters()
        door.tell(
            ":Ada!a@h PRIVMSG #house :a long talk with somebody else",
            ":Ada!a@h PRIVMSG #house :alipes: and now with you",
        )
        assert (await door.hears("WHOIS")).last == "Ada"
        assert [line.command for line in door.heard].count("WHOIS") == 1
        assert ears.arrivals[0].sender == "ada!a@h"
        door.tell(":s 311 alipes Ada a h * :Ada", ":s 330 alipes Ada account :is", ":s 318 alipes Ada :end")
        assert [each.sender for each in await ears.heard(2)] == ["ada!a@h", "account"]


async def test_someone_who_left_is_identified_again_before_an_answer() -> None:
    async with at_the_door() as (platform, ears, door):
        await door.enters(offered="account-tag", granted="account-tag")
        door.tell("@account=ada :Ada!a@h PRIVMSG alipes :one", ":Ada!a@h QUIT :bye", ":s PONG s :nothing")
        (came,) = await ears.heard()
        await ears.wait_status("ready", 5)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_refused(platform, came.address))
            await door.hears("WHOIS")
            door.tell(":s 311 alipes Ada other host * :x", ":s 318 alipes Ada :end")
        assert isinstance(sending.result(), Undeliverable)


async def _refused(platform: IrcPlatform, where: Address) -> DeliveryError:
    with pytest.raises(DeliveryError) as refused:
        await platform.send(where, MessagePart("hello"))
    return refused.value


async def test_a_hidden_host_counts_as_others_see_it() -> None:
    async with at_the_door() as (platform, ears, door):
        await door.enters()
        door.tell(":s 396 alipes cloak.of.some.length.example :is now your hidden host", ":s PONG s :x")
        await ears.wait_status("ready", 4)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(platform.send(Address("irc", "ada"), MessagePart("x" * 600)))
            first, *_ = await door.takes()
        shown = f":alipes!~alipes@cloak.of.some.length.example PRIVMSG ada :{first.last}\r\n"
        assert len(shown) == MAX_LINE_BYTES


async def test_a_channel_without_formatting_gets_plain_text() -> None:
    async with at_the_door() as (platform, _, door):
        await door.enters()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(platform.send(Address("irc", "#house"), MessagePart("\x02hello\x02", "hello")))
            said = await door.hears("PRIVMSG")
            door.tell(":s 404 alipes #House :no colours here (+c)")
            await door.takes()
            again = await door.takes()
        assert said.last == "\x02hello\x02" and [line.last for line in again] == ["hello"]


async def test_a_connection_lost_during_a_send_leaves_it_uncertain() -> None:
    async with at_the_door() as (platform, ears, door):
        await door.enters()
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_refused(platform, Address("irc", "#house")))
            await door.hears("PING")
            door.tell("ERROR :Excess Flood")
        assert sending.result().uncertain and "Excess Flood" in str(await ears.broken())


async def test_few_lines_are_unconfirmed_at_once() -> None:
    async with at_the_door() as (platform, _, door):
        await door.enters()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(platform.send(Address("irc", "ada"), MessagePart("word " * 900)))
            counts = [len(await door.takes()) for _ in range(3)]
        assert counts[0] == counts[1] == 4 and 0 < counts[2] <= 4


async def test_invalid_lines_are_ignored() -> None:
    async with at_the_door() as (_, ears, door):
        await door.enters(offered="account-tag", granted="account-tag")
        door.tell("", ":", "@", "@x", ":s", ":s 311", ":s 330 a", ":s KICK", ":s NICK", ":s JOIN", ":s 302", ":s 396 x",
                  "PRIVMSG", ":x!y@z PRIVMSG alipes", ":s PRIVMSG alipes :a server speaks", ":x!y@z PRIVMSG alipes :",
                  ":x!y@z PRIVMSG alipes :\x01\x01", "x" * 70_000, ":Ada!a@h PRIVMSG alipes :hello")  # fmt: skip
        (came,) = await ears.heard()
        assert came.text == "hello" and not ears.trouble


async def test_five_lines_are_sent_at_once_and_then_the_rate_limit_applies() -> None:
    pace = IrcRateLimit(10.0)
    assert [round(pace.reserve()) for _ in range(7)] == [0, 0, 0, 0, 0, 10, 20]
    assert IrcRateLimit(0.0).reserve(1000) == 0.0
