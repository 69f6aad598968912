"""`alipes sessions`: conversations listed, shown, searched, exported, deleted. It starts no turn."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from alipes.cli import options as arguments
from alipes.cli import render
from alipes.cli.common import agreed, in_store
from alipes.cli.options import SessionsOptions
from alipes.cli.stdio import terminal_width
from alipes.config.settings import Settings, load
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import ago
from alipes.kernel.messages import Image, Json, Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import Usage
from alipes.store.archive import Archive
from alipes.store.export import Hit, SessionFacts, markdown

ID = 6
"""Letters of an id that are shown; any beginning that is unique will do."""
WHO = {"user": "you", "assistant": "alipes", "tool": "tools", "notice": "note"}


def run(argv: list[str]) -> int:
    options = arguments.sessions(argv)
    settings = load()
    match options.action:
        case "list":
            _show_list(in_store(settings, lambda store: store.archive.sessions(options.limit)), options)
        case "search":
            hits = in_store(settings, lambda store: store.archive.search(options.name, options.limit))
            return _show_hits(hits, options)
        case "show":
            _show(*in_store(settings, lambda store: _transcript(store.archive, options.name)), options.json)
        case "export":
            _write(in_store(settings, lambda store: _document(store.archive, options.name)), options)
        case _:
            return _delete(settings, options)
    return 0


def _show_list(sessions: list[SessionFacts], options: SessionsOptions) -> None:
    if options.json:
        _print_json(sessions)
        return
    if not sessions:
        print('There are no conversations yet; `alipes ask "hello"` begins one.')
        return
    head = ("ID", "LAST USED", "TURNS", "NAME", "TITLE")
    rows = [(s.id[:ID], ago(s.updated), _turns(s), _name(s), _title(s)) for s in sessions]
    _print_lines(render.table([head, *rows]))
    if any(facts.unfinished for facts in sessions):
        print("* has an unfinished turn, which the next `alipes` or `alipes ask` takes up")


def _show_hits(hits: list[Hit], options: SessionsOptions) -> int:
    """As `grep` does: status 1 when nothing was found."""
    if options.json:
        _print_json(hits)
    elif not hits:
        print(f"Nothing was said about {render.one_line(options.name)!r}.")
    for hit in () if options.json else hits:
        print(f"{hit.session[:ID]}  {ago(hit.when)}  {render.one_line(hit.title, 60)}")
        print(f"    {WHO[hit.role]}: {render.one_line(hit.snippet)}")
    return 0 if hits else 1


async def _transcript(archive: Archive, name: str) -> tuple[SessionFacts, tuple[Message, ...]]:
    facts = await archive.resolve(name)
    return facts, await archive.messages(facts.id)


def _show(facts: SessionFacts, messages: tuple[Message, ...], json: bool) -> None:
    if json:
        _print_json({"session": facts, "messages": messages})
        return
    print(render.one_line(facts.title))
    print(" · ".join(_summary(facts)))
    for message in messages:
        print(f"\n{WHO[message.role]}:")
        for line in _lines(message):
            print(f"  {line}".rstrip())


def _summary(facts: SessionFacts) -> Iterator[str]:
    yield f"{facts.id} {_name(facts)}"
    yield f"{facts.turns} turn{'' if facts.turns == 1 else 's'}"
    if facts.unfinished:
        yield f"{facts.unfinished} unfinished"
    yield f"begun {ago(facts.created)}, last used {ago(facts.updated)}"
    if facts.spent.usage != Usage():
        yield render.usage_line(facts.spent.usage)


def _lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text):
                yield from render.harmless(text.strip("\n")).splitlines()
            case ToolCall():
                yield f"· {render.call_line(part)}"
            case ToolResult(_, text, outcome):
                yield from (() if outcome == "ok" else (f"{outcome}:",))
                yield from _head(render.harmless(text).splitlines())
            case Image(media_type, data):
                yield f"[{media_type}, {render.size(len(data))}]"


def _head(lines: list[str], most: int = 10) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} more lines"]


async def _document(archive: Archive, name: str) -> dict[str, Json]:
    facts = await archive.resolve(name)
    return await archive.export(facts.id)


def _write(document: dict[str, Json], options: SessionsOptions) -> None:
    if options.format == "json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    else:
        text = markdown(document)
    if not options.output or options.output == "-":
        print(text, end="")
        return
    try:
        Path(options.output).expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {options.output}: {error.strerror or error}") from error


def _delete(settings: Settings, options: SessionsOptions) -> int:
    facts = in_store(settings, lambda store: store.archive.resolve(options.name))
    what = f"{facts.id[:ID]} {render.one_line(facts.title, 60)!r} ({_turns(facts)} turns)"
    if not options.yes and not agreed(f"Delete {what} for good?", "delete"):
        sys.stderr.write("alipes: nothing was deleted\n")
        return 1
    in_store(settings, lambda store: store.archive.delete(facts.id))
    print(f"Deleted {what}.")
    return 0


def _turns(facts: SessionFacts) -> str:
    return f"{facts.turns}{'*' if facts.unfinished else ''}"


def _title(facts: SessionFacts) -> str:
    return render.one_line(facts.title)


def _name(facts: SessionFacts) -> str:
    """What `--session` takes; for conversations elsewhere also where."""
    place = facts.address
    return render.one_line(place.chat if place.platform == "terminal" else f"{place.platform}:{place.chat}")


def _print_lines(lines: Sequence[str]) -> None:
    """To a terminal no wider than it is; elsewhere whole."""
    width = terminal_width(sys.stdout)
    for line in lines:
        print(render.cut(line, width) if width else line)


def _print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())
