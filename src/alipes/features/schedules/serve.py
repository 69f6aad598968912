"""The scheduler of a process that serves, and the one that runs a single job without a server."""

from functools import partial

from starlette.routing import BaseRoute

from alipes.config.messengers import MESSENGERS
from alipes.core.app import App
from alipes.features.schedules.events import MailTrigger
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.scheduler import Scheduler, SchedulerLimits
from alipes.features.schedules.schedules import Schedules
from alipes.features.schedules.settlement import AnswerPlaces, RunSettler
from alipes.features.server import Server
from alipes.features.skills.feature import SkillsFeature
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import make_outbound_policy
from alipes.kernel.outbox import Outbound
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.web.router import ApiRouter


def routes(feature: SchedulesFeature, server: Server, _api: ApiRouter) -> tuple[BaseRoute, ...]:
    """No route, but the scheduler."""
    scheduler = make_scheduler(feature.app, feature.schedules, server)
    server.add_background(feature.app.store.leaders.lead("schedules", scheduler.run))
    return ()


def make_scheduler(app: App, schedules: Schedules, server: Server) -> Scheduler:
    """The scheduler beside the gateway; mails may start jobs too."""
    app.add_hooks(MailTrigger(schedules.jobs).before_message)
    places = AnswerPlaces(
        app.store.people,
        server.outbound,
        lambda: tuple(each.name for each in server.gateway.states()),
        app.settings.paths.schedules,
        _fetcher(app),
        partial(_notify, server.gateway),
    )
    return _make(app, schedules, places, server.workdir)


def make_lone_scheduler(app: App, schedules: Schedules, workdir: str) -> Scheduler:
    """For one run without a server: messages to chats are queued."""
    outbound = make_outbound_policy(app.settings)
    places = AnswerPlaces(
        app.store.people, outbound, lambda: tuple(MESSENGERS), app.settings.paths.schedules, _fetcher(app)
    )
    return _make(app, schedules, places, workdir)


def _make(app: App, schedules: Schedules, places: AnswerPlaces, workdir: str) -> Scheduler:
    chosen = app.settings.schedules
    settler = RunSettler(schedules.runs, app.sessions, places)
    limits = SchedulerLimits(chosen.parallel, chosen.per_day, workdir)
    skills = app.features.get(SkillsFeature).skills
    return Scheduler(schedules, app.sessions, settler, limits, skills=skills)


def _fetcher(app: App) -> PublicFetcher:
    network = app.network
    allowed = app.settings.fetch.allow
    return PublicFetcher(
        app.scope, allowed, name="schedules", decide=network.rights.decide, counts=network.proxy.counts
    )


def _notify(gateway: Gateway, outbound: Outbound) -> None:
    gateway.delivery.notify(outbound.address.platform, outbound.lane)
