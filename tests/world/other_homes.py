"""Homes of other programs for the importer: copies of the samples in `homes`, and what a reader finds in them."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from alipes.features.importer.reader import HomeReader, load_reader
from alipes.features.importer.records import KINDS, FoundKey, Kind, LeftOut, PastConversation, Record
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult

SAMPLES = Path(__file__).parent / "homes"


def copy_home(name: str, folder: Path) -> Path:
    """A copy of a sample that a test may change."""
    return Path(shutil.copytree(SAMPLES / name, folder / name))


def hash_home(home: Path) -> dict[str, str]:
    """Of every file in it."""
    files = sorted(path for path in home.rglob("*") if path.is_file())
    return {path.relative_to(home).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def open_reader(program: str, home: Path, copies: Path, part: str = "") -> HomeReader:
    return load_reader(program)(SourceHome(home, copies / "copies"), part)


def read_kind(reader: HomeReader, kind: Kind) -> list[Record]:
    return list(reader.records(kind))


def read_all(reader: HomeReader) -> dict[Kind, list[Record]]:
    """Everything, as the plan reads it."""
    return {kind: read_kind(reader, kind) for kind in KINDS}


def conversations(reader: HomeReader) -> list[PastConversation]:
    return [each for each in reader.records("conversations") if isinstance(each, PastConversation)]


def left_out(records: Iterable[Record]) -> list[str]:
    return [each.what for each in records if isinstance(each, LeftOut)]


def describe(message: Message) -> str:
    """A message in short: `user: words`, `assistant: words +name(...)`, `tool: ok result`."""
    said = "".join(part.text for part in message.parts if isinstance(part, Text))
    calls = "".join(f" +{part.name}" for part in message.parts if isinstance(part, ToolCall))
    results = "".join(f" {part.outcome} {part.text}" for part in message.parts if isinstance(part, ToolResult))
    return f"{message.role}: {said}{calls}{results}".strip()


def said(conversation: PastConversation, state: str = "") -> list[str]:
    """Its messages in short; only those of a state if one is given."""
    return [describe(each.message) for each in conversation.messages if not state or each.state == state]


def keys(records: Iterable[Record]) -> dict[str, str]:
    return {each.name: each.value.reveal() for each in records if isinstance(each, FoundKey)}


def show_secrets(records: Iterable[Record], secrets: Iterable[str]) -> list[str]:
    """The records, but keys, in which one of these texts is to be seen."""
    shown = [repr(each) for each in records]
    return [each for each in shown for secret in secrets if secret in each]


def change_lines(file: Path, change: Callable[[list[dict[str, object]]], list[object]]) -> None:
    """Rewrite a file of JSON lines; texts are written as they are."""
    rows = change([json.loads(line) for line in file.read_text().splitlines()])
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
