"""Trees of Markdown texts that can be compared: what the page shows, and what HTML says.

A node is a text or `[name, detail, children]`: of code blocks the language, of links the address, of list items nothing.
"""

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

Tree = list[Any]
DROPPED_TAGS = {"hr", "br", "img", "input"}
BLOCKS = {
    *("p", "ul", "ol", "li", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "hr", "table"),
    *("thead", "tbody", "tr", "td", "th"),
}
READ_TREE = """async (text) => {
  const read = (node) => {
    if (node.nodeType === 3) return node.data;
    const tag = node.tagName.toLowerCase();
    const children = () => [...node.childNodes].map(read);
    if (node.className === "code") {
      const code = node.querySelector("pre > code");
      return ["pre", code.dataset.language ?? "", [code.textContent]];
    }
    if (node.className === "table-scroll") return read(node.firstElementChild);
    if (node.className === "target") return "";
    if (tag === "code" && node.title) return ["code", "", [node.title]];
    if (tag === "a") {
      const kind = node.className === "picture-link" ? "img" : "a";
      const note = node.querySelector(":scope > .target")?.textContent.slice(2, -1);
      return [kind, node.getAttribute("href") ?? note ?? node.textContent, children()];
    }
    if (tag === "input") return ["input", node.hasAttribute("checked") ? "checked" : "", []];
    const detail = tag === "ol" ? node.getAttribute("start") ?? "" : node.style?.textAlign ?? "";
    return [tag === "s" ? "del" : tag, detail, children()];
  };
  return [...window.shown.childNodes].map(read);
}"""


class _Reader(HTMLParser):
    """Reads the HTML of the specifications, where each element is closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: Tree = ["", "", []]
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        detail = {
            "a": values.get("href"),
            "img": values.get("src"),
            "ol": values.get("start"),
            "input": "checked" if "checked" in values else "",
        }.get(tag)
        if values.get("class") == "picture":
            tag = "img"  # where pictures are not loaded, a link takes their place; it is closed like a link
        align = (values.get("style") or "").removeprefix("text-align:")
        node: Tree = [tag, detail or values.get("align") or align, []]
        if tag == "img" and values.get("alt"):
            node[2].append(values["alt"])
        if tag == "code" and self._open[-1][0] == "pre":
            self._open[-1][1] = (values.get("class") or "").removeprefix("language-")
            node[0] = ""
        if values.get("class") != "target":
            self._open[-1][2].append(node)
        if tag not in DROPPED_TAGS or values.get("class") == "picture":
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if tag not in DROPPED_TAGS:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1][2].append(data)


def read_html(html: str) -> list[Any]:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return simplify(reader.root[2])


def simplify(nodes: list[Any], *, keep_space: bool = False) -> list[Any]:
    """Without white space between blocks and nodes that only group; neighbouring texts are joined."""
    result: list[Any] = []
    for node in nodes:
        if isinstance(node, str):
            parts = [node]
        elif not node[0]:
            parts = simplify(node[2], keep_space=True)
        else:
            name, detail, children = node
            if name in ("a", "img"):
                detail = plain_address(detail or "".join(each for each in children if isinstance(each, str)))
            parts = [[name, detail, simplify(children, keep_space=name == "pre")]]
        for part in filter(None, parts):
            if isinstance(part, str) and result and isinstance(result[-1], str):
                result[-1] += part
            else:
                result.append(part)
    return result if keep_space else _trim(result)


def _trim(nodes: list[Any]) -> list[Any]:
    """Without space at the borders of blocks, and at both ends."""
    result = []
    for index, node in enumerate(nodes):
        if isinstance(node, str):
            before, after = nodes[index - 1 : index], nodes[index + 1 : index + 2]
            text = re.sub(r"[ \t]*\n[ \t]*", "\n", node)
            if not before or _is_block(before[0]):
                text = text.lstrip()
            if not after or _is_block(after[0]):
                text = text.rstrip()
            if before and before[0][0] == "br":
                text = text.lstrip()
            if text:
                result.append(text)
        else:
            result.append(node)
    return result


def _is_block(node: Any) -> bool:
    return not isinstance(node, str) and node[0] in BLOCKS


def plain_address(address: str) -> str:
    """As browsers and encoders write it alike."""
    plain = unquote(address)
    match = re.match(r"(?i)([a-z]+://)([^/?#]*)(.*)", plain, re.DOTALL)
    if not match:
        return re.sub("(?i)^mailto:", "mailto:", plain)
    rest = match[3] if match[3].startswith("/") else f"/{match[3]}"
    return match[1].lower() + match[2].lower() + rest


def without_links(nodes: list[Any]) -> list[Any]:
    """The tree with the text of links in their place."""
    opened = [["", "", node[2]] if isinstance(node, list) and node[0] == "a" else node for node in nodes]
    deeper = [[node[0], node[1], without_links(node[2])] if isinstance(node, list) else node for node in opened]
    return simplify(deeper)
