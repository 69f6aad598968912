"""All features, in the order in which they are opened. A line here and a folder are all that a feature needs."""

from alipes.features.agents.feature import AgentsFeature
from alipes.features.browser.feature import BrowserFeature
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.features.feature import Feature
from alipes.features.importer.feature import ImporterFeature
from alipes.features.learning.feature import LearningFeature
from alipes.features.mcp.feature import McpFeature
from alipes.features.memory.feature import MemoryFeature
from alipes.features.openai.feature import OpenAiFeature
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.skills.feature import SkillsFeature
from alipes.features.subagents.feature import SubagentsFeature
from alipes.features.update.feature import UpdateFeature
from alipes.features.usage.feature import UsageFeature
from alipes.features.web_search.feature import WebSearchFeature
from alipes.features.webhooks.feature import WebhooksFeature

FEATURES: tuple[type[Feature], ...] = (
    SkillsFeature,
    MemoryFeature,
    LearningFeature,
    WebSearchFeature,
    BrowserFeature,
    SubagentsFeature,
    AgentsFeature,
    McpFeature,
    CheckpointsFeature,
    SchedulesFeature,
    WebhooksFeature,
    UsageFeature,
    ImporterFeature,
    UpdateFeature,
    OpenAiFeature,
)
