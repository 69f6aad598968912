"""`alipes setup`: asks for provider, key and model, tests them and saves them."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import msgspec
from msgspec import structs
from prompt_toolkit.application import create_app_session

from alipes.cli.setup.check import SetupProblem, list_models_or_v1, try_model_or_v1
from alipes.cli.setup.plan import SetupOptions, SetupPlan, format_changes, plan_changes, plan_from_options
from alipes.cli.setup.prompts import Choice, PlainPrompter, Prompter, SetupCancelled, TerminalPrompter
from alipes.cli.setup.wizard import SetupWizard
from alipes.config.editor import change
from alipes.config.loader import build_settings, load_settings
from alipes.config.paths import current_environ
from alipes.config.reader import RawConfig, read_config
from alipes.config.schema import WIRE_APIS
from alipes.config.settings import Settings
from alipes.console import help_text
from alipes.console.extras import offer_messengers
from alipes.console.options import Details, OptionParser, print_config_errors
from alipes.console.stdio import is_terminal, use_colour
from alipes.features.importer.reader import describe_homes
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.providers.registry import open_models
from alipes.runtime.program_name import program_name

UNCHANGED = "Nothing changed."
EXIT_CANCELLED = 130


@print_config_errors
def run(argv: list[str]) -> int:
    details: Details = {"api": {"choices": ("", *WIRE_APIS)}, "no-check": {"dest": "check", "action": "store_false"}}
    parser = OptionParser("alipes setup", help_text.SETUP, details)
    given = parser.parse_args(argv)
    if given.key_env and given.key_stdin:
        parser.error("use either --key-env or --key-stdin")
    try:
        reading = read_config()
        settings = build_settings(reading)
        key = _read_key() if given.key_stdin else ""
        return _run_setup(reading, settings, msgspec.convert({**vars(given), "key": key}, SetupOptions))
    except (SetupCancelled, KeyboardInterrupt):
        print(f"\n{UNCHANGED}", file=sys.stderr)
        return EXIT_CANCELLED


def _read_key() -> str:
    """The piped key; at a terminal it is asked for later."""
    if is_terminal(sys.stdin):
        return ""
    if not (key := sys.stdin.read().strip() if sys.stdin else ""):
        raise ConfigError("--key-stdin: standard input was empty.")
    return key


async def run_inside(*, plain: bool = False) -> int:
    """The wizard in a terminal that a conversation has released; the exit status. `plain`: line by line."""
    with create_app_session(), redirect_stdout(sys.__stdout__), redirect_stderr(sys.__stderr__):
        try:
            reading = read_config()
            settings = build_settings(reading)
            prompter = PlainPrompter() if plain else TerminalPrompter(colour=use_colour(reading.variables))
            plan = await _make_plan(reading, settings, SetupOptions(), prompter)
            if isinstance(plan, SetupProblem):
                print(f"{plan}\n{UNCHANGED}")
                return 1
            for line in list(_write(plan, settings, seen=True))[3:]:  # only problems; the rest is for a shell
                print(line)
        except SetupCancelled:
            print(UNCHANGED)
            return 1
        except AlipesError as error:
            print(f"{error}\n{UNCHANGED}")
            return 1
    return 0


def _run_setup(reading: RawConfig, settings: Settings, given: SetupOptions) -> int:
    prompter: Prompter | None = None
    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        dumb = reading.variables.get("TERM") in ("", "dumb", "unknown")
        prompter = PlainPrompter() if dumb else TerminalPrompter(colour=use_colour(reading.variables))
    plan = asyncio.run(_make_plan(reading, settings, given, prompter))
    if isinstance(plan, SetupProblem):
        print(f"{plan}\n{UNCHANGED} Use --no-check to save it anyway.", file=sys.stderr)
        return 1
    for line in _write(plan, settings, seen=prompter is not None and not given.yes):
        print(line)
    offer_messengers(settings)
    for line in describe_homes(current_environ(), Path.home()):
        print(line)
    return 0


async def _make_plan(
    reading: RawConfig, settings: Settings, given: SetupOptions, prompter: Prompter | None
) -> SetupPlan | SetupProblem:
    """The confirmed plan; without a terminal, the plan from the options or the problem with it."""
    if prompter is None:
        plan = plan_from_options(settings, reading.variables, given)
        return await _check_plan(plan, settings) if given.check else plan
    prompter.note("Let's connect a model. Ctrl-C cancels.")
    async with open_models(settings) as (scope, _):
        plan = await SetupWizard(settings, reading.variables, scope, prompter, given).run()
        if not given.yes:
            prompter.note("\nSave to:")
            for line in format_changes(settings, *plan_changes(plan, settings)):
                prompter.note(line)
            options = [Choice("yes", "yes"), Choice("no", "no", "cancel")]
            if await prompter.choose("Save?", options, first="yes") == "no":
                raise SetupCancelled
        return plan


async def _check_plan(plan: SetupPlan, settings: Settings) -> SetupPlan | SetupProblem:
    async with open_models(settings) as (scope, _):
        offered, at = await list_models_or_v1(plan.endpoint, scope)
        if isinstance(offered, SetupProblem):
            if offered.kind != "address":
                return offered
            offered = ()  # not every server lists models: the test below decides
        plan = structs.replace(plan, endpoint=at)
        answer, at = await try_model_or_v1(plan, settings, scope, offered)
        return answer if isinstance(answer, SetupProblem) else structs.replace(plan, endpoint=at)


def _write(plan: SetupPlan, settings: Settings, *, seen: bool) -> Iterator[str]:
    """Save the plan and yield the lines to print; `seen`: the user has just seen the changes."""
    values, secrets = plan_changes(plan, settings)
    with _block_interrupt():
        left = change(values, secrets, home=settings.home)
    if not seen:
        yield "Saved to:"
        yield from format_changes(settings, values, secrets)
    name = program_name()
    yield f"\nDone: using {plan.name}. Start with: {name}"
    yield f'  {name} ask "..."    ask one question'
    yield f"  {name} doctor       check for problems"
    if (winning := load_settings(settings.home).model) != plan.name:
        yield f"\nBut ALIPES_MODEL is set to {winning} and overrides it."
    yield from (f"Remaining problem in the file: {problem}" for problem in left)


@contextmanager
def _block_interrupt() -> Iterator[None]:
    """Ignore Ctrl-C while two files are written, so that both or none are."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
