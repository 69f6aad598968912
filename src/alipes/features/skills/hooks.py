"""What skills add to an app: a section of the prompt, commands, questions about changes, and folders of the sandbox."""

from contextlib import AsyncExitStack

from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.tool import SkillView, make_manage


async def add_hooks(feature: SkillsFeature, _stack: AsyncExitStack) -> None:
    app, skills, manage = feature.app, feature.skills, make_manage(feature)
    app.add_prompt_section(skills.begin_turn, tool=SkillView.spec.name)
    app.add_start_notes(lambda: skills.notes(app.workdir))
    app.add_tool_risk(manage.assess)
    app.add_preview(manage.preview)
    app.contributions.add_templates(lambda: skills.templates(app.workdir))
    app.resources.sandbox_extras.add_folders(feature.catalog.folders)
