"""What is read out of a mail: a person's own words, HTML as text, odd charsets, and who vouches for whom."""

from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.platforms.email.parse import Unreadable, glance, opened, vouched
from alipes.platforms.email.reply_text import Words, from_html, trimmed

HEAD = b"From: Ada <Ada@Example.org>\nMessage-ID: <1@x>\nMIME-Version: 1.0\n"


@pytest.mark.parametrize(
    ("text", "own", "quoted"),
    [
        ("Hello.\n\nOn Mon, Jan 5, 2026 at 10:00 AM Ada\n<a@x> wrote:\n\n> hi\n> you\n", "Hello.", "hi\nyou"),
        ("Ja.\n\nAm 05.01.2026 um 10:00 schrieb Ada <a@x>:\n> hi", "Ja.", "hi"),
        ("Yes.\n-- \nAda\nwonders: https://a.example\n", "Yes.", ""),
        ("Yes.\r\n--\r\nAda", "Yes.", ""),
        ("Done\n\nSent from my iPhone\n\n> old", "Done", "old"),
        (
            "Look:\n\n-----Original Message-----\nFrom: Bob\nold",
            "Look:",
            "-----Original Message-----\nFrom: Bob\nold",
        ),
        (
            "Look\n\nFrom: Bob <b@x>\nSent: Monday\nTo: Ada\nold",
            "Look",
            "From: Bob <b@x>\nSent: Monday\nTo: Ada\nold",
        ),
        ("On Monday Bob wrote:\nold words, unmarked", "", "On Monday Bob wrote:\nold words, unmarked"),
        ("> only a quote", "", "only a quote"),
        ("a -- b\nFrom: me to you, a story\nOn time I wrote: nothing", None, ""),
        ("", "", ""),
    ],
)
def test_own_words_are_told_from_those_of_others(text: str, own: str | None, quoted: str) -> None:
    words = trimmed(text)
    assert (words.own, words.quoted, words.woven) == (text if own is None else own, quoted, "")


def test_answers_between_the_lines_stay_where_they_are() -> None:
    text = "On Monday alipes wrote:\n> A?\nyes\n> B?\nno\n-- \nAda"
    assert trimmed(text) == Words("yes\nno", "A?\nB?", "On Monday alipes wrote:\n> A?\nyes\n> B?\nno")


@given(st.text(max_size=400))
def test_any_text_can_be_trimmed(text: str) -> None:
    words = trimmed(text)
    assert len(words.own) <= len(text)


def test_html_is_read_as_a_person_sees_it() -> None:
    page = """<html><head><title>no</title><style>p{}</style></head><body><p>Hello <b>there</b>,</p>
      <div>see <a href="https://x.example/a">this</a> and <a href="https://y.example">https://y.example</a></div>
      <ul><li>one<li>two</ul><pre>a
  b</pre>5&nbsp;&lt; 6<br>end<script>alert(1)</script><img alt="a dot" src=x>
      <div class="gmail_quote">On Monday Bob wrote:<blockquote><p>old</p>text</blockquote></div></body></html>"""
    assert from_html(page).split("\n> On")[0] == (
        "Hello there,\nsee this (https://x.example/a) and https://y.example\n• one\n• two\na\n  b\n5\u00a0< 6\nenda dot"
    )
    words = trimmed(from_html(page))
    assert "old" in words.quoted and "Bob" not in words.own


