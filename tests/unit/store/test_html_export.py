"""A conversation as an HTML page: complete, escaped, and without remote content."""

import base64
from html.parser import HTMLParser

from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant
from alipes.kernel.turns import Address, Inbound, Said, Usage
from alipes.store.html_export import to_html
from alipes.store.sqlite.store import open_store

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def export(tmp_path, *messages: Message, question: str = "hello") -> Page:
    address = Address("cli", "a")
    async with open_store(tmp_path / "home") as store:
        await store.turns.accept(Inbound("1", address, "me", question))
        turn = await store.turns.claim_next(address.key)
        for message in messages:
            await store.turns.record(turn, Said(message, "p/m", Usage()))
        await store.turns.finish(turn, "failed", f"because {HOSTILE}")
        return Page(to_html(await store.archive.export(turn.session)))


async def test_every_part_is_on_the_page_and_markdown_is_rendered(tmp_path):
    page = await export(
        tmp_path,
        Message("user", (Text("a\n  question"), Image("image/png", PNG))),
        assistant(
            Thinking("hm hm"),
            Text("It is **four**.\n\n| a |\n|---|\n| b |"),
            ToolCall("c", "terminal", {"command": "ls -l"}),
        ),
        Message("tool", (ToolResult("c", "total 0"),)),
    )
    names = [name for name, _ in page.tags]
    assert "strong" in names and "table" in names
    for text in ("a\n  question", "hm hm", "ls -l", "total 0", "Run", "1 line", "failed: because"):
        assert text in page.text
    (image,) = [attributes for name, attributes in page.tags if name == "img"]
    assert image["src"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


async def test_hostile_text_stays_text_and_nothing_is_loaded_from_elsewhere(tmp_path):
    links = "[a](javascript:alert(1)) ![b](https://example.org/b.png) [c](https://example.org/c)"
    page = await export(
        tmp_path,
        Message("user", (Text(HOSTILE), Image("image/svg+xml", b"<svg/>"))),
        assistant(Text(f"{HOSTILE}\n\n{links}"), Thinking(HOSTILE), ToolCall("c", HOSTILE, {"x": HOSTILE, "y": 1})),
        Message("tool", (ToolResult("c", HOSTILE),)),
        question=HOSTILE,
    )
    assert {name for name, _ in page.tags}.isdisjoint({"script", "img", "iframe", "link", "object", "svg"})
    attributes = [(name, value or "") for _, found in page.tags for name, value in found.items()]
    assert not [name for name, _ in attributes if name.startswith("on") or name == "src"]
    assert {value for name, value in attributes if name == "href"} <= {
        "https://example.org/b.png",
        "https://example.org/c",
    }
    assert page.text.count("<script>alert(1)</script>") >= 6
    policy = next(found["content"] for name, found in page.tags if "http-equiv" in found)
    assert policy.startswith("default-src 'none'")
