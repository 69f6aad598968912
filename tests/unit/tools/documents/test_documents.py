"""Documents become text; hostile, broken and huge ones become a sentence."""

import asyncio
import os
import zipfile
from contextlib import suppress

import pytest

from alipes.config.settings import DocumentsConfig
from alipes.kernel.errors import ToolError
from alipes.tools.documents.converters import DocumentError, extract_pdf
from alipes.tools.documents.documents import DocumentConverter, document_kind, text_format
from tests.e2e.program import children
from tests.world import documents as made

pytest.importorskip("pypdf", reason="needs alipes[documents]")
pytest.importorskip("mammoth", reason="needs alipes[documents]")
pytest.importorskip("openpyxl", reason="needs alipes[documents]")
pytest.importorskip("pptx", reason="needs alipes[documents]")
pytestmark = pytest.mark.deadline(90)
SLOW = DocumentsConfig(timeout=60)


async def convert(data, kind, **config):
    return await DocumentConverter(DocumentsConfig(**config)).convert(data, kind)


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (made.make_pdf("x"), "a.bin", "pdf"),
        (made.make_docx("x"), "a.docx", "docx"),
        (made.make_docx("x"), "renamed", "docx"),
        (made.make_odf("text", ""), "a.odt", "odf"),
        (made.make_epub("x"), "a.epub", "epub"),
        (made.make_zip({"a": "b"}), "a.whl", "zip"),
        (made.make_tar({"a": b"b"}), "a.tar.gz", "tar"),
        (made.make_tar({"a": b"b"}, "w"), "a.tar", "tar"),
        (b"{\\rtf1 x}", "a.rtf", "rtf"),
        (b"plain text", "a.pdf", ""),
        (b"\x1f\x8bgzip", "a.gz", ""),
    ],
    ids=lambda given: "data" if isinstance(given, bytes) else None,  # the bytes contain the time
)
def test_the_format_is_recognised_by_the_content(data, name, kind):
    assert document_kind(data[:65536], name) == kind


def test_web_pages_and_tables_are_text_that_can_be_rendered():
    assert [text_format(name) for name in ("a.HTML", "b.csv", "c.py")] == ["html", "csv", ""]


async def test_a_pdf_becomes_its_pages():
    found = await convert(made.make_pdf("First page", "Second page"), "pdf")
    assert found.text == "## Page 1\n\nFirst page\n\n## Page 2\n\nSecond page\n"
    assert found.summary == "PDF document, 2 pages"


def test_the_pdf_function_can_be_called_directly():
    assert [text for _, text in extract_pdf(made.make_pdf("one", "two"), max_pages=1).texts] == ["one"]
    with pytest.raises(DocumentError, match="broken PDF"):
        extract_pdf(b"%PDF-1.4 nothing")


async def test_a_word_document_becomes_markdown():
    found = await convert(made.make_docx("# Title", "Some words"), "docx")
    assert found.text == "# Title\n\nSome words\n"


async def test_a_presentation_becomes_its_slides_with_tables_and_notes():
    found = await convert(made.make_pptx(("Hello", "say hi"), ("End", "")), "pptx")
    assert "## Slide 1\n\nHello\n| left | right |\n| --- | --- |\nNotes: say hi" in found.text
    assert found.summary == "presentation, 2 slides"


async def test_a_spreadsheet_becomes_tables():
    found = await convert(made.make_xlsx(Costs=[["what", "eur"], ["tea|milk", 2.0], [None, None]], Empty=[]), "xlsx")
    assert found.text == "## Sheet Costs\n\n| what | eur |\n| --- | --- |\n| tea\\|milk | 2 |\n\n## Sheet Empty\n\n\n"


async def test_opendocument_text_sheets_and_slides():
    text = await convert(
        made.make_odf("text", '<text:h text:outline-level="2">Head</text:h><text:p>Body</text:p>'), "odf"
    )
    assert text.text == "## Head\n\nBody\n"
    cells = '<table:table-cell table:number-columns-repeated="2"><text:p>7</text:p></table:table-cell>'
    table = f'<table:table table:name="One"><table:table-row>{cells}</table:table-row></table:table>'
    assert "## Sheet One\n\n| 7 | 7 |" in (await convert(made.make_odf("spreadsheet", table), "odf")).text
    slide = "<draw:page><text:p>Slide text</text:p></draw:page>"
    assert "## Slide 1\n\nSlide text" in (await convert(made.make_odf("presentation", slide), "odf")).text


async def test_an_e_book_becomes_its_chapters():
    found = await convert(made.make_epub("<h1>One</h1><p>text</p><script>x()</script>", "<p>two</p>"), "epub")
    assert found.text == "## Chapter 1\n\n# One\n\ntext\n\n## Chapter 2\n\ntwo\n"


