"""`alipes serve`: its options, the outbox commands and the systemd unit."""

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from msgspec import structs

from alipes.cli.serve import api_keys
from alipes.cli.serve.profiles import find_hosted, open_logs, serve_profiles
from alipes.cli.serve.run import ServeContext, print_error, serve
from alipes.cli.serve.signals import ExitAction, replace_running_server
from alipes.config.environment import process_environment
from alipes.config.loader import load_settings, with_plugins
from alipes.config.paths import DEFAULT_PROFILE, find_home, find_root, make_private, start_command
from alipes.config.settings import Settings
from alipes.console import help_text, render
from alipes.console.common import print_list, run_in_store
from alipes.console.extras import offer_browser, offer_messengers
from alipes.console.options import Details, OptionParser, whole_number
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_ago
from alipes.kernel.outbox import Delivery, DeliveryState
from alipes.runtime import tasks
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.log_file import open_log
from alipes.runtime.processes.ancestors import name_agent_process
from alipes.runtime.systemd import SystemdNotifier

MAX_LISTED = 200
_OPEN: tuple[DeliveryState, ...] = ("queued", "sending", "failed", "expired")


def print_outbox(settings: Settings, *, all: bool, json: bool) -> int:
    deliveries = run_in_store(
        settings, lambda store: store.outbox.list_deliveries(*(() if all else _OPEN), limit=MAX_LISTED)
    )
    head = ("NUMBER", "STATE", "TRIES", "SINCE", "TO", "TEXT", "WHY")
    print_list(deliveries, head, map(_format_row, deliveries), json=json, empty="The outbox is empty.")
    return 0


def change_delivery(settings: Settings, action: str, number: int) -> int:
    """`again`: send a failed message again; `drop`: discard a message."""
    again = action == "again"
    if run_in_store(settings, lambda store: (store.outbox.requeue if again else store.outbox.discard)(number)):
        print(f"#{number} {'was queued again' if again else 'will not be sent'}.")
        return 0
    kind = "failed" if again else "queued or failed"
    sys.stderr.write(f"alipes serve outbox: there is no {kind} message #{number}\n")
    return 1


def _format_row(delivery: Delivery) -> tuple[str, ...]:
    outbound, state = delivery.outbound, delivery.state
    return (
        str(delivery.number),
        f"{state}, maybe twice" if delivery.uncertain else state,
        str(delivery.attempts),
        format_ago(delivery.created),
        ":".join(filter(None, (outbound.address.platform, outbound.address.chat, outbound.address.thread))),
        render.to_one_line(outbound.text or ", ".join(each.name for each in outbound.media), 40),
        render.to_one_line(delivery.why, 60),
    )


WATCHDOG_S = 30
"""systemd restarts the service after this time without a sign of life."""
EXIT_GRACE_S = 15
"""Time after the drain to close everything."""


def install_unit(settings: Settings, profiles: Sequence[str] = (), *, system: bool, write: bool) -> int:
    """`profiles`: those that one process serves, if it is not the one of the settings."""
    text = make_unit(settings, profiles, system=system)
    name = "alipes" if settings.profile == DEFAULT_PROFILE else f"alipes-{settings.profile}"
    if not write:
        print(text, end="")
        return 0
    file = Path("/etc/systemd/system" if system else Path.home() / ".config/systemd/user") / f"{name}.service"
    try:
        if not system:
            make_private(file.parent)
        file.write_text(text)
    except OSError as error:
        fix = "run it as root, or omit --system" if system else "make its directory writable"
        raise ConfigError(f"cannot write {file} ({error.strerror}); {fix}") from error
    own = "" if system else " --user"
    print(f"Written to {file}. Next:")
    print(f"  systemctl{own} daemon-reload && systemctl{own} enable --now {name}")
    if not system:
        print("  loginctl enable-linger    # keep it running while you are logged out")
    return 0


def make_unit(settings: Settings, profiles: Sequence[str] = (), *, system: bool) -> str:
    """The text of the unit. systemd restarts it on failure, but not for wrong settings (status 2)."""
    own = f"User={getpass.getuser()}\n" if system else ""
    words = "".join(f" -P {name}" for name in profiles)
    program, *rest = start_command(settings.home)
    start = " ".join((_quote(program), *rest))
    return f"""\
[Unit]
Description=alipes, a personal agent in your chats
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
{own}Environment={_quote(f"ALIPES_HOME={settings.home}")}
WorkingDirectory={_escape(settings.workdir or os.path.expanduser("~"))}
ExecStart={start} serve{words}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
WatchdogSec={WATCHDOG_S}
TimeoutStopSec={settings.serve.drain + EXIT_GRACE_S:.0f}
KillMode=mixed
UMask=0077

[Install]
WantedBy={"multi-user" if system else "default"}.target
"""


