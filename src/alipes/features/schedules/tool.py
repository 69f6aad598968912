"""`cronjob`: the model makes, lists and changes scheduled jobs."""

from collections.abc import Mapping

from alipes.features.schedules.feature import SchedulesFeature
from alipes.kernel.messages import Json
from alipes.kernel.ports import Tool, ToolContext, ToolSpec
from alipes.tools.common import make_schema

CHANGES = ("add", "edit")
_ACTIONS = ["list", "add", "show", "edit", "pause", "resume", "run", "stop", "remove", "history"]
_FIELDS = {"when": "when", "prompt": "prompt", "script": "script", "model": "model", "tools": "tools", "mode": "mode"}
_FIELDS |= {"skills": "skills", "folder": "workdir", "budget": "budget", "to": "targets", "missed": "missed"}
_FIELDS |= {"overlap": "overlap", "retries": "retries", "timezone": "zone"}


class CronjobTool:
    spec = ToolSpec(
        name="cronjob",
        description="Schedule jobs that run later without you: reminders, reports, checks. A job sees only its prompt.",
        schema=make_schema(
            "action",
            action=_ACTIONS,
            name="string",
            when='string: "in 30m", "every weekday at 9", cron, ISO, "after JOB", "on file PATH", "on webhook NAME"',
            prompt="string: the task, complete in itself",
            script="string: shell commands instead of a prompt",
            to='strings: who gets the answer: origin (default), "platform:chat", files, none',
            model="string",
            tools="strings",
            skills="strings",
            folder="string",
            mode="string: ask (default), edits, plan or all",
            budget='string: per run, such as "$0.50"',
            timezone="string",
            retries="integer",
        ),
    )

    def __init__(self, feature: SchedulesFeature) -> None:
        self._feature = feature

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        from alipes.features.schedules.editor import ScheduleEditor

        editor = ScheduleEditor(self._feature.app.store.sources, self._feature.schedules)
        return await editor.act(str(args["action"]), str(args.get("name") or ""), read_fields(args), act)


def read_fields(args: Mapping[str, Json]) -> dict[str, Json]:
    """The fields of a job that a call sets."""
    return {_FIELDS[name]: value for name, value in args.items() if name in _FIELDS and value not in (None, "")}


def tools(feature: SchedulesFeature) -> tuple[Tool, ...]:
    return (CronjobTool(feature),)
