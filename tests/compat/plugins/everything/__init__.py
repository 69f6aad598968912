"""Uses every method of ctx, and keeps what each gave back."""

import asyncio
import json
import os
import threading
from pathlib import Path

from .parts import NOTHING, Voice, echo

gave = {}
calls = []


def where():
    return "loop" if threading.current_thread() is threading.main_thread() else "worker"


async def ask_back(args, **kwargs):
    calls.append(("ask_back", where(), sorted(kwargs)))
    answer = await gave["ctx"].llm.acomplete([{"role": "user", "content": "aside"}], purpose="test")
    shown = await gave["ctx"].llm.acomplete_structured("score it", "some text", json_mode=True)
    return {"text": answer.text, "parsed": shown.parsed, "used": answer.usage.total_tokens > 0}


def use_tools(args, **kwargs):
    calls.append(("use_tools", where(), sorted(kwargs)))
    ctx = gave["ctx"]
    made = ctx.dispatch_tool("write_file", {"path": "by-plugin.txt", "content": "dispatched"})
    denied = ctx.dispatch_tool("nothing_like_it", {})
    answer = ctx.llm.complete(messages=[{"role": "user", "content": "aside"}])
    shown = ctx.llm.complete_structured(instructions="score it", input="some text", json_mode=True)
    return {"made": made, "denied": json.loads(denied), "text": answer.text, "parsed": shown.parsed}


async def later(raw_args):
    await asyncio.sleep(0)
    return f"later: {raw_args}"


def inject(raw_args):
    return f"injected: {gave['ctx'].inject_message(raw_args)}"


def prepare(parser):
    parser.add_argument("word")
    parser.add_argument("--times", type=int, default=1)


def shout(args):
    print(args.word.upper() * args.times)
    return 4 if args.times > 2 else None


def register(ctx):
    gave["ctx"] = ctx
    gave["key"] = os.environ.get("EVERYTHING_KEY")
    here = Path(__file__).parent
    gave["tool"] = ctx.register_tool("echo", "all", NOTHING, echo, emoji="📣", description="Says it again.")
    ctx.register_tool(name="ask_back", toolset="all", schema=NOTHING, handler=ask_back, is_async=True)
    ctx.register_tool(name="use_tools", toolset="all", schema=NOTHING, handler=use_tools)
    gave["taken"] = ctx.register_tool("terminal", "all", NOTHING, echo)
    gave["hook"] = ctx.register_hook("on_session_start", lambda session_id: calls.append("began"))
    gave["command"] = ctx.register_command("loud", str.upper, description="Say it loud.", args_hint="WORDS")
    ctx.register_command("later", later)
    ctx.register_command("inject", inject)
    gave["refused"] = ctx.register_command("stop", str.upper)
    ctx.register_cli_command("shout", "Shout a word.", prepare, shout, description="More of it.")
    gave["skill"] = ctx.register_skill("knots", here / "skills" / "knots", "How to tie them.")
    gave["middleware"] = ctx.register_middleware("tool_request", lambda **kw: None)
    gave["unknown middleware"] = ctx.register_middleware("nothing", lambda **kw: None)
    gave["platform"] = ctx.register_platform(
        "everychat", "Every Chat", lambda config: None, lambda: True, required_env=["EVERYTHING_KEY"],
        install_hint="pip install everychat", is_connected=lambda config: False, setup_fn=print,
        allowed_users_env="EVERYTHING_USERS", allow_all_env="EVERYTHING_ALL", max_message_length=100,
        pii_safe=True, emoji="💬", allow_update_command=False, platform_hint="Be brief.",
        env_enablement_fn=dict, apply_yaml_config_fn=lambda tables, own: own,
        cron_deliver_env_var="EVERYTHING_HOME", standalone_sender_fn=print,
    )  # fmt: skip
    for family in ("tts", "transcription", "image_gen", "web_search", "browser"):
        gave[family] = getattr(ctx, f"register_{family}_provider")(Voice(family))
    gave["engine"] = ctx.register_context_engine(Voice("engine"))
    gave["task"] = ctx.register_auxiliary_task("titles", display_name="Titles", description="Short ones.")
    gave["config"] = ctx.get_config("depth.of"), ctx.get_config("missing", "usual")
    gave["about"] = ctx.manifest.name, ctx.manifest.version, ctx.manifest.author, ctx.profile_name
    gave["needs"] = ctx.manifest.requires_env, ctx.manifest.optional_env, ctx.manifest.label
