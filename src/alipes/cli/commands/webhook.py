"""`alipes webhook`: ways in for what happens elsewhere. They are made here, and served by `alipes serve`."""

import argparse
import asyncio
import re
import sys
from pathlib import Path

import msgspec

from alipes.cli import help_text, render
from alipes.cli.common import in_store
from alipes.cli.options import Words
from alipes.cli.serve.signals import CLAIM
from alipes.config.platforms import MESSENGERS
from alipes.config.settings import Settings, load
from alipes.gateway.outbound.send import addressed
from alipes.kernel.errors import ConfigError, NotTaken
from alipes.kernel.formatting import ago, did_you_mean
from alipes.runtime.process_lock import holder
from alipes.store.api_keys import SqliteWebhooks, Standing, Webhook
from alipes.store.store import Store, open_store
from alipes.web.webhooks import bring, is_secret, make_secret

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_SAMPLE = b'{"test": "sent by `alipes webhook test`"}'


def run(argv: list[str]) -> int:
    words = Words("alipes webhook", help_text.WEBHOOK)
    words.add_argument("-p", "--prompt", default="")
    words.add_argument("--to", default="")
    words.add_argument("--style", choices=("standard", "github"), default="standard")
    words.add_argument("--tools", default=None)
    words.add_argument("-m", "--model", default="")
    words.add_argument("--rate", type=int, default=60)
    words.add_argument("--body", default="")
    for flag in ("--together", "--secret", "--json"):
        words.add_argument(flag, action="store_true")
    given, named = words.split(argv)
    match named:
        case [] | ["list"]:
            status = _list(load(), json=given.json)
        case ["add", name]:
            if not given.prompt.strip():
                words.error("what is to be done when something arrives? Say it with --prompt")
            status = _add(load(), _webhook(name, given), _secret_of(given))
        case ["test", name]:
            status = asyncio.run(_test(load(), name, _body(given.body)))
        case ["remove", name]:
            status = _remove(load(), name)
        case ["add" | "test" | "remove" as act, *_]:
            words.error(f"`{act}` takes one NAME")
        case _:
            words.error(f"no such action: {' '.join(named)} (there are add, list, test, remove)")
    return status


def _webhook(name: str, given: argparse.Namespace) -> Webhook:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a webhook's name: take small letters, digits, and -, _ or . between them"
        )
    tools = None
    if given.tools is not None:
        tools = tuple(each.strip() for each in given.tools.split(",") if each.strip())
    return Webhook(
        name,
        given.prompt,
        given.style,
        target=given.to,
        tools=tools,
        model=given.model,
        rate=max(0, given.rate),
        together=given.together,
    )


def _secret_of(given: argparse.Namespace) -> str:
    """One that the sender chose, from standard input; else one of ours."""
    if not given.secret:
        return make_secret(given.style)
    secret = sys.stdin.readline().strip()
    if not is_secret(given.style, secret):
        like = "16 characters or more" if given.style == "github" else "whsec_ and 16 bytes or more in base64"
        raise ConfigError(f"what was piped in cannot be the secret: that is {like}")
    return secret


def _add(settings: Settings, webhook: Webhook, secret: str) -> int:
    async def act(store: Store) -> bool:
        if webhook.target:
            await _check_target(store, webhook.target)
        return await SqliteWebhooks(store.database).add(webhook, secret)

    if not in_store(settings, act):
        raise ConfigError(f"there is a webhook {webhook.name} already: remove it first, or take another name")
    serving = holder(settings.paths.run / CLAIM)
    where = serving.address if serving else f"http://{settings.serve.host}:{settings.serve.port}"
    sys.stderr.write(
        f"POST {where}/hooks/{webhook.name}, signed with this secret, which is not shown again:\n"
    )
    print(secret)
    return 0


async def _check_target(store: Store, target: str) -> None:
    homes, people = await store.people.homes(), await store.people.all()
    known = {*MESSENGERS, *homes, *(each.platform for each in people)}
    try:
        await addressed(store.people, target, "an answer", known)
    except NotTaken as refused:
        raise ConfigError(str(refused)) from refused


def _list(settings: Settings, *, json: bool) -> int:
    found = in_store(settings, lambda store: SqliteWebhooks(store.database).all())
    if json:
        print(msgspec.json.encode(found).decode())
        return 0
    if not found:
        print("There are no webhooks. `alipes webhook add NAME --prompt WORDS` makes one.")
        return 0
    for line in render.table([("NAME", "SIGNED", "TOLD TO", "TAKEN", "LAST", "PROMPT"), *map(_row, found)]):
        print(line)
    return 0


def _row(standing: Standing) -> tuple[str, ...]:
    hook = standing.webhook
    cells = (
        hook.name,
        hook.style,
        hook.target or "nobody",
        str(standing.taken),
        "never" if standing.last is None else ago(standing.last),
        render.one_line(hook.prompt, 60),
    )
    return tuple(map(render.harmless, cells))


async def _test(settings: Settings, name: str, body: bytes) -> int:
    """Bring `body` as whoever has the secret would, to the one that serves this home."""
    serving = holder(settings.paths.run / CLAIM)
    if serving is None:
        raise ConfigError("nobody serves this home: start `alipes serve` first")
    async with open_store(settings.home) as store:
        hooks = SqliteWebhooks(store.database)
        known = await hooks.find(name)
        if known is None:
            raise ConfigError(_missing(name, await hooks.all()))
    status, text = await bring(serving.address, *known, body)
    print(f"{status} {text}")
    return 0 if status < 300 else 1


def _remove(settings: Settings, name: str) -> int:
    async def act(store: Store) -> str:
        hooks = SqliteWebhooks(store.database)
        return "" if await hooks.remove(name) else _missing(name, await hooks.all())

    if why := in_store(settings, act):
        raise ConfigError(why)
    print(f"The webhook {name} takes nothing any more.")
    return 0


def _missing(name: str, all: tuple[Standing, ...]) -> str:
    known = [each.webhook.name for each in all]
    return f"there is no webhook {name!r}.{did_you_mean(name, known)}"


def _body(text: str) -> bytes:
    """As it stands, or `@FILE`."""
    if not text.startswith("@"):
        return text.encode() or _SAMPLE
    try:
        return Path(text[1:]).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{text[1:]} cannot be read: {error.strerror}") from error
