"""The view of a long conversation for the model: valid, stable, shorter, with what matters in it."""

from hypothesis import given
from hypothesis import strategies as st

from alipes.agent.compaction import compaction, summary
from alipes.agent.compaction.compaction import TRIMMED_CHARS, ContextBudget, visible_messages
from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult, assistant, count_chars, user
from alipes.kernel.turns import CompactionState
from tests.world.window_model import find_invalid


def step(n, result="r" * 3000):
    calls = (ToolCall(f"c{n}", "look", {"at": n}),)
    return assistant(Text(f"step {n}"), *calls), Message("tool", (ToolResult(f"c{n}", result),))


def conversation(steps=10, result="r" * 3000):
    middle = (message for n in range(steps) for message in step(n, result))
    return (user("write a book"), *middle, assistant(Text("done")), user("and now?"))


ROOM = ContextBudget(window=4000, ratio=0.25)

PIECES = st.lists(
    st.one_of(
        st.builds(lambda n: ("user", n), st.integers(0, 4000)),
        st.builds(lambda n: ("say", n), st.integers(1, 4000)),
        st.builds(lambda n: ("act", n), st.integers(0, 30_000)),
    ),
    min_size=1,
    max_size=25,
)


def built(pieces):
    messages = [user("the first request")]
    for number, (kind, size) in enumerate(pieces):
        if kind == "user":
            messages.append(user("u" * size))
        elif kind == "say":
            messages.append(assistant(Text("a" * size)))
        else:
            messages += step(number, "r" * size)
    return tuple(messages)


@given(PIECES, st.integers(200, 20_000), st.integers(0, 4000))
def test_whatever_was_said_is_described_in_a_form_that_every_provider_takes(pieces, window, fixed):
    messages, room = built(pieces), ContextBudget(window, 0.25, fixed)
    trim = compaction.trim_results(messages, CompactionState(), room)
    full = compaction.apply_summary(messages, trim, room, "in short")
    for digest in (trim, full):
        shown = visible_messages(messages, digest)
        assert find_invalid(shown) == "" and shown[0].role == "user"
        assert shown[-1].role == messages[-1].role
        assert count_chars(shown) <= count_chars(messages) + len("in short") + 200
    assert shown[0] == messages[0]


@given(PIECES, st.integers(1000, 20_000))
def test_the_request_prefix_is_stable_while_more_is_said(pieces, window):
    """So a provider finds in its cache what it was sent before."""
    messages, room = built(pieces), ContextBudget(window, 0.25)
    digest = compaction.apply_summary(
        messages, compaction.trim_results(messages, CompactionState(), room), room, "in short"
    )
    more = (*messages, assistant(Text("more")), user("and more"))
    assert visible_messages(more, digest)[: len(visible_messages(messages, digest))] == visible_messages(
        messages, digest
    )


def test_nothing_is_changed_where_nothing_was_made():
    messages = conversation()
    assert visible_messages(messages, CompactionState()) is messages


def test_old_results_are_cut_and_the_recent_ones_are_not():
    messages = conversation()
    digest = compaction.trim_results(messages, CompactionState(), ROOM)
    shown = visible_messages(messages, digest)
    assert len(shown) == len(messages)
    results = [part.text for message in shown for part in message.parts if isinstance(part, ToolResult)]
    assert all(len(text) < TRIMMED_CHARS + 100 for text in results[:8]) and "left out" in results[0]
    assert results[-1] == "r" * 3000
    assert ROOM.tokens(messages, digest) < ROOM.tokens(messages, CompactionState())


def test_a_single_result_that_fills_the_window_is_cut_where_it_is():
    messages = (user("read it"), *step(1, "x" * 1_200_000))
    digest = compaction.trim_results(messages, CompactionState(), ROOM)
    assert ROOM.tokens(messages, digest) < ROOM.limit
    assert visible_messages(messages, digest)[-1].parts[0].text.startswith("xxx")


def test_a_person_who_pastes_a_book_is_still_heard():
    messages = (user("b" * 900_000),)
    digest = compaction.trim_results(messages, CompactionState(), ROOM)
    assert ROOM.tokens(messages, digest) < ROOM.limit


def test_the_first_and_the_latest_request_stay_word_for_word_around_a_summary():
    messages = (*conversation(8)[:-1], user("now chapter two"), *step(20), *step(21), *step(22), *step(23))
    digest = CompactionState(covered=len(messages) - 2, text="in short")
    shown = visible_messages(messages, digest)
    assert [message.text for message in shown[:3]] == ["write a book", "in short", "now chapter two"]
    assert shown[1].role == "notice" and shown[3:] == messages[-2:]


def test_a_request_that_is_kept_anyway_is_not_repeated():
    messages = conversation(8)
    shown = visible_messages(messages, CompactionState(covered=len(messages) - 2, text="in short"))
    assert [message.text for message in shown] == ["write a book", "in short", "done", "and now?"]


def test_images_of_long_ago_are_not_sent_again():
    image = Image("image/png", b"x")
    look = Message("tool", (ToolResult("c", "seen", images=(image,)),))
    messages = (user("look", image), assistant(ToolCall("c", "see", {})), look, assistant(Text("a cat")))
    assert visible_messages(messages, CompactionState(trimmed_until=4))[2].parts[0].images == ()
    assert visible_messages(messages, CompactionState(covered=3, text="s"))[0] == user("look")


def test_the_tail_begins_with_no_result_and_holds_the_last_step_however_long():
    messages = (user("go"), *step(1), *step(2, "x" * 500_000))
    assert compaction.tail_start(messages, ROOM) == 3
    assert compaction.tail_start((user("x" * 500_000),), ROOM) == 0


def test_what_is_given_to_sum_up_fits_the_model_that_sums_up():
    messages = conversation(60)
    asked = summary.request(messages, CompactionState(covered=1, text="so far"), 20_000, "names")
    assert len(asked.text) < 21_500
    assert asked.text.startswith("The memory so far") and "keep especially: names" in asked.text


def test_without_a_model_the_requests_and_the_files_are_reported():
    write = ToolCall("w", "write_file", {"path": "book.md"})
    messages = (user("write"), assistant(write), Message("tool", (ToolResult("w", "ok"),)), user("again"))
    text = summary.extract(messages, CompactionState(covered=1, text="before that"), ("todo: end it",), 2_000)
    for words in ("- write", "- again", "book.md", "before that", "todo: end it", "could not be summarised"):
        assert words in text


def test_room_is_left_for_the_answer():
    assert ContextBudget(10_000, 0.25, fill_ratio=0.8).limit == 8_000
    assert ContextBudget(10_000, 0.25, fill_ratio=0.8, answer_tokens=4_000).limit == 6_000
    assert ContextBudget(10_000, 0.25, fill_ratio=0.8, answer_tokens=50_000).limit == 5_000


def test_sizes_are_the_providers_own_scaled_by_what_was_added():
    messages = conversation(2)
    ratio = compaction.tokens_per_char(5_000, count_chars(messages) + 400)
    room = ContextBudget(100_000, ratio, fixed_chars=400)
    assert room.tokens(messages, CompactionState()) == 5_000
    twice = room.tokens((*messages, user("x" * (count_chars(messages) + 400))), CompactionState())
    assert twice == 10_000
    assert compaction.tokens_per_char(0, 100) == 0.0
