"""Converts documents to text, by format. It runs as a program in a child process with limits; `extract_pdf` and the
other functions can also be called directly.

The child process has no other files of alipes, so this file imports none. Libraries are imported when they are used.
"""

import csv
import html.parser
import io
import json
import logging
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

MAX_TEXT_CHARS = 8_000_000
"""Characters of one document; the rest is left out, with a note."""
MAX_UNPACKED_BYTES = 500_000_000
"""What an office file or archive may unpack to."""
MAX_MEMBER_BYTES = 50_000_000
MAX_ENTRIES = 2_000
"""Entries of an archive that are listed."""
MAX_SHOWN_BYTES, MAX_SHOWN_TOTAL = 50_000, 500_000
"""Text files of an archive that are shown: size of one, and of all."""
MAX_CELLS = 500_000
"""Cells of one spreadsheet."""
MAX_COLUMNS = 200


class DocumentError(Exception):
    """Why a document cannot be converted, as the rest of a sentence that begins with its name."""


class MissingLibrary(DocumentError):
    """A library is not installed."""


class Pages:
    """Collects the pages, slides, sheets or chapters of a document within the limits."""

    def __init__(self, noun: str, max_pages: int, total: int = 0) -> None:
        self.noun, self.total, self.texts, self.notes = noun, total, list[tuple[str, str]](), list[str]()
        self._max_pages, self._room = max_pages, MAX_TEXT_CHARS

    def add(self, title: str, text: str) -> bool:
        """False if there is no room for more."""
        text = text.strip()
        if len(text) > self._room:
            self.notes.append(f"the text is longer than {MAX_TEXT_CHARS:,} characters; the rest is left out")
            text = text[: self._room]
        self._room -= len(text)
        self.texts.append((title, text))
        return self._room > 0 and len(self.texts) < self._max_pages


def extract_pdf(data: bytes, *, max_pages: int = 2_000) -> Pages:
    """The text of each page. Blocking, and slow for large files. Raises `DocumentError`."""
    pypdf = _load("pypdf", "PDF files")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    broken = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, OSError)
    try:
        return _read_pages(pypdf.PdfReader(io.BytesIO(data)), max_pages)
    except (pypdf.errors.PyPdfError, NotImplementedError, *broken) as error:
        raise DocumentError(f"is a broken PDF ({type(error).__name__}: {str(error)[:200]})") from error


def _read_pages(reader: Any, max_pages: int) -> Pages:
    if reader.is_encrypted and not reader.decrypt(""):
        raise DocumentError("is encrypted with a password; save it without one")
    found, empty = Pages("page", max_pages, len(reader.pages)), 0
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text() or ""
        empty += not text.strip()
        if not found.add(f"Page {number}", text):
            break
    if found.texts and empty == len(found.texts):
        found.notes.append("no page contains text: it may consist of scanned pictures")
    elif empty:
        found.notes.append(f"{empty} of {len(found.texts)} pages contain no text; they may be pictures")
    return found


def convert_docx(data: bytes, max_pages: int) -> Pages:
    mammoth = _load("mammoth", "Word documents")
    _check_zip(data)
    html = mammoth.convert_to_html(
        io.BytesIO(data), convert_image=mammoth.images.img_element(lambda _image: {"src": ""})
    )
    found = Pages("document", max_pages, 1)
    found.add("", to_markdown(html.value))
    return found


def convert_pptx(data: bytes, max_pages: int) -> Pages:
    pptx = _load("pptx", "presentations")
    _check_zip(data)
    slides = list(pptx.Presentation(io.BytesIO(data)).slides)
    found = Pages("slide", max_pages, len(slides))
    for number, slide in enumerate(slides, 1):
        lines = [line for shape in slide.shapes for line in _shape_lines(shape)]
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame.text.strip()):
            lines.append(f"Notes: {notes}")
        if not found.add(f"Slide {number}", "\n".join(lines)):
            break
    return found


def _shape_lines(shape: Any) -> Iterator[str]:
    if shape.shape_type == 6:  # a group
        for inner in shape.shapes:
            yield from _shape_lines(inner)
    elif shape.has_text_frame:
        yield from (text for paragraph in shape.text_frame.paragraphs if (text := paragraph.text.strip()))
    elif getattr(shape, "has_table", False):
        yield from _format_rows([[cell.text for cell in row.cells] for row in shape.table.rows])


