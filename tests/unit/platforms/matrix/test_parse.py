"""Matrix's words and ours, without a homeserver: markup out, events in, and how far we have listened."""

import json
import stat
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.kernel.outbox import Button
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.matrix import parse, payloads
from alipes.platforms.matrix.cursor import Heard, Kept, Login, Progress
from alipes.platforms.matrix.parse import Around, Place, Reader, Said
from alipes.platforms.matrix.payloads import LONGEST, ROOM, marked, pieces

US, ADA = "@alipes:x.org", "@ada:x.org"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["body", "msgtype", "m.relates_to", "m.new_content", "m.mentions", "formatted_body", "rel_type", "event_id",
     "m.in_reply_to", "url", "file", "filename", "geo_uri", "user_ids", payloads.BUTTONS, "key"]
)  # fmt: skip
CONTENT = st.dictionaries(
    KEYS,
    JSON | st.dictionaries(KEYS, JSON, max_size=4) | st.sampled_from(["m.text", "m.replace", "m.thread"]),
)


class Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        if tag == "br":
            self.text += "\n"
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(text):
    reader = Balanced()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader.text


def place(**more):
    told = {"id": "!room", "me": US, "names": ("Alipes", "alipes"), "who": "Ada", "group": True}
    return Place(**told | more)


def said(text, sender=ADA, id="$1", **content):
    return Said(id, sender, "m.room.message", {"msgtype": "m.text", "body": text, **content})


# Out.


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("plain & simple", "plain &amp; simple"),
        ("**b** _i_ ~~s~~ `c`", "<strong>b</strong> <em>i</em> <del>s</del> <code>c</code>"),
        ("a\n\nb", "a<br><br>b"),
        ("[x](https://x.org/?a=1&b=2)", '<a href="https://x.org/?a=1&amp;b=2">x</a>'),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("> q\n\nafter", "<blockquote>q</blockquote>after"),
        ("before\n\n```py\na < b\n```", 'before<pre><code class="language-py">a &lt; b\n</code></pre>'),
        ("- one\n  - two", "• one<br>\u00a0\u00a0• two"),
        ("<b>no</b>", "&lt;b&gt;no&lt;/b&gt;"),
    ],
)
def test_markdown_is_shown_as_html_and_said_plainly(markdown, shown):
    (piece,) = pieces(markdown)
    assert piece.text == shown
    words = piece.plain.replace(" (https://x.org/?a=1&b=2)", "")
    assert "".join(read(shown).split()) == "".join(words.split())


@given(st.text(alphabet="ab *_`~[]()<>&#-\n>|1.", max_size=200))
def test_whatever_is_written_the_html_is_whole_and_says_the_same(text):
    for piece in pieces(text):
        words = "".join(read(piece.text).split())
        assert words == "".join(piece.plain.split()) or "http" in piece.plain


def test_long_texts_are_cut_so_that_each_event_is_small_enough():
    for text in ("word " * 2000, "ж" * 9000, '"\\' * 9000, "**b** `<&>` " * 1200):
        parts = pieces(text)
        assert len(parts) > 1
        for part in parts:
            assert len(part.plain) <= LONGEST and len(json.dumps((part.plain, part.text))) <= ROOM
            event = payloads.changed("$" + "x" * 43, part)
            assert len(json.dumps(event)) * 4 / 3 < 60_000


def test_html_goes_along_only_where_it_says_more():
    assert not marked("a<br>b &lt;") and marked("<em>a</em>")
    assert "formatted_body" not in payloads.words(Piece(text="a<br>b", plain="a\nb"))
    told = payloads.words(Piece(text="<em>a</em>", plain="a"))
    assert told["formatted_body"] == "<em>a</em>" and told["format"] == "org.matrix.custom.html"


def test_a_button_is_a_reaction_that_fits_under_a_message():
    buttons = (Button("Yes", "a"), Button("x" * 1000, "b"), Button("", "c"))
    assert payloads.labelled(buttons) == {"Yes": "a", "x" * 60: "b", "c": "c"}


