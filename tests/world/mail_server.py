"""Mail on loopback: a real dovecot with the mailbox, and an SMTP server that records what is sent."""

import asyncio
import email
import email.policy
import getpass
import os
import shutil
import signal
import socket
import ssl
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope

from tests.world.environment import require
from tests.world.tls import authority

OURS, PASSWORD, SERVER = "alipes@house.test", 'a p"ss\\wörd', "mx.house.test"
CONF = """base_dir = {run}
state_dir = {run}
log_path = {folder}/dovecot.log
instance_name = alipes-test
protocols = imap lmtp
listen = 127.0.0.1
disable_plaintext_auth = no
mail_location = maildir:{mail}/%u
mailbox_list_index = no
mail_fsync = never
auth_failure_delay = 0
first_valid_uid = 1
{users}
ssl = {ssl}
{certificate}
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=%u {folder}/users
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={mail}/%u
}}
service imap-login {{
  {chroot}
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
  }}
}}
service anvil {{
  {chroot}
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
  unix_listener lmtp {{
    mode = 0
  }}
}}
"""


def find_free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


class Dovecot:
    """The mailbox of `OURS`. It runs as root or as any user.

    It has its own folder: pytest's are private to us, and socket paths must be short.
    """

    def __init__(self, password: str = PASSWORD) -> None:
        self.program = require("dovecot")
        self._password = password
        self.imap, self.imaps, self.lmtp = find_free_ports(3)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Dovecot":
        self.folder = Path(tempfile.mkdtemp(prefix="alipes-mail-"))
        self.folder.chmod(0o755)
        mail, run = self.folder / "mail", self.folder / "run"
        mail.mkdir()
        root, name = os.getuid() == 0, getpass.getuser()
        uid, gid = (65534, 65534) if root else (os.getuid(), os.getgid())
        if root:
            os.chown(mail, uid, gid)
        issued = authority().issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        issued.cert_chain_pems[0].write_to_path(str(self.folder / "cert.pem"))
        (self.folder / "users").write_text(f"{OURS}:{{PLAIN}}{self._password}\n")
        (self.folder / "users").chmod(0o644)
        alone = f"default_login_user = {name}\ndefault_internal_user = {name}"
        text = CONF.format(
            folder=self.folder, run=run, mail=mail, uid=uid, gid=gid, users="" if root else alone,
            chroot="" if root else "chroot =", imap=self.imap, imaps=self.imaps, lmtp=self.lmtp, ssl="yes",
            certificate=f"ssl_cert = <{self.folder}/cert.pem\nssl_key = <{self.folder}/key.pem\nssl_dh =",
        )  # fmt: skip
        (self.folder / "dovecot.conf").write_text(text)
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def up(self) -> None:
        conf = str(self.folder / "dovecot.conf")
        self._process = await asyncio.create_subprocess_exec(self.program, "-F", "-c", conf)
        waiting = [self.lmtp, self.imap, self.imaps]
        while waiting:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", waiting[0])
                writer.close()
                await writer.wait_closed()
                waiting.pop(0)
                continue
            assert self._process.returncode is None, (self.folder / "dovecot.log").read_text()
            await asyncio.sleep(0.01)

    async def down(self) -> None:
        """Stop it with all its children and connections."""
        if self._process is None:
            return
        children = self._children("")
        for pid in (self._process.pid, *children):  # SIGTERM would take a second
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None

    def freeze(self, how: signal.Signals = signal.SIGSTOP) -> None:
        """Make the mailbox processes hang; connections stay open."""
        for pid in self._children():
            os.kill(pid, how)

    def _children(self, of: str = "imap") -> list[int]:
        """Processes of this server: those that serve a mailbox or a login."""
        assert self._process is not None
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                with suppress(OSError):
                    name, _, rest = (each / "stat").read_text().rpartition(") ")
                    if int(rest.split()[1]) == self._process.pid and of in name:
                        found.append(int(each.name))
        return found

    async def deliver(self, raw: bytes, sender: str) -> None:
        """Deliver mail to the mailbox (LMTP)."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.lmtp)
        stuffed = raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n").replace(b"\r\n.", b"\r\n..")
        await _answered(reader, b"220")
        for line in (b"LHLO x", f"MAIL FROM:<{sender}>".encode(), f"RCPT TO:<{OURS}>".encode(), b"DATA"):
            writer.write(line + b"\r\n")
            await _answered(reader, b"250", b"354")
        writer.write(stuffed.rstrip(b"\r\n") + b"\r\n.\r\n")
        await _answered(reader, b"250")
        writer.write(b"QUIT\r\n")
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _answered(reader: asyncio.StreamReader, *wanted: bytes) -> None:
    while True:
        line = await reader.readline()
        assert line.startswith(wanted), line
        if line[3:4] != b"-":
            return


class Smarthost:
    """Accepts mail; `refuse`: replies for the next mails; `lose`: accept without a reply."""

    def __init__(self, *, tls: str = "none", login: bool = True, password: str = PASSWORD) -> None:
        self.tls, self.login, self._password = tls, login, password
        self.sent: list[EmailMessage] = []
        self.refuse: dict[str, list[str]] = {}
        self.lose = 0
        self._news = asyncio.Event()
        self._live: set[asyncio.BaseTransport] = set()

    async def __aenter__(self) -> "Smarthost":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority().issue_cert("127.0.0.1", "localhost").configure_cert(context)

        def made() -> SMTP:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a password without TLS is allowed on loopback
                return SMTP(
                    self,
                    hostname="smart.test",
                    enable_SMTPUTF8=True,
                    loop=loop,
                    tls_context=context if self.tls == "starttls" else None,
                    require_starttls=self.tls == "starttls",
                    authenticator=self._authenticate if self.login else None,
                    auth_required=self.login,
                    auth_exclude_mechanism=() if self.login else ("LOGIN", "PLAIN"),
                    auth_require_tls=False,
                )

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(made, "127.0.0.1", 0, ssl=context if self.tls == "tls" else None)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for transport in self._live:
            transport.close()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    def _authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        right = (data.login.decode(), data.password.decode()) == (OURS, self._password)
        return AuthResult(success=right, handled=False)

    async def handle_MAIL(self, server: SMTP, _session: Any, envelope: Envelope, address: str, options: Any) -> str:
        if server.transport is not None:
            self._live.add(server.transport)
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return self._ruled("MAIL") or "250 OK"

    async def handle_RCPT(self, _server: SMTP, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:
        envelope.rcpt_tos.append(address)
        return self._ruled("RCPT") or "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Any, envelope: Envelope) -> str:
        if error := self._ruled("DATA"):
            return error
        content = envelope.content
        assert isinstance(content, bytes)
        message = email.message_from_bytes(content, policy=email.policy.default)
        assert [message["To"]] == envelope.rcpt_tos and message["From"].addresses[0].addr_spec == envelope.mail_from
        self.sent.append(message)
        self._news.set()
        if self.lose and server.transport is not None:
            self.lose -= 1
            server.transport.close()
        return "250 taken"

    def _ruled(self, verb: str) -> str:
        waiting = self.refuse.get(verb, [])
        return waiting.pop(0) if waiting else ""

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            self._news.clear()
            await self._news.wait()

    async def got(self, count: int = 1) -> list[EmailMessage]:
        await self.until(lambda: len(self.sent) >= count)
        return self.sent


class Writer:
    """A person who mails us. The receiving server confirms their address."""

    def __init__(self, dovecot: Dovecot, address: str, name: str = "") -> None:
        self._dovecot, self.address, self.name = dovecot, address, name
        self._count = 0

    def compose(self, text: str, *, subject: str = "", to: EmailMessage | None = None, **headers: str) -> EmailMessage:
        """`to`: our mail that it answers."""
        self._count += 1
        made = EmailMessage()
        made["Authentication-Results"] = f"{SERVER}; dmarc=pass header.from={self.address.rpartition('@')[2]}"
        made["From"] = f"{self.name} <{self.address}>" if self.name else self.address
        made["To"] = OURS
        made["Date"] = formatdate()
        made["Message-ID"] = f"<{self._count}.{os.urandom(4).hex()}@{self.address.rpartition('@')[2]}>"
        if subject:
            made["Subject"] = subject
        if to is not None:
            made["In-Reply-To"] = to["Message-ID"]
            made["References"] = f"{to['References'] or ''} {to['Message-ID']}".strip()
        for name, value in headers.items():
            key = name.replace("_", "-")
            del made[key]
            if value:
                made[key] = value
        made.set_content(text)
        return made

    async def send(self, message: EmailMessage | bytes) -> None:
        raw = message if isinstance(message, bytes) else message.as_bytes(policy=email.policy.SMTP)
        await self._dovecot.deliver(raw, self.address)

    async def write(self, text: str, **more: Any) -> EmailMessage:
        message = self.compose(text, **more)
        await self.send(message)
        return message