def _quote(text: str) -> str:
    return '"' + _escape(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escape(text: str) -> str:
    return text.replace("%", "%%").replace("$", "$$")


EXIT_HURRIED = 130


def run(argv: list[str]) -> int:
    details: Details = {
        "port": {"type": whole_number(0, 65535, "a port from 0 to 65535"), "default": None},
        "scope": {"choices": ("read", "run", "admin"), "default": "run"},
        "days": {"type": _parse_days, "default": 0.0},
        "rate": {"type": whole_number(0, 1_000_000, "a number of requests per minute"), "default": None},
    }
    parser = OptionParser("alipes serve", help_text.SERVE, details)
    args, named = parser.parse_with_words(argv)
    if args.profile and named not in ([], ["install"]):
        parser.error(f"`{named[0]}` takes one profile: alipes -P NAME serve {' '.join(named)}")
    match named:
        case []:
            return _serve(args)
        case ["outbox", *rest]:
            return _run_outbox(parser, args, rest)
        case ["key", *rest]:
            return _run_key(parser, args, rest)
        case ["install"]:
            return install_unit(load_settings(), args.profile, system=args.system, write=args.write)
    return parser.error(f"unknown action: {' '.join(named)} (use outbox, key or install)")


def _run_outbox(parser: OptionParser, args: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case [] | ["list"]:
            return print_outbox(load_settings(), all=args.all, json=args.json)
        case ["again" | "drop" as act, number] if number.isdecimal():
            return change_delivery(load_settings(), act, int(number))
        case ["again" | "drop" as act, *_]:
            parser.error(f"`outbox {act}` takes one NUMBER as shown by `outbox list`")
    return parser.error(f"unknown action: outbox {' '.join(rest)} (use list, again or drop)")


def _serve(args: argparse.Namespace) -> int:
    loaded = None if args.profile else load_settings()
    names = list(args.profile)
    if loaded is not None and loaded.profile == DEFAULT_PROFILE and loaded.serve.profiles:
        names = [DEFAULT_PROFILE, *loaded.serve.profiles]
    if names:
        return _serve_profiles(args, names)
    settings = _prepare(args, loaded or load_settings())
    environ = process_environment()
    name_agent_process()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        if args.replace:
            replace_running_server(settings, environ)
        order = _run_loop(serve(ServeContext(settings, SystemdNotifier(environ))))
    return _finish(order, settings.home, environ)


def _serve_profiles(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Several profiles in this process."""
    if args.port:
        raise ConfigError("--port is for one profile: set serve.port of each instead (0 = any free port).")
    environ, root = process_environment(), find_root(find_home())
    profiles, problems = find_hosted(root, names, partial(_prepare, args))
    for name, problem in problems.items():
        print_error(f"profile {name} is not served: {problem}")
    name_agent_process()
    with open_logs(root, profiles):
        if args.replace:
            for profile in profiles:
                replace_running_server(Settings(home=profile.home), environ)
        order = _run_loop(serve_profiles(profiles, SystemdNotifier(environ)))
    return _finish(order, root, environ)


def _run_loop(work: Coroutine[Any, Any, ExitAction]) -> ExitAction | None:
    """What `work` returns; None if it was interrupted."""
    try:
        return tasks.run_event_loop(work)
    except asyncio.CancelledError:  # by a second signal; unfinished turns resume at the next start
        return None


def _finish(order: ExitAction | None, home: Path, environ: dict[str, str]) -> int:
    if order == "restart":
        _restart(home, environ)
    return EXIT_HURRIED if order is None else 0


def _prepare(args: argparse.Namespace, loaded: Settings) -> Settings:
    """The settings with the options of the command line, checked. Creates the API key if there is none."""
    offer_messengers(loaded)
    offer_browser(loaded)
    settings = with_plugins(loaded, not args.safe)
    port = settings.serve.port if args.port is None else args.port
    chosen = structs.replace(settings.serve, host=args.host or settings.serve.host, port=port)
    settings = structs.replace(settings, serve=chosen)
    if not is_loopback(settings.serve.host) and not settings.serve.key:
        raise ConfigError(
            f"serve.host = {settings.serve.host} is reachable from other machines, but no API key is set: "
            f"run `alipes serve key`, which creates {settings.serve.key_env}"
        )
    settings = api_keys.ensure_operator_key(settings)
    api_keys.check_operator_key(settings)
    return settings


def _restart(home: Path, environ: dict[str, str]) -> NoReturn:
    """Run the same command again in this process, so that its supervisor sees no exit. An update may have switched the
    version meanwhile."""
    words = [word for word in sys.argv[1:] if word != "--replace"]
    sys.stdout.flush()
    sys.stderr.flush()
    start = start_command(home)
    os.execve(start[0], [*start, *words], environ)


def _run_key(parser: OptionParser, args: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case []:
            return api_keys.print_operator_key(load_settings(), new=args.new)
        case ["list"]:
            return api_keys.list_keys(load_settings(), json=args.json)
        case ["add", name]:
            return api_keys.add_key(
                load_settings(), name, args.scope, days=args.days, rate=args.rate, unlisted=args.unlisted
            )
        case ["revoke", name]:
            return api_keys.revoke_key(load_settings(), name)
        case ["add" | "revoke" as act, *_]:
            parser.error(f"`key {act}` takes one NAME")
    return parser.error(f"unknown action: key {' '.join(rest)} (use add, list or revoke)")


def _parse_days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days < 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return days
