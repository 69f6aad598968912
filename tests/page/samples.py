"""Example answers of the API for every screen, with every field that a screen shows."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = time.time()
DIFF = """--- notes.md
+++ notes.md
@@ -1,3 +1,4 @@
 # Notes
-Ann likes tea.
+Ann likes green tea.
+Ben is in Rome on Fridays.
 The backup runs at 3.
"""
TEXT = "Check the release notes of the last week and write a short summary for the team."


def _days(count: int) -> list[str]:
    today = datetime.now(UTC).date()
    return [(today - timedelta(days=back)).isoformat() for back in range(count)]


def _usage() -> dict[str, Any]:
    rows = []
    for place, day in enumerate(_days(28)):
        for number, model in enumerate(("anthropic/claude-sonnet", "openai/gpt-mini", "local/qwen")):
            size = 10_000 * ((place * 7 + number * 5) % 11) // (number + 1)
            if size:
                rows.append(
                    {"day": day, "model": model, "task": ("chat", "title", "memory")[number]}
                    | {"surface": ("telegram", "terminal", "schedule")[number], "calls": 1 + size // 9000}
                    | {"input": size, "output": size // 8, "cached": size // 2, "cost": size * 3e-6}
                    | {"session": f"s{number}", "title": f"Conversation {number}", "unpriced": 0}
                )
    total = {
        name: sum(row[name] for row in rows) for name in ("calls", "input", "output", "cached", "cost", "unpriced")
    }
    limits = [
        {"name": "budget.daily", "limit": 5.0, "used": 1.25, "unit": "$", "period": "day"},
        {"name": "budget.monthly", "limit": 40.0, "used": 36.0, "unit": "$", "period": "month"},
    ]
    return {"zone": "UTC", "from": _days(30)[-1], "to": _days(1)[0], "rows": rows, "total": total, "limits": limits}


def _job(id: str, name: str, **more: Any) -> dict[str, Any]:
    start = NOW + 7200
    return {
        "id": id, "name": name, "kind": "prompt", "trigger": "cron", "when": "every weekday at 9",
        "when_text": "every weekday at 09:00", "zone": "America/New_York", "state": "active",
        "next": [start + 86400 * day for day in range(5)], "deliver": ["telegram"], "missed": "once",
        "overlap": "skip", "permission_mode": "ask", "prompt": TEXT, "skills": ["release-notes"],
        "folder": "/home/ann/project", "budget": "$0.50", "owner": "page", "retries": 2,
        "last": {"id": 3, "status": "ok", "time": NOW - 4000, "detail": "sent to telegram", "session": "s1", "run": "r1"},
    } | more  # fmt: skip


JOBS = [
    _job("j1", "Morning news"),
    _job("j2", "Backup", kind="script", prompt="", script="restic backup ~/notes\nrestic forget --keep-daily 7"),
    _job("j3", "Weekly report", state="paused", next=[], last={"id": 4, "status": "failed", "time": NOW - 90000})
    | {"when_text": "every Friday at 16:00"},
]
SKILLS = [
    {"name": "release-notes", "description": "Write release notes from merged pull requests.", "source": "home"}
    | {"path": "/home/ann/.alipes/skills/release-notes", "enabled": True, "uses": 14, "answered": 13, "failed": 1}
    | {"last": NOW - 5000, "problem": ""},
    {"name": "pdf", "description": "Read and fill PDF forms.", "source": "installed", "enabled": False, "uses": 0},
    {"name": "broken", "description": "", "source": "home", "enabled": True, "problem": "SKILL.md has no description"},
]
PROPOSALS = [
    {"id": "p1", "kind": "skill", "name": "release-notes", "reason": "You corrected the order of the sections twice."}
    | {"diff": DIFF, "session": "s1", "run": "r1", "created": NOW - 600, "text": "# Release notes\nSections: fixes."},
    {"id": "p2", "kind": "memory", "name": "user", "reason": "You said so.", "diff": DIFF, "created": NOW - 60},
]
QUESTIONS = [
    {"ask": "a1", "kind": "approval", "run": "r1", "session": "s1", "title": "Clean up the build", "created": NOW - 42}
    | {"origin": "Telegram · Ann", "until": NOW + 800, "tool": "shell", "command": "rm -rf build dist && make release"}
    | {"reason": "it deletes the folders build and dist", "rule": "ask about deletions", "workdir": "/home/ann/project"}
    | {"pattern": "rm -rf build dist*", "answers": ["once", "session", "always", "no"]},
    {"ask": "a2", "kind": "approval", "run": "r2", "session": "s2", "title": "Notes", "created": NOW - 300}
    | {"origin": "terminal", "tool": "edit_file", "diff": DIFF, "reason": "it changes a file outside of the project"}
    | {"workdir": "/home/ann/project", "answers": ["once", "session", "no"]},
    {"ask": "a3", "kind": "question", "run": "r3", "session": "s3", "title": "Trip to Rome", "created": NOW - 3000}
    | {"origin": "page", "question": "Which train should I book?", "choices": ["08:10, 3 h 05", "09:40, 2 h 55"]},
]
SETTINGS = [
    {
        "key": "model",
        "value": "anthropic/claude-sonnet",
        "default": "",
        "source": "file",
        "origin": "config.toml, line 1",
    }
    | {"line": 1, "type": "text", "accepts": "provider/model", "description": "Model of new conversations."},
    {"key": "api.port", "value": 8742, "default": 8742, "source": "default", "type": "whole", "min": 1, "max": 65535}
    | {"accepts": "whole number from 1 to 65535", "description": "Port of the server.", "restart": True},
    {"key": "api.hosts", "value": ["agent.example.com"], "default": [], "source": "file", "type": "list"}
    | {"accepts": "list of hosts", "description": "Other names of the server."},
    {"key": "browser.enabled", "value": False, "default": False, "source": "default", "type": "flag"}
    | {"description": "Let the agent use a web browser."},
    {"key": "busy", "value": "queue", "default": "queue", "source": "default", "type": "choice"}
    | {"choices": ["queue", "interrupt", "steer"], "description": "What a message does while a task runs."},
    {"key": "telegram.token_env", "value": "TELEGRAM_BOT_TOKEN", "default": "TELEGRAM_BOT_TOKEN", "source": "default"}
    | {"type": "text", "secret": "TELEGRAM_BOT_TOKEN", "set": True, "description": "Variable with the bot's token."},
]
LEVELS = ("INFO", "DEBUG", "WARNING", "ERROR")
LINES = [
    {"id": number, "time": NOW - 3000 + number, "level": LEVELS[0 if number % 9 else number // 9 % 4]}
    | {"logger": "alipes.sessions.session", "text": f"turn {number} finished in 1.2 s", "session": "s1", "run": "r1"}
    for number in range(1, 400)
]
SESSIONS = [
    {"id": f"s{number}", "name": f"s{number}", "platform": "telegram", "title": title, "updated": NOW - 900 * number}
    | {"origin": origin, "preview": "The build is clean.", "messages": 12, "status": "idle", "current": True}
    for number, (title, origin) in enumerate(
        [
            ("Clean up the build", "Telegram · Ann"),
            ("Notes", "terminal"),
            ("Trip to Rome", "page"),
            ("News", "schedule"),
        ]
    )
]

ANSWERS: dict[str, Any] = {
    "key": {"name": "page", "scopes": ["admin"]},
    "sessions": {"sessions": SESSIONS, "more": False},
    "commands": {"commands": [{"name": "undo", "args": "[N]", "help": "undo the last turn", "surfaces": ["page"]}]},
    "inbox": {"questions": QUESTIONS, "proposals": 2, "pairing": 1},
    "usage": _usage(),
    "schedules": {"jobs": JOBS, "zone": "Europe/Rome"},
    "schedules/j1": JOBS[0],
    "schedules/j1/history": {
        "runs": [
            {"id": number, "due": NOW - 86400 * number, "started": NOW - 86400 * number, "ended": NOW - 86400 * number + 31}
            | {"status": ("ok", "failed", "skipped")[number % 3], "detail": "sent to telegram", "session": "s1"}
            | {"run": "r1", "cause": "" if number else "manual", "attempt": 1, "name": "Morning news"}
            for number in range(5)
        ]
    },
    "schedules/preview": {"when_text": "every weekday at 09:00", "next": JOBS[0]["next"], "zone": "Europe/Rome"},
    "skills": {"skills": SKILLS, "pending": 2},
    "skills/release-notes": SKILLS[0]
    | {"text": "---\nname: release-notes\n---\n# Release notes\n", "files": ["SKILL.md", "template.md"]}
    | {"versions": [{"number": number, "created": NOW - 9000 * number, "why": "edited by Ann"} for number in (2, 1)]},
    "skills/pending": {"proposals": PROPOSALS},
    "memory": {
        "targets": [
            {"target": "memory", "text": "The backup runs at 3.\n§\nThe project uses ruff.", "base": "x", "used": 45}
            | {"limit": 2200},
            {"target": "user", "text": "Ann likes green tea.", "base": "y", "used": 20, "limit": 1375},
        ],
        "people": [{"scope": "", "label": "Owner"}, {"scope": "telegram:7", "label": "Ben"}],
        "pending": 1,
    },
    "memory/versions": {
        "versions": [{"number": 3, "target": "memory", "created": NOW - 7000, "what": "added", "diff": DIFF}
            | {"author": "agent", "session": "s1"}]
    },
    "mcp": {
        "servers": [
            {"name": "time", "where": "uvx mcp-server-time", "state": "ready", "tools": ["get_time", "convert_time"]}
            | {"enabled": True, "pending": []},
            {"name": "files", "where": "https://mcp.example.com/", "state": "failed", "why": "The server replied 503."}
            | {"tools": ["read"], "pending": ["write"], "changes": ["write: new"], "enabled": True, "source": ".mcp.json"},
        ]
    },
    "model-choices": {
        "current": "anthropic/claude-sonnet", "default": "anthropic/claude-sonnet",
        "models": [
            {"name": "anthropic/claude-sonnet", "provider": "anthropic", "context": 200_000, "input_price": 3.0, "output_price": 15.0},
            {"name": "local/qwen", "provider": "local", "input_price": 0.0, "output_price": 0.0},
        ],
    },
    "agents": {
        "agents": [
            {"name": "claude", "model": "agent-claude/default", "title": "Claude Code", "command": "claude-agent-acp", "installed": True}
            | {"mode": "ask", "running": 1},
            {"name": "codex", "model": "agent-codex/default", "title": "Codex", "command": "codex-acp"}
            | {"install": "npm install --global @zed-industries/codex-acp"},
        ],
        "known": [{"name": "gemini", "title": "Gemini CLI", "package": "@google/gemini-cli", "install": "npm install --global @google/gemini-cli"}],
        "checked": "2026-11-19",
    },
    "plugins": {
        "plugins": [
            {"name": "weather", "version": "1.2.0", "kind": "native", "state": "on", "source": "~/.alipes/plugins/weather"}
            | {"adds": {"tools": ["forecast"], "commands": ["weather"]}, "asks": ["network: api.example.com"]}
            | {"strikes": 0, "enabled": True},
            {"name": "noisy", "version": "0.1", "kind": "hermes", "state": "off", "why": "It failed three times: KeyError"}
            | {"adds": {"hooks": ["turn_ended"]}, "asks": [], "needs": ["a key"], "strikes": 3, "enabled": True}
            | {"silenced": {"turn_ended": "KeyError"}, "description": "Reports every turn.", "path": "/plugins/noisy"},
        ]
    },
    "platforms": {
        "platforms": [
            {"name": "telegram", "label": "Telegram", "configured": True, "ready": True, "since": NOW - 90000, "sent": 41}
            | {"received": 57, "home_chat": "Ann"},
            {"name": "matrix", "label": "Matrix", "configured": True, "ready": False, "why": "The server refused the token."}
            | {"since": NOW - 300, "restarts": 4},
            {"name": "irc", "label": "IRC", "configured": False, "why": "Set irc.server in config.toml."},
        ]
    },
    "people": {
        "people": [
            {"id": "telegram:7", "platform": "telegram", "user": "7", "name": "Ann", "role": "owner", "since": NOW - 9e6},
            {"id": "telegram:8", "platform": "telegram", "user": "8", "name": "Ben", "role": "user", "since": NOW - 9e5},
            {"id": "irc:ann", "platform": "irc", "user": "ann", "name": "ann", "role": "owner", "settings": True},
        ],
        "requests": [{"platform": "telegram", "user": "9", "name": "Cleo", "asked": NOW - 120, "expires": NOW + 3000}],
    },
    "outbox": {
        "messages": [
            {"number": 1, "platform": "telegram", "chat": "Ann", "text": "The build is clean.", "state": "queued"}
            | {"attempts": 2, "due": NOW + 30, "reason": "Too many requests: retry after 30 s", "created": NOW - 60},
            {"number": 2, "platform": "matrix", "chat": "!room:example.com", "text": TEXT, "state": "failed"}
            | {"attempts": 9, "reason": "The room no longer exists.", "created": NOW - 6000},
        ]
    },
    "settings": {"file": "/home/ann/.alipes/config.toml", "base": "b", "settings": SETTINGS, "problems": []}
    | {"secrets": [{"name": "TELEGRAM_BOT_TOKEN", "set": True, "source": ".env", "used": "telegram.token_env"}]},
    "settings/api.port": SETTINGS[1] | {"why": "default: 8742"},
    "log": {"lines": LINES[::-1], "more": True, "end": "9", "file": "alipes.log"},
    "doctor": {
        "checks": [
            {"group": "model", "name": "model", "status": "ok", "text": "anthropic/claude-sonnet answered in 0.8 s."},
            {"group": "database", "name": "size", "status": "ok", "text": "41 MB, no problem found."},
            {"group": "sandbox", "name": "bwrap", "status": "warn", "text": "bubblewrap is not installed."}
            | {"fix": "Install it: apt install bubblewrap"},
            {"group": "messengers", "name": "matrix", "status": "error", "text": "The server refused the token."}
            | {"fix": "Run `alipes setup matrix`."},
        ],
        "seconds": 2.4,
    },
    "sessions/search": {
        "hits": [
            {"session": "s1", "title": "Notes", "message": 14, "role": "assistant", "origin": "terminal"}
            | {"when": NOW - 99, "snippet": "Ann likes green tea and the train to Rome.", "turn": "t1"}
        ]
    },
    "browsers": {
        "browsers": [
            {"id": "b1", "name": "Chromium on Linux", "scope": "admin", "created": NOW - 9e5, "last_seen": NOW - 5}
            | {"expires": NOW + 9e5, "current": True},
            {"id": "b2", "name": "Phone", "scope": "read", "created": NOW - 8e5, "last_seen": NOW - 4000},
        ]
    },
    "cluster": {
        "worker": "9f2c41d07ab3",
        "workers": [
            {"id": "9f2c41d07ab3", "host": "agent-1", "pid": 4121, "roles": ["listen", "web", "work"], "sessions": 214}
            | {"started": NOW - 90000, "lease_age": 0.4, "leads": ["platform telegram", "schedules"]},
            {"id": "c07755e1a2b4", "host": "agent-2.internal.example.com", "pid": 812, "roles": ["listen", "work"]}
            | {"started": NOW - 7200, "sessions": 198, "lease_age": 2.4, "leads": ["platform matrix"]},
            {"id": "e48819aa03cd", "host": "agent-3", "pid": 77, "roles": ["web"], "sessions": 0}
            | {"started": NOW - 600, "lease_age": 0.9, "leads": []},
        ],
        "waiting": 3, "oldest_waiting": 4.2, "full": False, "takeovers": {"death": 12, "lease": 3},
        "vacant": ["platform slack"],
        "writes": {"commits": 120345, "writes": 401222, "seconds": 96.3, "fenced": 2, "bus_lag": 0.0021},
    },
    "server": {"version": "1.0", "profile": "", "started": NOW - 90000, "address": "http://127.0.0.1:8742"},
}  # fmt: skip
"""Answers of GET requests by their path below /v1."""

SCREENS: dict[str, str] = {
    "inbox": "Inbox", "usage": "Usage", "schedules": "Schedules", "schedules/j1": "Morning news", "skills": "Skills",
    "skills?tab=pending": "Skills", "skills/release-notes": "release-notes", "memory": "Memory", "mcp": "MCP servers", "agents": "Other agents",
    "plugins": "Plugins", "people": "People and platforms", "people/platforms": "People and platforms",
    "people/outbox": "People and platforms", "settings": "Settings", "settings/api": "Settings",
    "settings/secrets": "Settings", "log": "Log", "doctor": "Doctor", "search?q=tea": "Search", "browsers": "Browsers",
    "cluster": "Cluster",
}  # fmt: skip
"""Addresses of the screens, and their headings with the answers above."""
