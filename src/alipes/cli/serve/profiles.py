"""Several profiles in one process: each has its own app, store, bots, keys, port and log.

A profile that fails is reported and tried again later; the others are not affected.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct, structs

from alipes.cli.serve.run import open_process, print_error, serve_home, wait_for_exit
from alipes.cli.serve.signals import ExitAction, ExitRequest
from alipes.config.display import is_secret_name, looks_secret
from alipes.config.environment import process_environment
from alipes.config.loader import CA_VARIABLE, PROXY_VARIABLES, load_settings
from alipes.config.paths import DEFAULT_PROFILE, PROFILE_VARIABLE, Paths, find_profile, use_environ
from alipes.config.settings import Settings
from alipes.core.resources import hide_secrets
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.models import Secret
from alipes.runtime import process_setup
from alipes.runtime.log_file import log_scope, log_secrets, open_log
from alipes.runtime.systemd import SystemdNotifier
from alipes.runtime.watchdog import Watchdog

RETRY_S = 60.0
"""Seconds after which a profile that failed is tried again."""
_MACHINE = {spelling for name in (*PROXY_VARIABLES, CA_VARIABLE) for spelling in (name, name.lower())}
"""Variables for the whole machine, also if they hold a password."""

log = logging.getLogger(__name__)


class HostedProfile(Struct, frozen=True):
    name: str
    home: Path
    environ: Mapping[str, str]
    prepare: Callable[[Settings], Settings]
    """Applies the options of the command line and checks the result. Raises ConfigError."""

    def load(self) -> Settings:
        """The current settings, as this profile sees its environment. Raises ConfigError."""
        with use_environ(self.environ):
            return self.prepare(load_settings(self.home))


def find_hosted(
    root: Path, names: Sequence[str], prepare: Callable[[Settings], Settings]
) -> tuple[tuple[HostedProfile, ...], dict[str, str]]:
    """The profiles to serve, and why the others cannot be served."""
    found, problems = list[HostedProfile](), dict[str, str]()
    secrets = _secrets_in_environment(root)
    for name in dict.fromkeys(names):
        try:
            home = find_profile(root, name)
        except ConfigError as error:
            problems[name] = str(error)
            continue
        environ = process_environment() if name == DEFAULT_PROFILE else _shared_environment(secrets)
        environ.pop(PROFILE_VARIABLE, None)
        found.append(HostedProfile(name, home, {**environ, "ALIPES_HOME": str(home)}, prepare))
    return tuple(found), problems


def _secrets_in_environment(root: Path) -> set[str]:
    """The secrets of the default profile: its settings may name any variable."""
    try:
        return set(load_settings(root, {**process_environment(), PROFILE_VARIABLE: ""}).secrets())
    except ConfigError:
        return set()


def _shared_environment(secrets: set[str]) -> dict[str, str]:
    """The environment without keys, which are those of the default profile: the others have theirs in their `.env`."""
    return {
        name: value
        for name, value in process_environment().items()
        if name in _MACHINE or not (is_secret_name(name) or looks_secret(value) or value in secrets)
    }


@contextmanager
def open_logs(root: Path, profiles: Sequence[HostedProfile]) -> Iterator[None]:
    """The log of each profile, and one in the default home for what belongs to the process; that one masks the secrets
    of all. Enter it outside of the event loop."""
    with ExitStack() as stack:
        shared = stack.enter_context(open_log(Paths(root).make().log, scope=""))
        for profile in profiles:
            level, secrets = Settings(home=profile.home).log_level, tuple[str, ...]()
            with suppress(ConfigError):  # reported when the profile is opened
                settings = profile.load()
                hide_secrets(settings)
                level, secrets = settings.log_level, settings.secrets()
            with suppress(ConfigError):
                file = Paths(profile.home).make().log
                stack.enter_context(open_log(file, level, secrets, scope=profile.name, also=shared))
        yield


class ProfileRunner:
    """Serves one profile until the process exits; /restart in one of its chats restarts this profile only."""

    def __init__(self, profile: HostedProfile, bots: dict[tuple[str, str], str]) -> None:
        """`bots`: the tokens in use, and by which profile; shared by all runners."""
        self.profile, self._bots = profile, bots
        self.settled = asyncio.Event()
        """Set when it was opened or has failed."""
        self.problem = ""
        self.exit_request = ExitRequest()

    async def run(self, process_exit: asyncio.Event) -> None:
        """Serve until `process_exit` is set and `exit_request` is made."""
        with use_environ(self.profile.environ), log_scope(self.profile.name):
            while not process_exit.is_set():
                problem = await self._serve(process_exit)
                if problem and problem != self.problem:
                    print_error(f"profile {self.profile.name} is not served: {problem}")
                self.problem = problem
                self.settled.set()
                if problem:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(process_exit.wait(), RETRY_S)

    async def _serve(self, process_exit: asyncio.Event) -> str:
        """Serve until an exit is requested; returns why it failed, or nothing."""
        try:
            async with asyncio.TaskGroup() as group:  # whatever fails comes out as a group
                group.create_task(self._serve_home(process_exit))
        except ExceptionGroup as failed:
            log.error("the profile failed", exc_info=failed)
            return log_secrets()(_describe(failed))
        finally:
            self._bots.update({bot: "" for bot, name in self._bots.items() if name == self.profile.name})
        return ""

    async def _serve_home(self, process_exit: asyncio.Event) -> None:
        settings = await asyncio.to_thread(self.profile.load)
        await asyncio.to_thread(settings.paths.make)
        self._claim_bots(settings)
        if process_exit.is_set():
            return
        self.exit_request = ExitRequest()  # the one before may have asked for this start
        await serve_home(settings, SystemdNotifier({}), self.exit_request, self._opened)

    def _claim_bots(self, settings: Settings) -> None:
        """Two profiles with the same bot would take each other's messages. Raises ConfigError."""
        for platform, config in settings.messengers.configured.items():
            tokens = [value for value in structs.asdict(config).values() if isinstance(value, Secret) and value]
            for token in tokens:
                other = self._bots.get((platform, token.reveal()))
                if other and other != self.profile.name:
                    raise ConfigError(f"it has the same {platform} bot as profile {other}: give it its own token.")
                self._bots[platform, token.reveal()] = self.profile.name

    def _opened(self, status: str) -> None:
        self.problem = ""
        self.settled.set()
        log.info("%s", status)


