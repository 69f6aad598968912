"""Settings of skills."""

from typing import Annotated

from msgspec import Struct

from alipes.config.value_types import NAMES, PATHS, whole


class SkillsConfig(Struct, frozen=True):
    enabled: Annotated[bool, "Whether the model and commands can use skills."] = True
    prompt_bytes: Annotated[
        int,
        whole(0, 1_000_000),
        "Bytes of the system prompt for the names and descriptions of skills. Descriptions are shortened to fit; the "
        "model finds the rest with `skills_list`. 0: none are listed.",
    ] = 3200
    off: Annotated[tuple[str, ...], NAMES, "Skills that are off everywhere. `/skills off` does it for one chat."] = ()
    project: Annotated[
        bool,
        "Whether to look for skills in `.alipes/skills`, `.agents/skills` and `.claude/skills` of the project. You "
        "accept each of them once, with `alipes skills accept`, before it is used.",
    ] = True
    folders: Annotated[
        tuple[str, ...], PATHS, "More folders with skills, such as `~/.claude/skills`. Their skills are trusted."
    ] = ()
