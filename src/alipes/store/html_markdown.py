"""Markdown as HTML by the rules of CommonMark and GitHub with footnotes and formulas, as the page shows it: raw HTML is
text, and pictures are links, since nothing is loaded from elsewhere."""

from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from alipes.store import html_markdown_rules as rules
from alipes.store.html_addresses import find_address

_BLOCKS_END: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}


def make_markdown() -> MarkdownIt:
    """A renderer of texts that models write."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable(["table"])
    markdown.block.ruler.before("fence", "maths", rules.add_maths_block, _BLOCKS_END)
    markdown.block.ruler.before("reference", "footnote", rules.add_footnote, _BLOCKS_END)
    markdown.inline.ruler.before("escape", "maths", rules.add_maths)
    markdown.inline.ruler.before("link", "footnote_mark", rules.add_footnote_mark)
    markdown.inline.ruler.before("autolink", "url", rules.add_url)
    markdown.inline.ruler.at("strikethrough", rules.scan_tildes)
    markdown.inline.ruler2.at("strikethrough", rules.strike)
    markdown.enable(["strikethrough"])
    markdown.core.ruler.before("text_join", "addresses", _link_addresses)
    markdown.core.ruler.push("tasks", rules.mark_tasks)
    for kind, render in (("image", _picture), ("maths", _maths), ("maths_block", _maths_block)):
        markdown.add_render_rule(kind, render)
    markdown.add_render_rule("footnote_mark", _footnote_mark)
    markdown.add_render_rule("footnote_open", _footnote_open)
    return markdown


def _picture(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """A link to the picture, with its description."""
    token = tokens[index]
    address = str(token.attrs["src"])
    text = escapeHtml(self.renderInlineAsText(token.children or [], options, env))
    shown = text or f'<span class="target">{escapeHtml(address)}</span>'
    return f'<a class="picture" href="{escapeHtml(address)}">{shown}</a>'


def _maths(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<code class="maths">{escapeHtml(tokens[index].content)}</code>'


def _maths_block(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<code class="maths block">{escapeHtml(tokens[index].content)}</code>\n'


def _footnote_mark(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<sup class="footnote-mark">{escapeHtml(tokens[index].content)}</sup>'


def _footnote_open(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<p class="footnote"><sup class="footnote-mark">{escapeHtml(tokens[index].info)}</sup> '


def _link_addresses(state: StateCore) -> None:
    """Addresses without a scheme become links, except inside of links."""
    for token in state.tokens:
        if token.type != "inline" or not token.children:
            continue
        depth, children = 0, list[Token]()
        for child in token.children:
            depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
            children += _split_text(child) if child.type == "text" and not depth else [child]
        token.children = children


def _split_text(token: Token) -> Iterator[Token]:
    rest = token.content
    while (found := find_address(rest)) is not None:
        yield Token("text", "", 0, content=rest[: found.start])
        yield Token("link_open", "a", 1, attrs={"href": found.href})
        yield Token("text", "", 0, content=found.text)
        yield Token("link_close", "a", -1)
        rest = rest[found.start + len(found.text) :]
    yield Token("text", "", 0, content=rest)