async def test_rtf_html_and_csv():
    rtf = rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}{\*\generator X;}Hello\par caf\'e9 \u8364? \{x\}}"
    assert (await convert(rtf, "rtf")).text == "Hello\ncafé € {x}\n"
    page = b"<html><head><title>t</title></head><body><h1>Hi</h1><script>bad()</script><p>a <b>b</b></p></body></html>"
    assert (await convert(page, "html")).text == "# Hi\n\na **b**\n"
    assert (await convert(b"a;b\n1;2\n", "csv")).text == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


@pytest.mark.parametrize("make", [made.make_zip, made.make_tar])
async def test_an_archive_becomes_its_list_and_its_small_text_files(make):
    inner = made.make_zip({"deep.txt": "deep"})
    files = {"readme.txt": b"hello", "pic.bin": b"\0\1\2", "inner.zip": inner, "big.txt": b"x" * 60_000}
    found = await convert(make(files), "zip" if make is made.make_zip else "tar")
    assert "## 4 entries" in found.text
    assert "60,000  big.txt" in found.text
    assert "## File readme.txt\n\nhello" in found.text
    assert "deep" not in found.text
    assert "xxxx" not in found.text


async def test_pages_beyond_the_limit_are_counted():
    found = await convert(made.make_pdf(*"abcde"), "pdf", max_pages=2)
    assert (found.pages, found.total) == (2, 5)
    assert found.summary == "PDF document, 5 pages, of which 2 are shown (documents.max_pages)"


async def test_a_scanned_pdf_says_so():
    assert "no page contains text" in (await convert(made.make_pdf("", ""), "pdf")).summary


@pytest.mark.parametrize(
    ("data", "kind", "sentence"),
    [
        (made.make_pdf("secret", password="x"), "pdf", "is encrypted with a password"),
        (made.make_pdf("x")[:120], "pdf", "is a broken PDF"),
        (b"PK\x03\x04 not a zip", "docx", "is broken or not supported"),
        (made.make_zip({"a": "b"}), "xlsx", "is broken or not supported"),
        (made.make_zip({"a": "b"}), "epub", "META-INF/container.xml is missing"),
        (made.make_zip({"content.xml": "<x"}), "odf", "broken"),
        (b"\x1f\x8b broken", "tar", "is broken or not supported"),
    ],
)
async def test_broken_and_encrypted_documents_become_a_sentence(data, kind, sentence):
    with pytest.raises(ToolError, match=sentence):
        await convert(data, kind)


async def test_an_encrypted_archive_still_shows_its_names():
    data = bytearray(made.make_zip({"a.txt": "x"}, zipfile.ZIP_STORED))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    found = await convert(bytes(data), "zip")
    assert "a.txt" in found.text
    assert "encrypted" in found.summary


async def test_a_zip_bomb_is_refused():
    data = bytearray(made.make_docx("x"))
    size = data.index(b"PK\x01\x02") + 24  # the size of a file when it is unpacked
    data[size : size + 4] = (600_000_000).to_bytes(4, "little")
    with pytest.raises(ToolError, match="unpacks to more than"):
        await convert(bytes(data), "docx")


async def test_a_document_that_needs_too_much_memory_is_refused():
    text = f"<text:p>{'x' * 40_000_000}</text:p>"
    with pytest.raises(ToolError, match=r"memory"):
        await convert(made.make_odf("text", text), "odf", memory_mb=100)


async def test_a_document_that_takes_too_long_is_stopped_and_nothing_stays_alive():
    rows = "".join("<table:table-row><table:table-cell/></table:table-row>" for _ in range(600_000))
    data = made.make_odf("spreadsheet", f"<table:table>{rows}</table:table>")
    with pytest.raises(ToolError, match="takes longer than 1 s"):
        await convert(data, "odf", timeout=1)


async def test_expanded_entities_are_refused():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    data = made.make_zip({"content.xml": f"{bomb}<x>&b;</x>"})
    with pytest.raises(ToolError, match="defines entities"):
        await convert(data, "odf")


async def test_a_file_that_is_too_large_is_refused_before_it_is_read():
    with pytest.raises(ToolError, match=r"documents\.max_mb"):
        await convert(bytes(2 << 20), "pdf", max_mb=1)


async def test_a_large_table_is_cut_with_a_note():
    found = await convert(b"1,2,3,4,5,6,7,8,9,10\n" * 51_000, "csv", timeout=80)
    assert "more than 500,000 cells" in found.summary


async def test_a_document_is_converted_once_for_several_reads():
    converter = DocumentConverter(SLOW)
    data = made.make_pdf("text")
    first = await converter.convert(data, "pdf")
    assert await converter.convert(data, "pdf") is first


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.3])
async def test_a_stop_leaves_no_process(delay):
    before = children(os.getpid())  # servers that other tests share
    with suppress(TimeoutError):  # a fast machine may be done before
        async with asyncio.timeout(delay):
            await convert(made.make_pdf(*("text" * 50 for _ in range(300))), "pdf")
    assert children(os.getpid()) == before


async def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setattr("alipes.tools.documents.documents.find_spec", lambda name: None)
    with pytest.raises(ToolError, match="alipes install documents"):
        await convert(made.make_pdf("x"), "pdf")
