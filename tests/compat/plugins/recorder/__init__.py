"""Writes down every hook as it is called, one JSON line each, in `seen.jsonl` of the home."""

import asyncio
import time

from hermes_cli.plugins import VALID_HOOKS

from .book import HOME, note

SCHEMA = {"parameters": {"type": "object", "properties": {"name": {"type": "string"}}}}


def greet(args, **kwargs):
    note("tool greet", kwargs)
    return {"hello": args.get("name")}


async def ponder(args, **kwargs):
    note("tool ponder", kwargs)
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        note("tool ponder cancelled", {})
        raise


def ready():
    """Holds up every turn that begins while the file is there."""
    if (HOME / "hold").exists():
        note("being set up", {})
    while (HOME / "hold").exists():
        time.sleep(0.01)
    return True


def callback(hook):
    def seen(**kwargs):
        note(hook, kwargs)
        if hook == "pre_verify" and kwargs["attempt"] == 1:
            return {"action": "continue", "message": "look at it once more"}
        return None

    return seen


def register(ctx):
    for hook in sorted(VALID_HOOKS):
        ctx.register_hook(hook, callback(hook))
    ctx.register_tool("greet", "scribe", SCHEMA, greet, description="Greet somebody.")
    ctx.register_tool("ponder", "scribe", SCHEMA, ponder, is_async=True)
    ctx.register_tool("slow_to_say", "scribe", SCHEMA, greet, check_fn=ready)
