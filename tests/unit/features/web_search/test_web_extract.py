"""The `web_extract` tool."""

import asyncio
import io
import random

import PIL.Image
import pytest

from alipes.features.web_search.page_reader import WebPage
from alipes.features.web_search.source_numbers import SourceNumbers
from alipes.features.web_search.web_extract import DESCRIBE_IMAGE, WebExtract, format_part
from alipes.kernel.errors import ToolError, Transient
from alipes.kernel.messages import ToolCall, ToolResult, WebSource
from alipes.kernel.tool_labels import describe_outcome, describe_tool
from tests.unit.features.web_search.context import FakeContext, open_reader
from tests.world.environment import LIMIT_S
from tests.world.web_site import ARTICLE, open_web_site


def make_png():
    file = io.BytesIO()
    PIL.Image.new("RGB", (4, 4), "red").save(file, "PNG")
    return file.getvalue()


class FakeReader:
    """Pages by URL; an error is raised, an event is waited for."""

    def __init__(self, **pages):
        self.pages = {f"https://{name}.example/": page for name, page in pages.items()}

    async def read(self, url, caller):
        match self.pages.get(url):
            case None:
                raise ToolError("there is no such page")
            case WebPage() as page:
                return page
            case asyncio.Event() as event:
                await event.wait()
                return WebPage(url, "late")
            case str(text):
                return WebPage(url, text, "T")


def make_tool(reader, *, answer="", seen=None):
    async def ask_model(question, page):
        if answer == "broken":
            raise Transient("the model is away")
        return f"{answer} ({question}, {len(page.text)})"

    async def ask_vision(question, image):
        return seen

    return WebExtract(reader, SourceNumbers(), ask_model=ask_model, ask_vision=ask_vision)


def outcome_of(output):
    result = ToolResult("c", output.text, sources=output.sources)
    return describe_outcome(ToolCall("c", "web_extract", {}), result)


async def test_a_page_is_shown_with_its_number_title_address_and_length():
    act = FakeContext()
    output = await make_tool(FakeReader(a="words")).run({"urls": ["https://a.example/"]}, act)
    assert output.text == "[1] T\nhttps://a.example/\n[5 characters]\n\nwords"
    assert output.sources == (WebSource(1, "https://a.example/", "T", read=True),)
    assert act.said == ["a.example: 5 characters\n"] and outcome_of(output) == "5 characters"


async def test_several_pages_keep_their_order_and_one_that_fails_does_not_harm_the_others():
    act, urls = FakeContext(), [f"https://{name}.example/" for name in "abc"]
    output = await make_tool(FakeReader(a="one", c="three" * 400)).run({"urls": [*urls, urls[0]]}, act)
    first, failed, second = output.text.split("\n\nhttps://b")[0], output.text.find("b.example/ was"), "[2] T"
    assert "[1] T" in first and 0 < failed < output.text.find(second)
    assert "https://b.example/ was not read: there is no such page" in output.text
    assert [each.number for each in output.sources] == [1, 2] and outcome_of(output) == "2 pages, 2,003 characters"
    assert len(act.said) == 2 and "(2 of 3)" in act.said[1]


async def test_a_long_page_is_read_in_parts_until_its_end():
    text = "".join(f"Paragraph {number}. {'word ' * 30}\n\n" for number in range(200)).strip()
    tool, offset, parts = make_tool(FakeReader(a=text)), 0, []
    while True:
        output = await tool.run({"urls": ["https://a.example/"], "char_limit": 5000, "offset": offset}, FakeContext())
        head, _, body = output.text.partition("\n\n")
        parts.append(body)
        facts = head.split("\n")[2]
        if "left: read on with offset=" not in facts:
            break
        offset = int(facts.partition("offset=")[2].partition(",")[0])
        assert f"{len(text) - offset:,} left" in facts and len(body) <= 5000
    assert "".join(parts) == text and len(parts) > 5


def test_a_part_without_any_break_is_cut_exactly():
    page = WebPage("u", "x" * 3000, note="half of it")
    assert format_part(page, 1000, 1000) == (
        "[3,000 characters; this is 1,000-2,000; 1,000 left: read on with offset=2000, or ask a question]\n[half of it]\n\n"
        + "x" * 1000
    )


async def test_many_pages_share_the_room_of_one_result():
    pages = {name: "word " * 20_000 for name in "abcdefgh"}
    output = await make_tool(FakeReader(**pages)).run(
        {"urls": [f"https://{name}.example/" for name in pages]}, FakeContext()
    )
    assert len(output.text) < 50_000 and output.text.count("left: read on") == 8


