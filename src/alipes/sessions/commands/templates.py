"""Prompt templates: Markdown files that become commands. Files of Claude Code and pi load unchanged."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, structs

from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.turns import Inbound
from alipes.plugins.registry import PromptTemplate
from alipes.runtime.front_matter import field_text, parse_fields, split_front_matter
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.user_shell import split_status

MAX_BYTES = 100_000
MAX_TEMPLATES = 500
MAX_DEPTH = 4
HOME_FOLDERS = (".claude/commands", ".pi/agent/prompts")
"""In the person's home, besides `commands` in the home of alipes; later folders take precedence."""
PROJECT_FOLDERS = (".pi/prompts", ".claude/commands", ".alipes/commands")
_NAME = lazy_pattern(r"[a-z0-9][a-z0-9_.-]*")
_ARGUMENT = lazy_pattern(
    r"\$(?:(?P<all>ARGUMENTS\b|@)|(?P<one>\d)|\{(?P<index>\d+)(?::-(?P<default>[^}]*))?\}"
    r"|\{(?:@|ARGUMENTS)(?::(?P<first>\d+)(?::(?P<count>\d+))?)?\})"
)
_SHELL = lazy_pattern(r"!`([^`\n]+)`")


class _Folder(Struct, frozen=True):
    path: Path
    project: bool


class TemplateFolders:
    """The templates of a home and a project. Files are read again when they change."""

    def __init__(self, home: Path, user_home: Path, workdir: Path) -> None:
        """`home`: the home of alipes; `user_home`: the person's."""
        own = [*(user_home / name for name in HOME_FOLDERS), home / "commands"]
        self._folders = [_Folder(path, project=False) for path in own]
        if workdir.resolve() != user_home.resolve():
            self._folders += [_Folder(workdir / name, project=True) for name in PROJECT_FOLDERS]
        self._workdir = workdir
        self._read: dict[str, tuple[tuple[int, int], PromptTemplate]] = {}

    def load(self) -> Mapping[str, PromptTemplate]:
        """By name. A template of the project replaces one of the home, which is still found as `user:NAME`; all are
        found as `user:NAME` or `project:NAME`."""
        found: dict[str, PromptTemplate] = {}
        seen = {}
        for folder in self._folders:
            for path, name in self._files(folder):
                if (entry := self._load_file(path, name, folder)) is None:
                    continue
                seen[path] = entry
                template = entry[1]
                found[name] = template
                found[f"{'project' if folder.project else 'user'}:{name}"] = template
        self._read = seen
        return found

    def _files(self, folder: _Folder) -> Iterator[tuple[str, str]]:
        """The Markdown files in the folder, and their names as commands."""
        count = 0
        for at, folders, files in os.walk(folder.path):
            parts = Path(at).relative_to(folder.path).parts
            folders[:] = sorted(each for each in folders if len(parts) < MAX_DEPTH and not each.startswith("."))
            for file in sorted(files):
                words = [each.lower().replace(" ", "-") for each in (*parts, file.removesuffix(".md"))]
                if not file.endswith(".md") or not all(map(_NAME.fullmatch, words)):
                    continue
                if (count := count + 1) > MAX_TEMPLATES:
                    return
                yield os.path.join(at, file), ":".join(words)

    def _load_file(self, path: str, name: str, folder: _Folder) -> tuple[tuple[int, int], PromptTemplate] | None:
        try:
            facts = os.stat(path)
            if facts.st_size > MAX_BYTES or (folder.project and not self._is_inside(path)):
                return None
            stamp = (facts.st_mtime_ns, facts.st_size)
            known = self._read.get(path)
            if known is not None and known[0] == stamp:
                return known
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return stamp, parse_template(text, name, path, project=folder.project)

    def _is_inside(self, path: str) -> bool:
        """False for a link that leads out of the project."""
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._workdir))


