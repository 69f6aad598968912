"""`alipes skills pending`: shows proposals for skills in a shell, accepts, edits and rejects them."""

import asyncio
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from alipes.app import open_for_checks
from alipes.config.environment import process_environment
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.common import confirm
from alipes.console.options import OptionParser
from alipes.features.learning import proposals
from alipes.features.learning.feature import LearningFeature
from alipes.features.learning.learning import Learning, decode_skill
from alipes.features.skills.cli.help import SKILLS
from alipes.kernel.errors import ConfigError, ToolError
from alipes.runtime.front_matter import split_front_matter
from alipes.sessions.commands.context import CommandReply

ACTIONS = ("show", "accept", "edit", "reject")
USAGE = "`alipes skills pending accept ID` accepts one; also `show`, `edit` and `reject`."
_EDITED = "`alipes skills pending accept {}` accepts it."


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes skills", SKILLS)
    args, words = parser.parse_with_words(argv)
    _check_words(parser, words)
    return asyncio.run(_run(load_settings(), words, yes=args.yes))


def _check_words(parser: OptionParser, words: list[str]) -> None:
    """`words`: nothing, an id, or an action and an id."""
    if len(words) == 2 and words[0] not in ACTIONS:
        parser.error(f"unknown action: pending {words[0]} (use {', '.join(ACTIONS)})")
    if len(words) == 1 and words[0] in ACTIONS:
        parser.error(f"`pending {words[0]}` needs an ID; `alipes skills pending` lists them")
    if len(words) > 2:
        parser.error(f"`pending` got too many words: {' '.join(words)}")


async def _run(settings: Settings, words: list[str], *, yes: bool) -> int:
    async with open_for_checks(settings) as app:
        try:
            return await decide_proposals(app.features.get(LearningFeature).learning, words, yes=yes)
        except ToolError as error:
            raise ConfigError(str(error)) from error


async def decide_proposals(learning: Learning, words: list[str], *, yes: bool) -> int:
    match words:
        case ["accept", id]:
            return await _accept(learning, id, yes=yes)
        case ["edit", id]:
            return await _edit(learning, id)
        case ["reject", id]:
            return _print(await proposals.reject_proposal(learning, id))
        case [*_, id]:
            return _print(await proposals.show_proposal(learning, id))
    return _print(await proposals.list_proposals(learning, USAGE))


async def _accept(learning: Learning, id: str, *, yes: bool) -> int:
    shown = await proposals.show_proposal(learning, id)
    if status := _print(shown):
        return status
    if not yes and not await asyncio.to_thread(confirm, "Accept it?", "accept it"):
        sys.stderr.write("alipes: nothing accepted; the proposal still waits\n")
        return 1
    return _print(await proposals.accept_proposal(learning, id))


async def _edit(learning: Learning, id: str) -> int:
    """Open the proposed text in the person's editor. Its front matter stays as it is."""
    proposal = await proposals.find_skill_proposal(learning, id)
    before = split_front_matter(decode_skill(proposal).text)[1].strip()
    after = await asyncio.to_thread(edit_text, before)
    if not after or after == before:
        sys.stderr.write("alipes: nothing was changed; the proposal still waits\n")
        return 1
    status = _print(await proposals.edit_proposal(learning, proposal.id, after))
    print(_EDITED.format(proposal.id))
    return status


def edit_text(text: str) -> str:
    """The text as the person saved it in the editor of `VISUAL` or `EDITOR`. Raises `ConfigError`."""
    environment = process_environment()
    program = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="alipes-edit-") as folder:
        file = Path(folder, "SKILL.md")
        file.write_text(f"{text}\n", encoding="utf-8")
        try:
            status = subprocess.run([*shlex.split(program), str(file)], check=False).returncode
        except (OSError, ValueError) as error:
            raise ConfigError(f"The editor {program} could not be started: {error}. Set EDITOR.") from error
        if status:
            raise ConfigError(f"The editor {program} failed (status {status}); nothing was changed.")
        return file.read_text(encoding="utf-8", errors="replace").strip()


def _print(reply: CommandReply) -> int:
    print(render.sanitize(reply.text))
    return int(reply.failed)