async def test_a_question_is_answered_by_the_auxiliary_model():
    output = await make_tool(FakeReader(a="words"), answer="Yes").run(
        {"urls": ["https://a.example/"], "question": " really? "}, FakeContext()
    )
    assert output.text.endswith("[5 characters; this answers the question only]\n\nYes (really?, 5)")


async def test_a_model_that_fails_is_reported_for_the_page():
    with pytest.raises(ToolError, match=r"https://a\.example/ was not read: the model is away"):
        await make_tool(FakeReader(a="words"), answer="broken").run(
            {"urls": ["https://a.example/"], "question": "?"}, FakeContext()
        )


async def test_an_image_is_given_to_a_model_that_sees_and_described_for_others():
    reader = FakeReader(a=WebPage("https://a.example/", image=make_png()))
    output = await make_tool(reader).run({"urls": ["https://a.example/"]}, FakeContext())
    assert output.images[0].data == make_png() and "look at the image" in output.text
    output = await make_tool(reader, seen="It is red.").run({"urls": ["https://a.example/"]}, FakeContext())
    assert output.text.endswith("[4x4 png]\n\nIt is red.") and output.images == () and DESCRIBE_IMAGE
    svg = FakeReader(a=WebPage("https://a.example/", image=b"<svg><text>hi</text></svg>"))
    assert "<text>hi</text>" in (await make_tool(svg).run({"urls": ["https://a.example/"]}, FakeContext())).text


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"urls": []}, "urls is empty"),
        ({"urls": [" "]}, "urls is empty"),
        ({"urls": [f"https://{n}.example/" for n in range(11)]}, "at most 10"),
        ({"urls": ["https://a.example/"], "offset": -1}, "must not be negative"),
        ({"urls": ["https://a.example/"], "char_limit": 0}, "at least 1"),
        ({"urls": ["https://a.example/"], "offset": 5}, "offset 5 is behind the end: the page has 5 characters"),
        ({"urls": ["https://b.example/"]}, r"https://b\.example/ was not read: there is no such page"),
    ],
)
async def test_bad_input_is_refused_with_a_hint(args, why):
    with pytest.raises(ToolError, match=why):
        await make_tool(FakeReader(a="words")).run(args, FakeContext())


async def test_a_stop_cancels_all_pages():
    reader = FakeReader(a=asyncio.Event(), b=asyncio.Event(), c="words")
    urls = [f"https://{name}.example/" for name in "abc"]
    task = asyncio.create_task(make_tool(reader).run({"urls": urls}, FakeContext()))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_pages_are_really_read_in_parallel():
    async with open_web_site() as site, open_reader(site, parallel=8) as reader:
        arrived = asyncio.Barrier(4)

        async def meet(request):
            from aiohttp import web

            await arrived.wait()
            return web.Response(text="words", content_type="text/plain")

        site.pages |= {f"/{number}": meet for number in range(4)}
        urls = [site.url(f"/{number}") for number in range(4)]
        output = await make_tool(reader).run({"urls": urls}, FakeContext())
    assert output.text.count("\n\nwords") == 4


async def test_stops_at_fifty_random_moments_leave_nothing_running():
    rng = random.Random(17)
    async with open_web_site() as site, open_reader(site, parallel=4, cache=0.0) as reader:
        site.pages |= {"/slow": site.hold, "/large": ("text/html", ARTICLE.encode() * 40)}
        tool, urls = make_tool(reader), [site.url(path) for path in ("/", "/large", "/missing", "/slow")]
        await tool.run({"urls": urls[:2]}, FakeContext())
        for _ in range(50):
            task = asyncio.create_task(tool.run({"urls": urls}, FakeContext()))
            await asyncio.wait([task], timeout=rng.random() * 0.06)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        async with asyncio.timeout(LIMIT_S):
            while site.running:
                await asyncio.sleep(0.01)
        assert "# Larks" in (await tool.run({"urls": urls[:1]}, FakeContext())).text


def test_calls_are_named_by_their_hosts():
    one = ToolCall("c", "web_extract", {"urls": ["https://a.example/x?y", "https://a.example/z", "http://b.example"]})
    assert describe_tool(one).text == "Read a.example, b.example"
    assert describe_tool(ToolCall("c", "web_extract", {"urls": "x"})).text == "Read"
    assert describe_tool(ToolCall("c", "web_search", {"query": "larks"})).text == "Search the web for larks"
    found = ToolResult("c", "", sources=(WebSource(1, "u"), WebSource(2, "v")))
    assert describe_outcome(ToolCall("c", "web_search", {}), found) == "2 results"
    assert describe_outcome(ToolCall("c", "web_search", {}), ToolResult("c", "")) == "no results"
