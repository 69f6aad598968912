"""What `alipes agents --help` prints."""

AGENTS = """\
usage: alipes agents [list] [--json]               list the agents, and those that can be added
       alipes agents add NAME [--env VARIABLE] [--mode MODE] [-- COMMAND [ARGUMENTS...]]
       alipes agents test NAME [--json]            start it, open a session, and show what it offers
       alipes agents login NAME [-- COMMAND...]    run its own login in this terminal
       alipes agents remove NAME [--yes]           remove it, with its folder and its login

Another agent is a program that speaks the Agent Client Protocol, such as Claude Code, Codex
or Gemini CLI. Talk to it with `--model agent/NAME` or /model agent/NAME; the model can give
it tasks with delegate_task. It runs in the sandbox, with a folder of its own for its login
and its sessions. alipes never sees a token. What each vendor allows: docs/agents.md.

A known NAME needs no command: claude, codex, gemini, opencode, qwen, copilot, goose, cursor,
kimi. Agents are kept in [agents.NAME] of config.toml.

options:
  --env VARIABLE        for add: NAME=TEXT, or NAME to take it from .env (repeatable)
  --mode MODE           for add: the mode that its sessions begin with
  -y, --yes             for remove: do not ask
  --json                for list and test: print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 the agent could not be used; 2 wrong usage or settings.
"""
