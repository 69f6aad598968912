"""The whole gateway, simulated: a seed is a small world, run to its end in some twenty milliseconds.

What is real: sessions, journal, outbox, delivery, gateway, the Telegram platform, the OpenAI wire, the agent
loop, subagents, shortening, hooks with a plugin, SQLite. What is simulated: the clock, threads, the disk under SQLite, the bytes of
HTTP, the other processes of a home, and death.

- `plan`     a seed becomes a plan: what people write and when, and what goes wrong
- `loop`     an event loop with virtual time; what asyncio leaves open, the dice decide
- `machine`  clock, disk, threads, processes: what production code asks the machine for
- `outside`  Telegram and a model behind wires that fail; they outlive the process
- `thinking` what the model answers, and what no transcript may show it
- `living`   one process, as `alipes serve` opens it; `witnessing` who watches it
- `running`  a plan through all its lives; `judging` what must hold at the end
- `shrinking` a failing plan made small; `mutations` rules taken away, to see that it is noticed

A process may die at any step of its loop (`crash`), lose what had not reached the disk (`power`), be asked to
end (`term`) or find the disk full (`full`). Requests are refused, lost, done but not answered, answered with
429 or 5xx; streams break off; messages come twice, in parts, are edited, stopped, queued, steered, taken back,
asked again; questions are answered by a button, in words, twice or never; a plugin is slow, hangs or raises.

What must hold, looked at after every step: a message becomes one turn with one ending, or answers a question,
which never changes; one turn lives in a session; the model never sees an open call; nothing is shown before it
is in the journal; memory is the journal; no write is done twice or before its intent is on disk; nothing of a
turn continues after its end; no task outlives the process. And at the end: every answer is in its chat once, in
order, or marked as uncertain; nothing is left to do.

    python -m tests.simulation 74           one seed: its plan, its trace, the least that still fails
    python -m tests.simulation 0 5000       many, and how fast
    ALIPES_SIMULATION=20000 python -m pytest tests/simulation    the long pass
"""
