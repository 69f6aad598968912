"""`alipes page`: prints links that log browsers in to the page, lists them and logs them out."""

import argparse
import sys
import time
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from alipes.config.extras import explain_missing
from alipes.config.loader import load_settings
from alipes.config.paths import LOCK_NAME
from alipes.config.settings import Settings
from alipes.console import help_text
from alipes.console.common import print_list, run_in_store
from alipes.console.options import Details, OptionParser, whole_number
from alipes.console.stdio import is_terminal
from alipes.kernel.errors import ConfigError, MissingExtra
from alipes.kernel.formatting import did_you_mean, format_ago, format_count, format_duration
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.process_lock import find_holder
from alipes.store.html_export import to_html
from alipes.store.sql.browsers import Browser
from alipes.store.sql.shares import MAX_DAYS, Share
from alipes.store.sql.store import Store

_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Addresses that mean all of this machine, and one that a browser can open."""
EXIT_NOT_SERVED = 1
_BLOCKS = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
"""By two modules, one above the other; 1 is dark."""


class PageBrowser(msgspec.Struct, frozen=True):
    """A row of `alipes page list --json`."""

    id: str
    name: str
    scope: str
    created: float
    last_seen: float
    expires: float


def run(argv: list[str]) -> int:
    details: Details = {
        "scope": {"choices": ("read", "admin"), "default": "admin"},
        "days": {"type": whole_number(1, MAX_DAYS, f"a number of days from 1 to {MAX_DAYS}"), "default": 7},
    }
    parser = OptionParser("alipes page", help_text.PAGE, details)
    args, named = parser.parse_with_words(argv)
    match named:
        case []:
            return _log_in(load_settings(), args)
        case ["list"]:
            return _list(load_settings(), json=args.json)
        case ["revoke"] if args.all:
            return _revoke_all(load_settings())
        case ["revoke", name] if not args.all:
            return _revoke(load_settings(), name)
        case ["revoke", *_]:
            parser.error("`revoke` takes one BROWSER as shown by `list`, or --all")
        case ["share", name]:
            return _write(load_settings(), name, args.file) if args.file else _share(load_settings(), name, args.days)
        case ["shares"]:
            return _list_shares(load_settings(), json=args.json)
        case ["unshare", id]:
            return _unshare(load_settings(), id)
    return parser.error(f"unknown action: {' '.join(named)} (use list, revoke, share, shares or unshare)")


def _log_in(settings: Settings, args: argparse.Namespace) -> int:
    if args.qr and find_spec("segno") is None:
        raise MissingExtra(explain_missing("serve"), "serve")
    address = _find_address(settings)
    if not address:
        sys.stderr.write(
            "alipes page: `alipes serve` is not running, so there is no page to open. Start it in another terminal "
            "with `alipes serve`, then run `alipes page` again.\n"
        )
        return EXIT_NOT_SERVED
    code = run_in_store(settings, lambda store: store.browsers.add_code(args.scope, args.name))
    link = code.link(address)
    may = "It can change nothing." if args.scope == "read" else "It can do everything you can do here."
    sys.stderr.write(f"Open this link within five minutes. It logs one browser in, once. {may}\n")
    sys.stderr.flush()
    print(link, flush=True)
    if args.qr:
        _print_qr(link)
    for note in _list_notes(address, phone=args.qr):
        sys.stderr.write(f"{note}\n")
    if args.open and not webbrowser.open(link):
        sys.stderr.write("No browser could be started: open the link yourself.\n")
    return 0


def _share(settings: Settings, name: str, days: int) -> int:
    address = _find_address(settings)
    if not address:
        sys.stderr.write(
            "alipes page: `alipes serve` is not running, so nobody could open a link. Start it in another terminal, or "
            "use --file FILE, which writes the conversation as one HTML file.\n"
        )
        return EXIT_NOT_SERVED

    async def act(store: Store) -> tuple[str, Share, str]:
        facts = await store.archive.resolve(name, title_start=True)
        return (facts.title, *await store.shares.add(facts.id, days))

    title, share, token = run_in_store(settings, act)
    lasts = format_duration(share.expires - share.created)
    sys.stderr.write(
        f"Everybody who has this link can read “{title}” as it is now, for {lasts}. "
        f"End it with `alipes page unshare {share.id}`.\n"
    )
    sys.stderr.flush()
    print(f"{address.rstrip('/')}/shared/{token}", flush=True)
    for note in _list_notes(address, phone=False):
        sys.stderr.write(f"{note}\n")
    return 0


def _write(settings: Settings, name: str, file: str) -> int:
    async def act(store: Store) -> str:
        exported = await store.archive.export((await store.archive.resolve(name, title_start=True)).id)
        return to_html(exported, shared=time.time())

    text = run_in_store(settings, act)
    if file == "-":
        print(text)
        return 0
    try:
        Path(file).expanduser().write_text(text, "utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    print(f"Written to {file}.")
    return 0


def _list_shares(settings: Settings, *, json: bool) -> int:
    found = run_in_store(settings, lambda store: store.shares.all())
    rows = (
        (each.id, each.session, format_ago(each.created), f"in {format_duration(each.expires - time.time())}")
        for each in found
    )
    empty = "No conversation is shared. Make a link with `alipes page share CONVERSATION`."
    print_list(found, ("ID", "CONVERSATION", "MADE", "EXPIRES"), rows, json=json, empty=empty)
    return 0


def _unshare(settings: Settings, id: str) -> int:
    if not run_in_store(settings, lambda store: store.shares.end(id)):
        raise ConfigError(f"there is no link {id!r}; see `alipes page shares`")
    print("The link was ended.")
    return 0


def _find_address(settings: Settings) -> str:
    """Where browsers reach the page; empty if it is not served."""
    serving = find_holder(settings.paths.run / LOCK_NAME)
    if serving is None or not serving.address:
        return ""
    if settings.page.address:
        return settings.page.address
    address = urlsplit(serving.address)
    host = _EVERY_ADDRESS.get(address.hostname or "")
    return f"http://{host}:{address.port}" if host else serving.address


def _list_notes(address: str, *, phone: bool) -> list[str]:
    parts = urlsplit(address)
    local = is_loopback(parts.hostname or "")
    if phone and local:
        return ["A phone cannot reach this address. Set page.address to one that it can reach; see docs/page.md."]
    if parts.scheme == "http" and not local:
        return ["This address is not encrypted: others in the network can read along. See docs/page.md for https."]
    return []


def _print_qr(link: str) -> None:
    """Print the link as a QR code in half blocks: light on dark, at a terminal whatever its colours are."""
    import segno  # noqa: PLC0415

    rows = [bytes(row) for row in segno.make(link, error="l", micro=False).matrix_iter(border=2)]
    rows += [b"\1" * len(rows[0])] * (len(rows) % 2)
    start, end = ("\033[38;5;231;48;5;16m", "\033[0m") if is_terminal(sys.stdout) else ("", "")
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        print(start + "".join(_BLOCKS[pair] for pair in zip(upper, lower, strict=True)) + end)
    sys.stdout.flush()


def _list(settings: Settings, *, json: bool) -> int:
    found = run_in_store(settings, _read_browsers)
    shown = [PageBrowser(each.id, each.name, each.scope, each.created, each.last_seen, each.expires) for each in found]
    head = ("ID", "NAME", "SCOPE", "LOGGED IN", "LAST USED", "EXPIRES AFTER")
    empty = "No browser is logged in. Get a link with `alipes page`."
    print_list(shown, head, map(_format_row, found), json=json, empty=empty)
    return 0


async def _read_browsers(store: Store) -> tuple[Browser, ...]:
    return await store.browsers.all()


def _format_row(browser: Browser) -> tuple[str, ...]:
    expires = f"{format_duration(browser.expires - browser.last_seen)} without use"
    return browser.id, browser.name, browser.scope, format_ago(browser.created), format_ago(browser.last_seen), expires


def _revoke(settings: Settings, name: str) -> int:
    async def act(store: Store) -> Browser:
        browser = _choose(await _read_browsers(store), name)
        await store.browsers.revoke(browser.id)
        return browser

    print(f"{run_in_store(settings, act).name} was logged out.")
    return 0


def _revoke_all(settings: Settings) -> int:
    async def act(store: Store) -> int:
        browsers = store.browsers
        return sum([await browsers.revoke(each.id) for each in await browsers.all()])

    print(f"{format_count(run_in_store(settings, act), 'browser')} logged out.")
    return 0


def _choose(browsers: tuple[Browser, ...], name: str) -> Browser:
    found = [each for each in browsers if each.id == name]
    found = found or [each for each in browsers if each.name.lower() == name.lower()]
    found = found or [each for each in browsers if each.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{name!r} matches {format_count(len(found), 'browser')}; use the id that `list` shows")
    raise ConfigError(f"unknown browser {name!r}.{did_you_mean(name, [each.id for each in browsers])}")
