"""The whole gateway, simulated: each seed is a small scenario that runs to its end in about twenty milliseconds.

Real: sessions, journal, outbox, delivery, gateway, the Telegram platform, the OpenAI client, the agent loop,
subagents, compaction, hooks with a plugin, SQLite. Simulated: the clock, threads, the disk under SQLite, HTTP, the
other processes of a home, and crashes.

- `plan`          makes a plan from a seed: what people write and when, and what fails
- `loop`          an event loop with virtual time; what asyncio leaves open is random, by the seed
- `machine`       clock, disk, threads and processes, as production code uses them
- `fake_network`  Telegram and a model behind connections that fail; they outlive the process
- `fake_model`    what the model answers, and what no transcript may contain
- `process`       one process, as `alipes serve` opens it; `observer` checks it while it runs
- `run`           runs a plan through all its crashes; `checks` looks at the end
- `shrink`        makes a failing plan small; `mutations` removes rules, to prove that it is noticed

A process may die at any step of its loop (`crash`), lose what was not synced (`power`), be asked to stop
(`term`) or find the disk full (`full`). Requests are refused, lost, executed but not answered, answered with 429
or 5xx; streams break; messages come twice, in parts, are edited, stopped, queued, steered, undone, retried;
questions are answered by a button, in words, twice or never; a plugin is slow, hangs or raises.

Checked after every step: a message becomes one turn with one ending that never changes, or answers a question;
a session runs one turn; the model never sees an open call; nothing is published before it is in the journal;
memory equals the journal; no write happens twice or before its intent is on disk; nothing of a turn continues
after its end; no task outlives the process. At the end: every answer is in its chat once, in order, or marked as
uncertain; nothing is left to do.

    python -m tests.simulation 74           one seed: its plan, its trace, the smallest plan that still fails
    python -m tests.simulation 0 5000       many seeds, and how fast
    ALIPES_SIMULATION=20000 python -m pytest tests/simulation    the long pass
"""
