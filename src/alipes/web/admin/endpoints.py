"""The administration endpoints of the core."""

from alipes.core.app import App
from alipes.web.admin.cluster import ClusterEndpoints
from alipes.web.admin.log import LogEndpoints
from alipes.web.admin.people import PeopleEndpoints
from alipes.web.admin.platforms import OutboxEndpoints, PlatformEndpoints
from alipes.web.admin.plugins import PluginEndpoints
from alipes.web.admin.server import ServerEndpoints
from alipes.web.admin.settings import SettingsEndpoints
from alipes.web.control import ServerControl
from alipes.web.endpoint import ApiEndpoint, endpoints_of


def admin_endpoints(app: App, control: ServerControl) -> tuple[ApiEndpoint, ...]:
    """`control`: what the process that serves does."""
    groups = (
        SettingsEndpoints(app, control),
        PeopleEndpoints(app),
        PlatformEndpoints(app, control),
        OutboxEndpoints(app, control),
        PluginEndpoints(app, control),
        LogEndpoints(app),
        ServerEndpoints(app, control),
        ClusterEndpoints(app),
    )
    return tuple(endpoint for group in groups for endpoint in endpoints_of(group))
