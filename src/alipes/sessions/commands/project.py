"""Commands about the folder that the agent works in: init, diff."""

import shlex

from msgspec import structs

from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.user_shell import split_status

INIT = """\
Look at this project and write a file AGENTS.md in its root folder: notes for coding agents that work here.

1. Read the README, the build files, the CI configuration and the layout of the source. If there is an AGENTS.md, a \
CLAUDE.md or a similar file, keep what is still right in it.
2. Write only what an agent cannot see at a glance, and what you have verified: how to build, run, lint and test (also \
a single test), the structure in a few lines, conventions of the code, traps.
3. Be short: about 20 to 60 lines of Markdown. No general advice, no secrets.

Say in one sentence what you wrote."""
REVIEW = """\
Review {what}. Change nothing.

Read the change and as much of the code around it as you need; run tests if that is cheap. Look for wrong behaviour, \
missing cases, security problems, tests that are missing or prove nothing, and code that could be simpler. Leave out \
matters of taste.

Answer with the findings, most serious first: file and line, what is wrong, how to fix it. If there are none, say so \
in one sentence."""
UNCOMMITTED = "the uncommitted changes of this project (git status, git diff HEAD, and new files)"
NAMED = "{0!r}: a commit if it names one, all commits that are only on it if it is a branch, else what it says"
MAX_LINES = 600
_GIT = "git --no-pager -c core.fsmonitor=false -c color.ui=false"
_DIFF = "diff --no-ext-diff --no-textconv"


async def init(context: CommandContext, args: str) -> CommandReply:
    """A turn that writes AGENTS.md."""
    text = f"{INIT}\n\nConsider this, too: {args}" if args else INIT
    context.on_submit(text)
    turn = await context.sessions.submit(structs.replace(context.inbound, text=text), usual=context.default_busy)
    return CommandReply(turns=() if turn is None else (turn,))


async def review(context: CommandContext, args: str) -> CommandReply:
    """A turn that reviews a change."""
    text = REVIEW.format(what=NAMED.format(args) if args else UNCOMMITTED)
    context.on_submit(text)
    turn = await context.sessions.submit(structs.replace(context.inbound, text=text), usual=context.default_busy)
    return CommandReply(turns=() if turn is None else (turn,))


async def diff(context: CommandContext, args: str) -> CommandReply:
    """Changes since the last commit, and the names of new files."""
    paths = f" -- {shlex.quote(args)}" if args else ""
    inside = "git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo 'not a git repository'; exit 3; }"
    base = "$(git rev-parse -q --verify HEAD || git hash-object -t tree /dev/null)"
    new = f'{_GIT} ls-files --others --exclude-standard --directory --no-empty-directory{paths} | sed "s/^/new file: /"'
    script = f"{inside}; {_GIT} {_DIFF} {base}{paths} && {new}"
    result = await context.services.shell.run(script, context.inbound)
    text, status = split_status(result)
    if status:
        return CommandReply(f"No diff: {(text or status).strip()}.", failed=True)
    if not text:
        return CommandReply("No uncommitted changes.")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"… {len(lines) - MAX_LINES:,} more lines; /diff PATH shows one file"]
    return CommandReply("\n".join(lines), diff=True)
