"""What the model is given of skills: the list in the system prompt, the text of one, and the message of `/NAME`."""

from collections.abc import Iterable, Sequence

from alipes.features.skills.skill import SKILL_FILE, Skill
from alipes.kernel.untrusted import escape_notice, to_label

HEAD = "# Skills\nInstructions for special tasks. If one fits your task, read it with skill_view first.\n"
_LEFT_OUT = "- {} more: skills_list\n"
_SHORTEST = 24
"""Bytes below which a description says nothing: names alone are listed instead."""
SKILL_DIRECTORY = ("${CLAUDE_SKILL_DIR}", "${SKILL_DIR}", "{baseDir}")
"""How skills of other programs name their own folder."""
ARGUMENTS = "$ARGUMENTS"
MAX_FILES_LISTED = 60
_OUR_TOOLS = {
    "bash": ("terminal", "process"),
    "shell": ("terminal", "process"),
    "read": ("read_file", "vision_analyze"),
    "write": ("write_file", "patch"),
    "edit": ("patch", "write_file"),
    "multiedit": ("patch", "write_file"),
    "notebookedit": ("patch", "write_file"),
    "grep": ("search_files",),
    "glob": ("search_files",),
    "ls": ("search_files",),
    "webfetch": ("web_extract",),
    "websearch": ("web_search",),
    "task": ("delegate_task",),
    "agent": ("delegate_task",),
    "todowrite": ("todo",),
    "todoread": ("todo",),
    "askuserquestion": ("clarify",),
}
"""Tools that skills of other programs name, in lower case, and ours that do the same."""
ALWAYS_ALLOWED = ("skills_list", "skill_view", "todo", "clarify")
"""Tools that a skill cannot switch off: they change nothing."""


def format_list(skills: Sequence[Skill], max_bytes: int) -> str:
    """The section of the system prompt, at most `max_bytes`: all names if possible, and of every description as much
    as there is room for. Empty without skills."""
    shown = [each for each in skills if each.for_model]
    room = max_bytes - len(HEAD)
    if not shown or room <= 0:
        return ""
    names = [f"- {each.name}" for each in shown]
    texts = [_plain(each.description) for each in shown]
    left = room - sum(len(name.encode()) + 1 for name in names)
    if left < 0:
        return HEAD + _fit_names(names, room)
    sizes = [len(text.encode()) + 2 for text in texts]
    limit = _find_limit(sizes, left)
    lines = [f"{name}: {_cut(text, limit - 2)}" for name, text in zip(names, texts, strict=True)]
    return HEAD + "".join(f"{line}\n" for line in (lines if limit >= min(_SHORTEST, max(sizes)) else names))


def _fit_names(names: Sequence[str], room: int) -> str:
    """As many names as fit, and how many more there are."""
    text = ""
    for count, name in enumerate(names):
        note = _LEFT_OUT.format(len(names) - count)
        if len(text.encode()) + len(name.encode()) + 1 + len(note) > room:
            return text + note if len(text) + len(note) <= room else ""
        text += f"{name}\n"
    return text


def _find_limit(sizes: Sequence[int], room: int) -> int:
    """The most bytes that every description may have, so that all together fit."""
    low, high = 0, max(sizes)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(text: str, max_bytes: int) -> str:
    """The start of the text, without half words."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    start = data[: max(0, max_bytes - 3)].decode("utf-8", "ignore")
    words = start.rpartition(" ")[0] if " " in start[len(start) // 2 :] else start
    return f"{words.rstrip(' ,.;:-')}…"


def _plain(text: str) -> str:
    """One line without hidden characters."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def format_skill(skill: Skill, body: str, files: Sequence[str], arguments: str = "") -> str:
    """The text of a skill for the model, with its folder and its other files."""
    for name in SKILL_DIRECTORY:
        body = body.replace(name, skill.folder)
    body = body.replace(ARGUMENTS, arguments)
    others = [file for file in files if file != SKILL_FILE]
    lines = [f'<skill name="{to_label(skill.name)}" folder="{skill.folder}">', escape_notice(body), "</skill>"]
    if others:
        more = f" and {len(others) - MAX_FILES_LISTED} more" if len(others) > MAX_FILES_LISTED else ""
        lines.append(f"Its files: {', '.join(others[:MAX_FILES_LISTED])}{more}. Relative paths are in its folder.")
    if skill.compatibility:
        lines.append(f"It says that it needs: {_plain(skill.compatibility)}")
    return "\n".join(lines)


def format_message(skill: Skill, body: str, files: Sequence[str], arguments: str) -> str:
    """The message that `/NAME ARGUMENTS` sends."""
    text = format_skill(skill, body, files, arguments)
    rest = arguments if arguments and ARGUMENTS not in body else ""
    return "\n\n".join(filter(None, (f"Use the skill {skill.name}.", text, rest)))


def allowed_tools(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Our tools that `allowed-tools` means; None: all. It only takes tools away, and approves nothing."""
    if names is None:
        return None
    found: dict[str, None] = {}
    for name in names:
        plain = name.partition("(")[0]
        found.update(dict.fromkeys(_OUR_TOOLS.get(plain.lower(), (plain,))))
    return (*found, *(each for each in ALWAYS_ALLOWED if each not in found))
