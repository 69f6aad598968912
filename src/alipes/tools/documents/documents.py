"""The port for documents: turns PDF, office files, e-books and archives into text, in a child process with limits."""

import asyncio
import hashlib
import os
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.config.extras import explain_missing
from alipes.config.settings import DocumentsConfig
from alipes.kernel.errors import ConfigError, ToolError, ToolNeedsExtra
from alipes.kernel.formatting import format_count
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope, HostBackend
from alipes.runtime.sandbox.policy import make_private_directory

PROGRAM = Path(__file__).with_name("converters.py")
"""What the child process runs. It is not imported here: it needs much that is rarely used."""
MARK = "alipes-document:"
"""Begins the line with the result."""
SESSION = "documents"
"""The conversation of the child processes, for the sandbox."""
MAX_OUTPUT_BYTES = 64 << 20
MAX_CACHED_CHARS = 16_000_000
"""Characters of documents that are kept, so that a long one is converted once and not for each part."""
EXTRA = "documents"
LIBRARIES = {"pdf": "pypdf", "docx": "mammoth", "pptx": "pptx", "xlsx": "openpyxl"}
"""Formats that need a library. The others need none."""
NAMES = {
    "pdf": "PDF document",
    "docx": "Word document",
    "pptx": "presentation",
    "xlsx": "spreadsheet",
    "odf": "OpenDocument file",
    "epub": "e-book",
    "html": "web page",
    "csv": "table",
    "rtf": "RTF document",
    "zip": "zip archive",
    "tar": "tar archive",
}
_ODF_TYPE = b"mimetypeapplication/vnd.oasis.opendocument."
_EPUB_TYPE = b"mimetypeapplication/epub+zip"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_COMPRESSED = {b"\x1f\x8b": (".tar.gz", ".tgz"), b"BZh": (".tar.bz2", ".tbz2"), b"\xfd7zXZ": (".tar.xz", ".txz")}
_OFFICE_PARTS = {"word/document.xml": "docx", "ppt/presentation.xml": "pptx", "xl/workbook.xml": "xlsx"}
_TEXT_FORMATS = {".html": "html", ".htm": "html", ".xhtml": "html", ".csv": "csv", ".tsv": "csv"}


class DocumentText(Struct, frozen=True):
    """The text of a document."""

    kind: str
    text: str
    noun: str = "page"
    pages: int = 0
    """Converted pages, slides, sheets, chapters or files."""
    total: int = 0
    """Pages of the document."""
    notes: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    """The first line of each page, from 1."""

    def describe_lines(self, first: int, last: int) -> str:
        """Which pages these lines belong to; empty if the document has no pages."""
        if self.noun in ("document", "file") or len(self.starts) < 2:
            return ""
        pages = [number for number, line in enumerate(self.starts, 1) if line <= last]
        begin = max((number for number in pages if self.starts[number - 1] <= first), default=1)
        return f"{self.noun}s {begin}-{pages[-1]} of {self.total}" if pages else ""

    @property
    def summary(self) -> str:
        """Such as `PDF document, 12 pages`."""
        size = "" if self.noun == "document" or not self.total else f", {format_count(self.total, self.noun)}"
        left = f", of which {self.pages} are shown (documents.max_pages)" if self.pages < self.total else ""
        return f"{NAMES[self.kind]}{size}{left}{''.join(f'; {note}' for note in self.notes)}"


class _Result(Struct, frozen=True):
    error: str = ""
    noun: str = "page"
    total: int = 0
    pages: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


class _Key(Struct, frozen=True):
    digest: bytes
    kind: str


def document_kind(start: bytes, name: str) -> str:
    """The format of a file that begins with `start`; empty if it is not a document. Text files are none."""
    suffix = name.lower()
    if b"%PDF-" in start[:1024]:
        return "pdf"
    if start.startswith(b"{\\rtf"):
        return "rtf"
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _zip_kind(start, suffix)
    if start[257:262] == b"ustar":
        return "tar"
    return next(
        ("tar" for magic, endings in _COMPRESSED.items() if start.startswith(magic) and suffix.endswith(endings)), ""
    )


def _zip_kind(start: bytes, suffix: str) -> str:
    if _ODF_TYPE in start[:200]:
        return "odf"
    if _EPUB_TYPE in start[:200]:
        return "epub"
    kind = {".docx": "docx", ".docm": "docx", ".pptx": "pptx", ".pptm": "pptx", ".xlsx": "xlsx", ".xlsm": "xlsx"}.get(
        os.path.splitext(suffix)[1], ""
    )
    found = next((kind for part, kind in _OFFICE_PARTS.items() if part.encode() in start), "")
    return found or kind or "zip"


def text_format(name: str) -> str:
    """The format of a text file that reads better when it is converted: web pages and tables."""
    return _TEXT_FORMATS.get(os.path.splitext(name.lower())[1], "")


def missing_libraries() -> dict[str, str]:
    """By format, the library that is not installed."""
    return {kind: library for kind, library in LIBRARIES.items() if find_spec(library) is None}


