"""Process that converts web pages, feeds and texts of strangers to Markdown.

Run as a script; imports nothing else of alipes. Reads jobs from its input (a line of JSON, then `size` bytes) and
writes an answer to each (a line with its length, then JSON), until its input is closed.
"""

import codecs
import contextlib
import gc
import importlib
import io
import json
import logging
import os
import re
import resource
import sys
import types
from typing import Any
from urllib.parse import urljoin

MAX_MEMORY_BYTES = 1_500_000_000
MAX_TITLE_CHARS = 300
NOT_USED = {"babel": ("Locale", "UnknownLocaleError"), "htmldate": ("find_date",)}
"""What trafilatura imports for the metadata of pages and for lists of links, which nobody asks for here."""
MAX_FEED_ENTRIES = 100
MIN_ARTICLE_CHARS = 250
"""A shorter article is replaced by all text of the page, if that is more."""
_HIDDEN = "//*[@hidden or @aria-hidden='true' or self::template or self::noscript]"
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity)\s*:\s*0(?![.\d])", re.IGNORECASE
)
"""Elements that a reader of the page does not see."""
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Control, direction and tag characters, in which text can be hidden."""
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{2,40})""", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9_.:-]{2,40})""")
_REFRESH = re.compile(r"^\s*\d+(?:\.\d*)?\s*[;,]\s*url\s*=\s*['\"]?([^'\"]+)", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Unreadable(Exception):
    """The message says why."""


def decode(data: bytes, charset: str) -> str:
    """The text, by its byte order mark, the charset of the server or the page, else by what fits."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    found = (form.search(data[:4096]) for form in (_META_CHARSET, _XML_CHARSET))
    named = [charset, *(each[1].decode("ascii") for each in found if each is not None)]
    for name in (*named, "utf-8"):
        try:
            return data.decode({"iso-8859-1": "cp1252", "latin-1": "cp1252"}.get(name.lower(), name))
        except (LookupError, ValueError):
            continue
    guess = importlib.import_module("charset_normalizer").from_bytes(data[:65536]).best()
    try:
        return data.decode(guess.encoding if guess is not None else "cp1252", "replace")
    except LookupError:
        return data.decode("cp1252", "replace")


def clean(text: str) -> str:
    """Without characters that people cannot see, and without runs of empty lines."""
    return re.sub(r"\n{3,}", "\n\n", _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))).strip()


def load_trafilatura() -> Any:
    """With stand-ins for the libraries of dates and languages, which are not installed: see ADR 38."""
    if "trafilatura" in sys.modules:
        return sys.modules["trafilatura"]
    stand_ins = {name: types.ModuleType(name) for name in NOT_USED if name not in sys.modules}
    for name, module in stand_ins.items():
        vars(module).update({member: type(member, (Exception,), {}) for member in NOT_USED[name]})
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module("trafilatura")
    finally:
        for name in stand_ins:
            del sys.modules[name]


def convert_html(job: dict[str, Any], data: bytes) -> dict[str, Any]:
    trafilatura, html = load_trafilatura(), importlib.import_module("lxml.html")
    text = decode(data, job["charset"])
    if not text.strip():
        raise Unreadable("it is empty")
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, collect_ids=False)
    tree = html.document_fromstring(text.encode(errors="replace"), parser)
    title, refresh = _title(tree), _refresh_target(tree)
    _drop_hidden(tree)
    _complete_links(tree, job["url"])
    text = (
        trafilatura.extract(
            tree, fast=True, output_format="markdown", include_links=True, include_comments=False, include_tables=True
        )
        or ""
    )
    if len(text) < MIN_ARTICLE_CHARS and len(whole := trafilatura.html2txt(tree)) > len(text):
        text = whole
    note = f"the page redirects to {refresh}" if refresh else ""
    return {"title": title, "text": text, "note": note}


def _drop_hidden(tree: Any) -> None:
    styled = (each for each in tree.xpath("//*[@style]") if _HIDDEN_STYLE.search(each.get("style")))
    for hidden in [*tree.xpath(_HIDDEN), *styled]:
        if hidden.getparent() is not None and hidden.tag not in ("html", "body", "head"):
            hidden.drop_tree()


