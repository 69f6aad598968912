"""`alipes setup`: a short guided start. Asks for provider, key and model, tries them, writes them down."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from msgspec import structs

from alipes.cli.options import Words
from alipes.cli.setup.check import Trouble, ask_somewhere, list_somewhere
from alipes.cli.setup.plan import Given, Plan, changes, settle, told
from alipes.cli.setup.prompts import Dialogue, Left, Option, Plain, Screen
from alipes.cli.setup.wizard import Guide
from alipes.cli.stdio import wants_colour
from alipes.config.editor import change
from alipes.config.loader import Reading, read
from alipes.config.schema import WIRES
from alipes.config.settings import Settings, build, load
from alipes.kernel.errors import ConfigError
from alipes.runtime.http.clients import ClientScope

PAGE = """\
usage: alipes setup [OPTIONS]

A short guided start: choose a provider, paste its key, choose a model. Key and model are
tried out with a real question before anything is written; Ctrl-C leaves everything as it
was. What you give as an option is not asked; where there is no terminal, give all of it.

options:
  --provider NAME       anthropic, openai, ollama, embedded, ... or a name for your own
  --key-env VARIABLE    the key is in this variable already
  --key-stdin           read the key from standard input, and keep it in .env
  --model NAME          the model, as the provider calls it
  --base-url URL        the address of a server of your own, or of a gateway
  --api API             how it is spoken to: openai-chat (default), openai-responses, anthropic
  --no-check            ask nobody whether it works
  -y, --yes             write without asking back
  -h, --help            show this page

Exit status: 0 written; 1 it does not work; 2 wrong usage or settings, or something is
missing; 130 left. Unless it is 0, nothing was changed.
"""
UNCHANGED = "Nothing was changed."
LEFT = 130


def run(argv: list[str]) -> int:
    """Do what the words say. Answers go to standard output, errors to standard error."""
    words = _words()
    try:
        given = words.parse_args(argv)
        if given.key_env and given.key_stdin:
            words.error("--key-env and --key-stdin contradict each other")
        reading = read()
        settings = build(reading)
        asked = Given(
            provider=given.provider,
            base_url=given.base_url,
            api=given.api,
            key=_read_key() if given.key_stdin else "",
            key_env=given.key_env,
            model=given.model,
            check=given.check,
            yes=given.yes,
        )
        return _set_up(reading, settings, asked)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except (Left, KeyboardInterrupt):
        print(f"\n{UNCHANGED}", file=sys.stderr)
        return LEFT
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2


def _words() -> Words:
    words = Words("alipes setup", PAGE)
    for name in ("--provider", "--key-env", "--model", "--base-url"):
        words.add_argument(name, default="")
    words.add_argument("--api", default="", choices=("", *WIRES))
    words.add_argument("--key-stdin", action="store_true")
    words.add_argument("--no-check", dest="check", action="store_false")
    words.add_argument("-y", "--yes", action="store_true")
    return words


def _read_key() -> str:
    """At a terminal it is asked for like any other key."""
    if _is_terminal(sys.stdin):
        return ""
    if not (key := sys.stdin.read().strip() if sys.stdin else ""):
        raise ConfigError("--key-stdin: standard input was empty.")
    return key


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _set_up(reading: Reading, settings: Settings, given: Given) -> int:
    dialogue: Dialogue | None = None
    if _is_terminal(sys.stdin) and _is_terminal(sys.stdout):
        dumb = reading.variables.get("TERM") in ("", "dumb", "unknown")
        dialogue = Plain() if dumb else Screen(colour=wants_colour(reading.variables))
    plan = asyncio.run(_plan(reading, settings, given, dialogue))
    if isinstance(plan, Trouble):
        print(f"{plan}\n{UNCHANGED} --no-check writes it all the same.", file=sys.stderr)
        return 1
    for line in _write(plan, settings, seen=dialogue is not None and not given.yes):
        print(line)
    return 0


async def _plan(
    reading: Reading, settings: Settings, given: Given, dialogue: Dialogue | None
) -> Plan | Trouble:
    """What is agreed on; without a terminal, what was given, or why it does not work."""
    if dialogue is None:
        plan = settle(settings, reading.variables, given)
        return await _tried(plan, settings) if given.check else plan
    dialogue.tell("Three questions; Ctrl-C leaves everything as it was.")
    async with _scope(settings) as scope:
        plan = await Guide(settings, reading.variables, scope, dialogue, given).plan()
        if not given.yes:
            dialogue.tell("\nThis will be written:")
            for line in told(settings, *changes(plan, settings)):
                dialogue.tell(line)
            options = [Option("yes", "yes"), Option("no", "no", "leave everything as it was")]
            if await dialogue.choose("Write it", options, hint="Enter to choose") == "no":
                raise Left
        return plan


async def _tried(plan: Plan, settings: Settings) -> Plan | Trouble:
    async with _scope(settings) as scope:
        offered, at = await list_somewhere(plan.endpoint, scope)
        if isinstance(offered, Trouble):
            if offered.kind != "address":
                return offered
            offered = ()  # not everyone lists models: the question will tell
        plan = structs.replace(plan, endpoint=at)
        answer, at = await ask_somewhere(plan, settings, scope, offered)
        return answer if isinstance(answer, Trouble) else structs.replace(plan, endpoint=at)


def _scope(settings: Settings) -> ClientScope:
    return ClientScope(settings.proxies, trust=settings.ca_file or None)


def _write(plan: Plan, settings: Settings, *, seen: bool) -> Iterator[str]:
    """Write it, and tell what; not once more to someone who has just seen it."""
    values, secrets = changes(plan, settings)
    with _undisturbed():
        left = change(values, secrets, home=settings.home)
    if not seen:
        yield "Written:"
        yield from told(settings, values, secrets)
    yield f"\n{plan.name} answers from now on. Next:"
    yield "  alipes              talk"
    yield '  alipes ask "..."    one question, one answer'
    yield "  alipes doctor       if something does not work"
    if (winning := load(settings.home).model) != plan.name:
        yield f"\nBut ALIPES_MODEL says {winning}, which wins while it is set."
    yield from (f"Still wrong in the file: {problem}" for problem in left)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Two files are written, both or none: a Ctrl-C between them comes too late."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
