"""Who may come in over HTTP: the door's names from the settings, and the keys of `alipes serve key`."""

import re
import secrets
import sys
import time
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from alipes.cli import render
from alipes.cli.common import in_store
from alipes.config.editor import set_secret
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import ago, did_you_mean, span
from alipes.kernel.models import Secret
from alipes.store.api_keys import KeyScope, NamedKey, SqliteCallers
from alipes.store.store import Store
from alipes.web.auth import OPERATOR, Find, Known, hashed
from alipes.web.endpoint import Caller
from alipes.web.server import Doorway

DAY = 86_400.0
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")


def doorway(settings: Settings) -> Doorway:
    """Under which names the door is called; where Telegram brings its messages is one of them."""
    telegram = settings.messengers.telegram
    brought = urlsplit(telegram.webhook_url).hostname if telegram.mode == "webhook" else None
    hosts = frozenset({*settings.api.hosts, *((brought,) if brought else ())})
    return Doorway(settings.serve.host, hosts, frozenset(settings.api.origins))


def named(callers: SqliteCallers) -> Find:
    """Looks a named key up in the store."""

    async def find(hash: bytes) -> Known | None:
        key = await callers.find(hash)
        return None if key is None else Known(Caller(key.name, frozenset({key.scope})), key.rate)

    return find


def with_key(settings: Settings) -> Settings:
    """The same with an operator's key, which is made and kept where there is none yet."""
    if settings.serve.key:
        return settings
    made = Secret(secrets.token_urlsafe(32))
    set_secret(settings.serve.key_env, made.reveal(), home=settings.home)
    serve = structs.replace(settings.serve, key=made)
    return structs.replace(settings, serve=serve, hidden=(*settings.hidden, made))


def show(settings: Settings, *, new: bool) -> int:
    """The operator's key; one is made where there is none, or a `new` one is wanted."""
    if settings.serve.key and not new:
        print(settings.serve.key.reveal())
        return 0
    serve = structs.replace(settings.serve, key=Secret())
    made = with_key(structs.replace(settings, serve=serve))
    told = f"Made, and kept in {settings.paths.env} as {serve.key_env}; a running `serve` must restart.\n"
    sys.stderr.write(told)
    print(made.serve.key.reveal())
    return 0


def add(settings: Settings, name: str, scope: KeyScope, *, days: float, rate: int | None) -> int:
    """A key of its own for `name`, shown once."""
    if not _NAME.fullmatch(name) or name == OPERATOR:
        raise ConfigError(
            f"{name!r} cannot be the name of a key: take small letters, digits, and -, _ or . between them"
            + (f"; {OPERATOR} is the one of {settings.serve.key_env}" if name == OPERATOR else "")
        )
    key = f"alipes_{secrets.token_urlsafe(32)}"

    async def act(store: Store) -> bool:
        callers = SqliteCallers(store.database)
        return await callers.add(name, hashed(key), scope, lasts=days * DAY, rate=rate)

    if not in_store(settings, act):
        raise ConfigError(f"there is a key {name} already: revoke it first, or take another name")
    sys.stderr.write(f"The key {name} ({scope}); it is not shown again:\n")
    print(key)
    return 0


def list_all(settings: Settings, *, json: bool) -> int:
    found = in_store(settings, lambda store: SqliteCallers(store.database).all())
    if json:
        print(msgspec.json.encode(found).decode())
        return 0
    rows = [("NAME", "SCOPE", "MADE", "EXPIRES", "A MINUTE"), *map(_row, found)]
    there = settings.serve.key_env if settings.serve.key else "not made yet"
    rows.insert(1, (OPERATOR, "admin", there, "never", _rate(settings.api.rate)))
    for line in render.table(rows):
        print(line)
    return 0


def revoke(settings: Settings, name: str) -> int:
    async def act(store: Store) -> tuple[bool, tuple[str, ...]]:
        callers = SqliteCallers(store.database)
        return await callers.revoke(name), tuple(each.name for each in await callers.all())

    gone, left = in_store(settings, act)
    if not gone:
        if name == OPERATOR:
            raise ConfigError(f"the key of {settings.serve.key_env} is renewed by `alipes serve key --new`")
        raise ConfigError(f"there is no key {name!r}.{did_you_mean(name, left)}")
    print(f"The key {name} opens nothing any more.")
    return 0


def _row(key: NamedKey) -> tuple[str, str, str, str, str]:
    left = None if key.expires is None else key.expires - time.time()
    expires = "never" if left is None else f"in {span(left)}" if left > 0 else "expired"
    return key.name, key.scope, ago(key.created), expires, "as all" if key.rate is None else _rate(key.rate)


def _rate(rate: int) -> str:
    return str(rate) if rate else "any number"
