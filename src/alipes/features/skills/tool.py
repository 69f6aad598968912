"""The tools `skills_list`, `skill_view` and `skill_manage`. What a skill says is done by the other tools, and asked
about like everything else."""

import asyncio
from collections.abc import Callable, Mapping

from alipes.agent.approval.risk import Risk
from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.skill import SKILL_FILE
from alipes.features.skills.skills import Skills
from alipes.features.skills.versions import SkillChange, SkillFile, SkillStore, diff_files, merge_files
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import Tool, ToolContext, ToolSpec
from alipes.tools.common import Places, make_places, make_schema

ACTIONS = ("create", "edit", "patch", "write_file", "remove_file", "remove", "history", "rollback")
MAX_LISTED = 200
MAX_ASSESSED_CHARS = 20_000
"""Of a new text that is looked at for the question; the diff shows all of it."""


class SkillsList:
    spec = ToolSpec(
        name="skills_list",
        description="List skills with full descriptions.",
        schema=make_schema("", query="string"),
        effect="read",
    )

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        words = str(args.get("query") or "").lower().split()
        found = [each for each in await self._skills.of_turn(act.turn) if each.for_model]
        fitting = [each for each in found if all(word in f"{each.name} {each.description}".lower() for word in words)]
        if not fitting:
            return f"No skill matches; there are {len(found)}." if found else "There are no skills."
        lines = [f"- {each.name}: {each.description}" for each in fitting[:MAX_LISTED]]
        more = [f"({len(fitting) - MAX_LISTED} more: use a query)"] if len(fitting) > MAX_LISTED else []
        return "\n".join([*lines, *more])


class SkillView:
    spec = ToolSpec(
        name="skill_view",
        description="Read a skill, or one of its files.",
        schema=make_schema("name", name="string", file="string"),
        effect="read",
    )

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        skill = await self._skills.find(act.turn, str(args["name"]))
        if not skill.for_model and skill.name not in act.turn.inbound.skills:
            raise ToolError(f"only the user can start the skill {skill.name}, with /{skill.name}")
        text = await self._skills.view(skill, str(args.get("file") or ""))
        await self._skills.record_use(act.turn, skill.name, "viewed")
        return text


class SkillManage:
    spec = ToolSpec(
        name="skill_manage",
        description="Keep a reusable procedure as a skill. content: the whole file.",
        schema=make_schema(
            "action name",
            action=[*ACTIONS],
            name="string",
            content="string",
            file="string",
            old_text="string",
            new_text="string",
            version="integer",
            reason="string",
        ),
    )

    def __init__(self, skills: Skills, places: Places, *, mask: Callable[[str], str]) -> None:
        """`mask` removes known secrets: a skill must not contain any."""
        self._skills, self._places, self._mask = skills, places, mask

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        if act.turn.inbound.untrusted:
            raise ToolError("only an owner can change skills; ask them")
        action, name = str(args["action"]), str(args["name"])
        if action == "history":
            return await asyncio.to_thread(_format_history, self._skills.store, name)
        change = SkillChange("model", str(args.get("reason") or ""), act.turn.session, act.turn.id)
        try:
            return await asyncio.to_thread(self._change, action, name, args, change)
        except ConfigError as error:
            raise ToolError(str(error)) from error

    def _change(self, action: str, name: str, args: Mapping[str, Json], change: SkillChange) -> str:
        store = self._skills.store
        if action == "remove":
            store.remove(name, change)
            return f"Removed the skill {name}. Its versions are kept."
        if action == "rollback":
            version = store.roll_back(name, _version_argument(args), change)
            return f"The skill {name} is as before, as version {version.number}."
        files = plan_change(store, action, name, args)
        self._refuse_secrets(files)
        version = (
            store.create(name, _present(files), change) if action == "create" else store.change(name, files, change)
        )
        return f"Saved the skill {name} as version {version.number} in {store.folder / name}."

    def _refuse_secrets(self, files: Mapping[str, SkillFile | None]) -> None:
        from alipes.features.skills.scan import scan_skill

        found = scan_skill(_present(files), self._places)
        hidden = any(self._mask(text) != text for text in (_text(file) for file in _present(files).values()))
        if hidden or any(each.kind == "secret" for each in found):
            raise ToolError("not saved: it contains a key, token or password. Name its variable instead.")

    def assess(self, call: ToolCall) -> Risk | None:
        """The risk of a call: a skill works in all later conversations, so every change is asked about."""
        if call.name != self.spec.name or call.args.get("action") == "history":
            return None
        from alipes.features.skills.scan import describe_findings, scan_skill

        name, action = str(call.args.get("name")), str(call.args.get("action"))
        verb = {"create": "creates", "remove": "removes"}.get(action, "changes")
        text = "\n".join(str(call.args.get(field) or "") for field in ("content", "new_text"))
        found = scan_skill({SKILL_FILE: SkillFile(text[:MAX_ASSESSED_CHARS].encode(errors="replace"))}, self._places)
        warning = describe_findings(found)
        reason = f"{verb} the skill {name[:64]}, which later conversations follow"
        return Risk("skill", f"{reason}; {warning}" if warning else reason, exact=True)

    def preview(self, call: ToolCall) -> str | None:
        """The diff that a call would make; empty if there is none, None for a call of another tool."""
        if call.name != self.spec.name:
            return None
        store, name, action = self._skills.store, str(call.args.get("name")), str(call.args.get("action"))
        try:
            present = store.read(name) if store.exists(name) else {}
            if action == "remove":
                return diff_files(present, {})
            if action == "rollback":
                number = _version_argument(call.args) or store.versions.history(name)[-2].number
                return diff_files(present, store.versions.read(name, number))
            return diff_files(present, merge_files(present, plan_change(store, action, name, call.args)))
        except (ConfigError, ToolError, IndexError):
            return ""


