"""`cronjob`: the model makes, lists and changes scheduled jobs."""

from collections.abc import Mapping

from alipes.features.schedules.feature import SchedulesFeature
from alipes.kernel.messages import Json
from alipes.kernel.ports import Tool, ToolContext, ToolSpec
from alipes.tools.common import make_schema

CHANGES = ("add", "edit")
HELP = "help"
_ACTIONS = ["list", "add", "show", "edit", "pause", "resume", "run", "stop", "remove", "history", HELP]
_OPTIONS = """\
options of add and edit, all optional:
model: provider/name
tools: names of the tools that it may use
skills: names of the skills that it starts with
folder: where it runs (default: here)
mode: ask (default), edits, plan or all
budget: per run, such as "$0.50"
timezone: such as Europe/Rome
retries: how often a failed run is repeated
missed, overlap: what happens to missed and overlapping runs
output_schema: a JSON schema that the answer must match"""
_FIELDS = {"when": "when", "prompt": "prompt", "script": "script", "model": "model", "tools": "tools", "mode": "mode"}
_FIELDS |= {"skills": "skills", "folder": "workdir", "budget": "budget", "to": "targets", "missed": "missed"}
_FIELDS |= {"overlap": "overlap", "retries": "retries", "timezone": "zone", "output_schema": "output_schema"}


class CronjobTool:
    spec = ToolSpec(
        name="cronjob",
        description="Jobs that run later without you. A job sees only its prompt.",
        schema=make_schema(
            "action",
            action=_ACTIONS,
            name="string",
            when="string: in 30m | every weekday at 9 | cron | ISO time | after JOB | on file PATH | on webhook NAME",
            prompt="string: complete in itself",
            script="string: shell commands instead",
            to="strings: origin (default), platform:chat, files, none",
            options={"type": "object", "description": "more; see action=help"},
        ),
    )

    def __init__(self, feature: SchedulesFeature) -> None:
        self._feature = feature

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        if args["action"] == HELP:
            return _OPTIONS
        from alipes.features.schedules.editor import ScheduleEditor

        editor = ScheduleEditor(self._feature.app.store.sources, self._feature.schedules)
        return await editor.act(str(args["action"]), str(args.get("name") or ""), read_fields(args), act)


def read_fields(args: Mapping[str, Json]) -> dict[str, Json]:
    """The fields of a job that a call sets, also in its `options`."""
    options = args.get("options")
    given = {**args, **(options if isinstance(options, dict) else {})}
    return {_FIELDS[name]: value for name, value in given.items() if name in _FIELDS and value not in (None, "")}


def tools(feature: SchedulesFeature) -> tuple[Tool, ...]:
    return (CronjobTool(feature),)