def _complete_links(tree: Any, url: str) -> None:
    """Make links absolute, faster than the library does; those within the page become text."""
    origin = "/".join(url.split("/", 3)[:3])
    for link in tree.iter("a"):
        target = (link.get("href") or "").strip()
        if target.startswith("/") and not target.startswith("//"):
            target = origin + target
        elif not target.startswith(("http://", "https://")):
            try:
                target = "" if target.startswith("#") else urljoin(url, target)
            except ValueError:
                target = ""
        if target.startswith(("http://", "https://")):
            link.set("href", target.replace("&", "&amp;"))  # the library decodes entities once more
        else:
            link.attrib.pop("href", None)


def _title(tree: Any) -> str:
    for path in ("//meta[@property='og:title']/@content", "//title//text()", "//h1//text()"):
        if found := " ".join(" ".join(map(str, tree.xpath(path)[:20])).split()):
            return found
    return ""


def _refresh_target(tree: Any) -> str:
    for meta in tree.xpath("//meta[@http-equiv and @content]"):
        if meta.get("http-equiv", "").strip().lower() == "refresh" and (found := _REFRESH.match(meta.get("content"))):
            return str(found[1]).strip()[:500]
    return ""


def convert_feed(job: dict[str, Any], data: bytes) -> dict[str, Any]:
    feedparser = importlib.import_module("feedparser")
    headers = {"content-location": job["url"], "content-type": "application/xml"}
    found = feedparser.parse(io.BytesIO(data), response_headers=headers)
    entries = found.entries
    if not entries and found.bozo and not found.feed.get("title"):
        return convert_text(job, data)
    title = _plain(found.feed.get("title", ""))
    lines = [f"# {title}", _plain(found.feed.get("subtitle", ""))]
    for entry in entries[:MAX_FEED_ENTRIES]:
        body = entry.content[0].get("value", "") if entry.get("content") else entry.get("summary", "")
        about = " ".join(filter(None, (entry.get("published") or entry.get("updated") or "", entry.get("link") or "")))
        lines.append(f"\n## {_plain(entry.get('title', ''))}\n{about}\n\n{_plain(body)}")
    left = len(entries) - MAX_FEED_ENTRIES
    note = f"the feed has {left} more entries, which are not shown" if left > 0 else ""
    return {"title": title, "text": "\n".join(lines), "note": note}


def _plain(markup: str) -> str:
    """The text of a piece of HTML."""
    if "<" not in markup and "&" not in markup:
        return markup.strip()
    html = importlib.import_module("lxml.html")
    try:
        return str(html.fromstring(f"<div>{markup}</div>").text_content()).strip()
    except (ValueError, importlib.import_module("lxml.etree").ParserError):
        return ""


def convert_text(job: dict[str, Any], data: bytes) -> dict[str, Any]:
    text = decode(data, job["charset"])
    if text[:4096].count("\0") or text[:4096].count("\ufffd") > 40:
        raise Unreadable("it is not text")
    return {"title": "", "text": text, "note": ""}


CONVERTERS = {"html": convert_html, "feed": convert_feed, "text": convert_text}


def answer(job: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        made = CONVERTERS[job["kind"]](job, data)
    except Unreadable as error:
        return {"error": str(error)}
    except ImportError as error:
        return {"error": f"{error}: run `alipes install web`"}
    except (MemoryError, RecursionError) as error:
        return {"error": f"it is too complex ({type(error).__name__})"}
    except (ValueError, TypeError, AttributeError, LookupError, OSError, AssertionError) as error:
        return {"error": f"it could not be converted ({type(error).__name__}: {str(error)[:200]})"}
    made["text"], made["title"] = clean(made["text"]), " ".join(clean(made["title"]).split())[:MAX_TITLE_CHARS]
    return made


def main() -> None:
    answers = os.dup(1)
    with open(os.devnull, "r+b") as nowhere:  # what libraries print must not mix with our answers
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if "--prepare" in sys.argv:
        with contextlib.suppress(ImportError):  # the first job reports it
            load_trafilatura()
    with open(answers, "wb") as output:
        gc.disable()  # a tree has many objects and no cycles that matter before the next job
        while line := sys.stdin.buffer.readline():
            job = json.loads(line)
            made = json.dumps(answer(job, sys.stdin.buffer.read(job["size"]))).encode()
            output.write(b"%d\n%b" % (len(made), made))
            output.flush()
            del made
            gc.collect()


if __name__ == "__main__":
    main()
