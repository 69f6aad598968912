"""A conversation as one HTML page: readable in any browser, everything escaped, nothing loaded from elsewhere."""

import html
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from alipes.kernel.messages import Json, Outcome, ToolCall, ToolResult
from alipes.kernel.tool_labels import describe_outcome, describe_tool, is_builtin
from alipes.store.export import ExportedDocument, ExportedTurn

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_WHO = {"user": "You", "assistant": "alipes", "tool": "Result", "notice": "Note"}
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_OPEN_LINES = 12
"""Longer results are folded."""
_MAX_TITLE = 100
"""Characters of a call that its title shows."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --faint: #6b7280; --line: #d9dce1; --code: #f4f5f7; --accent: #0e7490; }
@media (prefers-color-scheme: dark) {
  :root { --faint: #9aa1ac; --line: #363b43; --code: #1f2329; --accent: #67c8db; }
  body { background: #14171b; color: #e4e6ea; }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } article { margin: 1.4rem 0; overflow-wrap: anywhere; } article p { white-space: pre-line; }
header, .ending, summary { color: var(--faint); font-size: .85rem; }
article > header b { color: var(--accent); }
.user > div { border-left: 3px solid var(--accent); padding-left: .8rem; white-space: pre-wrap; }
pre { background: var(--code); padding: .7rem .9rem; overflow-x: auto; border-radius: 4px; font-size: .85rem; }
code { font-family: ui-monospace, monospace; } :not(pre) > code { background: var(--code); padding: .1em .25em; }
pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; }
a.picture::before { content: "Picture: "; }
.footnote { font-size: .9rem; } .footnote-mark { color: var(--accent); }
.maths.block { display: block; overflow-x: auto; padding: .6em .8em; white-space: pre; }
li:has(> input), li:has(> p > input) { list-style: none; margin-left: -1.3em; }
blockquote { border-left: 3px solid var(--line); margin-left: 0; padding-left: .9rem; color: var(--faint); }
img { max-width: 100%; } details { margin: .5rem 0; } summary { cursor: pointer; }
.call { border: 1px solid var(--line); border-radius: 4px; padding: .35rem .7rem; } .call pre { margin: .5rem 0; }
summary b { color: CanvasText; } summary span { float: right; } .failed { color: #b4532a; }
"""


def to_html(exported: dict[str, Json], *, shared: float = 0.0) -> str:
    """The result of `export_session` as a page, without undone turns. `shared`: for others, as it was at that time,
    without what only its owner has to know: folder and id, notes to the model, and what it thought."""
    from alipes.store.html_markdown import make_markdown  # noqa: PLC0415

    document = msgspec.convert(exported, ExportedDocument)
    title = html.escape(str(document.session.get("title") or document.session["id"]))
    markdown = make_markdown()
    turns = [turn for turn in document.turns if not turn.undone and turn.ending != "steered"]
    if shared:
        turns = [_as_shared(turn) for turn in turns if (turn.ended or math.inf) <= shared]
    body = "\n".join(part for turn in turns for part in _format_turn(turn, markdown))
    facts = (document.session.get(name) for name in (("model",) if shared else ("model", "workdir", "id")))
    about = html.escape(" · ".join(str(fact) for fact in facts if fact))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<header>{about}</header>\n{body}\n</body>\n</html>\n"
    )


def _as_shared(turn: ExportedTurn) -> ExportedTurn:
    messages = [
        structs.replace(message, parts=[part for part in message.parts if part.get("type") != "thinking"])
        for message in turn.messages
        if message.role in ("user", "assistant", "tool")
    ]
    return structs.replace(turn, messages=messages)


def _format_turn(turn: ExportedTurn, markdown: "MarkdownIt") -> Iterator[str]:
    parts = [part for message in turn.messages for part in message.parts]
    calls = {str(part.get("id")) for part in parts if part.get("type") == "call"}
    results = {str(part.get("call_id")): part for part in parts if part.get("type") == "result"}
    speaker = ""
    for message in turn.messages:
        shown = [part for part in message.parts if part.get("type") != "result" or part.get("call_id") not in calls]
        body = "\n".join(_format_part(part, message.role, markdown, results) for part in shown)
        if not body.strip():
            continue
        head = ""
        if message.role != speaker:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(message.created))
            head = f"<header><b>{html.escape(_WHO.get(message.role, message.role))}</b> · {when}</header>\n"
        speaker = message.role
        yield f'<article class="{html.escape(message.role)}">\n{head}{body}\n</article>'
    if turn.ending not in (None, "answered"):
        detail = f": {turn.detail}" if turn.detail else ""
        yield f'<p class="ending">{html.escape(f"{turn.ending}{detail}")}</p>'


def _format_part(part: dict[str, Json], role: str, markdown: "MarkdownIt", results: dict[str, dict[str, Json]]) -> str:
    """`results`: the results of calls, by the ids of the calls."""
    match part:
        case {"type": "text", "text": str(text)} if role == "assistant":
            return f"<div>{markdown.render(text)}</div>"
        case {"type": "text", "text": str(text)}:
            return f"<div>{html.escape(text)}</div>"
        case {"type": "thinking", "text": str(text)}:
            return _fold("Thinking", text)
        case {"type": "call", "id": str(id), "name": str(name), "args": dict(args)}:
            return _format_call(ToolCall(id, name, args), results.get(id))
        case {"type": "result", "text": str(text)}:
            return _fold("Result", text)
        case {"type": "image", "media_type": str(kind), "data": str(data)} if kind in _IMAGES:
            return f'<img alt="" src="data:{kind};base64,{html.escape(data)}">'
    return ""


class _Result(msgspec.Struct):
    outcome: Outcome = "ok"


def _format_call(call: ToolCall, result: dict[str, Json] | None) -> str:
    """A call with its result, in one part that can be folded."""
    label, text, outcome = describe_tool(call), "", "no result"
    if result is not None:
        text = str(result.get("text") or "")
        known = msgspec.convert(result, _Result)
        outcome = describe_outcome(call, ToolResult(call.id, text, known.outcome))
    failed = ' class="failed"' if result is None or result.get("outcome", "ok") != "ok" else ""
    title = " ".join(label.object.split())[:_MAX_TITLE]
    head = f"<b>{html.escape(label.verb)}</b> {html.escape(title)} <span{failed}>{html.escape(outcome)}</span>"
    is_shown = is_builtin(call) and title == label.object and len(call.args) == 1
    arguments = "" if is_shown else f'<pre class="wrap">{html.escape(_format_arguments(call.args))}</pre>'
    shown = f'<pre class="wrap">{html.escape(text)}</pre>' if text else ""
    is_open = " open" if text.count("\n") < _OPEN_LINES and not arguments else ""
    return f'<details class="call"{is_open}><summary>{head}</summary>{arguments}{shown}</details>'


def _format_arguments(args: Json) -> str:
    if isinstance(args, dict) and len(args) == 1 and isinstance(only := next(iter(args.values())), str):
        return only
    return msgspec.json.format(msgspec.json.encode(args), indent=2).decode()


def _fold(title: str, text: str, *, is_open: bool = False) -> str:
    head = f"<details{' open' if is_open else ''}><summary>{html.escape(title)}</summary>"
    return f'{head}<pre class="wrap">{html.escape(text)}</pre></details>'
