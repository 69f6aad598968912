"""Markdown in the HTML export: the examples of CommonMark and of GitHub's extensions."""

import pytest

from alipes.store.html_markdown import make_markdown
from tests.page.markdown_examples import BARE_LINKS, COMMONMARK, GFM, SAMPLES, expected_tree
from tests.page.markdown_tree import read_html, without_links


def show(text):
    return read_html(make_markdown().render(text))


@pytest.mark.parametrize("example", COMMONMARK, ids=lambda each: str(each["number"]))
def test_the_examples_of_commonmark(example):
    shown, wanted = show(example["markdown"]), expected_tree(example)
    if example["number"] in BARE_LINKS:
        shown, wanted = without_links(shown), without_links(wanted)
    assert shown == wanted


@pytest.mark.parametrize("example", GFM, ids=lambda each: str(each["number"]))
def test_the_examples_of_github(example):
    assert show(example["markdown"]) == expected_tree(example)


@pytest.mark.parametrize("name", SAMPLES)
def test_texts_that_models_write_lose_nothing(name):
    assert show(SAMPLES[name]["markdown"]) == SAMPLES[name]["shown"]
