"""`alipes serve key`: API keys, and the host rules of the HTTP server."""

import secrets
import sys
import time
from urllib.parse import urlsplit

from msgspec import structs

from alipes.config.editor import set_secret
from alipes.config.settings import Settings
from alipes.console.common import check_label, print_list, run_in_store
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_ago, format_duration
from alipes.kernel.models import Secret
from alipes.store.sql.api_keys import ApiKey, ApiKeyStore, KeyScope
from alipes.store.sql.store import Store
from alipes.web.auth import MIN_KEY_CHARS, OPERATOR, FindKey, KeyHolder, hash_key
from alipes.web.endpoint import Caller
from alipes.web.page.browsers import PAGE
from alipes.web.server import HostPolicy

DAY_S = 86_400.0


def make_host_rules(settings: Settings) -> HostPolicy:
    """The host names and origins that the server accepts, including those of messengers' webhooks and of the page."""
    page, messengers = urlsplit(settings.page.address), structs.asdict(settings.messengers).values()
    webhooks = (urlsplit(each.public_url).hostname for each in messengers)
    hosts = frozenset({*settings.api.hosts, *filter(None, (*webhooks, page.hostname))})
    own = f"{page.scheme}://{page.netloc}"  # a proxy may send another Host than the browser saw
    return HostPolicy(settings.serve.host, hosts, frozenset(settings.api.origins), own if page.netloc else "")


def key_finder(callers: ApiKeyStore) -> FindKey:
    """A function that looks up named keys in the store."""

    async def find(hash: bytes) -> KeyHolder | None:
        key = await callers.find(hash)
        return None if key is None else KeyHolder(Caller(key.name, frozenset({key.scope})), key.rate)

    return find


def ensure_operator_key(settings: Settings) -> Settings:
    """The settings with an operator key; a missing one is created and saved."""
    if settings.serve.key:
        return settings
    made = Secret(secrets.token_urlsafe(32))
    set_secret(settings.serve.key_env, made.reveal(), home=settings.home)
    serve = structs.replace(settings.serve, key=made)
    return structs.replace(settings, serve=serve, hidden=(*settings.hidden, made))


def check_operator_key(settings: Settings) -> None:
    """Raises `ConfigError` if the operator's key is so short that it could be guessed."""
    name = settings.serve.key_env
    if len(settings.serve.key.reveal()) < MIN_KEY_CHARS:
        raise ConfigError(
            f"the API key in {name} is too short: it needs {MIN_KEY_CHARS} characters or more. "
            f"Remove {name}, then run `alipes serve key` to create one"
        )


def print_operator_key(settings: Settings, *, new: bool) -> int:
    """Print the operator key; create it if it is missing or if `new`."""
    if settings.serve.key and not new:
        print(settings.serve.key.reveal())
        return 0
    serve = structs.replace(settings.serve, key=Secret())
    made = ensure_operator_key(structs.replace(settings, serve=serve))
    sys.stderr.write(f"New key saved in {settings.paths.env} as {serve.key_env}; restart a running `alipes serve`.\n")
    print(made.serve.key.reveal())
    return 0


def add_key(
    settings: Settings, name: str, scope: KeyScope, *, days: float, rate: int | None, unlisted: bool = False
) -> int:
    """Create the key `name` and print it once. `unlisted`: the page does not show its conversations."""
    reserved = {
        OPERATOR: f"; {OPERATOR} is the key in {settings.serve.key_env}",
        PAGE: f"; {PAGE} is what browsers are",
    }
    check_label("key", name, reserved.get(name, ""))
    key = f"alipes_{secrets.token_urlsafe(32)}"

    async def act(store: Store) -> bool:
        callers = store.api_keys
        return await callers.add(name, hash_key(key), scope, lifetime_s=days * DAY_S, rate=rate, unlisted=unlisted)

    if not run_in_store(settings, act):
        raise ConfigError(f"key {name} already exists: revoke it first, or choose another name")
    sys.stderr.write(f"Key {name} ({scope}); it is not shown again:\n")
    print(key)
    return 0


def list_keys(settings: Settings, *, json: bool) -> int:
    found = run_in_store(settings, lambda store: store.api_keys.all())
    there = settings.serve.key_env if settings.serve.key else "not created yet"
    operator = (OPERATOR, "admin", there, "never", _format_rate(settings.api.rate))
    head = ("NAME", "SCOPE", "CREATED", "EXPIRES", "PER MINUTE")
    print_list(found, head, [operator, *map(_format_row, found)], json=json)
    return 0


def revoke_key(settings: Settings, name: str) -> int:
    async def act(store: Store) -> tuple[bool, tuple[str, ...]]:
        callers = store.api_keys
        return await callers.revoke(name), tuple(each.name for each in await callers.all())

    gone, left = run_in_store(settings, act)
    if not gone:
        if name == OPERATOR:
            raise ConfigError(f"{settings.serve.key_env} cannot be revoked; replace it with `alipes serve key --new`")
        raise ConfigError(f"unknown key {name!r}.{did_you_mean(name, left)}")
    print(f"Key {name} was revoked.")
    return 0


def _format_row(key: ApiKey) -> tuple[str, str, str, str, str]:
    left = None if key.expires is None else key.expires - time.time()
    expires = "never" if left is None else f"in {format_duration(left)}" if left > 0 else "expired"
    rate = "default" if key.rate is None else _format_rate(key.rate)
    return key.name, key.scope, format_ago(key.created), expires, rate


def _format_rate(rate: int) -> str:
    return str(rate) if rate else "unlimited"
