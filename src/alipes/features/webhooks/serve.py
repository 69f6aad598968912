"""What a process that serves adds for webhooks."""

from functools import partial

from starlette.routing import Route

from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.server import Server
from alipes.features.webhooks.feature import WebhooksFeature
from alipes.features.webhooks.routes import WebhookRoutes, list_toolless
from alipes.web.router import ApiRouter


def routes(feature: WebhooksFeature, server: Server, _api: ApiRouter) -> list[Route]:
    app = feature.app
    hooks = WebhookRoutes(
        app.sessions,
        app.features.get(SchedulesFeature).schedules,
        feature.webhooks,
        server.resolve_target,
        workdir=server.workdir,
        state=server.state,
        secrets=app.secrets,
    )
    if app.store.clustered:
        server.add_background(hooks.rate_limiter.share(app.store))
    server.add_notes(partial(_list_notes, feature))
    return hooks.routes()


async def _list_notes(feature: WebhooksFeature) -> list[str]:
    return list_toolless(await feature.webhooks.all())
