"""Files that a person attached to a message: their blocks in its text, for the model, and a short form for people."""

import re
from typing import NamedTuple

from alipes.kernel.formatting import format_count
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.platform import ReceivedFile
from alipes.kernel.untrusted import escape_marks, mark_untrusted, to_label

MAX_PATH_CHARS = 300
_START = "\n\n<attachment "
_BLOCK = lazy_pattern(
    r'\n\n<attachment path="([^"\n]*)"(?: lines="([^"\n]*)")?>\n(.*?)(?:\n</attachment>|\Z)', re.DOTALL
)


_FOLDER = re.compile(r"\[[^\n]* is a directory with ([\d,]+ entr(?:y|ies))\]")


def format_attachment(path: str, content: str, lines: str = "", *, untrusted: str = "") -> str:
    """The block to append to the text of a message. The content cannot close it. `untrusted`: whose text it is, if not
    the user's."""
    which = f' lines="{lines}"' if lines else ""
    text = mark_untrusted(content.rstrip(), untrusted) if untrusted else escape_marks(content.rstrip())
    return f'{_START}path="{to_label(path, MAX_PATH_CHARS)}"{which}>\n{text}\n</attachment>'


def collapse_attachments(text: str) -> str:
    """The text with one short line for each attachment."""
    if _START not in text:
        return text
    return _BLOCK.sub(_shorten, text)


def _shorten(block: re.Match[str]) -> str:
    path, lines, content = block.groups()
    which = f"lines {lines}" if lines else format_count(content.count("\n") + 1, "line")
    if found := _FOLDER.match(content):
        path, which = f"{path.rstrip('/')}/", found[1]
    return f"\n[attached {path}, {which}]"


def format_received_file(file: ReceivedFile) -> str:
    """One line that tells the model where a received file is."""
    mime = to_label(file.mime)
    details = ", ".join(each for each in (mime, f"{file.size:,} bytes" if file.size else "") if each)
    name = f" {to_label(file.name)}" if file.name else ""
    return f"[{file.kind}{name}{f' ({details})' if details else ''} saved at {file.path}]"


class SavedFile(NamedTuple):
    """A received file, as its line in a message names it."""

    name: str
    details: str
    path: str


_SAVED = lazy_pattern(r"\n*\[(\w+)(?: ([^\n\]]*?))?(?: \(([^\n()]*)\))? saved at ([^\n\]]+)\]")
_ATTACHED = lazy_pattern(r"\n\[attached ([^\n]*), [^\n,]*\]")


def split_saved_files(text: str, folder: str) -> tuple[str, tuple[SavedFile, ...]]:
    """The text of `collapse_attachments` without the lines of files that were received into `folder`, and the files."""
    if " saved at " not in text:
        return text, ()
    inside = folder.rstrip("/") + "/"
    found = [each for each in _SAVED.finditer(text) if each[4].startswith(inside)]
    text = _SAVED.sub(lambda each: "" if each[4].startswith(inside) else each[0], text)
    text = _ATTACHED.sub(lambda each: "" if each[1].startswith(inside) else each[0], text)
    files = (SavedFile(each[2] or each[4].rpartition("/")[2], each[3] or "", each[4]) for each in found)
    return text.strip("\n"), tuple(files)


_FILE_LINE = lazy_pattern(
    r"(?m)(?:\A|\n\n)\[(?:image|audio|voice|video|file)\b(?: ([^\n\]]*?))?(?: \([^\n()]*\))? saved at [^\n]*$"
    r"|\n\n\[(?:image|audio|voice|video|file)\b[^\n\]]*\Z"
)
"""The line of a received file, also one that is cut off at the end of a text."""
_CUT_OFF = lazy_pattern(r"\n\n[<\[]\w{0,10}\Z")
"""The start of an attachment or of the line of a file, cut off at the end of a text."""


def without_attachments(text: str) -> str:
    """The text that the person wrote."""
    return text.partition(_START)[0]


def first_words(text: str) -> str:
    """The beginning of a message as people see it: without what was attached, or the name of the file if nothing else
    was sent."""
    words = _CUT_OFF.sub("", without_attachments(text))
    own = _FILE_LINE.sub("", words)
    if own.strip() or own == words:
        return own
    return next((found[1] for found in _FILE_LINE.finditer(words) if found[1]), "A file")
