"""Opens the scheduler of `alipes serve`, and the one that runs a single job without a server."""

from functools import partial

from alipes.app import App, make_outbound_policy
from alipes.cli.serve.platforms import ServedPlatforms
from alipes.config.platforms import MESSENGERS
from alipes.features.schedules.events import MailTrigger
from alipes.features.schedules.scheduler import Scheduler, SchedulerLimits
from alipes.features.schedules.settlement import AnswerPlaces, RunSettler
from alipes.gateway.gateway import Gateway
from alipes.kernel.outbox import Outbound
from alipes.plugins.owner import CORE
from alipes.runtime.http.public_fetch import PublicFetcher


def make_scheduler(app: App, platforms: ServedPlatforms) -> Scheduler:
    """The scheduler beside the gateway; mails may start jobs too."""
    app.hooks.add(CORE, MailTrigger(app.schedules.jobs).before_message)
    places = AnswerPlaces(
        app.store.people,
        platforms.outbound,
        lambda: platforms.names,
        app.settings.paths.schedules,
        _fetcher(app),
        partial(_notify, platforms.gateway),
    )
    return _make(app, places, platforms.workdir)


def make_lone_scheduler(app: App, workdir: str) -> Scheduler:
    """For one run without a server: messages to chats are queued."""
    outbound = make_outbound_policy(app.settings)
    places = AnswerPlaces(
        app.store.people, outbound, lambda: tuple(MESSENGERS), app.settings.paths.schedules, _fetcher(app)
    )
    return _make(app, places, workdir)


def _make(app: App, places: AnswerPlaces, workdir: str) -> Scheduler:
    chosen = app.settings.schedules
    settler = RunSettler(app.schedules.runs, app.sessions, places)
    limits = SchedulerLimits(chosen.parallel, chosen.per_day, workdir)
    return Scheduler(app.schedules, app.sessions, settler, limits, skills=app.skills)


def _fetcher(app: App) -> PublicFetcher:
    network = app.network
    allowed = app.settings.fetch.allow
    return PublicFetcher(
        app.scope, allowed, name="schedules", decide=network.rights.decide, counts=network.proxy.counts
    )


def _notify(gateway: Gateway, outbound: Outbound) -> None:
    gateway.delivery.notify(outbound.address.platform, outbound.lane)
