"""The examples of CommonMark and of GitHub's extensions, and texts that models write, with the trees that they mean."""

import json
from pathlib import Path

from markdown_it import MarkdownIt

from tests.page.markdown_tree import read_html

CORPORA = Path(__file__).parents[1] / "corpora" / "markdown"
WITH_HTML, WITHOUT_HTML = MarkdownIt("commonmark"), MarkdownIt("commonmark", {"html": False})
COMMONMARK = json.loads((CORPORA / "commonmark.json").read_text())
GFM = json.loads((CORPORA / "gfm.json").read_text())
SAMPLES = json.loads((CORPORA / "samples.json").read_text())
BARE_LINKS = {12, 14, 202, 346, 520, 526, 540, 603, 607, 608, 609, 611, 612}
"""Examples of CommonMark with addresses that only GitHub makes links of."""


def expected_tree(example):
    """What the specification wants; raw HTML is shown as text, as another parser of the field shows it."""
    markdown = example["markdown"]
    if WITH_HTML.render(markdown) != WITHOUT_HTML.render(markdown):
        return read_html(WITHOUT_HTML.render(markdown))
    return read_html(example["html"])
