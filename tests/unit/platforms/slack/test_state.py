"""State files of Slack: the read position and the journal of sends."""

from alipes.platforms.slack.receive import MAX_CHANNELS, OVERLAP, SlackReadPosition, to_micros, to_timestamp
from alipes.platforms.slack.send import MAX_CONFIRMED, MAX_JOURNAL_BYTES, SendJournal
from alipes.platforms.state_files import MAX_DELIVERED

SECOND = 1_000_000


def test_timestamps_convert_to_microseconds():
    assert to_micros("1731686400.000123") == 1731686400 * SECOND + 123
    assert to_micros("1731686400") == 1731686400 * SECOND and to_micros("5.1") == 5_100_000
    assert to_timestamp(to_micros("1731686400.000123")) == "1731686400.000123"


async def test_the_position_stays_before_unfinished_messages(tmp_path):
    seen = SlackReadPosition(tmp_path / "seen.json")
    assert seen.position == 0
    for each in (10, 20, 30):
        seen.start(each)
    seen.finish(20)
    seen.finish(30)
    assert seen.position == 9
    seen.finish(10)
    assert seen.position == 30
    first, second = seen.hold(), seen.hold()
    seen.finish(seen.start(90))
    seen.finish(first)
    assert seen.position == 30
    seen.finish(second)
    assert seen.position == 90


async def test_reading_starts_a_little_early_but_never_before_the_first_start(tmp_path):
    path = tmp_path / "folder" / "seen.json"
    seen = SlackReadPosition(path)
    began = seen.since()
    assert began > to_micros("1700000000")
    seen.finish(seen.start(began + SECOND))
    assert seen.since() == began
    seen.finish(seen.start(began + 100 * SECOND))
    assert seen.since() == began + int((100 - OVERLAP) * SECOND)
    seen.visit("C1", "")
    seen.visit("C1/5.0", "ours")
    assert seen.first_name("client", "C1:5.0") == "C1:5.0"
    seen.flush()
    again = SlackReadPosition(path)
    assert (again.position, again.since()) == (seen.position, seen.since())
    assert again.places == {"C1": "", "C1/5.0": "ours"}
    assert again.first_name("client", "C1:6.0") == "C1:5.0" and again.first_name("", "C1:6.0") == "C1:6.0"
    again.forget("C1")
    assert again.places == {}
    path.write_text("half a fi")
    assert SlackReadPosition(path).position == 0


async def test_old_channels_and_ids_are_forgotten(tmp_path):
    seen = SlackReadPosition(tmp_path / "seen.json")
    for number in range(MAX_CHANNELS + 5):
        seen.visit(str(number))
    assert len(seen.places) == MAX_CHANNELS and "4" not in seen.places
    seen.mark_delivered("a")
    assert seen.was_delivered("a") and not seen.was_delivered("b")
    for number in range(MAX_DELIVERED):
        seen.mark_delivered(str(number))
    assert not seen.was_delivered("a")


def test_a_send_is_recorded_until_it_is_closed(tmp_path):
    path = tmp_path / "folder" / "begun.jsonl"
    begun = SendJournal(path)
    assert begun.begin("a") is None and begun.begin("b") is None and begun.begin("") is None
    begun.note("b", "F1")
    begun.done("a")
    begun.done("never begun")
    again = SendJournal(path)
    assert again.begin("a") is None
    entry = again.begin("b")
    assert entry is not None and entry.note == "F1" and entry.at > 0
    with open(path, "ab") as file:
        file.write(b'{"id": "c", "at')  # cut off by a crash of the machine
    assert SendJournal(path).begin("b") is not None and SendJournal(path).begin("c") is None


def test_a_confirmed_send_is_looked_for_only_after_a_kill(tmp_path):
    path = tmp_path / "begun.jsonl"
    begun = SendJournal(path)
    begun.begin("a")
    begun.confirm("a")
    assert SendJournal(path).begin("a") is not None, "killed before anybody kept that it was sent"
    assert begun.begin("a") is None, "here it is sent again on purpose"
    begun.confirm("a")
    for number in range(MAX_CONFIRMED):
        begun.begin(str(number))
        begun.confirm(str(number))
    again = SendJournal(path)
    assert again.begin("a") is None and again.begin("0") is not None


def test_the_journal_is_rewritten_when_it_grows(tmp_path):
    begun = SendJournal(tmp_path / "begun.jsonl")
    begun.begin("stays")
    for number in range(2500):
        begun.begin(f"outbound:{number}")
        begun.done(f"outbound:{number}")
    assert (tmp_path / "begun.jsonl").stat().st_size <= MAX_JOURNAL_BYTES + 100
    assert SendJournal(tmp_path / "begun.jsonl").begin("stays") is not None
