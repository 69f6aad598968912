"""`alipes sessions`: lists, shows, searches, exports and deletes conversations."""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from alipes.cli import help_text, render
from alipes.cli.common import confirm, print_json, print_list, run_in_archive, run_in_store
from alipes.cli.options import OptionParser, SessionsOptions, parse_sessions
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_ago, format_count
from alipes.kernel.messages import Image, Json, Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import Usage
from alipes.sessions.commands.usage_report import lines, report
from alipes.store.archive import Archive
from alipes.store.export import SearchHit, SessionFacts, to_markdown

ID = 6
"""Characters of an id that are shown; any unique start of an id works as a name."""
MAX_RESULT_LINES = 10
WHO = {"user": "you", "assistant": "alipes", "tool": "tools", "notice": "note"}


def run(argv: list[str]) -> int:
    options = parse_sessions(argv)
    settings = load_settings()
    match options.action:
        case "list":
            _print_sessions(run_in_archive(settings, lambda archive: archive.sessions(options.limit)), options)
        case "search":
            hits = run_in_archive(settings, lambda archive: archive.search(options.name, options.limit))
            return _print_hits(hits, options)
        case "show":
            _print_transcript(
                *run_in_archive(settings, lambda archive: _transcript(archive, options.name)), options.json
            )
        case "export":
            _write_export(run_in_archive(settings, lambda archive: _read_export(archive, options.name)), options)
        case _:
            return _delete(settings, options)
    return 0


def _print_sessions(sessions: list[SessionFacts], options: SessionsOptions) -> None:
    head = ("ID", "LAST USED", "TURNS", "NAME", "TITLE")
    rows = [
        (each.id[:ID], format_ago(each.updated), _turn_count(each), _name(each), render.to_one_line(each.title))
        for each in sessions
    ]
    empty = 'No conversations yet. Start one with `alipes ask "hello"`.'
    shown = print_list(sessions, head, rows, json=options.json, empty=empty)
    if shown and any(facts.unfinished for facts in sessions):
        print("* has an unfinished turn, which the next `alipes` or `alipes ask` resumes")


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


def _print_transcript(facts: SessionFacts, messages: tuple[Message, ...], json: bool) -> None:
    if json:
        print_json({"session": facts, "messages": messages})
        return
    print(render.to_one_line(facts.title))
    print(" · ".join(_summarize(facts)))
    for message in messages:
        print(f"\n{WHO[message.role]}:")
        for line in _message_lines(message):
            print(f"  {line}".rstrip())


def _summarize(facts: SessionFacts) -> Iterator[str]:
    yield f"{facts.id} {_name(facts)}"
    yield format_count(facts.turns, "turn")
    if facts.unfinished:
        yield f"{facts.unfinished} unfinished"
    yield f"started {format_ago(facts.created)}, last used {format_ago(facts.updated)}"
    if facts.spent.usage != Usage():
        yield render.format_usage(facts.spent.usage)


def _message_lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text):
                yield from render.sanitize(text.strip("\n")).splitlines()
            case ToolCall():
                yield f"· {render.format_call(part)}"
            case ToolResult(_, text, outcome):
                yield from (() if outcome == "ok" else (f"{outcome}:",))
                lines = render.sanitize(text).splitlines()
                yield from lines[:MAX_RESULT_LINES]
                if len(lines) > MAX_RESULT_LINES:
                    yield f"… {len(lines) - MAX_RESULT_LINES} more lines"
            case Image(media_type, data):
                yield f"[{media_type}, {render.format_size(len(data))}]"


async def _read_export(archive: Archive, name: str) -> dict[str, Json]:
    return await archive.export((await archive.resolve(name)).id)


def _write_export(document: dict[str, Json], options: SessionsOptions) -> None:
    if options.format == "json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    else:
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
    run_in_store(settings, lambda store: store.archive.delete(facts.id))
    print(f"Deleted {what}.")
    return 0


def _turn_count(facts: SessionFacts) -> str:
    return f"{facts.turns}{'*' if facts.unfinished else ''}"


def _name(facts: SessionFacts) -> str:
    """The name for `--session`; conversations of other platforms have theirs in front."""
    place = facts.address
    return render.to_one_line(place.chat if place.platform == "terminal" else f"{place.platform}:{place.chat}")


DEFAULT_DAYS = 30
MAX_DAYS = 3660


def run_usage(argv: list[str]) -> int:
    parser = OptionParser("alipes usage", help_text.USAGE, {"days": {"default": str(DEFAULT_DAYS)}})
    args = parser.parse_args(argv)
    if not args.days.isascii() or not args.days.isdecimal() or not 1 <= int(args.days) <= MAX_DAYS:
        parser.error(f"--days takes a number of days from 1 to {MAX_DAYS}")
    usage = run_in_archive(load_settings(), lambda archive: report(archive, int(args.days)))
    if args.json:
        print_json(usage)
    else:
        print("\n".join(render.sanitize(line) for line in lines(usage)))
    return 0
