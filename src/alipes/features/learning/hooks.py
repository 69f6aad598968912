"""What learning adds to an app: `/skills pending`, and a look at each turn that has ended."""

from contextlib import AsyncExitStack

from alipes.features.learning.feature import PENDING_HINT, LearningFeature
from alipes.features.skills.feature import SkillsFeature
from alipes.sessions.commands.context import CommandContext, CommandReply


async def add_hooks(feature: LearningFeature, _stack: AsyncExitStack) -> None:
    app = feature.app
    app.features.get(SkillsFeature).add_action("pending", PENDING_HINT, _pending)
    if app.sessions.defaults.interactive:  # otherwise the process ends with the turn
        app.add_hooks(feature.learning.turn_ended)


async def _pending(context: CommandContext, args: str) -> CommandReply:
    from alipes.features.learning.proposals import pending

    return await pending(context, args)
