"""What the converter makes of documents, in this process: HTML, feeds, texts, charsets."""

import os
import subprocess
import sys

import pytest

from alipes.features.web_search.convert_child import answer, clean, decode
from tests.world.web_site import ARTICLE

FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><description>of larks</description>
<item><title>One &amp; all</title><link>https://x.example/1</link><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>
<description>&lt;p&gt;It &lt;b&gt;sings&lt;/b&gt;.&lt;/p&gt;</description></item>%s</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title><entry><title>Two</title>
<link href="/2"/><updated>2026-01-02T00:00:00Z</updated><content type="html">&lt;i&gt;hello&lt;/i&gt;</content></entry></feed>"""


def convert(kind, data, charset="", **more):
    data = data.encode() if isinstance(data, str) else data
    job = {"kind": kind, "charset": charset, "url": "https://site.example/dir/page", "max_pages": 3, "seconds": 10.0}
    return answer({**job, **more}, data)


def page(body, head=""):
    filler = "<p>" + "Plain words that fill the page so that it counts as an article. " * 6 + "</p>"
    return f"<html><head>{head}</head><body><article>{filler}{body}</article></body></html>"


def test_html_becomes_markdown_without_navigation():
    made = convert("html", ARTICLE)
    assert made["title"] == "Larks of Vienna" and made["text"].startswith("# Larks\n")
    assert "Menu" not in made["text"]
    assert "[its song](https://site.example/song?a=1&section=2)" in made["text"]


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>secret words</p>",
        "<div style='DISPLAY : none'>secret words</div>",
        "<p style='color:red; visibility:hidden'>secret words</p>",
        "<span style='font-size:0px'>secret words</span>",
        "<p style='opacity:0'>secret words</p>",
        "<p aria-hidden='true'>secret words</p>",
        "<!-- secret words -->",
        "<script>document.write('secret words')</script>",
        "<noscript>secret words</noscript>",
        "<template>secret words</template>",
        "<style>.x{content:'secret words'}</style>",
    ],
)
def test_what_a_reader_does_not_see_is_left_out(hidden):
    made = convert("html", page(hidden + "<p>The visible end of the article is here, in full.</p>"))
    assert "secret" not in made["text"] and "visible end" in made["text"]


def test_a_style_that_only_looks_hidden_stays():
    made = convert(
        "html", page("<p style='opacity:0.9;font-size:0.9em'>These words are visible to everybody here.</p>")
    )
    assert "visible to everybody" in made["text"]


def test_invisible_characters_are_removed():
    assert clean("a\u200bb\u202ec\U000e0041\x1b[31md\r\ne\n\n\n\nf") == "abc[31md\ne\n\nf"


def test_a_short_page_is_read_whole():
    assert "only line" in convert("html", "<html><body><div>only line</div><a href='x'>next</a></body></html>")["text"]
    assert "fragment" in convert("html", "<b>a fragment</b>")["text"]


def test_a_redirect_by_meta_refresh_is_mentioned_and_not_followed():
    made = convert("html", page("", "<meta http-equiv='Refresh' content='0; URL=http://169.254.169.254/'>"))
    assert made["note"] == "the page redirects to http://169.254.169.254/"


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        ("grün".encode(), ""),
        ("grün".encode("cp1252"), "iso-8859-1"),
        (("Die Lerche singt über grünen Feldern, früh und spät, für alle Gäste. " * 3).encode("cp1252"), "utf-8"),
        ("grün".encode("utf-16"), "utf-8"),
        (b"\xef\xbb\xbf" + "grün".encode(), "ascii"),
        ("grün".encode(), "no-such-charset"),
        (b'<meta charset="cp1252">' + "grün".encode("cp1252"), ""),
        (b'<?xml version="1.0" encoding="cp1252"?>' + "grün".encode("cp1252"), ""),
    ],
)
def test_the_charset_is_found_even_if_the_server_is_wrong(data, charset):
    assert "grün" in decode(data, charset)


def test_any_bytes_can_be_decoded():
    assert isinstance(decode(bytes(range(256)) * 4, "utf-8"), str)


def test_feeds_list_their_entries():
    made = convert("feed", FEED % "")
    assert made["title"] == "News"
    assert "## One & all\nMon, 01 Jan 2024 00:00:00 GMT https://x.example/1\n\nIt sings." in made["text"]
    assert "## Two\n2026-01-02T00:00:00Z https://site.example/2\n\nhello" in convert("feed", ATOM)["text"]


def test_a_long_feed_says_how_many_entries_are_left():
    made = convert("feed", FEED % ("<item><title>x</title></item>" * 120))
    assert made["note"] == "the feed has 21 more entries, which are not shown" and made["text"].count("## ") == 100


def test_entities_of_a_feed_read_no_files_and_do_not_explode():
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 8))
    bomb = f'<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY l0 "lol"><!ENTITY f SYSTEM "file:///etc/passwd">{laughs}]>'
    made = convert("feed", f"{bomb}<rss><channel><title>&l7;&f;</title></channel></rss>")
    assert "root:" not in str(made) and len(str(made)) < 10_000


def test_text_is_kept_and_binary_data_refused():
    assert convert("text", '{"a": 1}')["text"] == '{"a": 1}'
    assert convert("text", b"\0\1\2" * 500)["error"] == "it is not text"
    assert convert("html", b"  ")["error"] == "it is empty"


@pytest.mark.parametrize(
    "data", [b"<div>" * 50_000, b"<table>" * 5_000, b"<b>" * 5_000 + b"x", b"&#x110000;<p>x", b"<a"]
)
def test_strange_markup_gives_an_answer(data):
    made = convert("html", data)
    assert "error" in made or isinstance(made["text"], str)


def test_pages_are_converted_without_the_libraries_of_dates_and_languages():
    """They are not installed: a finder that refuses them shows that no import asks for them."""
    code = """if True:
        import sys
        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("babel", "htmldate", "dateparser", "regex", "pytz", "tzlocal", "dateutil"):
                    raise ModuleNotFoundError(name, name=name)
        sys.meta_path.insert(0, Refuse())
        from alipes.features.web_search import convert_child
        from tests.world.web_site import ARTICLE
        made = convert_child.answer({"kind": "html", "charset": "", "url": "https://x.example/"}, ARTICLE.encode())
        assert "babel" not in sys.modules and "htmldate" not in sys.modules
        print(made["text"])
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "The lark sings in the morning" in done.stdout
