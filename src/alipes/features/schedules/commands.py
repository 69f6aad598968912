"""`/schedule`: scheduled jobs."""

import re

from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.schedules import Schedules, describe_last
from alipes.kernel.formatting import format_columns, format_count
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.commands.registry import Command

USAGE = "Usage: /schedule add WHEN [--skill NAME]: PROMPT, or show, pause, resume, run, stop, history or remove NAME"
_SPLIT = r"(?s)(?P<when>.*?)(?::\s+|\s+\|\s+|\s+--\s+)(?P<prompt>\S.*)"
_SKILL = r"\s+--skills?(?:\s+|=)(?P<names>\S+)"
_SHOWN_RUNS = 10


async def schedule(context: CommandContext, args: str) -> CommandReply:
    schedules = context.features.get(SchedulesFeature).schedules
    action, _, rest = args.strip().partition(" ")
    match action.lower(), rest.strip():
        case ("" | "list", ""):
            return await _list(context, schedules)
        case ("add", text) if text:
            return await _add(context, schedules, text)
        case ("show" | "pause" | "resume" | "run" | "stop" | "history" | "remove" as act, name) if name:
            return CommandReply(await _act(context, schedules, act, name))
    return CommandReply(USAGE, failed=True)


async def _list(context: CommandContext, schedules: Schedules) -> CommandReply:
    views = await schedules.list()
    rows = [
        (each.name, f"{each.schedule.job.when}; next: {each.when}; {describe_last(each.last, context.clock())}")
        for each in views
    ]
    return CommandReply(format_columns(rows) if rows else f"No jobs. {USAGE}")


async def _add(context: CommandContext, schedules: Schedules, text: str) -> CommandReply:
    found = re.fullmatch(_SPLIT, text)
    if found is None:
        return CommandReply(
            "Usage: /schedule add WHEN: PROMPT, as in /schedule add every weekday at 9: summarise my mail"
        )
    inbound = context.inbound
    skills = ",".join(each["names"] for each in re.finditer(_SKILL, found["when"]))
    request = {"when": re.sub(_SKILL, "", found["when"]), "prompt": found["prompt"], "workdir": inbound.workdir}
    if skills:
        request["skills"] = skills
    view = await schedules.add(
        request,
        origin=inbound.address,
        owner=inbound.sender,
        by_owner=inbound.owner and inbound.address.chat_type == "dm",
        untrusted=inbound.untrusted,
    )
    return CommandReply(f"Added {view.describe()}")


async def _act(context: CommandContext, schedules: Schedules, action: str, name: str) -> str:
    match action:
        case "pause":
            return (await schedules.pause(name)).describe()
        case "resume":
            return (await schedules.resume(name)).describe()
        case "run":
            await schedules.run_now(name)
            return f"{name} runs now; its answer is delivered as usual."
        case "stop":
            return f"Stopped {format_count(await schedules.stop(name), 'run')} of {name}."
        case "remove":
            return await schedules.remove(name)
    view = await schedules.view(name)
    job = view.schedule.job
    head = [view.describe(), f"Does: {job.prompt or job.script}", f"Answers go to: {', '.join(job.targets)}"]
    runs = await schedules.runs.latest(view.schedule.id, _SHOWN_RUNS if action == "history" else 1)
    return "\n".join([*head, *(f"Run {run.number}: {describe_last(run, context.clock())}" for run in runs)])


COMMANDS = (
    Command(
        "schedule",
        "[ACTION [NAME]]",
        "list jobs; or add WHEN: PROMPT, show, pause, resume, run, stop, history or remove one",
        schedule,
        group="While a turn runs",
        place=8,
        owners_only=True,
    ),
)
