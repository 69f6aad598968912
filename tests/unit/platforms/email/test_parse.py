"""Parsing mail: a person's own text, HTML as text, odd charsets, and authentication."""

from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.platforms.email.parse import UnreadableMail, is_authenticated, parse_head, parse_mail
from alipes.platforms.email.reply_text import ReplyText, html_to_text, split_reply

HEAD = b"From: Ada <Ada@Example.org>\nMessage-ID: <1@x>\nMIME-Version: 1.0\n"


@pytest.mark.parametrize(
    ("text", "own", "quoted"),
    [
        ("Hello.\n\nOn Mon, Jan 5, 2026 at 10:00 AM Ada\n<a@x> wrote:\n\n> hi\n> you\n", "Hello.", "hi\nyou"),
        ("Ja.\n\nAm 05.01.2026 um 10:00 schrieb Ada <a@x>:\n> hi", "Ja.", "hi"),
        ("Yes.\n-- \nAda\nwonders: https://a.example\n", "Yes.", ""),
        ("Yes.\r\n--\r\nAda", "Yes.", ""),
        ("Done\n\nSent from my iPhone\n\n> old", "Done", "old"),
        ("Look:\n\n-----Original Message-----\nFrom: Bob\nold", "Look:", "-----Original Message-----\nFrom: Bob\nold"),
        ("Look\n\nFrom: Bob <b@x>\nSent: Monday\nTo: Ada\nold", "Look", "From: Bob <b@x>\nSent: Monday\nTo: Ada\nold"),
        ("On Monday Bob wrote:\nold words, unmarked", "", "On Monday Bob wrote:\nold words, unmarked"),
        ("> only a quote", "", "only a quote"),
        ("a -- b\nFrom: me to you, a story\nOn time I wrote: nothing", None, ""),
        ("", "", ""),
    ],
)
def test_own_text_is_separated_from_quotes(text: str, own: str | None, quoted: str) -> None:
    words = split_reply(text)
    assert (words.own, words.quoted, words.woven) == (text if own is None else own, quoted, "")


def test_answers_between_the_lines_stay_where_they_are() -> None:
    text = "On Monday alipes wrote:\n> A?\nyes\n> B?\nno\n-- \nAda"
    assert split_reply(text) == ReplyText("yes\nno", "A?\nB?", "On Monday alipes wrote:\n> A?\nyes\n> B?\nno")


@given(st.text(max_size=400))
def test_any_text_can_be_split(text: str) -> None:
    words = split_reply(text)
    assert len(words.own) <= len(text)


def test_html_is_converted_as_a_person_sees_it() -> None:
    page = """<html><head><title>no</title><style>p{}</style></head><body><p>Hello <b>there</b>,</p>
      <div>see <a href="https://x.example/a">this</a> and <a href="https://y.example">https://y.example</a></div>
      <ul><li>one<li>two</ul><pre>a
  b</pre>5&nbsp;&lt; 6<br>end<script>alert(1)</script><img alt="a dot" src=x>
      <div class="gmail_quote">On Monday Bob wrote:<blockquote><p>old</p>text</blockquote></div></body></html>"""
    assert html_to_text(page).split("\n> On")[0] == (
        "Hello there,\nsee this (https://x.example/a) and https://y.example\n• one\n• two\na\n  b\n5\u00a0< 6\nenda dot"
    )
    words = split_reply(html_to_text(page))
    assert "old" in words.quoted and "Bob" not in words.own


