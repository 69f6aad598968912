"""Sending mail: rejections, uncertain sends, the built mail; and a misbehaving mailbox."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.outbox import Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.email.imap import ImapClient, open_imap
from alipes.platforms.email.send import format_markdown
from alipes.platforms.email.threads import OWN_ID as OUR_ID
from alipes.platforms.email.threads import MailThread, MailThreads, make_message_id, thread_name
from tests.unit.platforms.email.test_email import post, said
from tests.world.mail_server import Smarthost

SRC = Path(__file__).parents[4] / "src"
ADA = Address("email", "ada@example.org", thread="0123456789abcdef")


@pytest.mark.parametrize(
    ("verb", "answer", "kind", "later"),
    [
        ("RCPT", "550 5.1.1 nobody here", Undeliverable, None),
        ("RCPT", "450 4.2.0 greylisted", DeliveryError, 60.0),
        ("MAIL", "553 not yours", DeliveryError, None),
        ("MAIL", "421 go away for now", DeliveryError, 60.0),
        ("DATA", "554 5.7.1 spam", Undeliverable, None),
        ("DATA", "452 4.3.1 the disk is full", DeliveryError, 60.0),
        ("DATA", "455 cannot", DeliveryError, None),
    ],
)
async def test_errors_say_who_acts_next(
    tmp_path: Path, verb: str, answer: str, kind: type[DeliveryError], later: float | None
) -> None:
    async with Smarthost() as smarthost:
        platform = post(tmp_path, None, smarthost)
        smarthost.refuse[verb] = [answer]
        with pytest.raises(DeliveryError) as refused:
            await said(platform, ADA, "Hello.")
        assert type(refused.value) is kind and refused.value.retry_after == later and not refused.value.uncertain
        await said(platform, ADA, "Hello.")
        assert len(smarthost.sent) == 1


async def test_a_connection_lost_after_the_mail_leaves_it_uncertain_and_a_copy_has_the_same_id(tmp_path: Path) -> None:
    async with Smarthost() as smarthost:
        platform = post(tmp_path, None, smarthost)
        smarthost.lose = 1
        with pytest.raises(DeliveryError) as lost:
            await said(platform, ADA, "Hello.", "turn:1#0")
        assert lost.value.uncertain
        await said(platform, ADA, "Hello.", "turn:1#0")
        await said(platform, ADA, "Hello.", "turn:2#0")
        first, again, other = [str(mail["Message-ID"]) for mail in smarthost.sent]
        assert first == again != other and OUR_ID.fullmatch(first)


async def test_an_unreachable_server_certainly_got_nothing(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="cannot be used") as away:
        await said(post(tmp_path, None, None), ADA, "Hello.")
    assert not away.value.uncertain


@pytest.mark.parametrize("odd", ["", "ada", "a@b, c@d", "a@b\r\nBcc: c@d", "<a@b>"])
async def test_an_invalid_address_is_rejected(tmp_path: Path, odd: str) -> None:
    async with Smarthost() as smarthost:
        with pytest.raises((Undeliverable, ValueError)):
            await said(post(tmp_path, None, smarthost), Address("email", odd), "Hello.")
        assert not smarthost.sent


async def test_a_file_is_attached_and_a_missing_one_is_undeliverable(tmp_path: Path) -> None:
    report = tmp_path / "Bericht für Ada.csv"
    report.write_bytes(b"a;b\n")
    async with Smarthost(login=False) as smarthost:
        platform = post(tmp_path, None, smarthost)
        await platform.send(ADA, MessagePart(media=Media(str(report), caption="the figures"), id="x#1"))
        (mail,) = smarthost.sent
        (file,) = mail.iter_attachments()
        assert file.get_filename() == report.name and file.get_payload(decode=True) == b"a;b\n"
        body = mail.get_body(("plain",))
        assert body is not None and body.get_content().strip() == "the figures" and mail["Subject"] == "the figures"
        report.unlink()
        with pytest.raises(Undeliverable, match="cannot be read"):
            await platform.send(ADA, MessagePart(media=Media(str(report)), id="x#2"))


async def test_a_new_thread_uses_its_first_line_as_subject_and_is_found_by_its_id(tmp_path: Path) -> None:
    async with Smarthost() as smarthost:
        platform = post(tmp_path, None, smarthost)
        await said(platform, Address("email", "ada@example.org"), "The backup is *done*.\n\nAll of it. " + "x" * 90)
        (mail,) = smarthost.sent
        assert mail["Subject"] == "The backup is done." and mail["Auto-Submitted"] == "auto-generated"
        assert mail["References"] is None
        assert thread_name("<reply@x>", (mail["Message-ID"],)) == mail["Message-ID"].split(".")[1]


async def test_markdown_becomes_html_without_remote_content(tmp_path: Path) -> None:
    (piece,) = format_markdown(
        "<script>alert(1)</script> ![x](https://spy.example/p.png) **b**\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    assert "<script" not in piece.text and "<img" not in piece.text
    assert "<strong>b</strong>" in piece.text and "<td>1</td>" in piece.text
    assert "alert(1)" in piece.plain and format_markdown(" \n ") == ()
    assert len(format_markdown("word " * 100_000)) == 1


def test_threads_are_saved_except_those_of_strangers(tmp_path: Path) -> None:
    threads = MailThreads(tmp_path / "threads")
    long = MailThread("s", tuple(f"<{number}@x>" for number in range(50)))
    threads.save("ada@x", "t", long)
    kept = MailThreads(tmp_path / "threads").find("ada@x", "t")
    assert len(kept.references) == 20 and (kept.references[0], kept.references[-1]) == ("<0@x>", "<49@x>")
    threads.remember_stranger("eve@x", "t", long)
    assert threads.find("eve@x", "t") == long and MailThreads(tmp_path / "threads").find("eve@x", "t") == MailThread()
    (tmp_path / "threads" / next((tmp_path / "threads").iterdir()).name).write_text("{broken")
    assert MailThreads(tmp_path / "threads").find("ada@x", "t") == MailThread()
    assert make_message_id("p", "", "h") != make_message_id("q", "", "h")


@asynccontextmanager
async def mailbox(
    *script: tuple[bytes, bytes], greeting: bytes = b"* OK hello\r\n", **more: Any
) -> AsyncIterator[ImapClient]:
    """A server that answers the next command containing a word with some lines; `TAG` is replaced by its
    tag."""
    left = [(b"CAPABILITY", b"* CAPABILITY IMAP4rev1 AUTH=PLAIN IDLE\r\nTAG OK\r\n"),
            (b"AUTHENTICATE", b"+ \r\n"), (b"", b"a2 OK in\r\n"),
            (b"CAPABILITY", b"* CAPABILITY IMAP4rev1 IDLE\r\nTAG OK\r\n"), *script]  # fmt: skip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while line := await reader.readline():
            if left and left[0][0] in line:
                writer.write(left.pop(0)[1].replace(b"TAG", line.split()[0]))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    where = ("127.0.0.1", server.sockets[0].getsockname()[1], "none")
    async with server:
        async with open_imap(where, ("ada", "secret"), None, within=2.0, **more) as imap:  # type: ignore[arg-type]
            yield imap
        await asyncio.sleep(0.01)


async def test_mail_announced_during_another_command_is_not_missed() -> None:
    async with mailbox((b"SEARCH", b"* SEARCH 7 9\r\n* 3 EXISTS\r\nTAG OK\r\n")) as imap:
        assert await imap.search("ALL") == [7, 9]
        async with asyncio.timeout(1):
            await imap.wait_for_mail(30.0)


async def test_literals_quotes_and_other_replies_are_parsed() -> None:
    seen = b"* 1 FETCH (UID 4 FLAGS (\\Seen))\r\n* 2 FETCH (UID 5 RFC822.SIZE 9 BODY[] {9}\r\nab}\r\n{3}\r\n)\r\nTAG OK\r\n"
    async with mailbox((b"FETCH", seen), (b"FETCH", b"TAG OK nothing\r\n")) as imap:
        mail = await imap.fetch(5, "BODY.PEEK[]")
        assert mail is not None and (mail.uid, mail.size, mail.content) == (5, 9, b"ab}\r\n{3}\r")
        assert await imap.fetch(6, "BODY.PEEK[]") is None


@pytest.mark.parametrize(
    "answer",
    [
        b"* BYE shutting down\r\n",
        b"TAG NO not now\r\n",
        b"* 1 FETCH (UID 5 BODY[] {99999999999}\r\n",
        b"TAG BAD what\r\n",
    ],
)
async def test_a_server_that_stalls_is_disconnected(answer: bytes) -> None:
    async with mailbox((b"FETCH", answer)) as imap:
        with pytest.raises(DeliveryError):
            await imap.fetch(5, "BODY.PEEK[]")


@pytest.mark.parametrize("greeting", [b"* BYE too many\r\n", b"HTTP/1.1 400 Bad\r\n"])
async def test_a_server_that_refuses_us_is_reported(greeting: bytes) -> None:
    with pytest.raises(DeliveryError):
        async with mailbox(greeting=greeting):
            pass


async def test_a_folder_may_have_any_name_and_uidnext_may_be_missing() -> None:
    select = b"* 3 EXISTS\r\n* OK [UIDVALIDITY 12] x\r\nTAG OK\r\n"
    async with mailbox((b'SELECT "B&APw-cher &- Co"', select), (b"SEARCH", b"* SEARCH 4 8\r\nTAG OK\r\n")) as imap:
        assert await imap.select("Bücher & Co") == (12, 9)
    async with mailbox((b"SELECT", b"TAG NO there is none\r\n")) as imap:
        with pytest.raises(ConfigError, match=r"email\.folder"):
            await imap.select("Nowhere")


async def test_a_missing_library_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['aiosmtplib'] = None\n"
        "from pathlib import Path\n"
        "from alipes.config.settings import Settings\n"
        "from alipes.platforms.registry import open_messenger\n"
        "open_messenger('email', Settings(home=Path('.')), None)"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE, cwd=tmp_path, env={"PYTHONPATH": str(SRC)}
    )
    _, said = await child.communicate()
    assert b"ConfigError: Mail needs aiosmtplib" in said and b"alipes install email" in said
