"""`alipes skills test`: replays the turns that a skill came from, with the skill, and shows what changed."""

import asyncio
import os
from collections.abc import Callable, Sequence

from alipes.agent.prompt import system_prompt
from alipes.app import open_for_checks
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.options import OptionParser
from alipes.core.app import App
from alipes.features.learning.replay import RecordedTurn, Replay, ReplayResult, history_before
from alipes.features.skills.cli.help import SKILLS
from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.skill import Skill
from alipes.features.skills.skills import Skills
from alipes.features.skills.versions import SkillVersion
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_count
from alipes.kernel.turns import Turn

IN_USE = "# Skill in use\nFollow these instructions for the task.\n"


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes skills", SKILLS)
    args, words = parser.parse_with_words(argv)
    if not words:
        parser.error("`test` needs a NAME")
    if len(words) > 1:
        parser.error(f"`test` got too many words: {' '.join(words)}")
    return asyncio.run(_test_skill(load_settings(), words[0], args.model))


async def _test_skill(settings: Settings, name: str, model: str) -> int:
    """The status is 1 if no turn is known, or a replay did not end with an answer."""
    async with open_for_checks(settings) as app:
        return await replay_skill(app, name, model, show=lambda text: print(render.sanitize(text)))


async def replay_skill(app: App, name: str, model: str, *, show: Callable[[str], object]) -> int:
    skills = app.features.get(SkillsFeature).skills
    skill = await _find_skill(skills, name, app.settings.workdir or os.getcwd())
    recorded = await _find_turns(app, skills.store.versions.history(name))
    if not recorded:
        show(f"No conversation is known that {name} came from.")
        return 1
    failed = 0
    for each in recorded:
        replay = Replay(
            models=app.models,
            model=model or each.turn.model or (await app.models.default()).model,
            system=f"{system_prompt(app.settings.home)(each.turn)}\n{IN_USE}{await skills.view(skill)}\n",
            specs={key: tool.spec for key, tool in app.contributions.tools().items()},
            spending=app.spending,
        )
        result = await replay.run(each)
        failed += result.ending != "answered"
        show(format_result(result, replay.model))
    return int(bool(failed))


async def _find_skill(skills: Skills, name: str, workdir: str) -> Skill:
    known = await skills.list(workdir)
    found = next((each for each in known if each.name == name and each.state == "on"), None)
    if found is None:
        raise ConfigError(f"Unknown skill {name}.{did_you_mean(name, [each.name for each in known])}")
    return found


async def _find_turns(app: App, versions: Sequence[SkillVersion]) -> list[RecordedTurn]:
    """The stored turns that versions of the skill came from, oldest first."""
    changes = [version.change for version in versions]
    archive, found = app.store.archive, list[RecordedTurn]()
    for id in dict.fromkeys(change.turn for change in changes if change.turn):
        facts = await archive.turn(id)
        if facts is not None and facts.said:
            before = history_before(await archive.messages(facts.session), facts.said)
            found.append(RecordedTurn(Turn(id, facts.session, facts.inbound, history=before), facts.said))
    return found


def format_result(result: ReplayResult, model: str) -> str:
    """What was different, for the person."""
    (old_steps, new_steps), (old, new) = result.steps, result.calls
    turn = result.recorded.turn
    lines = [
        f"Turn {turn.id[:6]} of conversation {turn.session[:6]}: {result.ending} {result.detail} ({model})",
        f"  model calls: {old_steps} then, {new_steps} with the skill",
        f"  tool calls:  {_describe_calls(old)} then, {_describe_calls(new)} with the skill",
    ]
    return "\n".join([*lines, result.diff or "  the answer is the same", ""])


def _describe_calls(names: list[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    listed = ", ".join(f"{name} {count}" if count > 1 else name for name, count in counts.items())
    return f"{format_count(len(names), 'call')} ({listed})" if names else "none"
