"""`alipes serve`: its words, and what each of them loads. Serving itself is in `cli/serve`."""

import argparse
import asyncio
import getpass
import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import structs

from alipes.cli import help_text, render
from alipes.cli.common import in_store
from alipes.cli.options import Words
from alipes.cli.serve import api_keys
from alipes.cli.serve.run import Serving, serve
from alipes.cli.serve.signals import succeed
from alipes.cli.stdio import terminal_width
from alipes.config.environment import inherited
from alipes.config.loader import read
from alipes.config.paths import make_private
from alipes.config.settings import Serve, Settings, build, load, with_plugins
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import ago
from alipes.kernel.outbox import Debt, DebtState
from alipes.runtime import threads
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.log_file import open_log
from alipes.runtime.systemd import Notifier

LISTED = 200
_OPEN: tuple[DebtState, ...] = ("owed", "trying", "dead", "expired")
_STATES: dict[DebtState, str] = {
    "owed": "waits",
    "trying": "is being sent",
    "sent": "delivered",
    "dead": "given up",
    "expired": "too late",
}


def show(settings: Settings, *, all: bool, json: bool) -> int:
    debts = in_store(settings, lambda store: store.outbox.look(*(() if all else _OPEN), limit=LISTED))
    if json:
        print(msgspec.json.encode(debts).decode())
        return 0
    if not debts:
        print("Nothing is owed, and nothing was given up.")
        return 0
    width = terminal_width(sys.stdout)
    for line in render.table([("NUMBER", "STATE", "TRIES", "SINCE", "TO", "TEXT", "WHY"), *map(_row, debts)]):
        print(render.cut(line, width) if width else line.rstrip())
    return 0


def again(settings: Settings, number: int) -> int:
    if in_store(settings, lambda store: store.outbox.again(number)):
        print(f"{number} is owed again.")
        return 0
    sys.stderr.write(f"alipes serve outbox: there is no {number} among those that were given up\n")
    return 1


def drop(settings: Settings, number: int) -> int:
    if in_store(settings, lambda store: store.outbox.drop(number)):
        print(f"{number} is not sent any more.")
        return 0
    sys.stderr.write(f"alipes serve outbox: there is no {number} that waits or was given up\n")
    return 1


def _row(debt: Debt) -> tuple[str, ...]:
    said, state = debt.outbound, _STATES[debt.state]
    place = ":".join(filter(None, (said.address.platform, said.address.chat, said.address.thread)))
    cells = (
        str(debt.number),
        f"{state}, perhaps twice" if debt.uncertain else state,
        str(debt.attempts),
        ago(debt.created),
        place,
        render.one_line(said.text or ", ".join(each.name for each in said.media), 40),
        render.one_line(debt.why, 60),
    )
    return tuple(map(render.harmless, cells))


NAME = "alipes.service"
WATCHED = 30
"""Seconds without a sign of life after which systemd takes us for hung."""
SPARE = 15
"""Seconds beyond the drain for everything to close."""


def install(settings: Settings, *, system: bool, write: bool) -> int:
    text = unit(settings, system=system)
    if not write:
        print(text, end="")
        return 0
    file = place(system)
    try:
        if not system:
            make_private(file.parent)
        file.write_text(text)
    except OSError as error:
        fix = "run it as root, or leave out --system" if system else "make its folder writable"
        raise ConfigError(f"{file} cannot be written ({error.strerror}); {fix}") from error
    own = "" if system else " --user"
    print(f"Written to {file}. What is left to do:")
    print(f"  systemctl{own} daemon-reload && systemctl{own} enable --now alipes")
    if not system:
        print("  loginctl enable-linger    # so that it runs while you are logged out")
    return 0


def place(system: bool) -> Path:
    return Path("/etc/systemd/system" if system else Path.home() / ".config/systemd/user") / NAME