def parse_template(text: str, name: str, path: str, *, project: bool = False) -> PromptTemplate:
    """The template in a file. Unknown fields of its front matter are ignored."""
    front, body = split_front_matter(text)
    fields, body = _read_fields(front or ""), body.strip()
    first = next((line.strip().lstrip("# ") for line in body.splitlines() if line.strip()), "")
    tools = fields.get("tools", "")
    return PromptTemplate(
        name=name,
        path=path,
        text=body,
        description=fields.get("description") or format_excerpt(first)[1:-1] or "a template",
        hint=fields.get("argument-hint", ""),
        model=fields.get("model", ""),
        tools=tuple(each for each in re.split(r"[,\s]+", tools) if each) if tools else None,
        project=project,
    )


def _read_fields(front: str) -> dict[str, str]:
    """The fields as texts; none if they cannot be read."""
    try:
        fields = parse_fields(front, verbatim=("argument-hint",))
    except ValueError:
        return {}
    return {name.lower(): field_text(value) for name, value in fields.items()}


def expand_arguments(text: str, args: str) -> str:
    """The text with the arguments in it: `$1`, `$ARGUMENTS`, `$@`, `${2:-default}`, `${@:2}`, `${@:2:3}`."""
    words = _split(args)

    def value(found: re.Match[str]) -> str:
        if found["all"]:
            return args
        if number := found["one"] or found["index"]:
            word = words[int(number) - 1] if 0 < int(number) <= len(words) else ""
            return word or found["default"] or ""
        first = max(int(found["first"] or 1), 1) - 1
        return " ".join(words[first : first + int(found["count"])] if found["count"] else words[first:])

    return _ARGUMENT.sub(value, text)


def _split(args: str) -> list[str]:
    try:
        return shlex.split(args)
    except ValueError:  # an apostrophe
        return args.split()


def takes_arguments(text: str) -> bool:
    return _ARGUMENT.search(text) is not None


async def expand_template(template: PromptTemplate, args: str, context: CommandContext | None = None) -> str:
    """The prompt. A person's own templates at the terminal run their !`commands`; elsewhere these stay as they are.

    Raises `ToolError` if its text comes from an MCP server that cannot be used.
    """
    if template.fill is not None:
        return await template.fill(args)
    shell = context.services.shell if context is not None and context.local_files and not template.project else None
    parts = []
    end = 0
    for found in _SHELL.finditer(template.text):
        parts.append(expand_arguments(template.text[end : found.start()], args))
        command, end = expand_arguments(found[1], args), found.end()
        if shell is None or context is None:
            parts.append(f"!`{command}`")
        else:
            parts.append("\n".join(filter(None, split_status(await shell.run(command, context.inbound)))))
    parts.append(expand_arguments(template.text[end:], args))
    if args and not takes_arguments(template.text):
        parts.append(f"\n\n{args}")
    return "".join(parts)


async def fill_inbound(template: PromptTemplate, args: str, context: CommandContext) -> tuple[Inbound, str]:
    """The message of a template, and a remark for the person."""
    model, remark = template.model, ""
    if model and model != "inherit":
        try:
            model = (await context.services.models.open(model)).name
        except ConfigError:
            remark, model = f"Its model {format_excerpt(model, 40)} is not available; using the current one.", ""
    untrusted = f"the template {os.path.basename(template.path)} of this project" if template.project else ""
    inbound = structs.replace(
        context.inbound,
        text=await expand_template(template, args, context),
        model=model if model != "inherit" and model else context.inbound.model,
        only=_both(template.tools, context.inbound.only),
        untrusted=context.inbound.untrusted or template.origin or untrusted,
        skills=(template.skill,) if template.skill else (),
    )
    return inbound, remark


def _both(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The tools that both allow; None allows all."""
    if one is None or other is None:
        return other if one is None else one
    return tuple(each for each in one if each in other)


async def submit(context: CommandContext, template: PromptTemplate, args: str) -> CommandReply:
    """Send the template's prompt as a message."""
    inbound, remark = await fill_inbound(template, args, context)
    if not inbound.text.strip():
        return CommandReply(f"{template.path} is empty.", failed=True)
    context.on_submit(inbound.text)
    turn = await context.sessions.submit(inbound, usual=context.default_busy)
    return CommandReply(remark, turns=() if turn is None else (turn,))
