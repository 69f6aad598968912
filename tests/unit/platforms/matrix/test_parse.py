"""Matrix formatting, parsing and state files without a homeserver."""

import json
import stat
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.kernel.outbox import Button
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.matrix import parse, payloads
from alipes.platforms.matrix.login import MatrixLogin, MatrixState, SyncState
from alipes.platforms.matrix.parse import ParseOptions, RelatedEvents, RoomEvent, RoomInfo
from alipes.platforms.matrix.payloads import LONGEST, MAX_JSON_BYTES, format_markdown, has_markup
from alipes.platforms.matrix.receive import SyncPosition

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
    KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=4) | st.sampled_from(["m.text", "m.replace", "m.thread"])
)


class Balanced(HTMLParser):
    """Every opened tag is closed, in order."""

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
    seen = {"id": "!room", "me": US, "names": ("Alipes", "alipes"), "who": "Ada", "group": True}
    return RoomInfo(**seen | more)


def said(text, sender=ADA, id="$1", **content):
    return RoomEvent(id, sender, "m.room.message", {"msgtype": "m.text", "body": text, **content})


# Formatting


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
def test_markdown_becomes_html_and_plain_text(markdown, shown):
    (piece,) = format_markdown(markdown)
    assert piece.text == shown
    words = piece.plain.replace(" (https://x.org/?a=1&b=2)", "")
    assert "".join(read(shown).split()) == "".join(words.split())


@given(st.text(alphabet="ab *_`~[]()<>&#-\n>|1.", max_size=200))
def test_any_text_gives_balanced_html_with_the_same_words(text):
    for piece in format_markdown(text):
        words = "".join(read(piece.text).split())
        assert words == "".join(piece.plain.split()) or "http" in piece.plain


def test_long_texts_are_split_into_small_events():
    for text in ("word " * 2000, "ж" * 9000, '"\\' * 9000, "**b** `<&>` " * 1200):
        parts = format_markdown(text)
        assert len(parts) > 1
        for part in parts:
            assert len(part.plain) <= LONGEST and len(json.dumps((part.plain, part.text))) <= MAX_JSON_BYTES
            event = payloads.edit_content("$" + "x" * 43, part)
            assert len(json.dumps(event)) * 4 / 3 < 60_000


def test_html_is_added_only_if_it_says_more():
    assert not has_markup("a<br>b &lt;") and has_markup("<em>a</em>")
    assert "formatted_body" not in payloads.text_content(MessagePart(text="a<br>b", plain="a\nb"))
    seen = payloads.text_content(MessagePart(text="<em>a</em>", plain="a"))
    assert seen["formatted_body"] == "<em>a</em>" and seen["format"] == "org.matrix.custom.html"


def test_a_button_is_a_short_reaction():
    buttons = (Button("Yes", "a"), Button("x" * 1000, "b"), Button("", "c"))
    assert payloads.button_labels(buttons) == {"Yes": "a", "x" * 60: "b", "c": "c"}


def test_the_same_part_has_the_same_transaction_id():
    assert payloads.transaction_id("a#0") == payloads.transaction_id("a#0") != payloads.transaction_id("a#1")
    assert payloads.transaction_id("ü/?#").isalnum()


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
def test_a_typed_room_is_resolved(typed, meant):
    found = payloads.split_server(Address("matrix", typed[0], thread=typed[1]))
    assert (found.chat, found.thread) == meant


# Parsing


@given(JSON | st.fixed_dictionaries({"event_id": st.text(), "sender": st.text(), "type": st.text(), "content": JSON}))
def test_any_event_can_be_parsed(source):
    found = parse.parse_event(source)
    assert found is None or (found.id and found.sender)


@given(CONTENT, st.sampled_from(["m.room.message", "m.sticker", "m.reaction"]), CONTENT)
def test_any_content_can_be_parsed(content, kind, other):
    event, about = RoomEvent("$1", ADA, kind, content), RoomEvent("$2", US, "m.room.message", other)
    if parse.is_from_person(event):
        for around in (RelatedEvents(), RelatedEvents(about, about, about)):
            made = parse.parse_message(event, place(), ParseOptions(), around)
            assert isinstance(made.text, str) and isinstance(made.quoted, str)
    parse.parse_reaction(event, about, place(), ParseOptions())
    assert event.file is None or isinstance(event.file, str)


def test_a_leading_mention_of_us_is_removed():
    for text in ("@alipes:x.org: go", "Alipes, go", "alipes go", "@alipes: go", "@Alipes go"):
        made = parse.parse_message(said(text), place(), ParseOptions(), RelatedEvents())
        assert made.text == "go" and made.addressed, text
    made = parse.parse_message(said("alipesque"), place(), ParseOptions(), RelatedEvents())
    assert made.text == "alipesque" and not made.addressed


def test_the_quote_of_an_old_client_is_recognised():
    answer = {"m.relates_to": {"m.in_reply_to": {"event_id": "$gone"}}}
    event = said(f"> <{US}> I said\n> this\n\nwhy?", **answer)
    made = parse.parse_message(event, place(), ParseOptions(), RelatedEvents())
    assert made.text == "why?" and made.quoted == f"<{US}> I said\nthis"


def test_an_edit_stays_in_the_original_thread():
    thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}
    original = said("befor", **thread)
    new = {"m.new_content": {"msgtype": "m.text", "body": "before"}}
    event = said("* before", id="$2", **{"m.relates_to": {"rel_type": "m.replace", "event_id": "$1"}}, **new)
    made = parse.parse_message(event, place(), ParseOptions(), RelatedEvents(original=original))
    assert (made.text, made.edits, made.message) == ("before", "$1", "$1")
    assert made.address == Address("matrix", "!room", "group", "$root")


def test_only_our_own_questions_have_buttons():
    press = {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$q", "key": "Yes"}}
    event = RoomEvent("$2", ADA, "m.reaction", press)
    buttons = {payloads.BUTTONS: {"Yes": "ask:1:once"}}
    asked = parse.parse_reaction(event, said("Approve?", US, **buttons), place(), ParseOptions())
    assert asked is not None and asked.pressed == "ask:1:once"
    assert parse.parse_reaction(event, said("Approve?", ADA, **buttons), place(), ParseOptions()) is None


# State files


def test_the_sync_position_moves_only_past_finished_batches():
    moved = []
    progress = SyncPosition("s0", moved.append)
    first, second = progress.begin("s1"), progress.begin("s2")
    first.add()
    first.done()
    second.done()
    assert not moved and progress.since == "s0"
    first.done()
    assert moved == ["s2"]


def test_state_files_are_private_and_damaged_ones_are_reset(tmp_path):
    kept = MatrixState(tmp_path / "matrix")
    assert kept.login.read() == MatrixLogin() and kept.sync_state(US) == SyncState(US)
    kept.login.write(MatrixLogin(US, "D", "secret", made=True))
    kept.sync.write(SyncState(US, "s1", ({"a": 1},)))
    assert kept.login.read().token == "secret" and kept.sync_state(US).since == "s1"
    assert kept.sync_state(ADA) == SyncState(ADA)
    for path in (tmp_path / "matrix").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.write_bytes(b"{half")
    assert kept.login.read() == MatrixLogin() and kept.sync_state(US) == SyncState(US)


def test_images_in_markdown_become_text_that_clients_do_not_load():
    [part] = format_markdown("![x](https://spy.example/p.png) **b**")
    assert "<img" not in part.text and "src=" not in part.text
