"""`alipes serve`: its options, the outbox commands and the systemd unit."""

import argparse
import asyncio
import getpass
import os
import sys
from pathlib import Path
from typing import NoReturn

from msgspec import structs

from alipes.cli import help_text, render
from alipes.cli.common import print_json, print_table, run_in_store
from alipes.cli.options import OptionParser
from alipes.cli.serve import api_keys
from alipes.cli.serve.run import ServeContext, serve
from alipes.cli.serve.signals import replace_running_server
from alipes.config.environment import process_environment
from alipes.config.loader import build_settings, load_settings, with_plugins
from alipes.config.paths import make_private
from alipes.config.reader import read_config
from alipes.config.settings import ServeConfig, Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_ago
from alipes.kernel.outbox import Delivery, DeliveryState
from alipes.runtime import tasks
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.log_file import open_log
from alipes.runtime.systemd import SystemdNotifier

MAX_LISTED = 200
_OPEN: tuple[DeliveryState, ...] = ("queued", "sending", "failed", "expired")
_STATES: dict[DeliveryState, str] = {
    "queued": "queued",
    "sending": "sending",
    "sent": "sent",
    "failed": "failed",
    "expired": "expired",
}


def print_outbox(settings: Settings, *, all: bool, json: bool) -> int:
    deliveries = run_in_store(
        settings, lambda store: store.outbox.list_deliveries(*(() if all else _OPEN), limit=MAX_LISTED)
    )
    if json:
        print_json(deliveries)
        return 0
    if not deliveries:
        print("The outbox is empty.")
        return 0
    print_table([("NUMBER", "STATE", "TRIES", "SINCE", "TO", "TEXT", "WHY"), *map(_format_row, deliveries)])
    return 0


def retry_delivery(settings: Settings, number: int) -> int:
    if run_in_store(settings, lambda store: store.outbox.requeue(number)):
        print(f"#{number} was queued again.")
        return 0
    sys.stderr.write(f"alipes serve outbox: there is no failed message #{number}\n")
    return 1


def drop_delivery(settings: Settings, number: int) -> int:
    if run_in_store(settings, lambda store: store.outbox.discard(number)):
        print(f"#{number} will not be sent.")
        return 0
    sys.stderr.write(f"alipes serve outbox: there is no queued or failed message #{number}\n")
    return 1


def _format_row(delivery: Delivery) -> tuple[str, ...]:
    outbound, state = delivery.outbound, _STATES[delivery.state]
    place = ":".join(filter(None, (outbound.address.platform, outbound.address.chat, outbound.address.thread)))
    cells = (
        str(delivery.number),
        f"{state}, maybe twice" if delivery.uncertain else state,
        str(delivery.attempts),
        format_ago(delivery.created),
        place,
        render.to_one_line(outbound.text or ", ".join(each.name for each in outbound.media), 40),
        render.to_one_line(delivery.why, 60),
    )
    return tuple(map(render.sanitize, cells))


UNIT_NAME = "alipes.service"
WATCHDOG_S = 30
"""systemd restarts the service after this time without a sign of life."""
EXIT_GRACE_S = 15
"""Time after the drain to close everything."""


def install_unit(settings: Settings, *, system: bool, write: bool) -> int:
    text = make_unit(settings, system=system)
    if not write:
        print(text, end="")
        return 0
    file = unit_path(system)
    try:
        if not system:
            make_private(file.parent)
        file.write_text(text)
    except OSError as error:
        fix = "run it as root, or omit --system" if system else "make its directory writable"
        raise ConfigError(f"cannot write {file} ({error.strerror}); {fix}") from error
    own = "" if system else " --user"
    print(f"Written to {file}. Next:")
    print(f"  systemctl{own} daemon-reload && systemctl{own} enable --now alipes")
    if not system:
        print("  loginctl enable-linger    # keep it running while you are logged out")
    return 0


def unit_path(system: bool) -> Path:
    return Path("/etc/systemd/system" if system else Path.home() / ".config/systemd/user") / UNIT_NAME


