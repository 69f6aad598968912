"""The skills of an app: which ones a conversation has, what its prompt says about them, and how they were used."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from alipes.features.skills.catalog import SkillCatalog, usable
from alipes.features.skills.prompt import allowed_tools, format_list, format_message, format_skill
from alipes.features.skills.settings import SkillsConfig
from alipes.features.skills.skill import Skill, parse_skill
from alipes.features.skills.store import SkillUsage, SkillUseStore
from alipes.features.skills.versions import SkillChange, SkillStore, check_path, diff_files, hash_files, read_folder
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import did_you_mean, format_excerpt
from alipes.kernel.turns import Turn
from alipes.plugins.pins import TOOL_OUTPUT
from alipes.plugins.registry import PromptTemplate
from alipes.store.sql.store import Store

SECTION = "skills"
MAX_VIEW_CHARS = 200_000
MIN_HASH_CHARS = 12
"""So much of a hash names the files that are accepted."""
OFF_HERE = "Switched off in this conversation."


class SkillRollback(Struct, frozen=True):
    """What a rollback did."""

    version: int
    """The number of the new version."""
    reason: str
    diff: str


class SkillMessage(Struct, frozen=True):
    """A message that contains the text of skills."""

    text: str
    tools: tuple[str, ...] | None
    """The tools that they allow together; None: all."""


class Skills:
    """What tools, commands and prompts use. Files are read in threads."""

    def __init__(self, config: SkillsConfig, catalog: SkillCatalog, rows: Store) -> None:
        self.store, self._config, self._catalog = catalog.store, config, catalog
        self.choices, self._sections = rows.skill_choices, rows.prompt_sections
        self._uses = rows.tables(SkillUseStore)

    async def list(self, workdir: str, session: str = "") -> tuple[Skill, ...]:
        """All skills with their states, in a conversation if there is one."""
        found = await asyncio.to_thread(self._catalog.load, workdir)
        off = {*await self.choices.read(session)} if session else set[str]()
        return tuple(
            structs.replace(each, state="off", reason=OFF_HERE) if each.state == "on" and each.name in off else each
            for each in found
        )

    async def of_turn(self, turn: Turn) -> tuple[Skill, ...]:
        """The skills that a turn may use; a subagent has the choice of the conversation it works for."""
        origin = turn.inbound.origin
        session = origin.session if origin is not None else turn.session
        return usable(await self.list(turn.inbound.workdir, session))

    async def find(self, turn: Turn, name: str) -> Skill:
        """A skill that the turn may use. Raises ToolError that says why not."""
        return pick_skill(name, await self.of_turn(turn), await self.list(turn.inbound.workdir))

    async def fill_message(self, workdir: str, names: Sequence[str], text: str) -> SkillMessage:
        """The message of a new conversation that uses these skills for `text`. Raises ToolError."""
        listed = await self.list(workdir)
        chosen = [pick_skill(name, usable(listed), listed) for name in names]
        return await asyncio.to_thread(_fill_message, chosen, text)

    async def find_any(self, workdir: str, name: str, session: str = "") -> Skill:
        """A skill by its name, usable or not; one that waits for the person first. Raises ConfigError."""
        listed = await self.list(workdir, session)
        found = [each for each in listed if each.name == name]
        if not found:
            near = did_you_mean(name, [each.name for each in listed])
            raise ConfigError(f"Unknown skill {format_excerpt(name, 40)}.{near}")
        waiting = [each for each in found if each.state in ("new", "changed")]
        return (waiting or found)[0]

    async def roll_back(self, name: str, number: int) -> SkillRollback:
        """Bring a version back, as a new one; 0: the one before the last change. Raises ConfigError."""
        before = await asyncio.to_thread(self.store.read, name)
        reason = f"rolled back to version {number}" if number else "undid the last change"
        version = await asyncio.to_thread(self.store.roll_back, name, number, SkillChange("person", reason))
        after = await asyncio.to_thread(self.store.read, name)
        return SkillRollback(version.number, reason, diff_files(before, after))

    async def remove(self, name: str, known: Skill | None = None) -> None:
        """Remove a skill of the home; its versions are kept. `known`: the skill of this name. Raises ConfigError."""
        check_removable(self.store, name, known)
        await asyncio.to_thread(self.store.remove, name, SkillChange("person", "removed"))

    async def accept(self, skill: Skill, digest: str) -> str:
        """Accept the files of a skill if they have this hash, or its start; returns an empty text then, else the hash
        of the present files. Raises ConfigError."""
        present = hash_files(await asyncio.to_thread(read_folder, Path(skill.folder)))
        if len(digest) < MIN_HASH_CHARS or not present.startswith(digest):
            return present
        await asyncio.to_thread(self.store.accept, skill.name, skill.folder)
        return ""

    def set_off(self, names: tuple[str, ...]) -> None:
        """Replace the skills that are off everywhere, after the settings were changed."""
        self._catalog.set_off(names)

    async def prompt_section(self, turn: Turn) -> str:
        """The list for the system prompt; the same text for the whole conversation."""
        if not self._config.enabled or not self._config.prompt_bytes:
            return ""
        stored = turn.prompt_sections.get(SECTION)
        if stored is None:
            text = format_list(await self.of_turn(turn), self._config.prompt_bytes)
            stored = await self._sections.keep(turn.session, SECTION, text)
        return stored

    async def begin_turn(self, turn: Turn) -> str:
        """The section of the prompt; counts the skills that the message brings."""
        if turn.attempt <= 1:
            for name in turn.inbound.skills:
                await self._uses.add(turn, name, "command")
        return await self.prompt_section(turn)

    async def notes(self, workdir: str) -> tuple[str, ...]:
        """Sentences about skills that wait for the person."""
        listed = await self.list(workdir)
        waiting = [each.name for each in listed if each.state in ("new", "changed")]
        if not waiting:
            return ()
        names = ", ".join(waiting[:10]) + (f" and {len(waiting) - 10} more" if len(waiting) > 10 else "")
        return (f"Skills that you have not accepted: {names}. Look at them with `alipes skills accept`.",)

    async def switch_off(self, session: str, names: tuple[str, ...]) -> None:
        """Replace what is off in a conversation; its prompt lists the others from the next turn on."""
        await self.choices.write(session, names)
        await self._sections.forget(session, SECTION)

    async def record_use(self, turn: Turn, name: str, how: str) -> None:
        await self._uses.add(turn, name, how)

    async def usage(self) -> dict[str, SkillUsage]:
        """By name."""
        return await self._uses.totals()

    async def view(self, skill: Skill, file: str = "") -> str:
        """The text of a skill, or of one of its files. Raises ToolError."""
        return await asyncio.to_thread(view_skill, skill, file)

    def names(self, workdir: str) -> tuple[str, ...]:
        """The names of all skills, usable or not."""
        return tuple(dict.fromkeys(each.name for each in self._catalog.load(workdir)))

    def templates(self, workdir: str) -> dict[str, PromptTemplate]:
        """The skills as commands: `/NAME`, and `/skill:NAME` for one whose name is taken."""
        found: dict[str, PromptTemplate] = {}
        for skill in usable(self._catalog.load(workdir)):
            if skill.for_person:
                template = _make_template(skill)
                found[skill.name] = template
                found[f"skill:{skill.name}"] = template
        return found


def check_removable(store: SkillStore, name: str, known: Skill | None) -> None:
    """Raises ConfigError unless `name` is a skill of the home."""
    if store.exists(name):
        return
    if known is None:
        raise ConfigError(f"There is no skill {name} in {store.folder}.")
    where = f"the plugin {known.owner}" if known.owner else known.folder
    raise ConfigError(f"{name} belongs to {where}: remove it there, or list it in skills.off.")


def pick_skill(name: str, listed: Sequence[Skill], others: Sequence[Skill]) -> Skill:
    """The skill of this name in `listed`. Raises ToolError that says why it cannot be used; `others`: all skills."""
    found = next((each for each in listed if each.name == name), None)
    if found is not None:
        return found
    known = next((each for each in others if each.name == name), None)
    if known is not None:
        raise ToolError(f"the skill {name} cannot be used. {known.reason or OFF_HERE}")
    raise ToolError(f"no skill named {name}.{did_you_mean(name, [each.name for each in listed])}")


def _fill_message(skills: Sequence[Skill], text: str) -> SkillMessage:
    if len(skills) == 1:
        (skill,) = skills
        message = format_message(skill, read_body(skill), list_files(skill), text)
        return SkillMessage(message, allowed_tools(skill.allowed_tools))
    parts = [format_message(each, read_body(each), list_files(each), "") for each in skills]
    allowed = [allowed_tools(each.allowed_tools) for each in skills]
    tools = None if None in allowed else tuple(dict.fromkeys(name for names in allowed for name in names or ()))
    return SkillMessage("\n\n".join((*parts, text)), tools)


def view_skill(skill: Skill, file: str = "") -> str:
    """The text for the model. Raises ToolError."""
    if not file or file == os.path.basename(skill.file):
        return format_skill(skill, read_body(skill), list_files(skill))
    try:
        path = Path(skill.folder) / check_path(file)
    except ConfigError as error:
        raise ToolError(str(error)) from error
    if os.path.commonpath((skill.folder, os.path.realpath(path))) != skill.folder:
        raise ToolError(f"{file} is a link that leads out of the skill {skill.name}")
    if not path.is_file():
        near = did_you_mean(file, list_files(skill))
        raise ToolError(f"the skill {skill.name} has no file {file}.{near}")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not a text file; use it by its path") from error
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
    if len(text) > MAX_VIEW_CHARS:
        return f"{text[:MAX_VIEW_CHARS]}\n[... cut: read the rest of {path} with read_file ...]"
    return text


def read_body(skill: Skill) -> str:
    """The text of a skill, without its front matter. Raises ToolError."""
    try:
        text = Path(skill.file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ToolError(f"the skill {skill.name} cannot be read: {error.strerror}") from error
    try:
        return parse_skill(text, skill.folder).body
    except ValueError:
        return text.strip()  # a plugin may contribute any text file


def list_files(skill: Skill) -> list[str]:
    """The files of a skill, as paths in its folder; only the text itself, if a plugin contributes one file."""
    if os.path.basename(skill.file) != "SKILL.md":
        return []
    found: list[str] = []
    for here, folders, names in os.walk(skill.folder):
        folders[:] = sorted(set(folders) - TOOL_OUTPUT)
        found += [os.path.relpath(os.path.join(here, name), skill.folder) for name in sorted(names)]
        if len(found) > 1000:
            break
    return found


def _make_template(skill: Skill) -> PromptTemplate:
    def fill_text(arguments: str) -> str:
        return format_message(skill, read_body(skill), list_files(skill), arguments)

    fill: Callable[[str], Awaitable[str]] = lambda arguments: asyncio.to_thread(fill_text, arguments)  # noqa: E731
    return PromptTemplate(
        name=skill.name,
        path=skill.file,
        text="",
        description=skill.description,
        hint=skill.hint,
        model=skill.model,
        tools=allowed_tools(skill.allowed_tools),
        fill=fill,
        skill=skill.name,
    )