class DocumentConverter:
    """Converts documents, one at a time. Their parsers run in the sandbox if there is one, and always within limits."""

    def __init__(
        self,
        config: DocumentsConfig,
        *,
        backend: CommandBackend | None = None,
        env: Mapping[str, str] | None = None,
        require: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`backend`: where commands run. `env`: the environment of commands. `require`: installs an extra, or raises
        `ToolError`."""
        self._require = require
        self._config, self._backend, self._host = config, backend or HostBackend(), HostBackend()
        self._env = {name: value for name, value in (env or {}).items() if name in ("PATH", "LANG", "LC_ALL")}
        self._chosen: CommandBackend | None = None
        self._lock = asyncio.Lock()
        self._cache: OrderedDict[_Key, DocumentText] = OrderedDict()

    async def convert(self, data: bytes, kind: str) -> DocumentText:
        """The text of a document. Raises `ToolError` with the rest of a sentence that begins with its name."""
        if len(data) > self._config.max_mb << 20:
            raise ToolError(f"has {len(data):,} bytes; the limit is {self._config.max_mb} MB (documents.max_mb)")
        if kind in missing_libraries():
            await self._install()
        key = _Key(await asyncio.to_thread(_digest, data), kind)
        async with self._lock:
            if (known := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                return known
            found = _to_text(kind, await self._run(data, kind))
            self._remember(key, found)
            return found

    async def _install(self) -> None:
        try:
            if self._require is None:
                raise ToolNeedsExtra(explain_missing(EXTRA), EXTRA)
            await self._require(EXTRA)
        except ToolError as error:
            raise ToolError(f"cannot be read. {error}") from error

    def _remember(self, key: _Key, found: DocumentText) -> None:
        self._cache[key] = found
        while len(self._cache) > 1 and sum(len(each.text) for each in self._cache.values()) > MAX_CACHED_CHARS:
            self._cache.popitem(last=False)

    async def _run(self, data: bytes, kind: str) -> _Result:
        config = self._config
        limits = (str(config.max_pages), str(config.memory_mb << 20), str(int(config.timeout) + 1))
        program = await asyncio.to_thread(PROGRAM.read_text)
        backend = await self._choose_backend()
        output = await self._run_python(backend, ("-c", program, MARK, kind, *limits), data)
        return await asyncio.to_thread(_parse_output, output)

    async def _choose_backend(self) -> CommandBackend:
        """The sandbox if Python starts in it, found out once; else this machine, where only the limits apply."""
        if self._chosen is None:
            self._chosen = self._host
            with suppress(ConfigError):  # a turn reports it
                await self._backend.check()
            if self._backend.name == "sandbox":
                output = await self._run_python(self._backend, ("-c", f"print({MARK!r})"), b"")
                self._chosen = self._backend if MARK.encode() in output else self._host
        return self._chosen

    async def _run_python(self, backend: CommandBackend, arguments: Sequence[str], data: bytes) -> bytes:
        seconds, output = self._config.timeout, bytearray()
        try:
            folder = make_private_directory(SESSION)
            argv, scope = (sys.executable, "-I", "-B", *arguments), CommandScope(SESSION, folder)
            opened = backend.open(argv, scope, cwd=folder, env=self._env, link="pipes")
            async with asyncio.timeout(seconds), opened as child:
                await child.input.write(data, seconds)
                await child.input.finish()
                while (piece := await child.read()) and len(output) <= MAX_OUTPUT_BYTES:
                    output += piece
        except TimeoutError:
            raise ToolError(f"takes longer than {seconds:g} s to convert (documents.timeout)") from None
        except OSError as error:
            raise ToolError(f"could not be converted: {error.strerror or error}") from error
        return bytes(output)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _parse_output(output: bytes) -> _Result:
    _, mark, text = output.rpartition(MARK.encode())
    if not mark:
        last = output.decode(errors="replace").strip().splitlines()[-1:]
        why = last[0][:200] if last else "the converter ended early, perhaps for lack of memory (documents.memory_mb)"
        raise ToolError(f"could not be converted: {why}")
    try:
        found = msgspec.json.decode(text, type=_Result)
    except msgspec.DecodeError as error:
        raise ToolError("could not be converted: its text is too long") from error
    if found.error:
        raise ToolError(found.error)
    return found


def _to_text(kind: str, found: _Result) -> DocumentText:
    parts, starts, line = list[str](), list[int](), 1
    for title, text in found.pages:
        parts.append(f"## {title}\n\n{text}\n" if title else f"{text}\n")
        starts.append(line)
        line += parts[-1].count("\n") + 1
    text = "\n".join(parts)
    return DocumentText(kind, text, found.noun, len(parts), found.total, found.notes, tuple(starts))


def describe_ole(start: bytes) -> str:
    """What to do with an old or encrypted office file; empty if it is none."""
    if not start.startswith(_OLE):
        return ""
    return "an office file in an old format, or encrypted; save it as docx, xlsx or pptx without a password"