def convert_xlsx(data: bytes, max_pages: int) -> Pages:
    openpyxl = _load("openpyxl", "spreadsheets")
    _check_zip(data)
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    found, room = Pages("sheet", max_pages, len(book.sheetnames)), MAX_CELLS
    for name in book.sheetnames:
        sheet, rows = book[name], list[list[str]]()
        for row in sheet.iter_rows(values_only=True, max_col=MAX_COLUMNS) if hasattr(sheet, "iter_rows") else ():
            rows.append([_format_cell(value) for value in row])
            room -= len(row)
            if room < 0:
                found.notes.append(f"it has more than {MAX_CELLS:,} cells; the rest is left out")
                break
        if not found.add(f"Sheet {name}", "\n".join(_format_rows(rows))) or room < 0:
            break
    return found


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _format_rows(rows: list[list[str]]) -> Iterator[str]:
    """A Markdown table without empty rows and columns at its end."""
    while rows and not any(rows[-1]):
        rows.pop()
    width = max((at + 1 for row in rows for at, cell in enumerate(row) if cell), default=0)
    for number, row in enumerate(rows):
        cells = [re.sub(r"\s*\n\s*", " ", cell).replace("|", "\\|") for cell in row[:width]]
        yield f"| {' | '.join([*cells, *[''] * (width - len(cells))])} |"
        if not number:
            yield f"|{' --- |' * width}"


_ODF = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}%s"
_TEXT, _TABLE, _DRAW = ("text", "table", "drawing")


def convert_odf(data: bytes, max_pages: int) -> Pages:
    """Text documents, spreadsheets and presentations of LibreOffice."""
    with _check_zip(data) as archive:
        root = _parse_xml(_read_member(archive, "content.xml"))
    sheets, slides = list(root.iter(_ODF % (_TABLE, "table"))), list(root.iter(_ODF % (_DRAW, "page")))
    if slides:
        found = Pages("slide", max_pages, len(slides))
        for number, slide in enumerate(slides, 1):
            if not found.add(f"Slide {number}", "\n".join(_odf_lines(slide))):
                break
        return found
    if sheets and root.find(f".//{_ODF % ('office', 'spreadsheet')}") is not None:
        found = Pages("sheet", max_pages, len(sheets))
        for sheet in sheets:
            name = sheet.get(_ODF % (_TABLE, "name"), "")
            if not found.add(f"Sheet {name}", "\n".join(_format_rows(_odf_rows(sheet)))):
                break
        return found
    found = Pages("document", max_pages, 1)
    found.add("", "\n\n".join(_odf_lines(root)))
    return found


def _odf_rows(sheet: ElementTree.Element) -> list[list[str]]:
    rows, room = list[list[str]](), MAX_CELLS
    for row in sheet.iter(_ODF % (_TABLE, "table-row")):
        cells = list[str]()
        for cell in row:
            times = min(int(cell.get(_ODF % (_TABLE, "number-columns-repeated"), "1")), MAX_COLUMNS - len(cells))
            text = " ".join(_odf_lines(cell))
            cells += [text] * times
        rows.append(cells)
        room -= len(cells)
        if room < 0:
            break
    return rows


def _odf_lines(node: ElementTree.Element) -> Iterator[str]:
    for part in node.iter():
        if part.tag == _ODF % (_TEXT, "h"):
            level = int(part.get(_ODF % (_TEXT, "outline-level"), "1"))
            yield f"{'#' * min(level, 6)} {''.join(part.itertext()).strip()}"
        elif part.tag == _ODF % (_TEXT, "p") and (text := "".join(part.itertext()).strip()):
            yield text


def convert_epub(data: bytes, max_pages: int) -> Pages:
    with _check_zip(data) as archive:
        container = _parse_xml(_read_member(archive, "META-INF/container.xml"))
        package = next((each.get("full-path") for each in container.iter() if each.tag.endswith("rootfile")), None)
        if not package:
            raise DocumentError("is a broken e-book: it names no contents")
        content = _parse_xml(_read_member(archive, package))
        files = {each.get("id"): each.get("href", "") for each in content.iter() if each.tag.endswith("}item")}
        order = [files.get(each.get("idref"), "") for each in content.iter() if each.tag.endswith("}itemref")]
        found = Pages("chapter", max_pages, len(order))
        for number, name in enumerate(order, 1):
            path = os.path.normpath(os.path.join(os.path.dirname(package), name))
            if not found.add(f"Chapter {number}", to_markdown(_decode(_read_member(archive, path)))):
                break
    return found


def convert_html(data: bytes, max_pages: int) -> Pages:
    found = Pages("document", max_pages, 1)
    found.add("", to_markdown(_decode(data)))
    return found


