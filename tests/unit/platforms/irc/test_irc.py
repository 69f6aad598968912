"""IRC as a platform against a real ngircd: both directions, line lengths, nicks, reconnecting."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.errors import ConfigError, DeliveryError, StoreError, Undeliverable
from alipes.kernel.models import Secret
from alipes.kernel.platform import IncomingMessage, MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.irc.platform import IrcPlatform, open_platform
from alipes.platforms.irc.protocol import MAX_LINE_BYTES
from alipes.platforms.irc.settings import IrcConfig
from tests.world.irc_server import Ngircd
from tests.world.recording_gateway import RecordingGateway, receive_once
from tests.world.tls import ca_file

pytestmark = pytest.mark.service("ngircd")


def irc(server: Ngircd, **more: Any) -> IrcPlatform:
    given = {"host": "127.0.0.1", "port": server.port, "tls": server.tls, "pace": 0.0}
    return IrcPlatform(IrcConfig(**(given | more)))


@asynccontextmanager
async def served(folder: Path, **more: Any) -> AsyncIterator[tuple[Ngircd, IrcPlatform, RecordingGateway]]:
    async with Ngircd(folder / "irc") as server:
        platform = irc(server, **more)
        async with receive_once(platform) as ears:
            await ears.wait_status("ready")
            yield server, platform, ears


async def said(platform: IrcPlatform, where: Address, text: str, **more: Any) -> None:
    for number, piece in enumerate(platform.format_message(text)):
        await platform.send(where, MessagePart(text=piece.text, plain=piece.plain, id=f"x#{number}", **more))


async def test_a_private_message_is_its_own_conversation(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, platform, ears), server.person("Ada") as ada:
        ada.say("alipes", "hello \x02there\x02 \x0304,05red")
        (came,) = await ears.heard()
        assert (came.text, came.name, came.sender) == ("hello there red", "Ada", "ada!~ada@127.0.0.1")
        assert came.address == Address("irc", "ada", user=came.sender) and came.addressed and not came.group
        await said(platform, came.address, "Good **morning**.\n\nHow *are* you?")
        await ada.until(lambda: ada.heard("alipes") == ["Good morning.", "How are you?"])
        assert [line.last for line in ada.lines if line.command == "PRIVMSG"] == [
            "Good \x02morning\x02.",
            "How \x1dare\x1d you?",
        ]


async def test_in_a_channel_mentions_are_answered_by_name(tmp_path: Path) -> None:
    async with (
        served(tmp_path, channels=("#House",)) as (server, platform, ears),
        server.person("Ada", "#House") as ada,
    ):
        await ada.until(lambda: any("alipes" in str(line.params) for line in ada.lines if line.command == "353"))
        for text in ("nobody is meant", "alipes: what is it?", "tell me, @alipes", "Alipes, you too", "alipes is nice"):
            ada.say("#house", text)
        came = await ears.heard(5)
        assert [(each.text, each.addressed) for each in came] == [
            ("nobody is meant", False),
            ("what is it?", True),
            ("tell me, @alipes", True),
            ("you too", True),
            ("alipes is nice", False),
        ]
        assert {each.address for each in came} == {Address("irc", "#house", "group")} and came[0].group
        await said(platform, came[1].address, "A bird.", reply_to=came[1].message)
        await ada.until(lambda: ada.heard("alipes", "#house") == ["Ada: A bird."])


async def test_lines_are_exactly_as_long_as_the_server_allows(tmp_path: Path) -> None:
    words = " ".join(f"wörd{number}" for number in range(400))
    async with served(tmp_path) as (server, platform, _), server.person("Ada") as ada:
        where = Address("irc", "ada")
        await said(platform, where, words)
        await ada.until(lambda: " ".join(ada.heard("alipes")) == words)
        full = [raw for raw in ada.raw if b"PRIVMSG" in raw]
        assert len(full) > 5 and all(MAX_LINE_BYTES - 12 < len(raw) <= MAX_LINE_BYTES for raw in full[:-1])
        await said(platform, where, "x" * 1000)
        await ada.until(lambda: "".join(ada.heard("alipes")).endswith("x" * 1000))
        assert max(len(raw) for raw in ada.raw) == MAX_LINE_BYTES


async def test_code_is_plain_indented_lines(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, platform, _), server.person("Ada") as ada:
        await said(platform, Address("irc", "ada"), "See:\n\n```python\ndef f():\n\n    return 1\n```\n")
        await ada.until(lambda: ada.heard("alipes") == ["See:", "def f():", "    return 1"])


async def test_undeliverable_and_temporary_failures_differ(tmp_path: Path) -> None:
    async with served(tmp_path, channels=("#closed",)) as (server, platform, ears):
        with pytest.raises(DeliveryError, match="not on IRC at the moment") as absent:
            await said(platform, Address("irc", "nobody"), "hello")
        assert not absent.value.uncertain and not isinstance(absent.value, Undeliverable)
        for odd in ("#elsewhere", "a b", "a,b", ""):
            with pytest.raises(Undeliverable):
                await said(platform, Address("irc", odd), "hello")
        async with server.person("Op", "#closed") as op:
            await op.settled()
        with pytest.raises(DeliveryError, match="cannot be"):
            await platform.edit(Address("irc", "ada"), "x", MessagePart("y"))
        with pytest.raises(DeliveryError, match="cannot be"):
            await platform.delete(Address("irc", "ada"), "x")
        assert not ears.trouble


async def test_an_answer_is_not_sent_to_someone_who_took_the_nick(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, platform, ears):
        async with server.person("Ada") as ada:
            ada.say("alipes", "a secret, please")
            (came,) = await ears.heard()
        theirs = Address("irc", "ada", user="ada!~ada@elsewhere.example")
        with pytest.raises(DeliveryError, match="not on IRC at the moment"):
            await said(platform, theirs, "the secret")
        async with server.person("Ada") as other:
            with pytest.raises(Undeliverable, match="another person"):
                await said(platform, theirs, "the secret")
            assert not other.heard("alipes")
            await said(platform, came.address, "for the mask that asked")
            await other.until(lambda: other.heard("alipes") == ["for the mask that asked"])


async def test_a_taken_nick_is_regained_later(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc") as server:
        squatter = await server.enter("alipes")
        await squatter.settled()
        platform = irc(server, quiet=0.2)
        async with receive_once(platform) as ears, server.person("Ada") as ada:
            await ears.wait_status("ready")
            ada.say("alipes_", "alipes: are you there?")
            (came,) = await ears.heard()
            assert came.text == "are you there?"
            await squatter.leave()
            await ada.sees("alipes")
            ada.say("alipes", "and now?")
            assert (await ears.heard(2))[1].text == "and now?"
            await said(platform, came.address, "Yes.")
            await ada.until(lambda: ada.heard("alipes") == ["Yes."])


async def test_a_kicked_bot_rejoins(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc") as server, server.person("Op", "#house") as op:
        async with receive_once(irc(server, channels=("#house",), quiet=0.2)) as ears:
            joins = lambda: [line for line in op.lines if line.command == "JOIN" and line.nick == "alipes"]  # noqa: E731
            await op.until(lambda: len(joins()) == 1)
            op.write("KICK", "#house", "alipes", "out")
            await op.until(lambda: len(joins()) == 2)
            assert not ears.trouble


async def test_ctcp_version_is_answered_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, platform, ears), server.person("Ada") as ada:
        for asked in ("VERSION", "PING 17 4", "DCC SEND x 1 2 3", "TIME"):
            ada.say("alipes", f"\x01{asked}\x01")
        ada.write("NOTICE", "alipes", "no answer is wanted")
        ada.say("alipes", "\x01ACTION waves\x01")
        (came,) = await ears.heard()
        assert came.text == "* waves"
        await said(platform, came.address, "Good morning.")
        await ada.until(lambda: ada.heard("alipes"))
        seen = [line.last for line in ada.lines if line.command == "NOTICE" and line.nick == "alipes"]
        assert seen == ["\x01VERSION alipes\x01", "\x01PING 17 4\x01"]


async def test_commands_may_start_with_an_exclamation_mark(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, platform, ears), server.person("Ada") as ada:
        await platform.set_commands((("stop", "end it"), ("model", "choose")))
        for text in ("!stop", "!model tiny", "/stop", "!important", "! stop"):
            ada.say("alipes", text)
        came = await ears.heard(5)
        assert [each.text for each in came] == ["/stop", "/model tiny", "/stop", "!important", "! stop"]


async def test_a_closed_connection_is_reported_and_read_lines_are_still_delivered(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, platform, ears), server.person("Ada") as ada:
        gate = asyncio.Event()

        async def slowly(_came: IncomingMessage) -> None:
            await gate.wait()

        ears.before = slowly
        for text in ("one", "two"):
            ada.say("alipes", text)
        await ada.settled()
        await said(platform, Address("irc", "ada"), "both are read by now")
        await server.down()
        gate.set()
        assert isinstance(await ears.broken(), DeliveryError)
        assert [each.text for each in ears.arrivals] == ["one", "two"]
        with pytest.raises(DeliveryError, match="not connected"):
            await said(platform, Address("irc", "ada"), "hello?")


async def test_a_hanging_server_is_detected_and_the_send_is_uncertain(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc") as server:
        platform = irc(server, quiet=1.0)
        async with receive_once(platform) as ears:
            await ears.wait_status("ready")
            server.freeze()
            with pytest.raises(DeliveryError) as lost:
                await said(platform, Address("irc", "#house"), "hello")
            assert lost.value.uncertain and "No data" in str(await ears.broken())
            server.thaw()


async def test_readiness_is_reported_while_nobody_writes(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc") as server, receive_once(irc(server, quiet=0.05)) as ears:
        await ears.wait_status("ready", 12)
        assert not ears.trouble


async def test_a_store_failure_ends_listening(tmp_path: Path) -> None:
    async def failing(_came: IncomingMessage) -> None:
        raise StoreError("the disk is full")

    async with served(tmp_path) as (server, _, ears), server.person("Ada") as ada:
        ears.before = failing
        ada.say("alipes", "hello")
        assert isinstance(await ears.broken(), StoreError)


async def test_tls_trusts_only_the_configured_authority(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc", tls=True) as server:
        async with receive_once(irc(server, ca_file=str(ca_file(tmp_path)))) as ears:
            await ears.wait_status("ready")
        async with receive_once(irc(server)) as ears:
            assert "CERTIFICATE_VERIFY_FAILED" in str(await ears.broken())


async def test_the_server_password_is_sent_without_sasl(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc", password="open sesame") as server:
        async with receive_once(irc(server, password=Secret("open sesame"))) as ears:
            await ears.wait_status("ready")
        async with receive_once(irc(server, password=Secret("wrong"))) as ears:
            trouble = await ears.broken()
            assert isinstance(trouble, ConfigError | DeliveryError) and "wrong" not in str(trouble)


async def test_an_absent_person_cannot_be_reached(tmp_path: Path) -> None:
    async with Ngircd(tmp_path / "irc") as server:
        await server.down()
        async with receive_once(irc(server)) as ears:
            assert "cannot be reached" in str(await ears.broken())


@pytest.mark.parametrize("wrong", [{"channels": ("house",)}, {"channels": ("#a b",)}, {"nick": "a b"}, {"nick": ""}])
def test_invalid_settings_are_rejected_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"irc\.(channels|nick)"):
        open_platform(IrcConfig(host="127.0.0.1", **wrong), None)


async def test_many_lines_keep_their_order_without_a_disconnect(tmp_path: Path) -> None:
    text = "\n\n".join(f"line {number} {os.urandom(20).hex()}" for number in range(60))
    async with served(tmp_path) as (server, platform, ears), server.person("Ada") as ada:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(said(platform, Address("irc", "ada"), text))
            tasks.create_task(said(platform, Address("irc", "ada"), "another voice"))
        await ada.until(lambda: len(ada.heard("alipes")) == 61)
        seen = [line for line in ada.heard("alipes") if line != "another voice"]
        assert seen == text.split("\n\n") and not ears.trouble
