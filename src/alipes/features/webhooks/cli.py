"""`alipes webhook`: manages the webhooks that `alipes serve` serves."""

import argparse
import asyncio
import sys
from pathlib import Path

from alipes.config.loader import load_settings
from alipes.config.paths import LOCK_NAME
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.common import check_label, print_list, run_in_store
from alipes.console.inbound import read_schema
from alipes.console.options import Details, OptionParser
from alipes.features.schedules.store.jobs import ScheduleStore
from alipes.features.webhooks.help import WEBHOOK
from alipes.features.webhooks.routes import is_secret, list_toolless, make_secret, send_test_delivery
from alipes.features.webhooks.store import SignatureStyle, Webhook, WebhookStatus, WebhookStore
from alipes.gateway.outbound.target import resolve_target
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_ago
from alipes.runtime.process_lock import find_holder
from alipes.store.open import open_home_store
from alipes.store.sql.store import Store

_SAMPLE = b'{"test": "sent by `alipes webhook test`"}'


def run(argv: list[str]) -> int:
    details: Details = {
        "style": {"choices": ("standard", "github"), "default": "standard"},
        "rate": {"type": int, "default": 60},
    }
    parser = OptionParser("alipes webhook", WEBHOOK, details)
    args, named = parser.parse_with_words(argv)
    match named:
        case [] | ["list"]:
            return _list(load_settings(), json=args.json)
        case ["add", name]:
            if not args.prompt.strip() and (alone := _find_useless(args)):
                parser.error(f"--{alone} needs --prompt; the options of a job are those of `alipes schedule add`")
            return _add(load_settings(), _parse_webhook(name, args), _read_secret(args))
        case ["test", name]:
            return asyncio.run(_test(load_settings(), name, _read_body(args.body)))
        case ["remove", name]:
            return _remove(load_settings(), name)
        case ["tools", name]:
            return _allow_tools(load_settings(), name, _parse_tools(args.tools))
        case ["secret", name]:
            return _set_secret(load_settings(), name, args)
        case ["add" | "test" | "remove" | "tools" | "secret" as act, *_]:
            parser.error(f"`{act}` takes one NAME")
    return parser.error(f"unknown action: {' '.join(named)} (use add, list, tools, secret, test or remove)")


def _find_useless(args: argparse.Namespace) -> str:
    """An option that means nothing without a prompt."""
    return next((name for name in ("to", "tools", "model", "together", "schema") if getattr(args, name)), "")


def _parse_webhook(name: str, args: argparse.Namespace) -> Webhook:
    check_label("webhook", name)
    rest = {"model": args.model, "rate": max(0, args.rate), "together": args.together}
    rest |= {"target": args.to, "tools": _parse_tools(args.tools), "output_schema": read_schema(args.schema)}
    return Webhook(name, args.prompt.strip(), args.style, **rest)


def _parse_tools(names: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in names.split(",") if each.strip())


def _read_secret(args: argparse.Namespace, style: SignatureStyle | None = None) -> str:
    """The sender's secret from standard input, or a new one; `style`: the one of an existing webhook."""
    style = style or args.style
    if not args.secret:
        return make_secret(style)
    secret = sys.stdin.readline().strip()
    if not is_secret(style, secret):
        like = "16 characters or more" if style == "github" else "whsec_ and 16 bytes or more in base64"
        raise ConfigError(f"the piped text is not a valid secret: use {like}")
    return secret


def _add(settings: Settings, webhook: Webhook, secret: str) -> int:
    async def act(store: Store) -> bool:
        if webhook.target:
            await resolve_target(store, webhook.target, "an answer")
        return await store.tables(WebhookStore).add(webhook, secret)

    if not run_in_store(settings, act):
        raise ConfigError(f"webhook {webhook.name} already exists: remove it first, or choose another name")
    if not webhook.prompt:
        name = webhook.name
        sys.stderr.write(f'It only starts jobs: add one with `alipes schedule add "on webhook {name}" PROMPT`.\n')
    return _print_secret(settings, webhook.name, secret)


def _print_secret(settings: Settings, name: str, secret: str) -> int:
    serving = find_holder(settings.paths.run / LOCK_NAME)
    where = serving.address if serving else f"http://{settings.serve.host}:{settings.serve.port}"
    sys.stderr.write(f"POST {where}/hooks/{name}, signed with this secret (it is not shown again):\n")
    print(secret)
    return 0


