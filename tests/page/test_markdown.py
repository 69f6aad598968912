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


DIAGRAM = (
    "```mermaid\ngraph TD\n  A[Start] --> B[End]\n```\n\nAfter it.\n\n```mermaid\nno such diagram\n```\n\nThe end."
)


async def test_a_diagram_is_drawn_in_a_frame_without_a_network_and_only_then_loaded(site):
    async with site((Say("No diagram."), Say(DIAGRAM))) as running:
        page = await running.log_in()
        await send(page, "go")
        await expect(page.locator(".sheets .msg.assistant")).to_have_count(1)
        assert not [url for url in running.requests if "diagram" in url]
        async with page.expect_response(f"{running.url}diagram") as waiting:
            await send(page, "go on")
        answer = await waiting.value
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "sandbox allow-scripts" in policy and "connect-src" not in policy
        assert "cookie" not in await answer.request.all_headers()
        block = page.locator(".sheets .code.drawn")
        drawn = block.frame_locator("iframe")
        await expect(drawn.locator("svg")).to_contain_text("Start")
        await expect(block.locator("pre")).not_to_be_visible()
        assert (await block.locator("iframe").bounding_box())["height"] > 80
        await block.get_by_role("button", name="Source").click()
        await expect(block.locator("pre")).to_contain_text("graph TD")
        await expect(page.locator(".diagram-problem")).to_contain_text("cannot be drawn")
        frame = next(each for each in page.frames if each.url.endswith("/diagram"))
        assert await frame.evaluate("origin") == "null"
        tried = "fetch('v1/sessions').then(() => 'reached', () => 'refused')"
        assert await frame.evaluate(tried) == "refused"
        running.errors.clear()  # the refusal of the policy
