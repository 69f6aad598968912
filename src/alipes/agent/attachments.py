"""Files named with `@` in a message: their content is attached when it is sent."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from alipes.agent.approval.taint import describe_untrusted_file
from alipes.config.settings import Settings
from alipes.kernel.attachments import collapse_attachments, format_attachment
from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Image
from alipes.kernel.platform import ReceivedFile
from alipes.kernel.ports import ToolOutput
from alipes.kernel.turns import Inbound
from alipes.kernel.untrusted import mark_untrusted, to_label
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.project import project_root
from alipes.tools.boundary import FileBoundary, OpenedPath, UnjudgedCall, open_path
from alipes.tools.common import make_places
from alipes.tools.documents.documents import DocumentConverter

if TYPE_CHECKING:
    from alipes.tools.files.read_file import ReadFile

MAX_IMAGES = 20
MAX_TOTAL_CHARS = 200_000
"""Characters of all text files of one message."""
MAX_RECEIVED_CHARS, RECEIVED_LINES = 60_000, 600
"""Characters of all documents of one message from a chat, and lines of one; the rest is read when it is needed."""
RECEIVED_TIMEOUT_S = 15.0
"""Seconds that the messenger waits for a document to be converted."""
_DOCUMENTS = lazy_pattern(
    r"\.(pdf|docx|docm|pptx|pptm|xlsx|xlsm|odt|ods|odp|epub|rtf|html?|csv|tsv|zip|tar|tar\.\w+|tgz)$", re.I
)
_DOCUMENT_TYPES = lazy_pattern(
    r"(?i)application/(pdf|rtf|zip|epub\+zip|vnd\.(openxmlformats-office|oasis\.open)document)|text/(rtf|html|csv)"
)
_MENTION = lazy_pattern(r'(?:(?<=[\s(\[{,;])|^)@(?:"([^"\n]+)"((?::|#L)\d+(?:-L?\d+)?)?|([^\s"]+))', re.MULTILINE)
_RANGE = lazy_pattern(r"(?::|#L)(\d+)(?:-L?(\d+))?$")
_PUNCTUATION = ".,;:!?)]}'"


class Mention(Struct, frozen=True):
    """A file in a text, with the lines that were asked for."""

    path: str
    first: int = 0
    """0: the whole file."""
    last: int = 0

    @property
    def lines(self) -> str:
        return "" if not self.first else f"{self.first}-{self.last}" if self.last != self.first else str(self.first)


class Attached(Struct, frozen=True):
    """The files that a message names."""

    blocks: str = ""
    """To be appended to its text."""
    images: tuple[Image, ...] = ()
    pictures: tuple[str, ...] = ()
    """Paths of the images."""
    problems: tuple[str, ...] = ()
    """Why a file was not attached, one sentence each."""
    untrusted: str = ""
    """A file with text of strangers; empty if there is none."""

    @property
    def label(self) -> str:
        """One line for each file, to be appended to the text that people see."""
        return collapse_attachments(self.blocks) + "".join(f"\n[attached {path}]" for path in self.pictures)


class ResourceReader(Protocol):
    """Resources of MCP servers, which a person names as `@server:uri`."""

    def has_server(self, name: str) -> bool: ...

    async def read_resource(self, server: str, uri: str, workdir: str = "") -> ToolOutput:
        """Raises `ToolError`."""


class FileAttacher:
    """Reads the files that a person names with `@`. A name without a file stays text."""

    def __init__(
        self, settings: Settings, *, mask: Callable[[str], str] = str, documents: DocumentConverter | None = None
    ) -> None:
        """`mask` removes secrets from the content. `documents`: converts files that are not text."""
        self._resources: ResourceReader | None = None
        self._mask = mask
        self._boundary = FileBoundary(make_places(settings))
        self._documents = documents
        self._received = str(settings.paths.files)
        self._describe: Callable[[str, str], Awaitable[str]] | None = None

    def add_origins(self, describe: Callable[[str, str], Awaitable[str]]) -> None:
        """Ask `describe(path, workdir)` too whether a file holds text of strangers, and what it is called then."""
        self._describe = describe

    @cached_property
    def _reader(self) -> "ReadFile":
        from alipes.tools.files.read_file import ReadFile  # noqa: PLC0415

        return ReadFile(self._boundary, mask=self._mask, documents=self._documents)

    def add_resources(self, reader: ResourceReader) -> None:
        """Attach also what `reader` has, as `@server:uri`."""
        self._resources = reader

    async def attach(self, inbound: Inbound, words: str | None = None) -> tuple[Inbound, Attached]:
        """The message with its files, and what was attached. `words`: the part of its text that the person wrote."""
        found = await self.read(inbound.text if words is None else words, inbound.workdir)
        changed = structs.replace(
            inbound,
            text=inbound.text + found.blocks,
            attachments=(*inbound.attachments, *found.images),
            untrusted=inbound.untrusted or found.untrusted,
        )
        return changed, found

    async def read(self, text: str, workdir: str) -> Attached:
        """The files that `text` names, relative to `workdir`."""
        if "@" not in text:
            return Attached()
        blocks, images, pictures, problems, untrusted = "", list[Image](), list[str](), list[str](), ""
        for mention in await asyncio.to_thread(find_mentions, text, lambda path: self._exists(path, workdir)):
            if len(images) == MAX_IMAGES or len(blocks) > MAX_TOTAL_CHARS:
                problems.append(f"@{mention.path} was not attached: the message has too many or too large files.")
                continue
            try:
                opened, origin = await asyncio.to_thread(self._open, mention.path, workdir)
                if self._describe is not None:
                    origin = origin or await self._describe(opened.real, workdir)
                content = await self._read_file(opened, mention)
            except ToolError as error:
                problems.append(f"@{mention.path} was not attached: {error}.")
                continue
            untrusted = untrusted or origin
            if isinstance(content, Image):
                images.append(content)
                pictures.append(mention.path)
            else:
                blocks += format_attachment(mention.path, content, mention.lines, untrusted=origin)
        files = Attached(blocks, tuple(images), tuple(pictures), tuple(problems), untrusted)
        return files if self._resources is None else await self._add_resources(files, text, workdir, self._resources)

    async def _add_resources(self, files: Attached, text: str, workdir: str, resources: ResourceReader) -> Attached:
        for server, uri in find_resources(text, resources.has_server):
            name = f"{server}:{uri}"
            try:
                output = await resources.read_resource(server, uri, workdir)
            except ToolError as error:
                problem = f"@{name} was not attached: {error}."
                files = structs.replace(files, problems=(*files.problems, problem))
                continue
            content = mark_untrusted(self._mask(output.text[:MAX_TOTAL_CHARS]), name)
            block = f"\n\n[attached {to_label(name, 300)}]\n{content}" if output.text else ""
            files = structs.replace(
                files,
                blocks=files.blocks + block,
                images=(*files.images, *output.images)[:MAX_IMAGES],
                pictures=(*files.pictures, *(name for _ in output.images))[:MAX_IMAGES],
                untrusted=files.untrusted or f"the resource {to_label(uri)} of the MCP server {server}",
            )
        return files

    async def attach_received(self, inbound: Inbound, files: Sequence[ReceivedFile]) -> Inbound:
        """The message with the text of the documents among the files that came with it from a chat.

        They stay in their folder: what is not attached, or the rest of a long one, can be read with `read_file`.
        """
        blocks, untrusted = "", inbound.untrusted
        for file in files:
            if not is_document(file) or len(blocks) > MAX_RECEIVED_CHARS:
                continue
            content = await self._read_received(Path(file.path))
            untrusted = untrusted or describe_untrusted_file(file.path, self._received)
            blocks += format_attachment(file.path, content, untrusted=f"the file {file.name or 'of a chat'}")
        return structs.replace(inbound, text=inbound.text + blocks, untrusted=untrusted) if blocks else inbound

    async def _read_received(self, path: Path) -> str:
        try:
            async with asyncio.timeout(RECEIVED_TIMEOUT_S):
                opened = await asyncio.to_thread(open_path, str(path))
                found = await self._reader.read(opened, limit=RECEIVED_LINES, rendered=True)
        except TimeoutError:
            return "(not converted yet, because it takes long; read it with read_file)"
        except ToolError as error:
            return f"({error})"
        return found if isinstance(found, str) else found.text

    def _exists(self, path: str, workdir: str) -> bool:
        try:
            return self._boundary.places.resolve(path, workdir).exists()
        except (OSError, ValueError, ToolError):  # too long, or not a path at all
            return False

    def _open(self, path: str, workdir: str) -> tuple[OpenedPath, str]:
        """The file, and its origin if it holds text of strangers. Raises `ToolError` for secrets, and for a link in the
        project that leads out of it: a command may have made it, and the person names what they see."""
        opened = self._boundary.opened(path, UnjudgedCall(workdir))
        problem = "it does not exist" if opened.facts is None else ""
        if not problem and self._boundary.is_withheld(opened):
            problem = "it holds secrets"
        places = self._boundary.places
        root = project_root(workdir, places.home, places.root)
        named = os.path.normpath(places.join(path, workdir))
        in_project = is_inside(named, root) or is_inside(named, os.path.normpath(workdir or os.getcwd()))
        if not problem and in_project and not is_inside(opened.real, root):
            problem = f"it leads to {opened.real}, outside of the project; name that file"
        if problem:
            opened.close()
            raise ToolError(problem)
        return opened, describe_untrusted_file(opened.real, self._received)

    async def _read_file(self, opened: OpenedPath, mention: Mention) -> str | Image:
        if mention.first:
            found = await self._reader.read(opened, mention.first, max(1, mention.last - mention.first + 1))
        else:
            found = await self._reader.read(opened)
        if isinstance(found, str):
            return found
        return found.images[0] if found.images else found.text


def is_document(file: ReceivedFile) -> bool:
    """True if a file of a chat is attached to its message as text."""
    return file.kind == "file" and bool(_DOCUMENTS.search(file.name or file.path) or _DOCUMENT_TYPES.match(file.mime))


def find_mentions(text: str, exists: Callable[[str], bool]) -> list[Mention]:
    """The files named in `text`, each once."""
    found: list[Mention] = []
    for match in _MENTION.finditer(text):
        if quoted := match[1]:
            mention = _with_range(quoted, match[2] or "") if exists(quoted) else None
        else:
            mention = _parse_word(match[3], exists)
        if mention is not None and mention not in found:
            found.append(mention)
    return found


def find_resources(text: str, has_server: Callable[[str], bool]) -> list[tuple[str, str]]:
    """The resources named in `text` as `@server:uri`, each once."""
    found: dict[tuple[str, str], None] = {}
    for match in _MENTION.finditer(text):
        server, _, uri = (match[1] or match[3].rstrip(_PUNCTUATION)).partition(":")
        if uri and has_server(server):
            found[server, uri] = None
    return list(found)


def _parse_word(word: str, exists: Callable[[str], bool]) -> Mention | None:
    """The file that a word without quotes names, perhaps followed by a range or by punctuation."""
    for candidate in dict.fromkeys((word, word.rstrip(_PUNCTUATION))):
        if candidate and exists(candidate):
            return Mention(candidate)
        if (found := _RANGE.search(candidate)) and exists(candidate[: found.start()]):
            return _with_range(candidate[: found.start()], found[0])
    return None


def _with_range(path: str, suffix: str) -> Mention:
    if not (found := _RANGE.search(suffix)):
        return Mention(path)
    first = max(1, int(found[1]))
    return Mention(path, first, max(first, int(found[2] or first)))
