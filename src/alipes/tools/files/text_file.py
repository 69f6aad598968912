"""Text files: opening, decoding and encoding, diffs. It writes nothing."""

import codecs
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.boundary import CallScope, FileBoundary, OpenedPath, reading
from alipes.tools.common import common_prefix, describe_file_type

CONTEXT_LINES = 3
MAX_COMPARED_LINES = 4_000
"""Larger changes are shown as all old lines removed and all new lines added."""
MAX_DIFF_LINES, MAX_DIFF_CHARS = 300, 16_000
"""Most lines and characters of a displayed diff."""
Opcode = tuple[str, int, int, int, int]
MAX_TEXT_BYTES = 10 << 20
_BINARIES = (
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program or library (ELF)"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a zip archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"GGUF", "model weights (GGUF)"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"RIFF", "RIFF media"),
    (b"\xca\xfe\xba\xbe", "Java classes or a Mac binary"),
    (b"\0asm", "WebAssembly"),
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, which has the same first bytes
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class FileDiff(Struct, frozen=True):
    added: int
    removed: int
    line: int
    """First changed line in the new text; 0 if nothing changed."""
    text: str

    @property
    def summary(self) -> str:
        return f"+{self.added} -{self.removed}"


def diff_texts(old: str, new: str, *, before: str, after: str, whole: bool = False) -> FileDiff:
    """Unified diff from `old` to `new`; `before` and `after` are the paths, empty if there is no file. A long one is
    shortened unless `whole`."""
    from difflib import SequenceMatcher  # noqa: PLC0415

    # not `splitlines`, which would also split at form feeds
    a, b = list(io.StringIO(old, newline="\n")), list(io.StringIO(new, newline="\n"))
    head = common_prefix(a, b)
    tail = common_prefix(a[head:][::-1], b[head:][::-1])
    gone, come = a[head : len(a) - tail], b[head : len(b) - tail]
    if not gone and not come:
        return FileDiff(0, 0, 0, "")
    middle: list[Opcode] = [("replace", 0, len(gone), 0, len(come))]
    if len(gone) + len(come) <= MAX_COMPARED_LINES:
        middle = [*SequenceMatcher(None, gone, come).get_opcodes()]
    first, rest = max(0, head - CONTEXT_LINES), min(tail, CONTEXT_LINES)
    codes = [(tag, i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in middle]
    changes = [code for code in codes if code[0] != "equal"]
    removed, added = sum(i2 - i1 for _, i1, i2, _, _ in changes), sum(j2 - j1 for *_, j1, j2 in changes)
    _, _, i, _, j = codes[-1]
    rows = [f"--- {_name_file('a/', before)}", f"+++ {_name_file('b/', after)}"]
    for group in _group_opcodes([("equal", first, head, first, head), *codes, ("equal", i, i + rest, j, j + rest)]):
        rows += _format_hunk(group, a, b)
    return FileDiff(added, removed, changes[0][3] + 1, "\n".join(rows) if whole else _shorten_diff(rows))


def _name_file(prefix: str, path: str) -> str:
    """A path in a header: as Git writes it if it is relative, as `diff -u` does if it is absolute."""
    if not path:
        return "/dev/null"
    return path if path.startswith("/") else prefix + path


def _group_opcodes(codes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with their context, split into hunks at long unchanged parts."""
    group: list[Opcode] = []
    for tag, i1, i2, j1, j2 in codes:
        if tag == "equal" and i2 - i1 > 2 * CONTEXT_LINES:
            yield [*group, (tag, i1, i1 + CONTEXT_LINES, j1, j1 + CONTEXT_LINES)]
            group = [(tag, i2 - CONTEXT_LINES, i2, j2 - CONTEXT_LINES, j2)]
        else:
            group.append((tag, i1, i2, j1, j2))
    yield group


def _format_hunk(group: Sequence[Opcode], a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    yield f"@@ -{_format_span(i1, i2)} +{_format_span(j1, j2)} @@"
    for tag, i1, i2, j1, j2 in group:
        old, new = (" ", "") if tag == "equal" else ("-", "+")
        for sign, lines in ((old, a[i1:i2]), (new, b[j1:j2] if new else ())):
            for line in lines:
                yield sign + line.removesuffix("\n")
                if not line.endswith("\n"):
                    yield "\\ No newline at end of file"


def _format_span(start: int, end: int) -> str:
    count = end - start
    first = start + (1 if count else 0)
    return str(first) if count == 1 else f"{first},{count}"


def _shorten_diff(rows: Sequence[str]) -> str:
    taken = room = 0
    for row in rows[:MAX_DIFF_LINES]:
        room += len(row) + 1
        if room > MAX_DIFF_CHARS and taken:
            break
        taken += 1
    text = "\n".join(row[:MAX_DIFF_CHARS] for row in rows[:taken])
    left = len(rows) - taken
    return f"{text}\n[... {left:,} more lines of this diff]" if left else text


class TextDocument(Struct, frozen=True):
    """Text of a file and its format. Lines end with `\\n`, unless the file mixes line endings."""

    text: str = ""
    codec: str = "utf-8"
    bom: bytes = b""
    crlf: bool = False

    def encode(self, text: str) -> bytes:
        """Encode a text in the format of this file. Raises UnicodeEncodeError."""
        return self.bom + (text.replace("\n", "\r\n") if self.crlf else text).encode(self.codec)

    def normalize_newlines(self, text: str) -> str:
        """`text` with the line endings that this document uses in memory."""
        return text if "\r\n" in self.text else text.replace("\r\n", "\n")

    @property
    def unusual_traits(self) -> list[str]:
        """Encoding and line endings, if unusual."""
        names = [self.codec.upper() + (" with BOM" if self.bom else "")]
        return (names if self.bom or self.codec != "utf-8" else []) + (["CRLF"] if self.crlf else [])


def open_target(boundary: FileBoundary, path: str, act: CallScope) -> OpenedPath:
    """The file that `path` leads to. Close it. Raises ToolError for private files and for other file types."""
    if not path or path.endswith("/"):
        raise ToolError(f"{path or 'an empty path'} does not name a file")
    target = boundary.opened(path, act)
    try:
        boundary.refuse_secrets(target, "cannot be edited")
        if target.facts is not None and not stat.S_ISREG(target.facts.st_mode):
            raise ToolError(f"{target.path} is {describe_file_type(target.facts.st_mode)}, not a file")
    except ToolError:
        target.close()
        raise
    return target


def read_document(target: OpenedPath) -> TextDocument:
    """Read an existing file. Raises ToolError if it is binary, too large or unreadable."""
    if target.facts is not None and target.facts.st_size > MAX_TEXT_BYTES:
        size = target.facts.st_size
        raise ToolError(f"{target.path} has {size:,} bytes (limit {MAX_TEXT_BYTES:,}); use the terminal tool")
    try:
        with reading(target) as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ToolError(f"{target.path} cannot be read: {error_reason(error)}") from error
    document = decode_document(data)
    if document is None:
        raise ToolError(f"{target.path} is {binary_kind(data)}, not text; use the terminal tool")
    return document


def decode_document(data: bytes) -> TextDocument | None:
    """Decode `data`; None if it is not text."""
    mark, codec = next(((m, c) for m, c in _MARKS if data.startswith(m)), (b"", detect_encoding(data)))
    if not codec:
        return None
    try:
        text = data[len(mark) :].decode(codec)
    except UnicodeDecodeError:
        return None
    breaks = text.count("\n")
    crlf = breaks > 0 and text.count("\r\n") == breaks
    return TextDocument(text.replace("\r\n", "\n") if crlf else text, codec, mark, crlf)


def detect_encoding(sample: bytes) -> str:
    """Probable encoding of a file that starts with `sample`; empty if it is binary."""
    for mark, codec in _MARKS:
        if sample.startswith(mark):
            return codec.removesuffix("-le").removesuffix("-be")
    if b"\0" in sample:
        return _detect_utf16(sample)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        odd = sum(byte < 32 and byte not in b"\b\t\n\f\r\x1b" for byte in sample)
        return "" if odd > len(sample) // 50 else "latin-1"
    return "utf-8"


def _detect_utf16(sample: bytes) -> str:
    """UTF-16 without a byte order mark: Western text has a zero in every second byte."""
    half = len(sample) / 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.7 * half and odd < 0.1 * half:
        return "utf-16-be"
    return ""


def binary_kind(start: bytes) -> str:
    """Short description of a binary file by its first bytes."""
    if start[4:8] == b"ftyp":
        return "MP4 or HEIF media"
    return next((kind for magic, kind in _BINARIES if start.startswith(magic)), "binary data")


def display_path(path: str | Path, workdir: str) -> str:
    """`path` relative to the working directory if it is inside."""
    start = os.path.join(workdir or os.getcwd(), "")
    plain = os.path.normpath(path)
    return plain[len(start) :] if plain.startswith(start) else plain


def error_reason(error: OSError | ValueError) -> str:
    """The reason alone, without the path."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