def make_unit(settings: Settings, *, system: bool) -> str:
    """The text of the unit. systemd restarts it on failure, but not for wrong settings (status 2)."""
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
        f"Environment={_quote(f'ALIPES_HOME={settings.home}')}",
        f"WorkingDirectory={_escape(settings.workdir or os.path.expanduser('~'))}",
        f"ExecStart={_quote(sys.executable)} -m alipes serve",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        f"WatchdogSec={WATCHDOG_S}",
        f"TimeoutStopSec={settings.serve.drain + EXIT_GRACE_S:.0f}",
        "KillMode=mixed",
        "UMask=0077",
        "",
        "[Install]",
        f"WantedBy={'multi-user' if system else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return '"' + _escape(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escape(text: str) -> str:
    return text.replace("%", "%%").replace("$", "$$")


EXIT_HURRIED = 130


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes serve", help_text.SERVE)
    parser.add_argument("--host", default="")
    parser.add_argument("--port", type=_parse_port, default=None)
    for flag in ("--replace", "--safe", "--all", "--json", "--new", "--system", "--write"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--scope", choices=("read", "run", "admin"), default="run")
    parser.add_argument("--days", type=_parse_days, default=0.0)
    parser.add_argument("--rate", type=_parse_rate, default=None)
    args, named = parser.parse_with_words(argv)
    match named:
        case []:
            status = _serve(args)
        case ["outbox", *rest]:
            status = _run_outbox(parser, args, rest)
        case ["key", *rest]:
            status = _run_key(parser, args, rest)
        case ["install"]:
            status = install_unit(load_settings(), system=args.system, write=args.write)
        case _:
            parser.error(f"unknown action: {' '.join(named)} (use outbox, key or install)")
    return status


def _run_outbox(parser: OptionParser, args: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case [] | ["list"]:
            status = print_outbox(load_settings(), all=args.all, json=args.json)
        case ["again" | "drop" as act, number] if number.isdecimal():
            status = (retry_delivery if act == "again" else drop_delivery)(load_settings(), int(number))
        case ["again" | "drop" as act, *_]:
            parser.error(f"`outbox {act}` takes one NUMBER as shown by `outbox list`")
        case _:
            parser.error(f"unknown action: outbox {' '.join(rest)} (use list, again or drop)")
    return status


def _serve(args: argparse.Namespace) -> int:
    settings = with_plugins(build_settings(read_config()), not args.safe)
    settings = structs.replace(settings, serve=_listen_settings(settings, args))
    if not is_loopback(settings.serve.host) and not settings.serve.key:
        raise ConfigError(
            f"serve.host = {settings.serve.host} is reachable from other machines, but no API key is set: "
            f"run `alipes serve key`, which creates {settings.serve.key_env}"
        )
    settings = api_keys.ensure_operator_key(settings)
    environ = process_environment()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        if args.replace:
            replace_running_server(settings, environ)
        try:
            order = tasks.run_event_loop(serve(ServeContext(settings, SystemdNotifier(environ))))
        except asyncio.CancelledError:  # by a second signal; unfinished turns resume at the next start
            return EXIT_HURRIED
    if order == "restart":
        _restart(environ)
    return 0


def _listen_settings(settings: Settings, args: argparse.Namespace) -> ServeConfig:
    serve = settings.serve
    port = serve.port if args.port is None else args.port
    return structs.replace(serve, host=args.host or serve.host, port=port)


def _restart(environ: dict[str, str]) -> NoReturn:
    """Run the same command again in this process, so that its supervisor sees no exit."""
    words = [word for word in sys.argv[1:] if word != "--replace"]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "alipes", *words], environ)


def _run_key(parser: OptionParser, args: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case []:
            status = api_keys.print_operator_key(load_settings(), new=args.new)
        case ["list"]:
            status = api_keys.list_keys(load_settings(), json=args.json)
        case ["add", name]:
            status = api_keys.add_key(load_settings(), name, args.scope, days=args.days, rate=args.rate)
        case ["revoke", name]:
            status = api_keys.revoke_key(load_settings(), name)
        case ["add" | "revoke" as act, *_]:
            parser.error(f"`key {act}` takes one NAME")
        case _:
            parser.error(f"unknown action: key {' '.join(rest)} (use add, list or revoke)")
    return status


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _parse_rate(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of requests per minute")
    return int(text)


def _parse_days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days < 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return days
