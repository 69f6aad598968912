"""Mail as a platform, against a real dovecot and an SMTP server: threads, loops, strangers, reconnecting."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from alipes.kernel.errors import ConfigError, DeliveryError, StoreError
from alipes.kernel.models import Secret
from alipes.kernel.platform import IncomingMessage, MessagePart, Platform
from alipes.kernel.turns import Address
from alipes.platforms.email.platform import open_platform
from alipes.platforms.email.settings import EmailConfig
from tests.world.mail_server import OURS, PASSWORD, SERVER, Dovecot, Smarthost, Writer
from tests.world.recording_gateway import RecordingGateway, receive_once
from tests.world.tls import ca_file

pytestmark = [pytest.mark.service("dovecot"), pytest.mark.deadline(8)]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def server(kind: str, host: str, port: int, security: str) -> dict[str, Any]:
    return {f"{kind}_host": host, f"{kind}_port": port, f"{kind}_security": security}


def post(home: Path, dovecot: Dovecot | None, smarthost: Smarthost | None, **more: Any) -> Platform:
    given = {
        "data_folder": home / "home",
        "address": OURS,
        "user": OURS,
        "password": Secret(PASSWORD),
        **server("imap", "127.0.0.1", dovecot.imap if dovecot else 1, "none"),
        **server("smtp", "127.0.0.1", smarthost.port if smarthost else 1, "none"),
        "authserv": SERVER,
    }
    return open_platform(EmailConfig(**(given | more)), None)


@asynccontextmanager
async def served(folder: Path, **more: Any) -> AsyncIterator[tuple[Dovecot, Smarthost, Platform, RecordingGateway]]:
    async with Dovecot() as dovecot, Smarthost() as smarthost:
        platform = post(folder, dovecot, smarthost, **more)
        async with receive_once(platform) as ears:
            await ears.wait_status("ready", 2)
            yield dovecot, smarthost, platform, ears


async def said(platform: Platform, where: Address, text: str, id: str = "turn#0") -> None:
    (piece,) = platform.format_message(text)
    await platform.send(where, MessagePart(text=piece.text, plain=piece.plain, id=id))


async def test_a_mail_is_answered_in_its_thread_and_a_reply_continues_it(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, smarthost, platform, ears):
        ada = Writer(dovecot, "ada@example.org", "Ada")
        first = await ada.write("what is *this*?\n-- \nAda", subject="A question")
        (came,) = await ears.heard()
        assert (came.text, came.name, came.sender) == (
            "Subject: A question\n\nwhat is *this*?",
            "Ada",
            "ada@example.org",
        )
        assert came.address.chat == "ada@example.org" and len(came.address.thread) == 16
        await said(platform, came.address, "A **bird**.\n\n- one\n- two")
        (answer,) = await smarthost.got()
        assert answer["Subject"] == "Re: A question" and answer["In-Reply-To"] == first["Message-ID"]
        assert answer["References"].split() == [first["Message-ID"]] and answer["Auto-Submitted"] == "auto-replied"
        plain, html = answer.iter_parts()
        assert plain.get_content().replace("\r", "") == "A bird.\n\n• one\n• two\n"
        assert "<strong>bird</strong>" in html.get_content() and "<li>one</li>" in html.get_content()
        quote = "\n\nOn Sunday alipes wrote:\n\n> A bird.\n>\n> one\n"
        await ada.write(f"and why?{quote}", to=answer, subject="Re: A question")
        again = (await ears.heard(2))[1]
        assert (again.text, again.quoted, again.address) == ("and why?", "", came.address)
        await said(platform, again.address, "Because.", "turn#1")
        second = (await smarthost.got(2))[1]
        assert second["References"].split()[:2] == [first["Message-ID"], answer["Message-ID"]]


async def test_every_thread_is_a_conversation_also_with_truncated_references(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, smarthost, platform, ears):
        ada = Writer(dovecot, "ada@example.org")
        await ada.write("one")
        await ada.write("two")
        one, two = await ears.heard(2)
        assert one.address != two.address
        await said(platform, one.address, "One.")
        (answer,) = await smarthost.got()
        await ada.write("three", to=answer, References="")
        grace = Writer(dovecot, "grace@example.org")
        await grace.write("four", to=answer)
        _, _, three, four = await ears.heard(4)
        assert three.address == one.address and four.address.chat == "grace@example.org" != three.address.chat


async def test_automatic_mail_lists_and_our_own_mail_are_not_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, smarthost, platform, ears):
        ada = Writer(dovecot, "ada@example.org")
        await said(platform, Address("email", "ada@example.org"), "Hello.")
        (ours,) = await smarthost.got()
        for headers in (
            {"Auto_Submitted": "auto-replied"},
            {"Auto_Submitted": "auto-generated; x=y"},
            {"Precedence": "bulk"},
            {"List_Id": "<news.example.org>"},
            {"List_Unsubscribe": "<https://example.org>"},
            {"Message_ID": ours["Message-ID"]},
            {"From": f"Me <{OURS.upper()}>", "Authentication_Results": f"{SERVER}; dmarc=pass header.from=house.test"},
            {"From": "no-reply@example.org"},
            {"From": "MAILER-DAEMON@example.org"},
            {"From": "ada@example.org, grace@example.org"},
            {"From": ""},
        ):
            await ada.write("a trap", **headers)
        two = ada.compose("two senders").as_bytes()
        await ada.send(b"From: grace@example.org\n" + two)
        await dovecot.deliver(ada.compose("it came back").as_bytes(), "")
        await ada.write("from a person")
        (came,) = await ears.heard()
        assert came.text == "from a person" and len(ears.arrivals) == 1


async def test_only_authenticated_senders_count(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, _, _, ears):
        ada = Writer(dovecot, "ada@example.org")
        for seen in (
            "",
            f"{SERVER}; dmarc=fail header.from=example.org",
            f"{SERVER}; dmarc=pass header.from=elsewhere.example",
            f"{SERVER}; spf=pass smtp.mailfrom=x@elsewhere.example; dkim=pass header.d=elsewhere.example",
            "other.example; dmarc=pass header.from=example.org",
        ):
            await ada.write("somebody else", Authentication_Results=seen)
        for seen in ("dkim=pass (good) header.d=example.org", "spf=pass smtp.mailfrom=bounce@example.org"):
            await ada.write(seen, Authentication_Results=f"{SERVER}; {seen}")
        assert [each.text for each in await ears.heard(2)] == [
            "dkim=pass (good) header.d=example.org",
            "spf=pass smtp.mailfrom=bounce@example.org",
        ]
    async with served(tmp_path / "anyone", trust="anyone") as (dovecot, _, _, ears):
        await Writer(dovecot, "ada@example.org").write("unauthenticated", Authentication_Results="")
        assert (await ears.heard())[0].text == "unauthenticated"


async def test_pictures_reach_the_model_and_files_are_saved(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, _, _, ears):
        ada = Writer(dovecot, "ada@example.org")
        message = ada.compose("look at these")
        message.add_attachment(PNG, maintype="image", subtype="png", filename="dot.png")
        message.add_attachment(b"a;b\n", maintype="text", subtype="csv", filename="../../e:vil.csv")
        inner = EmailMessage()
        inner["Subject"] = "inside"
        inner.set_content("an older mail")
        message.add_attachment(inner)
        await ada.send(message)
        (came,) = await ears.heard()
        assert came.text == "look at these" and came.images[0].data == PNG and came.images[0].media_type == "image/png"
        assert [(file.name, file.mime) for file in came.files] == [
            ("e_vil.csv", "text/csv"),
            ("attachment-3.eml", "message/rfc822"),
        ]
        assert Path(came.files[0].path).read_bytes() == b"a;b\n"
        assert Path(came.files[0].path).parent == tmp_path / "home" / "files"
        assert b"an older mail" in Path(came.files[1].path).read_bytes()


async def test_only_the_head_of_a_strangers_mail_is_read(tmp_path: Path) -> None:
    async with Dovecot() as dovecot, Smarthost() as smarthost:
        platform = post(tmp_path, dovecot, smarthost)

        async def nobody(_came: IncomingMessage) -> bool:
            return False

        platform.set_fetch_policy(nobody)
        async with receive_once(platform) as ears:
            await ears.wait_status("ready", 2)
            ada = Writer(dovecot, "ada@example.org")
            message = ada.compose("a long story", subject="Hello")
            message.add_attachment(b"x", maintype="text", subtype="csv", filename="x.csv")
            await ada.send(message)
            (came,) = await ears.heard()
            assert (came.text, came.files) == ("Hello", ()) and not (tmp_path / "home" / "threads").exists()
            await said(platform, came.address, "I do not know you.")
            (answer,) = await smarthost.got()
            assert answer["In-Reply-To"] == message["Message-ID"]


async def test_mail_missed_while_down_is_read_once_and_older_mail_is_ignored(tmp_path: Path) -> None:
    async with Dovecot() as dovecot:
        ada = Writer(dovecot, "ada@example.org")
        await ada.write("before our time")
        platform = post(tmp_path, dovecot, None)
        async with receive_once(platform) as ears:
            await ears.wait_status("ready", 2)
            await ada.write("one")
            assert [each.text for each in await ears.heard()] == ["one"]
            await ears.wait_status("ready", 4)
        await ada.write("two")
        await ada.write("three")
        async with receive_once(platform) as ears:
            assert [each.text for each in await ears.heard(2)] == ["two", "three"]
            await ears.wait_status("ready", 2)
        async with receive_once(platform) as ears:
            await ears.wait_status("ready", 2)
            await ada.write("four")
            assert [each.text for each in await ears.heard()] == ["four"]


async def test_undelivered_mail_is_read_again(tmp_path: Path) -> None:
    async def failing(_came: IncomingMessage) -> None:
        raise StoreError("the disk is full")

    async with served(tmp_path) as (dovecot, _, platform, ears):
        ears.before = failing
        await Writer(dovecot, "ada@example.org").write("one")
        assert isinstance(await ears.broken(), StoreError)
        async with receive_once(platform) as ears:
            assert [each.text for each in await ears.heard()] == ["one"]


async def test_after_renumbering_recent_mail_is_read_again(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, _, _platform, ears):
        ada = Writer(dovecot, "ada@example.org")
        await ada.write("one")
        first = (await ears.heard())[0]
        await ears.wait_status("ready", 4)
    seen = tmp_path / "home" / "seen.json"
    seen.write_text('{"validity": 1, "uid": 99}')
    async with Dovecot() as dovecot:
        await Writer(dovecot, "ada@example.org").write("one", Message_ID=first.message)
        async with receive_once(post(tmp_path, dovecot, None)) as ears:
            assert [each.id for each in await ears.heard()] == [first.id]


async def test_a_closed_connection_is_reported(tmp_path: Path) -> None:
    async with served(tmp_path) as (dovecot, _, _, ears):
        await dovecot.down()
        assert isinstance(await ears.broken(), DeliveryError)


async def test_a_hanging_server_is_detected(tmp_path: Path) -> None:
    async with served(tmp_path, renew=0.2, patience=0.3) as (dovecot, _, _, ears):
        dovecot.freeze()
        assert "sent nothing" in str(await ears.broken())
        dovecot.freeze(signal.SIGCONT)


async def test_readiness_is_reported_while_no_mail_arrives(tmp_path: Path) -> None:
    async with served(tmp_path, renew=0.05) as (_, _, _, ears):
        await ears.wait_status("ready", 9)
        assert not ears.trouble


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_tls_is_used_and_trusts_only_the_configured_authority(tmp_path: Path, security: str) -> None:
    async with Dovecot() as dovecot, Smarthost(tls=security) as smarthost:
        port = dovecot.imaps if security == "tls" else dovecot.imap
        ways = server("imap", "127.0.0.1", port, security) | server("smtp", "127.0.0.1", smarthost.port, security)
        platform = post(tmp_path, dovecot, smarthost, **ways, ca_file=str(ca_file(tmp_path)))
        async with receive_once(platform) as ears:
            await ears.wait_status("ready", 2)
            await said(platform, Address("email", "ada@example.org"), "Hello.")
            await smarthost.got()
        careless = post(tmp_path, dovecot, smarthost, **ways)
        async with receive_once(careless) as ears:
            assert "CERTIFICATE_VERIFY_FAILED" in str(await ears.broken())
        with pytest.raises(DeliveryError, match="CERTIFICATE_VERIFY_FAILED"):
            await said(careless, Address("email", "ada@example.org"), "Hello.")


async def test_config_errors_do_not_show_the_password(tmp_path: Path) -> None:
    async with Dovecot() as dovecot, Smarthost() as smarthost:
        wrong = post(tmp_path, dovecot, smarthost, password=Secret("wr0ng"))
        async with receive_once(wrong) as ears:
            trouble = await ears.broken()
            assert isinstance(trouble, ConfigError) and "wr0ng" not in str(trouble)
        with pytest.raises(DeliveryError, match="does not accept our password"):
            await said(wrong, Address("email", "ada@example.org"), "Hello.")
        async with receive_once(post(tmp_path, dovecot, smarthost, folder="Bücher & Co")) as ears:
            assert isinstance(await ears.broken(), ConfigError) and "Bücher" in str(ears.trouble)


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "nobody"},
        {"address": "a b@c"},
        server("imap", "mail.example.org", 143, "none"),
        server("smtp", "mail.example.org", 25, "none"),
    ],
)
def test_invalid_settings_are_rejected_at_once(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"email\.(address|imap|smtp)"):
        post(tmp_path, None, None, **wrong)
