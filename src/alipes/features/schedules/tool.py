"""`cronjob`: makes, lists and changes scheduled jobs, which the `JobEditor` stores."""

from collections.abc import Mapping
from typing import Protocol

from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

CHANGES = ("add", "edit")
_ACTIONS = ["list", "add", "show", "edit", "pause", "resume", "run", "stop", "remove", "history"]
_FIELDS = {"when": "when", "prompt": "prompt", "script": "script", "model": "model", "tools": "tools", "mode": "mode"}
_FIELDS |= {"skills": "skills", "folder": "workdir", "budget": "budget", "to": "targets", "missed": "missed"}
_FIELDS |= {"overlap": "overlap", "retries": "retries", "timezone": "zone"}


class JobEditor(Protocol):
    async def act(self, action: str, name: str, fields: Mapping[str, Json], act: ToolContext) -> str:
        """Do it and describe the result. Raises `ToolError`."""
        ...


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

    def __init__(self, editor: JobEditor) -> None:
        self._editor = editor

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        return await self._editor.act(str(args["action"]), str(args.get("name") or ""), read_fields(args), act)


def read_fields(args: Mapping[str, Json]) -> dict[str, Json]:
    """The fields of a job that a call sets."""
    return {_FIELDS[name]: value for name, value in args.items() if name in _FIELDS and value not in (None, "")}
