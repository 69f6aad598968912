"""One skill: a folder with a `SKILL.md`, as the public Agent Skills specification describes it.

A skill of other programs loads as it is. What departs from the specification is a remark; only what leaves nothing to
use is an error.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.runtime.front_matter import FieldValue, field_text, parse_fields, split_front_matter

SKILL_FILE = "SKILL.md"
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_COMPATIBILITY_CHARS = 500
MAX_SKILL_BYTES = 1_000_000
"""Largest SKILL.md that is read."""
SPEC_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
NAME = lazy_pattern(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""A name as the specification wants it."""
_NOT_IN_NAMES = lazy_pattern(r"[^\w]+", re.ASCII)
_TOOLS = lazy_pattern(r"(?:[^\s,(]|\([^)]*\))+")

SkillOrigin: TypeAlias = Literal["home", "folder", "project", "plugin"]
SkillState: TypeAlias = Literal["on", "off", "new", "changed", "broken", "shadowed"]
"""`new`, `changed`: a person has to accept it first. `shadowed`: another skill has its name."""


class Skill(Struct, frozen=True):
    name: str
    description: str = ""
    folder: str = ""
    """Absolute, without links."""
    file: str = ""
    """Its SKILL.md; a plugin may name another file."""
    origin: SkillOrigin = "home"
    owner: str = ""
    """The plugin, if it belongs to one."""
    state: SkillState = "on"
    reason: str = ""
    """Why it cannot be used, as a sentence; empty if it can."""
    remarks: tuple[str, ...] = ()
    """How it departs from the specification."""
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] | None = None
    """The tools that its author lists, such as `Bash(git:*)`; None: all."""
    hint: str = ""
    """Its arguments as a command."""
    model: str = ""
    for_model: bool = True
    """The model may choose it by itself."""
    for_person: bool = True
    """It is a command."""


class ParsedSkill(Struct, frozen=True):
    """The fields and the text of a SKILL.md."""

    skill: Skill
    body: str


def parse_skill(text: str, folder: str) -> ParsedSkill:
    """The skill in the text of a SKILL.md. `folder`: its folder, whose name it should have.

    Raises ValueError with a sentence, if it cannot be used.
    """
    front, body = split_front_matter(text)
    if front is None:
        raise ValueError(_why_no_front_matter(text))
    try:
        fields = parse_fields(front, verbatim=("argument-hint",))
    except ValueError as error:
        raise ValueError(f"Its front matter cannot be read: {error}.") from error
    fields = {name.lower().replace("_", "-"): value for name, value in fields.items()}
    expected = os.path.basename(folder.rstrip("/"))
    given = field_text(fields.get("name")).strip()
    name = to_name(given) or to_name(expected)
    if not name:
        raise ValueError("It has no name: add a line `name: some-name` to its front matter.")
    description = " ".join(field_text(fields.get("description")).split())
    remarks = list(_check_fields(fields, given, expected, description))
    if not description:
        description = _first_line(body)
        if not description:
            raise ValueError("It has no description: add a line `description: ...` that says what it is for.")
    skill = Skill(
        name=name,
        description=description,
        remarks=tuple(remarks),
        license=field_text(fields.get("license")),
        compatibility=" ".join(field_text(fields.get("compatibility")).split()),
        metadata=_metadata(fields),
        allowed_tools=_tools(fields.get("allowed-tools")),
        hint=field_text(fields.get("argument-hint")),
        model=field_text(fields.get("model")),
        for_model=not _is_true(fields.get("disable-model-invocation")),
        for_person=not _is_false(fields.get("user-invocable")),
    )
    return ParsedSkill(skill, body.strip())


def to_name(text: str) -> str:
    """The text as a name: `PDF Tools` becomes `pdf-tools`."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_NAMES.sub("-", plain.replace("_", "-")).strip("-")[:MAX_NAME_CHARS].strip("-")


def find_name_problem(name: str) -> str:
    """Why this is not a name for a new skill, as a sentence; empty if it is one."""
    if NAME.fullmatch(name) and len(name) <= MAX_NAME_CHARS:
        return ""
    return (
        f"{name[:80]!r} is not a valid name for a skill: use lower-case letters, digits and single hyphens, "
        f"at most {MAX_NAME_CHARS} characters."
    )


def _why_no_front_matter(text: str) -> str:
    if not text.strip():
        return "Its SKILL.md is empty."
    if text.lstrip("\ufeff \t\n\r").startswith("---"):
        return "Its front matter has no end: add a line `---` after the fields."
    return "Its SKILL.md has no front matter: start it with `---`, `name: ...`, `description: ...` and `---`."


def _check_fields(fields: Mapping[str, FieldValue], given: str, expected: str, description: str) -> Iterable[str]:
    """Departures from the specification, as sentences."""
    if not given:
        yield "It has no name; its folder's name is used."
    elif find_name_problem(given):
        plain = to_name(given) or to_name(expected)
        yield f"Its name {given[:80]!r} is not in lower-case letters, digits and single hyphens; {plain} is used."
    elif given != expected:
        yield f"Its name {given} is not the name of its folder, {expected[:80]}."
    if not description:
        yield "It has no description; its first line is used."
    elif len(description) > MAX_DESCRIPTION_CHARS:
        yield f"Its description has {len(description):,} characters; the limit is {MAX_DESCRIPTION_CHARS:,}."
    if len(field_text(fields.get("compatibility"))) > MAX_COMPATIBILITY_CHARS:
        yield f"Its compatibility has more than {MAX_COMPATIBILITY_CHARS} characters."
    metadata = fields.get("metadata")
    if metadata and not isinstance(metadata, dict):
        yield "Its metadata is not a list of names and values."


def _metadata(fields: Mapping[str, FieldValue]) -> dict[str, str]:
    """`metadata`, and the fields that the specification does not have; nested ones by their path."""
    given = fields.get("metadata")
    flat = dict(_flatten(given, "")) if isinstance(given, dict) else {}
    others = {name: value for name, value in fields.items() if name not in SPEC_FIELDS}
    return {**dict(_flatten(others, "")), **flat}


def _flatten(fields: Mapping[str, FieldValue], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field_text(value)


def _tools(value: FieldValue | None) -> tuple[str, ...] | None:
    """Names with spaces or commas between them, or a list; None if the field is missing or empty."""
    texts = value if isinstance(value, list) else [value or ""]
    found = tuple(tool for text in texts for tool in _TOOLS.findall(field_text(text)))
    return found or None


def _is_true(value: FieldValue | None) -> bool:
    return field_text(value).lower() in ("true", "yes", "on")


def _is_false(value: FieldValue | None) -> bool:
    return field_text(value).lower() in ("false", "no", "off")


def _first_line(body: str) -> str:
    lines = (line.strip().lstrip("# ") for line in body.splitlines())
    return next((line for line in lines if line), "")[:MAX_DESCRIPTION_CHARS]
