"""`/skills`: lists and shows skills, switches them off and on in a conversation, accepts them, and undoes changes."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.skill import Skill
from alipes.features.skills.skills import MIN_HASH_CHARS, Skills
from alipes.features.skills.store import SkillUsage
from alipes.features.skills.versions import SkillChange, read_folder
from alipes.kernel.approvals import reveal
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_columns, format_count, format_excerpt, join_names
from alipes.plugins.features import OpenFeatures
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.commands.registry import Command

ACTIONS = "show NAME | off NAME | on NAME | reset | accept NAME | history NAME | rollback NAME [N]"
NONE = "No skills. Put folders with a SKILL.md into {}, or use `alipes skills install SOURCE`."
OWNERS_ONLY = "Only an owner can do that."
_STATES = {"new": "not accepted", "changed": "changed, not accepted", "broken": "broken", "shadowed": "name is taken"}


async def skills(context: CommandContext, args: str) -> CommandReply:
    feature = context.features.get(SkillsFeature)
    name, *rest = args.strip().split(maxsplit=1) or [""]
    if name in feature.actions:
        return await feature.actions[name][1](context, "".join(rest))
    added = (f"{name} {hint}" for name, (hint, _) in feature.actions.items())
    return await _run(context, feature.skills, args, f"Usage: /skills [{' | '.join((ACTIONS, *added))}]")


async def _run(context: CommandContext, known: Skills, args: str, usage: str) -> CommandReply:
    match args.split():
        case [] | ["list"]:
            return await _list(context, known, usage)
        case ["show", name]:
            skill = await _find(context, known, name)
            return CommandReply(await _describe(known, skill)) if isinstance(skill, Skill) else skill
        case ["off" | "on" as switch, *names] if names:
            return await _switch(context, known, names, off=switch == "off")
        case ["reset"]:
            standing = await context.store.sessions.active(context.key)
            if standing is not None:
                await known.switch_off(standing.session, ())
            return CommandReply("The skills are as in the settings.")
        case ["history", name]:
            return await _history(known, name)
        case ["accept", name, *given] if len(given) < 2:
            return await _accept(context, known, name, "".join(given))
        case ["rollback", name, *number] if len(number) < 2 and all(each.isdecimal() for each in number):
            return await _roll_back(context, known, name, int(number[0]) if number else 0)
    return CommandReply(usage, failed=True)


def _complete(features: OpenFeatures, workdir: str) -> list[str]:
    listed = features.get(SkillsFeature).skills.names(workdir)
    return [f"{action} {name}" for action in ("show", "off", "on", "history") for name in listed] + ["reset"]


async def _list(context: CommandContext, known: Skills, usage: str) -> CommandReply:
    listed = await known.list(context.inbound.workdir, await _session(context))
    if not listed:
        return CommandReply(NONE.format(known.store.folder))
    used = await known.usage()
    rows = [(each.name, _describe_row(each, used.get(each.name))) for each in listed]
    return CommandReply(f"{format_columns(rows)}\n{usage}")


def _describe_row(skill: Skill, used: SkillUsage | None) -> str:
    state = "" if skill.state == "on" else f"[{_STATES.get(skill.state, skill.state)}] "
    origin = "" if skill.origin == "home" else f" ({skill.owner or skill.origin})"
    about = skill.reason if skill.state in ("broken", "changed") else skill.description
    return f"{state}{format_excerpt(about, 90)[1:-1]}{origin}{format_usage(used)}"


def format_usage(used: SkillUsage | None) -> str:
    """Such as `; used in 3 turns, 2 answered`."""
    return f"; used in {format_count(used.uses, 'turn')}, {used.answered} answered" if used else ""


async def _session(context: CommandContext) -> str:
    standing = await context.store.sessions.active(context.key)
    return standing.session if standing else ""


async def _find(context: CommandContext, known: Skills, name: str) -> Skill | CommandReply:
    try:
        return await known.find_any(context.inbound.workdir, name, await _session(context))
    except ConfigError as error:
        return CommandReply(f"{error} /skills lists them.", failed=True)


async def _describe(known: Skills, skill: Skill) -> str:
    facts = [
        (f"{skill.name}", skill.description),
        ("state", f"{_STATES.get(skill.state, skill.state)} {skill.reason}".strip()),
        ("folder", skill.folder),
        ("license", skill.license),
        ("needs", skill.compatibility),
        ("tools", ", ".join(skill.allowed_tools or ())),
        *((name, value) for name, value in skill.metadata.items()),
        *(("remark", remark) for remark in skill.remarks),
    ]
    head = format_columns([(name, value) for name, value in facts if value])
    return head if skill.state == "broken" else f"{head}\n\n{reveal(await known.view(skill))}"


async def _switch(context: CommandContext, known: Skills, names: list[str], *, off: bool) -> CommandReply:
    """What the settings switch off stays off: a chat must not undo the operator's choice."""
    listed = {each.name: each for each in await known.list(context.inbound.workdir)}
    if unknown := next((name for name in names if name not in listed), ""):
        near = did_you_mean(unknown, listed)
        return CommandReply(f"Unknown skill {format_excerpt(unknown, 40)}.{near} /skills lists them.", failed=True)
    standing = await context.store.sessions.open(context.inbound.address)
    before = await known.choices.read(standing.session)
    after = dict.fromkeys((*before, *names)) if off else [name for name in before if name not in names]
    await known.switch_off(standing.session, tuple(after))
    if off:
        return CommandReply(f"Off in this conversation: {join_names(sorted(names))}.")
    still = [listed[name] for name in names if listed[name].state != "on"]
    if still:
        return CommandReply("\n".join(f"{each.name} cannot be used. {each.reason}" for each in still), failed=True)
    return CommandReply(f"On: {join_names(sorted(names))}.")