def test_the_same_piece_has_the_same_transaction_and_others_have_others():
    assert payloads.transaction("a#0") == payloads.transaction("a#0") != payloads.transaction("a#1")
    assert payloads.transaction("ü/?#").isalnum()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("!a", ""), ("!a", "")),
        (("!a", "$t"), ("!a", "$t")),
        (("!a", "x.org"), ("!a:x.org", "")),
        (("!a", "x.org:8448"), ("!a:x.org:8448", "")),
        (("!a", "x.org:$t"), ("!a:x.org", "$t")),
        (("@ada", "x.org"), ("@ada:x.org", "")),
    ],
)
def test_a_room_that_somebody_typed_is_the_room_they_meant(typed, meant):
    found = payloads.place(Address("matrix", typed[0], thread=typed[1]))
    assert (found.chat, found.thread) == meant


# In.


@given(
    JSON
    | st.fixed_dictionaries({"event_id": st.text(), "sender": st.text(), "type": st.text(), "content": JSON})
)
def test_no_event_is_too_strange_to_be_looked_at(source):
    found = parse.said(source)
    assert found is None or (found.id and found.sender)


@given(CONTENT, st.sampled_from(["m.room.message", "m.sticker", "m.reaction"]), CONTENT)
def test_no_content_is_too_strange_to_be_read(content, kind, other):
    event, about = Said("$1", ADA, kind, content), Said("$2", US, "m.room.message", other)
    if parse.spoken(event):
        for around in (Around(), Around(about, about, about)):
            made = parse.arrival(event, place(), Reader(), around)
            assert isinstance(made.text, str) and isinstance(made.quoted, str)
    parse.pressed(event, about, place(), Reader())
    assert event.file is None or isinstance(event.file, str)


def test_our_name_is_left_out_where_it_only_calls_us():
    for text in ("@alipes:x.org: go", "Alipes, go", "alipes go", "@alipes: go", "@Alipes go"):
        made = parse.arrival(said(text), place(), Reader(), Around())
        assert made.text == "go" and made.addressed, text
    made = parse.arrival(said("alipesque"), place(), Reader(), Around())
    assert made.text == "alipesque" and not made.addressed


def test_what_an_old_client_quotes_is_told_as_quoted():
    answer = {"m.relates_to": {"m.in_reply_to": {"event_id": "$gone"}}}
    event = said(f"> <{US}> I said\n> this\n\nwhy?", **answer)
    made = parse.arrival(event, place(), Reader(), Around())
    assert made.text == "why?" and made.quoted == f"<{US}> I said\nthis"


def test_a_change_stays_where_the_message_was_said():
    thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}
    original = said("befor", **thread)
    new = {"m.new_content": {"msgtype": "m.text", "body": "before"}}
    event = said("* before", id="$2", **{"m.relates_to": {"rel_type": "m.replace", "event_id": "$1"}}, **new)
    made = parse.arrival(event, place(), Reader(), Around(original=original))
    assert (made.text, made.edits, made.message) == ("before", "$1", "$1")
    assert made.address == Address("matrix", "!room", "group", "$root")


def test_only_our_own_questions_have_buttons():
    press = {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$q", "key": "Yes"}}
    event = Said("$2", ADA, "m.reaction", press)
    buttons = {payloads.BUTTONS: {"Yes": "ask:1:once"}}
    asked = parse.pressed(event, said("Shall I?", US, **buttons), place(), Reader())
    assert asked is not None and asked.pressed == "ask:1:once"
    assert parse.pressed(event, said("Shall I?", ADA, **buttons), place(), Reader()) is None


# Kept.


def test_how_far_we_have_listened_moves_only_behind_what_is_done():
    moved = []
    progress = Progress("s0", moved.append)
    first, second = progress.begin("s1"), progress.begin("s2")
    first.add()
    first.done()
    second.done()
    assert not moved and progress.since == "s0"
    first.done()
    assert moved == ["s2"]


def test_what_is_kept_is_private_and_what_is_broken_is_begun_anew(tmp_path):
    kept = Kept(tmp_path / "matrix")
    assert kept.login() == Login() and kept.heard(US) == Heard(US)
    kept.log_in(Login(US, "D", "secret", made=True))
    kept.hear(Heard(US, "s1", ({"a": 1},)))
    assert kept.login().token == "secret" and kept.heard(US).since == "s1"
    assert kept.heard(ADA) == Heard(ADA)
    for path in (tmp_path / "matrix").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.write_bytes(b"{half")
    assert kept.login() == Login() and kept.heard(US) == Heard(US)