def convert_csv(data: bytes, max_pages: int) -> Pages:
    text = _decode(data)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:20_000], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    rows, room = list[list[str]](), MAX_CELLS
    found = Pages("document", max_pages, 1)
    for row in csv.reader(io.StringIO(text), dialect):
        rows.append(row[:MAX_COLUMNS])
        room -= len(row)
        if room < 0:
            found.notes.append(f"it has more than {MAX_CELLS:,} cells; the rest is left out")
            break
    found.add("", "\n".join(_format_rows(rows)))
    return found


_RTF = re.compile(
    r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-f]{2})|\\([^a-z])|([{}])|[\r\n]+|([^\\{}\r\n]+)", re.IGNORECASE
)
_RTF_HIDDEN = frozenset(
    ("fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "header", "footer", "themedata", "datastore")
)
_RTF_BREAKS = {"par": "\n", "line": "\n", "tab": "\t", "cell": "\t", "row": "\n", "page": "\n\n", "sect": "\n\n"}


def convert_rtf(data: bytes, max_pages: int) -> Pages:
    found = Pages("document", max_pages, 1)
    found.add("", "".join(_rtf_text(data.decode("latin-1"))))
    return found


def _rtf_text(text: str) -> Iterator[str]:
    stack, hidden, skip, count = list[bool](), False, 0, 1
    for match in _RTF.finditer(text):
        word, number, hexadecimal, symbol, brace, plain = match.groups()
        if brace == "{":
            stack.append(hidden)
        elif brace == "}":
            hidden = stack.pop() if stack else False
        elif symbol == "*" or (word in _RTF_HIDDEN):
            hidden = True
        elif word == "uc":
            count = int(number or 1)
        elif not hidden:
            said = _rtf_piece(word, number, hexadecimal, symbol) if plain is None else plain
            dropped = min(skip, len(said)) if word != "u" else 0  # replacement characters after \u
            skip = count if word == "u" else skip - dropped
            yield said[dropped:]


def _rtf_piece(word: str | None, number: str | None, hexadecimal: str | None, symbol: str | None) -> str:
    if word == "u" and number:
        return chr(int(number) % 65536)
    if hexadecimal:
        return bytes.fromhex(hexadecimal).decode("cp1252", "replace")
    if word:
        return _RTF_BREAKS.get(word, "")
    return {"~": " ", "_": "-"}.get(symbol or "", symbol or "") if symbol in ("~", "_", "\\", "{", "}") else ""


def convert_zip(data: bytes, max_pages: int) -> Pages:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        listing = [(info.filename, info.file_size) for info in infos]
        encrypted = any(info.flag_bits & 1 for info in infos)

        def read(name: str) -> bytes:
            with archive.open(name) as file:
                return file.read(MAX_SHOWN_BYTES + 1)

        found = _show_archive(listing, (lambda _name: b"") if encrypted else read)
    if encrypted:
        found.notes.append("it is encrypted with a password, so that only the names can be read")
    return found


def convert_tar(data: bytes, max_pages: int) -> Pages:
    """Also compressed ones. A tar file is read once, from its start to its end."""
    listing, contents, unpacked = list[tuple[str, int]](), dict[str, bytes](), 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
        for member in archive:
            unpacked += member.size
            if unpacked > MAX_UNPACKED_BYTES:
                raise DocumentError(f"unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
            listing.append((member.name + ("/" if member.isdir() else ""), member.size))
            if member.isreg() and member.size <= MAX_SHOWN_BYTES and len(contents) < MAX_ENTRIES:
                file = archive.extractfile(member)
                contents[member.name] = file.read() if file is not None else b""
    return _show_archive(listing, lambda name: contents.get(name, b""))


def _show_archive(listing: list[tuple[str, int]], read: Callable[[str], bytes]) -> Pages:
    """The list of the entries, and small text files. Archives inside are not opened."""
    found, room = Pages("file", MAX_ENTRIES + 1), MAX_SHOWN_TOTAL
    lines = [f"{size:>12,}  {name}" for name, size in listing[:MAX_ENTRIES]]
    more = [f"... {len(listing) - MAX_ENTRIES:,} more"] if len(listing) > MAX_ENTRIES else []
    found.add(f"{len(listing):,} entries", "\n".join([*lines, *more]))
    for name, size in listing[:MAX_ENTRIES]:
        if name.endswith("/") or not 0 < size <= MAX_SHOWN_BYTES or size > room:
            continue
        text = _text_or_none(read(name))
        if text is not None:
            room -= len(text)
            found.add(f"File {name}", text)
    return found


def _text_or_none(data: bytes) -> str | None:
    if not data or len(data) > MAX_SHOWN_BYTES or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _check_zip(data: bytes) -> zipfile.ZipFile:
    """The archive of an office file. Raises `DocumentError` if it would unpack to too much."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    infos = archive.infolist()
    if any(info.flag_bits & 1 for info in infos):
        raise DocumentError("is encrypted with a password; save it without one")
    if sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
        raise DocumentError(f"unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
    return archive


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as file:
            data = file.read(MAX_MEMBER_BYTES + 1)
    except KeyError:
        raise DocumentError(f"is broken: {name} is missing") from None
    if len(data) > MAX_MEMBER_BYTES:
        raise DocumentError(f"is too large: {name} has more than {MAX_MEMBER_BYTES:,} bytes")
    return data


def _parse_xml(data: bytes) -> ElementTree.Element:
    if b"<!ENTITY" in data:
        raise DocumentError("defines entities, which are not expanded")
    return ElementTree.fromstring(data)


def to_markdown(text: str) -> str:
    """HTML as Markdown; without the library, its text."""
    try:
        from bs4 import BeautifulSoup  # noqa: PLC0415
        from markdownify import MarkdownConverter  # noqa: PLC0415
    except ImportError:
        parser = _TextParser()
        parser.feed(text)
        plain = "".join(parser.parts)
    else:
        soup = BeautifulSoup(text, "html.parser")
        for hidden in soup(["script", "style", "head", "noscript", "template", "img"]):
            hidden.decompose()
        plain = MarkdownConverter(heading_style="ATX").convert_soup(soup)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", plain)).strip()


class _TextParser(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts = list[str]()
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in ("script", "style", "head")
        self.parts.append("\n" if tag in ("p", "br", "div", "tr", "li", "h1", "h2", "h3", "h4") else "")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "head") and self._hidden > 0

    def handle_data(self, data: str) -> None:
        self.parts.append("" if self._hidden else data)


def _decode(data: bytes) -> str:
    for codec in ("utf-8-sig", "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"):
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            continue
    return data.decode("cp1252", "replace")


def _load(name: str, what: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        missing = f"the library {error.name} is not installed: run `alipes install documents`"
        raise MissingLibrary(f"cannot be read: {what} need more. {missing}") from None


CONVERTERS: dict[str, Callable[[bytes, int], Pages]] = {
    "pdf": lambda data, max_pages: extract_pdf(data, max_pages=max_pages),
    "docx": convert_docx,
    "pptx": convert_pptx,
    "xlsx": convert_xlsx,
    "odf": convert_odf,
    "epub": convert_epub,
    "html": convert_html,
    "csv": convert_csv,
    "rtf": convert_rtf,
    "zip": convert_zip,
    "tar": convert_tar,
}


def convert(kind: str, data: bytes, max_pages: int) -> dict[str, Any]:
    """The result for the parent. Raises what the parsers raise."""
    found = CONVERTERS[kind](data, max_pages)
    return {"noun": found.noun, "total": max(found.total, len(found.texts)), "pages": found.texts, "notes": found.notes}


def describe_error(error: BaseException) -> str:
    """The rest of a sentence that begins with the name of the document."""
    why = f"is broken or not supported ({type(error).__name__}: {str(error)[:200]})"
    if isinstance(error, DocumentError):
        why = str(error)
    elif isinstance(error, MemoryError):
        why = "needs more memory than allowed (documents.memory_mb)"
    elif isinstance(error, RecursionError):
        why = "is nested too deeply"
    return why


def _send(mark: str, result: dict[str, Any]) -> None:
    sys.stdout.buffer.write(f"{mark}{json.dumps(result)}\n".encode("utf-8", "replace"))
    sys.stdout.flush()
    os._exit(0)  # parsers may have left much to clean up


def limit_resources(memory_bytes: int, seconds: int) -> None:
    """Limit this process before it reads the document."""
    import resource  # noqa: PLC0415

    wanted = {"RLIMIT_AS": memory_bytes, "RLIMIT_CPU": seconds, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
    for name, value in wanted.items():
        number = getattr(resource, name, None)
        hard = resource.RLIM_INFINITY if number is None else resource.getrlimit(number)[1]
        if number is not None and (hard == resource.RLIM_INFINITY or value < hard):
            resource.setrlimit(number, (value, value))


def main(mark: str, kind: str, max_pages: str, memory_bytes: str, seconds: str) -> None:
    """Convert the document on the standard input. `mark` begins the line with the result."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    limit_resources(int(memory_bytes), int(seconds))
    # whatever a parser raises ends this process; the parent gets a sentence
    sys.excepthook = lambda _kind, error, _trace: _send(mark, {"error": describe_error(error)})
    _send(mark, convert(kind, sys.stdin.buffer.read(), int(max_pages)))


if __name__ == "__main__":
    main(*sys.argv[1:])