async def serve_profiles(profiles: Sequence[HostedProfile], notifier: SystemdNotifier) -> ExitAction:
    """Serve until a signal; returns what it asks for. Raises ConfigError if no profile can be opened."""
    bots: dict[tuple[str, str], str] = {}
    with open_process() as signals:
        async with Watchdog():  # of the process: that of one app would end with it
            runners = [ProfileRunner(profile, bots) for profile in profiles]
            stopped = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                pings = group.create_task(notifier.send_watchdog_pings())
                tasks = [group.create_task(runner.run(stopped)) for runner in runners]
                for runner in runners:
                    await runner.settled.wait()
                opened = [runner.profile.name for runner in runners if not runner.problem]
                if opened:
                    process_setup.tune_garbage_collector()
                    notifier.ready(f"serving the profiles {', '.join(opened)}")
                    await wait_for_exit(signals, lambda: [profile.load() for profile in profiles])
                    _notify(notifier, signals.action)
                stopped.set()
                for runner in runners:
                    runner.exit_request.request(signals.action)
                hurry = group.create_task(_forward_hurry(signals, runners))
                await asyncio.wait(tasks)
                for task in (hurry, pings):
                    task.cancel()
        if not opened:
            raise ConfigError("no profile can be served; see above")
        return signals.action


def _describe(failed: BaseException) -> str:
    if isinstance(failed, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_describe(each) for each in failed.exceptions))
    return str(failed) if isinstance(failed, AlipesError) else f"{type(failed).__name__}: {failed} (see its log)"


def _notify(notifier: SystemdNotifier, action: ExitAction) -> None:
    if action == "restart":
        notifier.reloading()
    else:
        notifier.stopping("bringing turns to a safe point")


async def _forward_hurry(signals: ExitRequest, runners: Sequence[ProfileRunner]) -> None:
    await signals.hurry.wait()
    for runner in runners:
        runner.exit_request.hurry.set()
