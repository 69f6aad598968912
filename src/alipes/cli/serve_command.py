"""`alipes serve`: its words, and what each of them loads. Serving itself is in `cli/serve`."""

import argparse
import asyncio
import os
import sys
from typing import NoReturn

from msgspec import structs

from alipes.cli import manual
from alipes.cli.arguments import Words
from alipes.cli.serve import keys, outbox, unit
from alipes.cli.serve.running import Serving, serve
from alipes.cli.serve.succession import succeed
from alipes.config.reading import read
from alipes.config.settings import Serve, Settings, build, load, with_plugins
from alipes.config.variables import inherited
from alipes.kernel.errors import ConfigError
from alipes.runtime import workers
from alipes.runtime.logs import open_log
from alipes.runtime.notify import Notifier
from alipes.runtime.routes import is_loopback

HURRIED = 130


def run(argv: list[str]) -> int:
    words = Words("alipes serve", manual.SERVE)
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
            status = unit.install(load(), system=given.system, write=given.write)
        case _:
            words.error(f"no such action: {' '.join(named)} (there are outbox, key, install)")
    return status


def _outbox(words: Words, given: argparse.Namespace, rest: list[str]) -> int:
    match rest:
        case [] | ["list"]:
            status = outbox.show(load(), all=given.all, json=given.json)
        case ["again" | "drop" as act, number] if number.isdecimal():
            status = (outbox.again if act == "again" else outbox.drop)(load(), int(number))
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
    settings = keys.with_key(settings)
    environ = inherited()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        if given.replace:
            succeed(settings, environ)
        try:
            order = workers.run(serve(Serving(settings, Notifier(environ))))
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
            status = keys.show(load(), new=given.new)
        case ["list"]:
            status = keys.list_all(load(), json=given.json)
        case ["add", name]:
            status = keys.add(load(), name, given.scope, days=given.days, rate=given.rate)
        case ["revoke", name]:
            status = keys.revoke(load(), name)
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
