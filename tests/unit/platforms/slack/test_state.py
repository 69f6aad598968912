"""What the Slack platform keeps on disk: how far it listened, and which sends have no end yet."""

from alipes.platforms.slack.receive import HANDED, OVERLAP, PLACES, Seen, moment, stamp
from alipes.platforms.slack.send import LARGEST, RECENT, Begun

SECOND = 1_000_000


def test_slack_names_messages_by_moments():
    assert moment("1731686400.000123") == 1731686400 * SECOND + 123
    assert moment("1731686400") == 1731686400 * SECOND and moment("5.1") == 5_100_000
    assert stamp(moment("1731686400.000123")) == "1731686400.000123"


async def test_the_mark_stays_before_whatever_is_not_done(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    assert seen.mark == 0
    for each in (10, 20, 30):
        seen.begin(each)
    seen.done(20)
    seen.done(30)
    assert seen.mark == 9
    seen.done(10)
    assert seen.mark == 30
    first, second = seen.hold(), seen.hold()
    seen.done(seen.begin(90))
    seen.done(first)
    assert seen.mark == 30
    seen.done(second)
    assert seen.mark == 90


async def test_reading_begins_a_little_early_but_never_before_we_were_there(tmp_path):
    path = tmp_path / "folder" / "seen.json"
    seen = Seen(path)
    began = seen.since()
    assert began > moment("1700000000")
    seen.done(seen.begin(began + SECOND))
    assert seen.since() == began
    seen.done(seen.begin(began + 100 * SECOND))
    assert seen.since() == began + int((100 - OVERLAP) * SECOND)
    seen.visit("C1", "")
    seen.visit("C1/5.0", "ours")
    assert seen.said_as("client", "C1:5.0") == "C1:5.0"
    seen.flush()
    again = Seen(path)
    assert (again.mark, again.since()) == (seen.mark, seen.since())
    assert again.places == {"C1": "", "C1/5.0": "ours"}
    assert again.said_as("client", "C1:6.0") == "C1:5.0" and again.said_as("", "C1:6.0") == "C1:6.0"
    again.forget("C1")
    assert again.places == {}
    path.write_text("half a fi")
    assert Seen(path).mark == 0


async def test_old_places_and_names_are_forgotten(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    for number in range(PLACES + 5):
        seen.visit(str(number))
    assert len(seen.places) == PLACES and "4" not in seen.places
    seen.hand("a")
    assert seen.handed("a") and not seen.handed("b")
    for number in range(HANDED):
        seen.hand(str(number))
    assert not seen.handed("a")


def test_a_send_is_known_until_its_end_is(tmp_path):
    path = tmp_path / "folder" / "begun.jsonl"
    begun = Begun(path)
    assert begun.begin("a") is None and begun.begin("b") is None and begun.begin("") is None
    begun.note("b", "F1")
    begun.done("a")
    begun.done("never begun")
    again = Begun(path)
    assert again.begin("a") is None
    entry = again.begin("b")
    assert entry is not None and entry.note == "F1" and entry.at > 0
    with open(path, "ab") as file:
        file.write(b'{"id": "c", "at')  # the machine died while this was written
    assert Begun(path).begin("b") is not None and Begun(path).begin("c") is None


def test_what_is_there_is_looked_for_by_who_comes_after_a_kill_and_not_by_us(tmp_path):
    path = tmp_path / "begun.jsonl"
    begun = Begun(path)
    begun.begin("a")
    begun.there("a")
    assert Begun(path).begin("a") is not None, "killed before anybody kept that it was sent"
    assert begun.begin("a") is None, "here it is sent again on purpose"
    begun.there("a")
    for number in range(RECENT):
        begun.begin(str(number))
        begun.there(str(number))
    again = Begun(path)
    assert again.begin("a") is None and again.begin("0") is not None


def test_the_file_does_not_grow_for_ever(tmp_path):
    begun = Begun(tmp_path / "begun.jsonl")
    begun.begin("stays")
    for number in range(2500):
        begun.begin(f"outbound:{number}")
        begun.done(f"outbound:{number}")
    assert (tmp_path / "begun.jsonl").stat().st_size <= LARGEST + 100
    assert Begun(tmp_path / "begun.jsonl").begin("stays") is not None
