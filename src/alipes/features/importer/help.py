"""The help page of `alipes import`."""

IMPORT = """\
usage: alipes import PROGRAM [PATH] [options]
       alipes import list [--json]
       alipes import check ID
       alipes import undo ID [--yes]

Bring conversations, memory, persona, skills, schedules, people and settings of another agent over.
Its home is only read. You see a plan first, and `undo` takes everything back. PROGRAM is one of:
{programs}
Without PATH its home is looked for where the program has it.

A second import adds what is new there, and continues conversations that went on there. An import that
was broken off continues when you run it again.

options:
  --dry-run             only show the plan; nothing is written
  --only KINDS          only these, with commas: {kinds}
  --skip KINDS          all but these
  --since DATE          no conversations that ended before, as in 2026-01-31
  --profile NAME        a profile of Hermes Agent instead of the main one
  --agent NAME          an agent of OpenClaw instead of all
  --into HOME           a home of alipes other than yours
  --secrets             also API keys and tokens, into .env
  --start               schedules run from now on; otherwise they arrive paused
  --owner ID            who of the imported people you are, as in telegram:1001
  --conflict WHAT       keep (default), replace or both: what happens if yours is different
  --verbose             list everything in the plan
  -y, --yes             do not ask
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done, or nothing to do; 1 something could not be imported, or differs (check);
2 wrong usage, or a home that cannot be read.
"""