async def _accept(context: CommandContext, known: Skills, name: str, given: str) -> CommandReply:
    """Two steps: show the skill, then accept exactly these files."""
    if context.inbound.untrusted:
        return CommandReply(OWNERS_ONLY, failed=True)
    skill = await _find(context, known, name)
    if not isinstance(skill, Skill):
        return skill
    if skill.state not in ("new", "changed"):
        return CommandReply(f"{name} needs no acceptance.")
    if present := await known.accept(skill, given):
        shown, repeat = await _describe(known, skill), f"/skills accept {name} {present[:MIN_HASH_CHARS]}"
        names = _join_files(await asyncio.to_thread(read_folder, Path(skill.folder)))
        return CommandReply(f"{shown}\n\nFiles: {names}\nAccept exactly these files: {repeat}")
    return CommandReply(f"{name} is accepted.")


def _join_files(files: Iterable[str]) -> str:
    listed = sorted(files)
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return ", ".join(listed[:20]) + more


async def _history(known: Skills, name: str) -> CommandReply:
    versions = await asyncio.to_thread(known.store.versions.history, name)
    if not versions:
        return CommandReply(f"The skill {format_excerpt(name, 40)} has no stored versions.", failed=True)
    rows = [
        (
            str(each.number),
            f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(each.when))}  {describe_change(each.change)}",
        )
        for each in versions
    ]
    return CommandReply(f"{format_columns(rows)}\n/skills rollback {name} N brings one back.")


def describe_change(change: SkillChange) -> str:
    """Who changed a skill, and why."""
    place = f" (conversation {change.session[:6]})" if change.session else ""
    source = f" from {change.source['place']}" if change.source.get("place") else ""
    return f"{change.author}{source}{place}{': ' if change.reason else ''}{change.reason}"


async def _roll_back(context: CommandContext, known: Skills, name: str, number: int) -> CommandReply:
    if context.inbound.untrusted:
        return CommandReply(OWNERS_ONLY, failed=True)
    done = await known.roll_back(name, number)
    head = f"{name} is version {done.version} now: {done.reason}."
    return CommandReply(f"{head}\n{done.diff}", diff=True) if done.diff else CommandReply(head)


COMMANDS = (
    Command(
        "skills",
        "[show NAME | off NAME | on NAME | accept NAME | history NAME | rollback NAME]",
        "list the skills; show one, switch it off and on here, accept it, or undo a change of it",
        skills,
        group="alipes",
        place=5,
        complete=_complete,
    ),
)