def unit(settings: Settings, *, system: bool) -> str:
    """Restarted when it fails, but not over wrong settings; told apart by the exit status."""
    own = [f"User={getpass.getuser()}"] if system else []
    lines = [
        "[Unit]",
        "Description=alipes, a personal agent in your chats",
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        *own,
        f"Environment={_quoted(f'ALIPES_HOME={settings.home}')}",
        f"WorkingDirectory={_escaped(settings.workdir or os.path.expanduser('~'))}",
        f"ExecStart={_quoted(sys.executable)} -m alipes serve",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        f"WatchdogSec={WATCHED}",
        f"TimeoutStopSec={settings.serve.drain + SPARE:.0f}",
        "KillMode=mixed",
        "UMask=0077",
        "",
        "[Install]",
        f"WantedBy={'multi-user' if system else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%").replace("$", "$$")


HURRIED = 130


def run(argv: list[str]) -> int:
    words = Words("alipes serve", help_text.SERVE)
    words.add_argument("--host", default="")
    words.add_argument("--port", type=_port, default=None)
    for flag in ("--replace", "--safe", "--all", "--json", "--new", "--system", "--write"):
        words.add_argument(flag, action="store_true")
    words.add_argument("--scope", choices=("read", "run", "admin"), default="run")
    words.add_argument("--days", type=_above_zero, default=0.0)
    words.add_argument("--rate", type=_rate, default=None)
    given, named = words.split(argv)
    match named:
        case []:
            status = _serve(given)
        case ["outbox", *rest]:
            status = _outbox(words, given, rest)
        case ["key", *rest]:
            status = _key(words, given, rest)
        case ["install"]:
            status = install(load(), system=given.system, write=given.write)
        case _:
            words.error(f"no such action: {' '.join(named)} (there are outbox, key, install)")
    return status


def _outbox(words: Words, given: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case [] | ["list"]:
            status = show(load(), all=given.all, json=given.json)
        case ["again" | "drop" as act, number] if number.isdecimal():
            status = (again if act == "again" else drop)(load(), int(number))
        case ["again" | "drop" as act, *_]:
            words.error(f"`outbox {act}` takes one NUMBER, as `outbox list` shows it")
        case _:
            words.error(f"no such action: outbox {' '.join(rest)} (there are list, again, drop)")
    return status


def _serve(given: argparse.Namespace) -> int:
    settings = with_plugins(build(read()), not given.safe)
    settings = structs.replace(settings, serve=_where(settings, given))
    if not is_loopback(settings.serve.host) and not settings.serve.key:
        raise ConfigError(
            f"serve.host = {settings.serve.host} can be reached from elsewhere, and there is no key that "
            f"callers must show: run `alipes serve key`, which makes {settings.serve.key_env}"
        )
    settings = api_keys.with_key(settings)
    environ = inherited()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        if given.replace:
            succeed(settings, environ)
        try:
            order = threads.run(serve(Serving(settings, Notifier(environ))))
        except asyncio.CancelledError:  # told twice: what was being done is taken up at the next start
            return HURRIED
    if order == "restart":
        _begin_anew(environ)
    return 0


def _where(settings: Settings, given: argparse.Namespace) -> Serve:
    serve = settings.serve
    port = serve.port if given.port is None else given.port
    return structs.replace(serve, host=given.host or serve.host, port=port)


def _begin_anew(environ: dict[str, str]) -> NoReturn:
    """The same words once more, in the same process: whoever watches over it sees no end."""
    words = [word for word in sys.argv[1:] if word != "--replace"]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "alipes", *words], environ)


def _key(words: Words, given: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case []:
            status = api_keys.show(load(), new=given.new)
        case ["list"]:
            status = api_keys.list_all(load(), json=given.json)
        case ["add", name]:
            status = api_keys.add(load(), name, given.scope, days=given.days, rate=given.rate)
        case ["revoke", name]:
            status = api_keys.revoke(load(), name)
        case ["add" | "revoke" as act, *_]:
            words.error(f"`key {act}` takes one NAME")
        case _:
            words.error(f"no such action: key {' '.join(rest)} (there are add, list, revoke)")
    return status


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _rate(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of requests a minute")
    return int(text)


def _above_zero(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days < 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return days