def make_manage(feature: SkillsFeature) -> SkillManage:
    return SkillManage(feature.skills, make_places(feature.app.settings), mask=feature.app.secrets)


def tools(feature: SkillsFeature) -> tuple[Tool, ...]:
    if not feature.app.settings.skills.enabled:
        return ()
    return SkillsList(feature.skills), SkillView(feature.skills), make_manage(feature)


def plan_change(store: SkillStore, action: str, name: str, args: Mapping[str, Json]) -> dict[str, SkillFile | None]:
    """The files that a call writes; None for one that it removes. Raises ToolError and ConfigError."""
    file = str(args.get("file") or SKILL_FILE)
    if action in ("create", "edit", "write_file"):
        content = args.get("content")
        if not isinstance(content, str) or not content.strip():
            raise ToolError(f"{action} needs content")
        path = file if action == "write_file" else SKILL_FILE
        old = store.read(name).get(path) if action != "create" and store.exists(name) else None
        script = content.startswith("#!")
        return {path: SkillFile(_end_line(content).encode(errors="replace"), old.executable if old else script)}
    present = store.read(name).get(file) if store.exists(name) else None
    if present is None:
        raise ToolError(f"the skill {name} has no file {file} in {store.folder}")
    if action == "remove_file":
        if file == SKILL_FILE:
            raise ToolError(f"a skill needs its {SKILL_FILE}; use remove to remove the skill")
        return {file: None}
    if action != "patch":
        return {}
    old_text, new_text, text = str(args.get("old_text") or ""), str(args.get("new_text") or ""), _text(present)
    count = text.count(old_text) if old_text else 0
    if count != 1:
        found = f"is there {count} times; give more of the text around it" if count else "is not in it"
        raise ToolError(f"patch needs an old_text that is in {file} once; it {found}")
    changed = text.replace(old_text, new_text).encode(errors="replace")
    return {file: SkillFile(changed, present.executable)}


def _present(files: Mapping[str, SkillFile | None]) -> dict[str, SkillFile]:
    return {path: file for path, file in files.items() if file is not None}


def _text(file: SkillFile) -> str:
    return file.data.decode("utf-8", "replace")


def _end_line(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _version_argument(args: Mapping[str, Json]) -> int:
    version = args.get("version")
    return version if isinstance(version, int) else 0


def _format_history(store: SkillStore, name: str) -> str:
    versions = store.versions.history(name)
    if not versions:
        return f"The skill {name} has no stored versions."
    lines = [f"{each.number}: {each.change.author}, {each.change.reason or 'no reason given'}" for each in versions]
    return "\n".join([f"{format_count(len(versions), 'version')} of {name}, the latest last:", *lines])
