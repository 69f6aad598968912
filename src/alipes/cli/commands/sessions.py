"""`alipes sessions`: lists, shows, searches, exports and deletes conversations."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from alipes.config.environment import Variables
from alipes.config.loader import build_settings
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.common import choose_theme, confirm, print_json, print_paged, run_in_archive, run_in_store
from alipes.console.inbound import current_directory, format_folder
from alipes.console.markdown.stream import render_markdown
from alipes.console.options import SessionsOptions, parse_sessions
from alipes.console.stdio import terminal_width
from alipes.console.theme import Theme
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_ago, format_count, format_size
from alipes.kernel.messages import Image, Json, Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import ASKED, Usage
from alipes.store.export import to_markdown
from alipes.store.html_export import to_html
from alipes.store.ports.archive import CLEAN_STEPS, Archive, SessionFacts
from alipes.store.ports.search import SearchHit, SearchScope

ID = 6
"""Characters of an id that are shown; any unique start of an id works as a name."""
MAX_RESULT_LINES = 10
MAX_FOLDER, MAX_MODEL = 24, 20
"""Columns in the list."""
_GENERATED_NAME = re.compile(rf"(?:{ASKED})?\d{{6}}-\d{{4}}-[0-9a-f]{{6}}")
WHO = {"user": "you", "assistant": "alipes", "tool": "tools", "notice": "note"}


def run(argv: list[str]) -> int:
    options, reading = parse_sessions(argv), read_config()
    settings = build_settings(reading)
    match options.action:
        case "list":
            folder = (settings.workdir or current_directory()) if options.here else ""
            found = run_in_archive(
                settings, lambda archive: archive.sessions(options.limit, scope=SearchScope(workdir=folder))
            )
            _print_sessions(found, options, reading.variables)
        case "search":
            hits = run_in_archive(settings, lambda archive: archive.search(options.name, options.limit))
            return _print_hits(hits, options)
        case "show":
            facts, messages = run_in_archive(settings, lambda archive: _transcript(archive, options.name))
            if options.json:
                print_json({"session": facts, "messages": messages})
            else:
                theme = choose_theme(reading, settings, plain=False)
                print_paged(_transcript_lines(facts, messages, theme), reading.variables)
        case "export":
            _write_export(run_in_archive(settings, lambda archive: _read_export(archive, options.name)), options)
        case _:
            return _delete(settings, options)
    return 0


def _print_sessions(sessions: list[SessionFacts], options: SessionsOptions, variables: Variables) -> None:
    if options.json:
        print_json(sessions)
    elif not sessions:
        where = " in this folder" if options.here else ""
        print(f'No conversations yet{where}. Start one with `alipes ask "hello"`.')
    else:
        print_paged(_list_lines(sessions), variables)


def _list_lines(sessions: list[SessionFacts]) -> Iterator[str]:
    head = ("ID", "LAST USED", "TURNS", "FOLDER", "MODEL", "NAME", "TITLE")
    rows = [tuple(map(render.sanitize, _list_row(facts))) for facts in sessions]
    shown = [n for n, name in enumerate(head) if name != "NAME" or any(row[n] for row in rows)]
    width = terminal_width(sys.stdout)
    for line in render.format_table([row[n] for n in shown] for row in (head, *rows)):
        yield render.truncate(line, width) if width else line
    if any(facts.unfinished for facts in sessions):
        yield "* has an unfinished turn, which the next `alipes` or `alipes ask` in its folder resumes"


def _list_row(facts: SessionFacts) -> tuple[str, ...]:
    folder = format_folder(facts.workdir)
    model = facts.model.rpartition("/")[2]
    return (
        facts.id[:ID],
        format_ago(facts.updated),
        _turn_count(facts),
        folder if len(folder) <= MAX_FOLDER else f"…{folder[1 - MAX_FOLDER :]}",
        render.to_one_line(model, MAX_MODEL),
        "" if _GENERATED_NAME.fullmatch(facts.address.chat) else _name(facts),
        render.to_one_line(facts.title),
    )


def _print_hits(hits: list[SearchHit], options: SessionsOptions) -> int:
    """Print the hits. The status is 1 if there are none, as with `grep`."""
    if options.json:
        print_json(hits)
    elif not hits:
        print(f'No matches for "{render.to_one_line(options.name)}".')
    for hit in () if options.json else hits:
        print(f"{hit.session[:ID]}  {format_ago(hit.when)}  {render.to_one_line(hit.title, 60)}")
        print(f"    {WHO[hit.role]}: {render.to_one_line(hit.snippet)}")
    return 0 if hits else 1


async def _transcript(archive: Archive, name: str) -> tuple[SessionFacts, tuple[Message, ...]]:
    facts = await archive.resolve(name)
    return facts, await archive.messages(facts.id)


def _transcript_lines(facts: SessionFacts, messages: tuple[Message, ...], theme: Theme | None) -> Iterator[str]:
    """The conversation; with a theme coloured, and the answers rendered as Markdown."""
    strong, faint = (theme.headings[1], theme.faint) if theme else ("", "")
    yield _style(render.to_one_line(facts.title), strong)
    yield _style(" · ".join(_summarize(facts)), faint)
    for message in messages:
        yield ""
        yield _style(f"{WHO[message.role]}:", strong)
        for line in _message_lines(message, theme):
            yield f"  {line}"


def _style(text: str, sgr: str) -> str:
    return f"\x1b[{sgr}m{text}\x1b[0m" if sgr and text else text


def _summarize(facts: SessionFacts) -> Iterator[str]:
    yield f"{facts.id} {_name(facts)}"
    yield from filter(None, (format_folder(facts.workdir), facts.model))
    yield format_count(facts.turns, "turn")
    if facts.unfinished:
        yield f"{facts.unfinished} unfinished"
    yield f"started {format_ago(facts.created)}, last used {format_ago(facts.updated)}"
    if facts.spent.usage != Usage():
        yield render.format_usage(facts.spent.usage)


def _message_lines(message: Message, theme: Theme | None) -> Iterator[str]:
    faint = theme.faint if theme else ""
    for part in message.parts:
        match part:
            case Text(text) if theme is not None and message.role == "assistant":
                yield from render_markdown(text.strip("\n"), theme, max(20, terminal_width(sys.stdout) - 2))
            case Text(text):
                yield from render.sanitize(text.strip("\n")).splitlines()
            case ToolCall():
                yield _style(f"· {render.format_call(part)}", faint)
            case ToolResult(_, text, outcome):
                yield from (() if outcome == "ok" else (f"{outcome}:",))
                lines = render.sanitize(text).splitlines()
                left = len(lines) - MAX_RESULT_LINES
                shown = [*lines[:MAX_RESULT_LINES], *([f"… {left} more lines"] if left > 0 else [])]
                yield from (_style(line, faint) for line in shown)
            case Image(media_type, data):
                yield f"[{media_type}, {format_size(len(data))}]"


async def _read_export(archive: Archive, name: str) -> dict[str, Json]:
    return await archive.export((await archive.resolve(name)).id)


def _write_export(document: dict[str, Json], options: SessionsOptions) -> None:
    name = Path(options.output).suffix.lower().removeprefix(".")
    match options.format or {"htm": "html"}.get(name, name):
        case "json":
            text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
        case "html":
            text = to_html(document)
        case _:
            text = to_markdown(document)
    if not options.output or options.output == "-":
        print(text, end="")
        return
    try:
        Path(options.output).expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {options.output}: {error.strerror or error}") from error


def _delete(settings: Settings, options: SessionsOptions) -> int:
    facts = run_in_store(settings, lambda store: store.archive.resolve(options.name))
    what = f"{facts.id[:ID]} {render.to_one_line(facts.title, 60)!r} ({_turn_count(facts)} turns)"
    if not options.yes and not confirm(f"Delete {what}? This cannot be undone.", "delete"):
        sys.stderr.write("alipes: nothing deleted\n")
        return 1
    run_in_store(settings, lambda store: store.archive.delete(facts.id, clean_steps=0))
    print(f"Deleted {what}.", flush=True)
    if not run_in_store(settings, lambda store: store.archive.clean_indexes(CLEAN_STEPS)):
        sys.stderr.write("alipes: removing its words from the search index (some seconds in a large home)\n")
        run_in_store(settings, lambda store: store.archive.clean_indexes())
    return 0


def _turn_count(facts: SessionFacts) -> str:
    return f"{facts.turns}{'*' if facts.unfinished else ''}"


def _name(facts: SessionFacts) -> str:
    """The name for `--session`; conversations of other platforms have theirs in front."""
    place = facts.address
    return render.to_one_line(place.chat if place.platform == "terminal" else f"{place.platform}:{place.chat}")