@pytest.mark.parametrize(
    "begins", ["<!--", "<!", "<?", "</", "<a ", '<a b="', "<blockquote>", "<div>", "<", "<script>"]
)
def test_a_page_of_beginnings_is_read_in_time(begins: str) -> None:
    assert len(from_html(begins * (50_000 // len(begins)))) <= 50_000


@given(st.text(alphabet="<>/abdivpre=\"' &;!-\n", max_size=300))
def test_any_html_can_be_read(html: str) -> None:
    assert isinstance(from_html(html), str)


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
def test_a_charset_is_believed_only_as_far_as_it_is_true(
    kind: bytes, body: bytes, text: str, tmp_path: Path
) -> None:
    raw = HEAD + b"Content-Type: " + kind + b"\nContent-Transfer-Encoding: 8bit\n\n" + body
    assert opened(raw, tmp_path, ()).arrival.text.strip("\ufffd") == text.strip("\ufffd")


def test_subjects_and_names_are_decoded_and_a_command_may_be_either(tmp_path: Path) -> None:
    named = b"From: =?utf-8?q?J=C3=BCrgen?= <j@x.example>\nMessage-ID: <1@x>\nSubject: =?utf-8?q?gr=C3=BCn?=\n\nwords"
    told = opened(named, None, ())
    assert told.arrival.name == "Jürgen" and told.arrival.text == "Subject: grün\n\nwords"
    assert opened(HEAD + b"Subject: /status\n\n", None, ("status",)).arrival.text == "/status"
    many = HEAD + b"Subject: x\n\n/queue do this\nand that\n\nThanks,\nAda"
    assert opened(many, None, ("queue",)).arrival.text == "/queue do this\nand that"
    assert opened(HEAD + b"\n/etc/passwd is a file\n\nreally", None, ("queue",)).arrival.text.endswith(
        "really"
    )


def test_a_mail_without_an_id_has_its_own_and_the_same_again() -> None:
    raw = b"From: ada@example.org\nSubject: x\n\nwords"
    first, again = opened(raw, None, ()).arrival, opened(raw, None, ()).arrival
    assert first.id == again.id != opened(raw + b"!", None, ()).arrival.id


@pytest.mark.parametrize(
    "line", [b"From: " + b'"' * 60_000, b"Content-Type: multipart/report; " + b"a=b; " * 10_000]
)
def test_a_head_that_would_take_a_minute_to_read_is_left_out(line: bytes) -> None:
    with pytest.raises(Unreadable, match="letters"):
        glance(line + b" <ada@example.org>\n\n", "us@house.test", authenticated=False, server="")


def test_the_sign_of_a_company_is_no_picture_to_look_at(tmp_path: Path) -> None:
    made = EmailMessage()
    made["From"], made["Message-ID"] = "ada@example.org", "<1@x>"
    made.set_content("words")
    made.add_alternative('<p>words</p><img src="cid:logo">', subtype="html")
    page = made.get_payload()[1]  # type: ignore[index]
    assert isinstance(page, EmailMessage)
    page.add_related(b"\x89PNG", maintype="image", subtype="png", cid="<logo>")
    made.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="a.png")
    told = opened(made.as_bytes(), tmp_path, ()).arrival
    assert told.text == "words" and len(told.images) == 1 and not told.files


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_left_out(raw: bytes) -> None:
    try:
        why, told = glance(HEAD + raw, "us@house.test", authenticated=False, server="")
        assert bool(why) is (told is None)
        opened(HEAD + raw, None, ())
    except Unreadable:
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
        # of two, that of the receiving server counts; the other may be the sender's own invention
        ([(RESULTS, "mx.a; dmarc=fail header.from=example.org"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "mx.a", False),
        ([(RESULTS, "x.b; none"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "mx.a", True),
        # where its name is not known, it is a server that received the mail, and the topmost that tells
        ([("Received", "from x (y) by mx.a (z) with SMTP"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "", True),
        ([("Received", "from x by mx.a"), (RESULTS, "evil.b; dmarc=pass header.from=example.org")], "", False),
        ([(RESULTS, "mx.a; dmarc=pass header.from=example.org"), ("Received", "from x by mx.a")], "", True),
        ([(RESULTS, "mx.a; dmarc=pass header.from=example.org"), ("Received", "by mx.b"), ("Received", "by mx.a")], "", False),
        ([("Received", "from x by mx.a"), (RESULTS, "mx.a; none"), (RESULTS, "mx.a; dmarc=pass header.from=example.org")], "", False),
    ],
)  # fmt: skip
def test_who_vouches_for_whom(headers: list[tuple[str, str]], server: str, yes: bool) -> None:
    assert vouched(headers, "ada@example.org", server) is yes
    assert not vouched(headers, "ada@elsewhere.example", server)
