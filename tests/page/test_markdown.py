"""Markdown on the page: the examples of CommonMark and of GitHub's extensions, whole and a character at a time."""

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.page.markdown_examples import BARE_LINKS, COMMONMARK, GFM, SAMPLES, expected_tree
from tests.page.markdown_tree import READ_TREE, simplify, without_links
from tests.page.test_chat import send
from tests.world.model_server import Say

pytestmark = [pytest.mark.deadline(300), pytest.mark.service("chromium")]
OPEN_PAGE = """async () => {
  const base = document.querySelector("script[type=module][src]").src.replace(/[^/]*$/, "");
  window.markdown = await import(`${base}markdown.js`);
}"""
WRITE = """async ([text, step]) => {
  const root = document.createElement("div");
  const writer = new window.markdown.MarkdownWriter(root);
  const finished = [];
  let changed = "";
  for (let at = 0; at < text.length; at += step) {
    const before = [...root.childNodes];
    const copies = before.slice(0, -2).map((node) => node.cloneNode(true));
    writer.write(text.slice(at, at + step));
    copies.forEach((copy, index) => {
      const isOpen = /[\\[&]/.test(copy.textContent);
      if (!isOpen && !(root.childNodes[index] === before[index] && copy.isEqualNode(before[index]))) changed ||= copy.textContent;
    });
  }
  writer.end();
  await new Promise((resolve) => setTimeout(resolve, /&[A-Za-z]+;/.test(text) ? 20 : 0));
  window.shown = root;
  return changed;
}"""


async def show(page, text, step=100_000):
    changed = await page.evaluate(WRITE, [text, step])
    assert changed == "", "a finished block was touched again"
    return simplify(await page.evaluate(READ_TREE, ""))


@pytest.mark.parametrize("step", [100_000, 1], ids=["whole", "by character"])
async def test_the_examples_of_commonmark(site, step):
    async with site(()) as running:
        page = await running.log_in()
        await page.evaluate(OPEN_PAGE)
        wrong = []
        for example in COMMONMARK:
            shown, wanted = await show(page, example["markdown"], step), expected_tree(example)
            if example["number"] in BARE_LINKS:
                shown, wanted = without_links(shown), without_links(wanted)
            if shown != wanted:
                wrong.append((example["number"], example["markdown"], shown, wanted))
    assert not wrong, "\n".join(map(repr, wrong))


@pytest.mark.parametrize("step", [100_000, 1], ids=["whole", "by character"])
async def test_the_examples_of_github(site, step):
    async with site(()) as running:
        page = await running.log_in()
        await page.evaluate(OPEN_PAGE)
        wrong = []
        for example in GFM:
            shown, wanted = await show(page, example["markdown"], step), expected_tree(example)
            if shown != wanted:
                wrong.append((example["number"], example["markdown"], shown, wanted))
    assert not wrong, "\n".join(map(repr, wrong))


@pytest.mark.parametrize("step", [100_000, 7, 1], ids=["whole", "in pieces", "by character"])
async def test_texts_that_models_write_lose_nothing(site, step):
    async with site(()) as running:
        page = await running.log_in()
        await page.evaluate(OPEN_PAGE)
        for name, sample in SAMPLES.items():
            assert await show(page, sample["markdown"], step) == sample["shown"], name


async def test_code_has_colours_and_formulas_are_mathml_once_their_block_is_finished(site):
    text = 'Before $x^2$.\n\n```python\ndef greet(name):\n    return f"hello {name}"\n```\n\n$$\\frac{a}{b}$$\n\n$\\nosuch{$\n'
    async with site((Say(text),)) as running:
        page = await running.log_in()
        assert not [url for url in running.requests if "temml" in url or "highlight" in url]
        await send(page, "go")
        body = page.locator(".sheets .msg.assistant .body")
        await expect(body.locator("code.maths.block mfrac")).to_have_count(1)
        await expect(body.locator("p code.maths msup")).to_have_count(1)
        await expect(body.locator("pre .hl-keyword").first).to_have_text("def")
        await expect(body.locator("pre")).to_have_text('def greet(name):\n    return f"hello {name}"\n')
        await expect(body).to_contain_text("\\nosuch{")