def _allow_tools(settings: Settings, name: str, tools: tuple[str, ...]) -> int:
    async def act(store: Store) -> str:
        hooks = store.tables(WebhookStore)
        return "" if await hooks.allow_tools(name, tools) else _missing_message(name, await hooks.all())

    if why := run_in_store(settings, act):
        raise ConfigError(why)
    print(f"Tools of webhook {name}: {', '.join(tools) or 'none'}.")
    return 0


def _set_secret(settings: Settings, name: str, args: argparse.Namespace) -> int:
    """Replace the secret, for instance after a restore: backups do not contain it."""

    async def act(store: Store) -> str:
        hooks = store.tables(WebhookStore)
        known = await hooks.find(name)
        if known is None:
            raise ConfigError(_missing_message(name, await hooks.all()))
        secret = _read_secret(args, known[0].style)
        await hooks.set_secret(name, secret)
        return secret

    return _print_secret(settings, name, run_in_store(settings, act))


def _list(settings: Settings, *, json: bool) -> int:
    async def act(store: Store) -> tuple[tuple[WebhookStatus, ...], dict[str, list[str]]]:
        return await store.tables(WebhookStore).all(), await _find_jobs(store)

    found, jobs = run_in_store(settings, act)
    head = ("NAME", "SIGNATURE", "ANSWERS TO", "TOOLS", "USED", "LAST", "JOBS", "PROMPT")
    empty = "No webhooks. Add one with `alipes webhook add NAME --prompt TEXT`."
    rows = [_format_row(each, jobs.get(each.webhook.name, [])) for each in found]
    print_list(found, head, rows, json=json, empty=empty)
    for note in () if json else list_toolless(found):
        print(note)
    return 0


async def _find_jobs(store: Store) -> dict[str, list[str]]:
    """By webhook, the jobs that it starts, also paused ones."""
    found: dict[str, list[str]] = {}
    for schedule in await store.tables(ScheduleStore, store.schedule_changes).all():
        if name := schedule.job.timetable.webhook:
            found.setdefault(name, []).append(schedule.job.name)
    return found


def _format_row(status: WebhookStatus, jobs: list[str]) -> tuple[str, ...]:
    hook = status.webhook
    last = "never" if status.last_delivery is None else format_ago(status.last_delivery)
    prompt = render.to_one_line(hook.prompt, 60)
    tools = ",".join(hook.tools or ()) or "none"
    names = ", ".join(jobs) or "-"
    return hook.name, hook.style, hook.target or "-", tools, str(status.deliveries), last, names, prompt or "-"


async def _test(settings: Settings, name: str, body: bytes) -> int:
    """Send `body`, signed, to the server of this home."""
    serving = find_holder(settings.paths.run / LOCK_NAME)
    if serving is None:
        raise ConfigError("no server is running: start `alipes serve` first")
    async with open_home_store(settings) as store:
        hooks = store.tables(WebhookStore)
        known = await hooks.find(name)
        if known is None:
            raise ConfigError(_missing_message(name, await hooks.all()))
    status, text = await send_test_delivery(serving.address, *known, body)
    print(f"{status} {text}")
    return 0 if status < 300 else 1


def _remove(settings: Settings, name: str) -> int:
    async def act(store: Store) -> list[str]:
        hooks = store.tables(WebhookStore)
        if not await hooks.remove(name):
            raise ConfigError(_missing_message(name, await hooks.all()))
        return (await _find_jobs(store)).get(name, [])

    jobs = run_in_store(settings, act)
    print(f"Webhook {name} was removed.")
    if jobs:
        print(f"Jobs that it no longer starts: {', '.join(jobs)}.")
    return 0


def _missing_message(name: str, all: tuple[WebhookStatus, ...]) -> str:
    known = [each.webhook.name for each in all]
    return f"unknown webhook {name!r}.{did_you_mean(name, known)}"


def _read_body(text: str) -> bytes:
    """The text itself, or the content of `@FILE`."""
    if not text.startswith("@"):
        return text.encode() or _SAMPLE
    try:
        return Path(text[1:]).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{text[1:]} cannot be read: {error.strerror}") from error