@pytest.mark.parametrize(
    "begins", ["<!--", "<!", "<?", "</", "<a ", '<a b="', "<blockquote>", "<div>", "<", "<script>"]
)
def test_unclosed_tags_are_parsed_in_time(begins: str) -> None:
    assert len(html_to_text(begins * (50_000 // len(begins)))) <= 50_000


@given(st.text(alphabet="<>/abdivpre=\"' &;!-\n", max_size=300))
def test_any_html_can_be_converted(html: str) -> None:
    assert isinstance(html_to_text(html), str)


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (b"text/plain; charset=iso-8859-1", "grün".encode("latin-1"), "grün"),
        (b"text/plain; charset=utf-8", "grün".encode("cp1252"), "grün"),
        (b"text/plain; charset=no-such-thing", "grün".encode(), "grün"),
        (b"text/plain", b"\xff\xfe\x81", "ÿþ\ufffd"),
        (b"text/html; charset=utf-8", "<p>grün</p>".encode(), "grün"),
        (b"text/plain; charset=utf-16", "grün".encode("utf-16"), "grün"),
    ],
)
def test_a_wrong_charset_does_not_lose_text(kind: bytes, body: bytes, text: str, tmp_path: Path) -> None:
    raw = HEAD + b"Content-Type: " + kind + b"\nContent-Transfer-Encoding: 8bit\n\n" + body
    assert parse_mail(raw, tmp_path, ()).incoming.text.strip("\ufffd") == text.strip("\ufffd")


def test_subjects_and_names_are_decoded_and_may_be_commands(tmp_path: Path) -> None:
    named = b"From: =?utf-8?q?J=C3=BCrgen?= <j@x.example>\nMessage-ID: <1@x>\nSubject: =?utf-8?q?gr=C3=BCn?=\n\nwords"
    seen = parse_mail(named, None, ())
    assert seen.incoming.name == "Jürgen" and seen.incoming.text == "Subject: grün\n\nwords"
    assert parse_mail(HEAD + b"Subject: /status\n\n", None, ("status",)).incoming.text == "/status"
    many = HEAD + b"Subject: x\n\n/queue do this\nand that\n\nThanks,\nAda"
    assert parse_mail(many, None, ("queue",)).incoming.text == "/queue do this\nand that"
    assert parse_mail(HEAD + b"\n/etc/passwd is a file\n\nreally", None, ("queue",)).incoming.text.endswith("really")


def test_a_mail_without_an_id_gets_a_stable_one() -> None:
    raw = b"From: ada@example.org\nSubject: x\n\nwords"
    first, again = parse_mail(raw, None, ()).incoming, parse_mail(raw, None, ()).incoming
    assert first.id == again.id != parse_mail(raw + b"!", None, ()).incoming.id


@pytest.mark.parametrize("line", [b"From: " + b'"' * 60_000, b"Content-Type: multipart/report; " + b"a=b; " * 10_000])
def test_a_mail_with_a_huge_header_is_skipped(line: bytes) -> None:
    with pytest.raises(UnreadableMail, match="characters"):
        parse_head(line + b" <ada@example.org>\n\n", "us@house.test", authenticated=False, server="")


def test_a_company_logo_is_not_an_attachment(tmp_path: Path) -> None:
    made = EmailMessage()
    made["From"], made["Message-ID"] = "ada@example.org", "<1@x>"
    made.set_content("words")
    made.add_alternative('<p>words</p><img src="cid:logo">', subtype="html")
    page = made.get_payload()[1]  # type: ignore[index]
    assert isinstance(page, EmailMessage)
    page.add_related(b"\x89PNG", maintype="image", subtype="png", cid="<logo>")
    made.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="a.png")
    seen = parse_mail(made.as_bytes(), tmp_path, ()).incoming
    assert seen.text == "words" and len(seen.images) == 1 and not seen.files


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_skipped(raw: bytes) -> None:
    try:
        why, seen = parse_head(HEAD + raw, "us@house.test", authenticated=False, server="")
        assert bool(why) is (seen is None)
        parse_mail(HEAD + raw, None, ())
    except UnreadableMail:
        pass


RESULTS = "Authentication-Results"


@pytest.mark.parametrize(
    ("headers", "server", "yes"),
    [
        ([(RESULTS, "mx.a; dmarc=pass (p=NONE) header.from=example.org")], "mx.a", True),
        ([(RESULTS, "mx.a 1; dkim=pass header.i=@example.org; spf=fail smtp.mailfrom=x.example")], "mx.a", True),
        ([(RESULTS, "mx.a; dkim=pass header.d=org")], "mx.a", False),
        ([(RESULTS, "mx.a; dkim=pass header.d=ample.org")], "mx.a", False),
        ([(RESULTS, "mx.a; dkim=pass header.d=mail.example.org")], "mx.a", False),
        ([(RESULTS, "mx.a; dkim=pass header.d=example.org; dmarc=fail header.from=example.org")], "mx.a", False),
        ([(RESULTS, "mx.a; spf=softfail smtp.mailfrom=example.org")], "mx.a", False),
        ([(RESULTS, "mx.a; auth=pass smtp.auth=ada@example.org")], "mx.a", True),
        ([(RESULTS, "mx.a; auth=pass smtp.auth=eve@example.org")], "mx.a", False),
        ([(RESULTS, 'mx.a; dmarc=fail (dmarc=pass header.from=example.org) header.from="example.org"')], "mx.a", False),
        ([(RESULTS, "mx.a; none")], "mx.a", False),
        ([(RESULTS, "")], "mx.a", False),
        ([], "mx.a", False),
        # of two, the receiving server's counts; the other may be forged
        ([(RESULTS, "mx.a; dmarc=fail header.from=example.org"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "mx.a", False),
        ([(RESULTS, "x.b; none"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "mx.a", True),
        # without a configured name: a server that received the mail, and the topmost header
        ([("Received", "from x (y) by mx.a (z) with SMTP"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "", True),
        ([("Received", "from x by mx.a"), (RESULTS, "evil.b; dmarc=pass header.from=example.org")], "", False),
        ([(RESULTS, "mx.a; dmarc=pass header.from=example.org"), ("Received", "from x by mx.a")], "", True),
        ([(RESULTS, "mx.a; dmarc=pass header.from=example.org"), ("Received", "by mx.b"), ("Received", "by mx.a")], "", False),
        ([("Received", "from x by mx.a"), (RESULTS, "mx.a; none"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "", False),
    ],
)  # fmt: skip
def test_authentication_results_are_matched_to_the_sender(
    headers: list[tuple[str, str]], server: str, yes: bool
) -> None:
    assert is_authenticated(headers, "ada@example.org", server) is yes
    assert not is_authenticated(headers, "ada@elsewhere.example", server)
