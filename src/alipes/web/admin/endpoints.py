"""All administration endpoints."""

from alipes.features.mcp.endpoints import McpEndpoints
from alipes.features.memory.endpoints import MemoryEndpoints
from alipes.features.schedules.endpoints import ScheduleEndpoints
from alipes.features.skills.endpoints import ProposalEndpoints, SkillEndpoints
from alipes.web.admin.cluster import ClusterEndpoints
from alipes.web.admin.log import LogEndpoints
from alipes.web.admin.people import PeopleEndpoints
from alipes.web.admin.platforms import OutboxEndpoints, PlatformEndpoints
from alipes.web.admin.plugins import PluginEndpoints
from alipes.web.admin.server import ServerEndpoints
from alipes.web.admin.settings import SettingsEndpoints
from alipes.web.control import AdminServices, ServerControl
from alipes.web.endpoint import ApiEndpoint, endpoints_of


def admin_endpoints(app: AdminServices, control: ServerControl) -> tuple[ApiEndpoint, ...]:
    """`control`: what the process that serves does."""
    groups = (
        ScheduleEndpoints(app),
        SettingsEndpoints(app, control),
        PeopleEndpoints(app),
        PlatformEndpoints(app, control),
        OutboxEndpoints(app, control),
        SkillEndpoints(app, control),
        ProposalEndpoints(app),
        MemoryEndpoints(app),
        PluginEndpoints(app, control),
        McpEndpoints(app),
        LogEndpoints(app),
        ServerEndpoints(app, control),
        ClusterEndpoints(app),
    )
    return tuple(endpoint for group in groups for endpoint in endpoints_of(group))
